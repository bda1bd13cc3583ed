"""Collators: pure functions from a sequence of examples to a dict of MLX arrays."""

from mlxfp.collators.texts import text

__all__ = ["text"]
