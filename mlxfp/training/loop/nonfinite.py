"""Losses that are not finite: in which step, from which rows, and how to see the batch again."""

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

_WATCHED = ("loss", "grad_norm")  # other metrics may well be infinite
_ROWS_SHOWN = 8


def check_finite(  # noqa: PLR0913  # what an error says of a step
    values: Sequence[Mapping[str, float]],
    step: int,
    cursors: Sequence[Cursor | None],
    batches: Iterable[Any],
    look: Callable[[Any], None],
    *,
    shared: bool = False,
) -> None:
    """Raise `NonFiniteError` for the first step whose loss or gradient norm is not finite, unless the step says that it was skipped.

    The values are the metrics of the steps up to `step`, and the cursors those before their batches, which with `shared` are a part of what
    the metrics are made of: those of one of several ranks. First, `look(batch)` may raise a
    `BoundError` that explains it: a compiled loss makes NaN of ids and labels outside of their tables.
    """
    for place, (metrics, cursor) in enumerate(zip(values, cursors, strict=True)):
        wrong = [f"{name} is {metrics[name]}" for name in _WATCHED if not isfinite(metrics.get(name, 0.0))]
        if wrong and not metrics.get("skipped"):
            _look_again(look, batches, cursor)
            number, rows = step - len(values) + 1 + place, rows_after(batches, cursor)
            raise NonFiniteError(f"The {' and the '.join(wrong)} in step {number}{_explanation(rows, shared=shared)}", number, rows, cursor)


def _look_again(look: Callable[[Any], None], batches: Any, cursor: Cursor | None) -> None:
    if cursor is None:  # not a dataset
        return
    try:
        batch, _ = next(iterate(batches, cursor))
        look(batch)
    except BoundError as error:
        raise with_row(error, batches, cursor) from None
    except Exception:  # noqa: BLE001  # an error of the search must not hide the one of the loss
        return


def _explanation(rows: tuple[Origin, ...], *, shared: bool) -> str:
    found = "; ".join(
        f"{', '.join(str(origin.row) for origin in several[:_ROWS_SHOWN])}{', ...' if len(several) > _ROWS_SHOWN else ''} of {source}"
        for source, several in groupby(lambda origin: repr(origin.source), rows).items()
    )
    where = f", {'made of rows of all ranks, here of' if shared else 'made of rows'} {found}" if found else ""
    see = "Look at the batch: next(iterate(batches, error.cursor))" if rows else "Look at the batch"
    return (
        f"{where}. {see}; if it is good, the update before it was not: lower the rate, clip with clip_norm, "
        "or leave out such updates with train_step(skip_nonfinite=True)."
    )
