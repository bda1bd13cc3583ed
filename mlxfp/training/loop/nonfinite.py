"""Check for non-finite losses. The error names the step and the source rows, and shows code that loads the batch again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from toolz import groupby

from mlxfp.core.cursors import Cursor
from mlxfp.core.execution import iterate
from mlxfp.core.row_names import Origin
from mlxfp.models.bounds import BoundError
from mlxfp.support.errors import NonFiniteError
from mlxfp.training.loop.feeding import rows_after, with_row

_WATCHED = ("loss", "grad_norm")  # names of the metrics that must be finite
_ROWS_SHOWN = 8


def check_finite(  # noqa: PLR0913  # facts for the error message
    values: Sequence[Mapping[str, float]],
    step: int,
    cursors: Sequence[Cursor | None],
    batches: Iterable[Any],
    look: Callable[[Any], None],
    *,
    shared: bool = False,
) -> None:
    """Raise `NonFiniteError` for the first step with a non-finite loss or gradient norm. Steps marked as skipped are ignored.

    - `values`: the metrics of the last steps, up to step number `step`.
    - `cursors`: the cursor before the batch of each of these steps.
    - `shared`: True if the metrics also include rows of other ranks.
    - `look`: a check of the ids and labels in a batch. Compiled code returns NaN for ids and labels out of range. `look(batch)` therefore
      runs before the error is raised, and may raise a `BoundError` with the cause.
    """
    for index, (metrics, cursor) in enumerate(zip(values, cursors, strict=True)):
        problem = " and the ".join(f"{name} is {metrics[name]}" for name in _WATCHED if not isfinite(metrics.get(name, 0.0)))
        if problem and not metrics.get("skipped"):
            _check_again(look, batches, cursor)
            number, rows = step - len(values) + 1 + index, rows_after(batches, cursor)
            raise NonFiniteError(_message(problem, number, rows, shared=shared), number, rows, cursor)


def _check_again(look: Callable[[Any], None], batches: Any, cursor: Cursor | None) -> None:
    if cursor is None:
        return
    try:
        batch, _ = next(iterate(batches, cursor))
        look(batch)
    except BoundError as error:
        raise with_row(error, batches, cursor) from None
    except Exception:  # noqa: BLE001  # a failed search must not hide the error of the loss
        return


def _message(problem: str, number: int, rows: tuple[Origin, ...], *, shared: bool) -> str:
    row_list = "; ".join(
        f"{', '.join(str(origin.row) for origin in origins[:_ROWS_SHOWN])}{', ...' if len(origins) > _ROWS_SHOWN else ''} of {source}"
        for source, origins in groupby(lambda origin: repr(origin.source), rows).items()
    )
    origin = f", computed from rows {'of all ranks, on this rank ' if shared else ''}{row_list}" if row_list else ""
    hint = "Inspect the batch: next(iterate(batches, error.cursor))" if rows else "Inspect the batch"
    return (
        f"The {problem} in step {number}{origin}. {hint}. If the batch is valid, the previous update was too large: "
        "lower the learning rate, clip gradients with clip_norm, or skip non-finite updates with train_step(skip_nonfinite=True)."
    )
