"""Functions that feed batches to training and evaluation loops: checks, iteration with cursors, and source rows for error messages."""

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
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch


def check_batches(function: str, batches: Iterable[Batch]) -> None:
    """Raise an error unless the argument is a dataset after `collate` or another iterable of batches."""
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        remedy = "Pass a list or a pipeline that ends in fp.collate(collator)."
        if isinstance(batches, TrainState):
            remedy = "Pass the batches after the state: check(state, batches)."
        raise ArgumentTypeError(f"{function} takes a dataset or another iterable of dicts, got {type(batches).__name__}. {remedy}")
    if isinstance(batches, Dataset) and batches.level != "batches":
        raise PipelineError(
            f"{function} takes batches, got {batches.level} from {batches.parts[-1]!r}. End the pipeline with fp.batch and fp.collate."
        )


def check_epochs(batches: Iterable[Batch], epochs: int | None, steps: int | None, *, stacklevel: int) -> None:
    """Raise `PipelineError` if an epoch never ends. Warn if the epochs of a dataset contain different rows."""
    if not isinstance(batches, Dataset):
        return
    if batches.endless and steps is None:
        raise PipelineError(
            f"A run of epochs={epochs} never ends, because its data have no end: got {batches!r:.200}. "
            "Set the number of steps with steps=, or put take(count) into the pipeline."
        )
    if batches.redraws and epochs != 1:
        size = length(batches)
        if steps is None or size is None or size < steps:
            warn_redrawn(batches, stacklevel=stacklevel)


def epoch_start(batches: Iterable[Batch], epoch: int) -> Cursor | None:
    """Return the cursor before the first batch of an epoch. Return None if the batches are not a dataset."""
    return beginning(batches, epoch=epoch) if isinstance(batches, Dataset) else None


def with_cursors(batches: Iterable[Batch], cursor: Cursor | None, epoch: int) -> Iterator[tuple[Batch, Cursor | None]]:
    """Yield each batch with the cursor after the batch. The cursor is None if the batches are not a dataset."""
    if not isinstance(batches, Dataset):
        return ((batch, None) for batch in batches)
    # `iterate` without the argument `epoch` does not repeat a warning that `fit` has already given.
    return iterate(batches, cursor or beginning(batches, epoch=epoch))


def why_empty(batches: Iterable[Batch]) -> str:
    """Return a sentence with the cause of an empty epoch and the remedy."""
    if not isinstance(batches, Dataset):
        return "Give fit a dataset or a list; a generator can be read once only."
    dropping = [repr(part) for part in flat_parts(batches) if getattr(part, "drop_last", False)]
    if dropping:
        return f"{' and '.join(dropping)} dropped all rows, because no group was full. Remove drop_last, or use a smaller size."
    return f"{batches!r:.200} yields no rows. Check its source and its filters."


def rows_after(batches: Any, cursor: Cursor | None) -> tuple[Origin, ...]:
    """Return the rows of the sources that form the batch after `cursor`. Return an empty tuple if the cursor is None."""
    if cursor is None:
        return ()
    try:
        return row_origins(batches, 0, cursor=cursor)
    except Exception:  # noqa: BLE001  # a failed search for rows must not hide the original error
        return ()


def with_row(error: BoundError, batches: Iterable[Batch], cursor: Cursor | None) -> BoundError:
    """Return a copy of an error about an id or a label. The message of the copy also names the source row."""
    rows = rows_after(batches, cursor)
    if not error.index or len(rows) != error.rows:  # a collator made several batch rows from one source row, so the source row is unknown
        return error
    origin = rows[error.index[0]]
    return error.with_source(f"row {origin.row} of {origin.source!r}")
