"""For tests that train a few steps of many models: compiling each takes longer than all the rest. Tests of training compile theirs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import pytest

_SETTING = "MLX_DISABLE_COMPILE"  # of MLX, for the processes that tests start


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Let `mx.compile` return functions as they are, in this process and in those that it starts."""
    os.environ[_SETTING] = "1"
    mx.disable_compile()
    try:
        yield
    finally:
        os.environ.pop(_SETTING, None)
        mx.enable_compile()


@pytest.fixture(scope="package", autouse=True)
def uncompiled() -> Iterator[None]:
    """For the conftest.py of a folder of such tests."""
    with nothing_compiled():
        yield


@pytest.fixture(autouse=True)
def still_uncompiled() -> None:
    """For the same: a test, or a law on a page, may have let MLX compile again."""
    mx.disable_compile()
