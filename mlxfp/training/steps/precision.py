"""Mixed precision: float32 parameters, a lower precision inside the loss, and for float16 a scale so that gradients do not underflow.

Micikevicius et al., "Mixed Precision Training", 2018.
"""

import warnings
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, paths, tree_map

_FIRST, _LARGEST = 2.0**16, 2.0**24
_PATIENCE = 2000  # finite steps before the scale doubles, as in PyTorch's GradScaler


def cast_floating(tree: Any, dtype: mx.Dtype) -> Any:
    """Cast the floating-point arrays of a tree; all other leaves stay."""
    return tree_map(lambda leaf: leaf.astype(dtype) if is_floating(leaf) else leaf, tree)


def lower_inputs(model: nn.Module, dtype: mx.Dtype) -> None:
    """Make a module cast the floating-point arrays that it is called with. This edits the module: pass one that is used only here.

    A float32 image times a bfloat16 weight would be float32 again, and so would all later results. The batch itself is not cast,
    because the loss takes its targets from it.
    """
    kind: Any = type(model)

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = cast_floating((args, kwargs), dtype)
        return kind.__call__(self, *args, **kwargs)

    model.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def check_masters(params: Any, dtype: mx.Dtype | None) -> None:
    """Say where parameters are not float32, as small updates of others round to nothing.

    With a `dtype` to compute in, this raises `ArgumentError`; without, it warns, because who trains adapters of a small model in lower
    precision, at large rates, may mean it.
    """
    structure, leaves = flatten(params)
    low = [f"{name} {leaf.dtype}" for name, leaf in zip(paths(structure), leaves, strict=True) if leaf.dtype in (mx.bfloat16, mx.float16)]
    if low and dtype is None:
        warnings.warn(
            f"Small updates of parameters in lower precision than float32 round to nothing, and in float16 the eps of AdamW is 0; got "
            f"{', '.join(low):.200}. Call model.set_dtype(mx.float32) before train_state and train_step, and pass "
            "compute_dtype=mx.bfloat16 for speed.",
            RuntimeWarning,
            stacklevel=4,  # where train_step is called, through `explain_call`
        )
    elif low:
        raise ArgumentError(
            f"compute_dtype needs float32 parameters, because small updates of others round to nothing; got {', '.join(low):.200}. "
            "Call model.set_dtype(mx.float32) before train_state and train_step."
        )


def first_scale() -> dict[str, mx.array]:
    """Return the first scale of a loss in float16, and the count of finite steps since the scale changed."""
    return {"factor": mx.array(_FIRST), "finite": mx.array(0, mx.int32)}


def next_scale(scale: dict[str, mx.array], finite: mx.array) -> dict[str, mx.array]:
    """Halve the scale after gradients that overflowed, and double it after 2,000 steps without; it stays between 1 and 2**24."""
    count = mx.where(finite, scale["finite"] + 1, 0)
    grown = mx.where(count == _PATIENCE, mx.minimum(scale["factor"] * 2, _LARGEST), scale["factor"])
    return {"factor": mx.where(finite, grown, mx.maximum(scale["factor"] / 2, 1)), "finite": mx.where(count == _PATIENCE, 0, count)}


def is_floating(leaf: Any) -> bool:
    """Tell whether a leaf is an array of floating-point numbers."""
    return isinstance(leaf, mx.array) and mx.issubdtype(leaf.dtype, mx.floating)
