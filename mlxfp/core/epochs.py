"""What is known of the epochs of a pipeline before they are read: whether they end, and whether each has the same rows."""

import warnings
from typing import Any

from mlxfp.core.errors import PipelineError
from mlxfp.core.nodes import Pipeline, children


def check_ends(dataset: Pipeline[Any], reader: object) -> None:
    """Raise `PipelineError` where `reader`, which reads a whole epoch, is used on a dataset that is known to have no end."""
    if dataset.endless:
        raise PipelineError(
            f"{reader} needs data that ends: {_without_end(dataset)!r} goes on for ever, in "
            f"{dataset!r}. Put take(count) before it, or move it before what repeats; shuffle works on such data with buffer=."
        )


def warn_redrawn(dataset: Pipeline[Any], *, stacklevel: int) -> None:
    """Warn where more than one epoch is read of a dataset that has other rows in each. `stacklevel` is that of `warnings.warn`."""
    if dataset.redraws:
        warnings.warn(
            f"Each epoch has other rows in {dataset!r}: take, skip and select choose by place, and the shuffle before them "
            "gives every row another place in each epoch. Rows that you keep for validation would come into training. For parts that stay "
            "apart use split or train_valid_test, and shuffle after it; where other rows in each epoch are meant, say take(..., redraw=True).",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def _without_end(dataset: Any) -> Any:
    """Find the innermost source that has no end."""
    return next((_without_end(held) for held in children(dataset.source) if held.endless), dataset.source)
