"""Mixed precision: float32 parameters with a loss in lower precision. In float16 the loss is scaled to prevent underflow of gradients.

Source: Micikevicius et al., "Mixed Precision Training", 2018.
"""

import warnings
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, paths, tree_map

_FIRST, _LARGEST = 2.0**16, 2.0**24
_PATIENCE = 2000  # number of finite steps before the scale doubles, as in PyTorch's GradScaler


def cast_floating(tree: Any, dtype: mx.Dtype) -> Any:
    """Cast the floating-point arrays of a tree. Other leaves stay unchanged."""
    return tree_map(lambda leaf: leaf.astype(dtype) if is_floating(leaf) else leaf, tree)


def lower_inputs(model: nn.Module, dtype: mx.Dtype) -> None:
    """Make a module cast its floating-point inputs. This function modifies the module, so pass a private copy.

    Without the cast, a float32 image times a bfloat16 weight would be float32, and so would all later results. The batch itself keeps its
    dtype, because the loss reads its targets from the batch.
    """
    kind: Any = type(model)

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = cast_floating((args, kwargs), dtype)
        return kind.__call__(self, *args, **kwargs)

    model.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def check_masters(params: Any, dtype: mx.Dtype | None) -> None:
    """Check that trainable parameters are float32, because rounding loses small updates in lower precision.

    If parameters have lower precision and `dtype` is set, raise `ArgumentError`. If `dtype` is None, only warn: users may train adapters of
    a small model in lower precision on purpose, with a large learning rate.
    """
    structure, leaves = flatten(params)
    low = [f"{name} {leaf.dtype}" for name, leaf in zip(paths(structure), leaves, strict=True) if leaf.dtype in (mx.bfloat16, mx.float16)]
    if low and dtype is None:
        warnings.warn(
            f"Small updates of parameters in lower precision than float32 round to nothing, and in float16 the eps of AdamW is 0; got "
            f"{', '.join(low):.200}. Call model.set_dtype(mx.float32) before train_state and train_step, and pass "
            "compute_dtype=mx.bfloat16 for speed.",
            RuntimeWarning,
            stacklevel=4,  # the warning names the line that calls train_step
        )
    elif low:
        raise ArgumentError(
            f"compute_dtype needs float32 parameters, because lower precision loses small updates; got "
            f"{', '.join(low):.200}. Call model.set_dtype(mx.float32) before train_state and train_step."
        )


def first_scale() -> dict[str, mx.array]:
    """Return the initial loss scale for float16, and the number of finite steps since the last change."""
    return {"factor": mx.array(_FIRST), "finite": mx.array(0, mx.int32)}


def next_scale(scale: dict[str, mx.array], finite: mx.array) -> dict[str, mx.array]:
    """Return the next loss scale: half after an overflow of gradients, double after 2,000 steps without overflow, between 1 and 2**24."""
    count = mx.where(finite, scale["finite"] + 1, 0)
    grown = mx.where(count == _PATIENCE, mx.minimum(scale["factor"] * 2, _LARGEST), scale["factor"])
    return {"factor": mx.where(finite, grown, mx.maximum(scale["factor"] / 2, 1)), "finite": mx.where(count == _PATIENCE, 0, count)}


def is_floating(leaf: Any) -> bool:
    """Return True for an array of floating-point numbers."""
    return isinstance(leaf, mx.array) and mx.issubdtype(leaf.dtype, mx.floating)
