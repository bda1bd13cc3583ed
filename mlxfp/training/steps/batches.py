"""Functions of a batch: extract the arrays for compiled functions, and describe the batch in error messages."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np

from mlxfp.models.bounds import BoundError
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.trees import TreeDef, flatten, paths

_ARRAYS_ONLY = {mx.array}


def arrays_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a batch visible to a compiled function: MLX arrays, and dicts, lists and tuples containing only MLX arrays.

    Text and other values are omitted. Raises `ArgumentTypeError` for NumPy arrays and numbers at the top level of the batch.
    """
    if not isinstance(batch, Mapping):
        raise ArgumentTypeError(
            f"A batch is a dict of MLX arrays, got {type(batch).__name__}: {batch!r:.80}. Put collate into the pipeline."
        )
    for name, value in batch.items():
        if isinstance(value, np.ndarray | np.generic | int | float):
            raise ArgumentTypeError(
                f"The batch has {type(value).__name__} at {name!r}, but needs an MLX array. Convert the value with mx.array."
            )
    return {name: value for name, value in batch.items() if _holds_arrays(value)}


def flat_batch(batch: Mapping[str, Any]) -> tuple[TreeDef, list[mx.array]]:
    """Return `flatten(arrays_of(batch))`. For a dict with arrays as its only values, a shortcut is ten times as fast."""
    if type(batch) is dict and set(map(type, batch.values())) == _ARRAYS_ONLY:
        return _structure(tuple(batch)), list(batch.values())
    return flatten(arrays_of(batch))


def add_batch_note(error: Exception, function: str, batch: Mapping[str, Any], *, compiled: bool) -> None:
    """Add a note to an error of a user function, with name, dtype and shape of the arrays in the batch."""
    if isinstance(error, BoundError):
        return  # the message of `BoundError` already names the wrong ids
    seen = arrays_of(batch)
    structure, leaves = flatten(seen)
    given = ", ".join(f"{path} {kind(leaf)}" for path, leaf in zip(paths(structure), leaves, strict=True)) or "no arrays"
    rest = ", ".join(str(name) for name in batch if name not in seen)
    omitted = f"; without {rest}, because only MLX arrays are passed" if rest else ""
    action = f"tracing the {function} for compilation (arrays have no values yet)" if compiled else f"running the {function}"
    if compiled and isinstance(error, ValueError) and "[eval]" in str(error):
        error.add_note(
            "float(), .item() and NumPy need values. Write the function with arrays of mlx.core, or pass compile=False to train_step."
        )
    error.add_note(f"while {action} on a batch of {given}{omitted}")
    if isinstance(error, AttributeError) and "'tuple' object" in str(error):
        error.add_note("The functions of fp.losses return two arrays: the sum of losses and the weight. Return both, without mean().")
    if isinstance(error, KeyError) and error.args[:1] and error.args[0] in batch:
        error.add_note(f"The batch has the array {error.args[0]!r}. Perhaps arguments are swapped: the {function} takes (model, batch).")
    if isinstance(error, KeyError) and error.args == ("labels",) and "labels" not in batch:
        error.add_note(
            "The batch has no labels. Name the column of the labels with the argument label= of the collator, "
            'for example fp.collators.text(label="column").'
        )


def kind(array: mx.array) -> str:
    """Return the dtype and shape of an array as text."""
    return f"{str(array.dtype).removeprefix('mlx.core.')}{list(array.shape)}"


@lru_cache(maxsize=256)
def _structure(names: tuple[Any, ...]) -> TreeDef:
    return flatten(dict.fromkeys(names, 0))[0]


def _holds_arrays(value: object) -> bool:
    """Return True for an array, or for a tree with at least one array and only arrays as leaves."""
    return isinstance(value, mx.array) or (isinstance(value, dict | list | tuple) and _has_arrays_alone(value) and bool(flatten(value)[1]))


def _has_arrays_alone(value: object) -> bool:
    if isinstance(value, dict | list | tuple):
        return all(map(_has_arrays_alone, value.values() if isinstance(value, dict) else value))
    return isinstance(value, mx.array)
