"""Copying predictions from MLX arrays on the device to numpy arrays."""

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxfp.core.errors import ArgumentTypeError
from mlxfp.core.trees import tree_map


def to_numpy(tree: Any) -> Any:
    """Copy every MLX array of a tree to a numpy array; bfloat16, which numpy does not have, becomes float32.

    It copies because `np.asarray` returns a view, and writing to it would change the MLX array. Raises `ArgumentTypeError` for leaves
    that are not MLX arrays.
    """
    return tree_map(_copy, tree)


def _copy(array: object) -> NDArray[Any]:
    if not isinstance(array, mx.array):
        raise ArgumentTypeError(f"Predictions must be MLX arrays, got {type(array).__name__}: {array!r:.80}. Return mx.array values.")
    return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)
