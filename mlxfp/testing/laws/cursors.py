"""The laws of cursors: wherever a run stops, it can continue exactly there."""

from collections.abc import Sequence
from typing import Any

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import CursorMismatchError
from mlxfp.core.execution import iterate
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform, collect, logged


def assert_resumable(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: after every item, resuming gives exactly the rest, from the cursor and from its bytes; resuming at every item changes nothing.

    Hidden columns are compared too. The time grows with the square of the number of items: use a short dataset.

    >>> import mlxfp as fp
    >>> assert_resumable(fp.from_examples([{"x": 1}, {"x": 2}]))
    """
    whole, expected = list(iterate(dataset, epoch=epoch)), collect(dataset, epoch=epoch)
    assert len(whole) == len(expected), f"{dataset!r} gives {len(expected)} items, but iterate gave {len(whole)}"
    for place, (_, cursor) in enumerate(whole, 1):
        rest = expected[place:] if isinstance(expected, list) else expected.slice(place)
        where = f"after item {place - 1} of {len(whole)} of {dataset!r}, epoch {epoch}"
        assert cursor.epoch == epoch, f"the cursor {where} says epoch {cursor.epoch}"
        assert_same(collect(dataset, cursor), rest, f"resuming {where} gives exactly the rest")
        assert_same(collect(dataset, _copied(cursor)), rest, f"resuming from the bytes of the cursor {where} gives exactly the rest")
    _assert_resumable_at_every_step(dataset, whole)


def _assert_resumable_at_every_step(dataset: Dataset[Any], whole: list[tuple[Any, Cursor]]) -> None:
    """Resume, take one item, resume from its cursor, and so on."""
    cursor = whole[0][1] if whole else None
    for place, (item, _) in enumerate(whole[1:], 1):
        step = next(iterate(dataset, cursor and _copied(cursor)), None)
        assert step is not None, f"resuming {dataset!r} at every item ends after {place} of {len(whole)} items"
        assert_same(step[0], item, f"resuming {dataset!r} at every item gives item {place} as without stopping")
        cursor = step[1]


def assert_refused(dataset: Dataset[Any], other: Dataset[Any]) -> None:
    """Law: a pipeline raises `CursorMismatchError` for the cursors of another pipeline, also when they are read from bytes.

    >>> import mlxfp as fp
    >>> assert_refused(fp.from_examples([{"x": 1}]), fp.from_examples([{"x": 2}]))
    """
    for _, foreign in iterate(other):
        for cursor in (foreign, _copied(foreign)):
            try:
                iterate(dataset, cursor)
            except CursorMismatchError:
                continue
            raise AssertionError(f"{dataset!r} refuses the cursors of {other!r}, but it took {cursor!r}")


def assert_replay_is_bounded(transform: Transform, chunks: Sequence[RecordBatch], *, epoch: int = 0) -> None:
    """Law: a resumed run reads at most one chunk of the source again: the one that it stopped in.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> assert_replay_is_bounded(fp.batch(2), [pa.record_batch({"x": [i]}) for i in range(5)])
    """
    dataset, log = logged(transform, chunks)
    stops = [(cursor, len(log)) for _, cursor in iterate(dataset, epoch=epoch)]
    reads = [*(read for _, read in stops[1:]), len(log)][: len(stops)]
    for place, ((cursor, before), after) in enumerate(zip(stops, reads, strict=True)):
        log.clear()
        next(iterate(dataset, cursor), None)
        allowed = after - before + 1
        assert len(log) <= allowed, (
            f"resuming {dataset!r} after item {place} reads at most {allowed} chunks until the next item, but it read {len(log)}"
        )


def _copied(cursor: Cursor) -> Cursor:
    return Cursor.from_bytes(cursor.to_bytes())
