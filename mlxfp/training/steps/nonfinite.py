"""Losses that are no numbers: in which step, made of which rows, and how to see it again."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from attrs import frozen

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import MlxfpError
from mlxfp.core.row_names import Origin
from mlxfp.data.inspection.provenance import row_origins

_WATCHED = ("loss", "grad_norm")  # a metric of one's own may well be infinite
_ROWS_SHOWN = 8


class NonFiniteError(MlxfpError, ArithmeticError):
    """A loss or the norm of its gradients is infinite or no number.

    `step` is the number of the step, counted from 1, and `rows` the source rows of its batch. `next(iterate(batches, cursor))` makes
    that batch again. Where the batches are not a dataset, there are neither rows nor a cursor.

    >>> error = NonFiniteError("The loss is nan in step 7.", 7, (), None)
    >>> error.step, str(error)
    (7, 'The loss is nan in step 7.')
    """

    def __init__(self, message: str, step: int, rows: tuple[Origin, ...], cursor: Cursor | None) -> None:
        """Keep what a program needs to go on from here."""
        super().__init__(message)
        self.step = step
        self.rows = rows
        self.cursor = cursor

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Pickle all four: an exception is rebuilt from its message alone otherwise."""
        return type(self), (str(self), self.step, self.rows, self.cursor)


@frozen
class Place:
    """Where a step took its batch from: its number, and the cursor before it."""

    step: int
    cursor: Cursor | None


def check_finite(values: Sequence[Mapping[str, float]], places: Sequence[Place], batches: Iterable[Any]) -> None:
    """Raise `NonFiniteError` for the first step whose loss or gradient norm is not finite, unless the step says that it was skipped."""
    for metrics, place in zip(values, places, strict=True):
        wrong = [f"{name} is {metrics[name]}" for name in _WATCHED if not isfinite(metrics.get(name, 0.0))]
        if wrong and not metrics.get("skipped"):
            rows = _rows(batches, place.cursor)
            cursor = place.cursor if isinstance(batches, Dataset) else None
            raise NonFiniteError(f"The {' and the '.join(wrong)} in step {place.step}{_say(rows)}", place.step, rows, cursor)


def _rows(batches: Iterable[Any], cursor: Cursor | None) -> tuple[Origin, ...]:
    if not isinstance(batches, Dataset) or cursor is None:
        return ()
    try:
        return row_origins(batches, 0, cursor=cursor)
    except Exception:  # noqa: BLE001  # whatever hinders the search, the loss is what the user must hear of
        return ()


def _say(rows: tuple[Origin, ...]) -> str:
    found = "; ".join(
        f"{', '.join(map(str, numbers[:_ROWS_SHOWN]))}{', ...' if len(numbers) > _ROWS_SHOWN else ''} of {source}"
        for source, numbers in _by_source(rows).items()
    )
    where = f", made of rows {found}" if found else ""
    see = "Look at the batch: next(iterate(batches, error.cursor))" if rows else "Look at the batch"
    return (
        f"{where}. {see}; if it is sound, the update before it was not: lower the rate, clip with clip_norm, "
        "or go on without such updates by train_step(skip_nonfinite=True)."
    )


def _by_source(rows: tuple[Origin, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for origin in rows:
        found.setdefault(repr(origin.source), []).append(origin.row)
    return found
