"""What type checkers find in `mlxfp`; `make check` holds them to it. Nothing here runs."""

from collections.abc import Callable
from typing import Any, assert_type

import mlxfp
import mlxfp as fp
from mlxfp import *  # noqa: F403  # what a star import brings
from mlxfp import Dataset, losses
from mlxfp.core.chunks import Example
from mlxfp.core.datasets import Dataset as Home
from mlxfp.core.examples import Examples
from mlxfp.training.losses import mse

assert_type(fp.pipe(fp.from_examples([{"x": 1}]), fp.shuffle(seed=0), fp.batch(2)), Dataset[Examples])
assert_type(pipe(from_examples([{"x": 1}]), shuffle(seed=0)), Dataset[Example])  # noqa: F405  # by the star import
assert_type(fp.__version__, str)


def same(dataset: Home[Any], loss: Callable[..., Any]) -> None:
    """Take a value of a class that is public, and one of a family."""
    public: mlxfp.Dataset[Any] = dataset
    same(public, mse)
    same(public, losses.mse)
    same(public, fp.losses.mse)


def unknown() -> None:
    """Use names that are not there. If a checker accepts one, the unused ignore is reported."""
    fp.no_such_name  # type: ignore[attr-defined]  # noqa: B018  # the access is the test
    fp.import_module  # type: ignore[attr-defined]  # noqa: B018  # what __init__.py needs itself is not public
