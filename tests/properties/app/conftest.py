"""These tests run models for a few steps, without compiling them."""

from tests.compiling import still_uncompiled, uncompiled

__all__ = ["still_uncompiled", "uncompiled"]
