"""Batches: what of them compiled functions see, and what to say when these fail."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from mlxfp.core.errors import ArgumentTypeError
from mlxfp.core.trees import flatten, paths


def arrays_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a batch that a compiled function sees: its MLX arrays, and dicts, lists and tuples of nothing else.

    Text and other carried values are left out. Raises `ArgumentTypeError` for numpy arrays and bare numbers, which were meant to be seen.

    >>> arrays_of({"x": mx.array(1), "pair": (mx.array(2), mx.array(3)), "name": ("Ada", None)})
    {'x': array(1, dtype=int32), 'pair': (array(2, dtype=int32), array(3, dtype=int32))}
    """
    if not isinstance(batch, Mapping):
        raise ArgumentTypeError(
            f"A batch is a dict of MLX arrays, got {type(batch).__name__}: {batch!r:.80}. Put collate into the pipeline."
        )
    for name, value in batch.items():
        if isinstance(value, np.ndarray | np.generic | int | float):
            raise ArgumentTypeError(f"The batch has {type(value).__name__} at {name!r}, where an MLX array belongs. Make it an mx.array.")
    return {name: value for name, value in batch.items() if _holds_arrays(value)}


@contextmanager
def with_batch_note(function: str, batch: Mapping[str, Any]) -> Iterator[None]:
    """Say in an error of a compiled function of the user what it was given: most are about a name or a shape.

    >>> try:
    ...     with with_batch_note("loss", {"x": mx.zeros((2, 3)), "name": ("Ada", "Bo")}):
    ...         raise KeyError("name")
    ... except KeyError as error:
    ...     "on a batch of x float32[2, 3]; the batch has name too" in error.__notes__[0]
    True
    """
    try:
        yield
    except Exception as error:
        seen = arrays_of(batch)
        structure, leaves = flatten(seen)
        given = ", ".join(f"{path} {kind(leaf)}" for path, leaf in zip(paths(structure), leaves, strict=True)) or "no arrays"
        rest = ", ".join(str(name) for name in batch if name not in seen)
        outside = f"; the batch has {rest} too, which are no MLX arrays and stay outside" if rest else ""
        error.add_note(
            f"while tracing the {function}, which is compiled, so that no array in it has a value yet, on a batch of {given}{outside}"
        )
        raise


def kind(array: mx.array) -> str:
    """Say what an array is: its dtype and shape.

    >>> kind(mx.zeros((2, 3)))
    'float32[2, 3]'
    """
    return f"{str(array.dtype).removeprefix('mlx.core.')}{list(array.shape)}"


def _holds_arrays(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(map(_holds_arrays, value.values()))
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_holds_arrays, value))  # all stops at the first text
    return isinstance(value, mx.array)
