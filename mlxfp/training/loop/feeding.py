"""Batches as the loops around a step take them: with cursors, where they are a dataset, and errors that name rows of the data."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.execution import beginning, iterate
from mlxfp.core.nodes import flat_parts
from mlxfp.core.row_names import Origin
from mlxfp.core.sources import warn_redrawn
from mlxfp.data.inspection.provenance import row_origins
from mlxfp.models.bounds import BoundError
from mlxfp.support.errors import ArgumentTypeError, PipelineError
from mlxfp.training.steps.steps import Batch


def check_batches(function: str, batches: Iterable[Batch]) -> None:
    """Raise an error unless these are batches: a dataset behind `collate`, or another iterable."""
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise ArgumentTypeError(f"{function} takes a dataset or another iterable of dicts, got {type(batches).__name__}.")
    if isinstance(batches, Dataset) and batches.level != "batches":
        raise PipelineError(
            f"{function} takes batches, got {batches.level} from {batches.parts[-1]!r}. Put collate after batch, at the end."
        )


def check_epochs(batches: Iterable[Batch], epochs: int | None, steps: int | None, *, stacklevel: int) -> None:
    """Raise `PipelineError` for a run of epochs over data without an end, and warn where several epochs have other rows in each."""
    if not isinstance(batches, Dataset):
        return
    if batches.endless and steps is None:
        raise PipelineError(
            f"A run of epochs={epochs} never ends, because its data have no end: got {batches!r:.200}. "
            "Say how long the run is with steps=, or put take(count) into the pipeline."
        )
    if batches.redraws and epochs != 1:
        size = length(batches)
        if steps is None or size is None or size < steps:
            warn_redrawn(batches, stacklevel=stacklevel)


def epoch_start(batches: Iterable[Batch], epoch: int) -> Cursor | None:
    """Return the cursor before the first batch of an epoch."""
    return beginning(batches, epoch=epoch) if isinstance(batches, Dataset) else None


def with_cursors(batches: Iterable[Batch], cursor: Cursor | None, epoch: int) -> Iterator[tuple[Batch, Cursor | None]]:
    """Yield batches with the cursor after each, which is None where the batches are not a dataset."""
    if not isinstance(batches, Dataset):
        return ((batch, None) for batch in batches)
    return iterate(batches, cursor or beginning(batches, epoch=epoch))  # by a cursor: of rows that are drawn again, fit has warned


def why_empty(batches: Iterable[Batch]) -> str:
    """Explain an epoch without batches, and say what to do."""
    if not isinstance(batches, Dataset):
        return "Give fit a dataset or a list; a generator can be read once only."
    dropping = [repr(part) for part in flat_parts(batches) if getattr(part, "drop_last", False)]
    if dropping:
        return f"{' and '.join(dropping)} leaves out what is not full, and here nothing is: leave out drop_last, or make it smaller."
    return f"No row comes out of {batches!r:.200}. Look at its source, and at what leaves rows out."


def rows_after(batches: Any, cursor: Cursor | None) -> tuple[Origin, ...]:
    """Return the source rows of the batch after a cursor; none if the batches are not a dataset."""
    if cursor is None:
        return ()
    try:
        return row_origins(batches, 0, cursor=cursor)
    except Exception:  # noqa: BLE001  # an error of the search must not hide the one that it is for
        return ()


def with_row(error: BoundError, batches: Iterable[Batch], cursor: Cursor | None) -> BoundError:
    """Return an error about an id or a label in the batch after a cursor, with the row of the data in its message."""
    rows = rows_after(batches, cursor)
    if not error.place or len(rows) != error.rows:  # a collator may make several rows of one
        return error
    origin = rows[error.place[0]]
    return error.made_of(f"row {origin.row} of {origin.source!r}")
