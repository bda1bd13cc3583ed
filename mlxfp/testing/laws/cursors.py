"""The laws of cursors, plans and wrappers: a run can continue exactly where it stopped, and how it runs does not change what it gives."""

from collections.abc import Iterator, Sequence
from typing import Any

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.core.execution import iterate
from mlxfp.data.running.prefetching import prefetch
from mlxfp.support.errors import CursorMismatchError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform, collect, logged

__tracebackhide__ = True


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
    latest = whole[0][1] if whole else None
    for place, (item, _) in enumerate(whole[1:], 1):  # resume, take one item, resume from its cursor, and so on
        step = next(iterate(dataset, latest and _copied(latest)), None)
        assert step is not None, f"resuming {dataset!r} at every item ends after {place} of {len(whole)} items"
        assert_same(step[0], item, f"resuming {dataset!r} at every item gives item {place} as without stopping")
        latest = step[1]


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


def assert_plans_agree(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: the plan of a dataset gives the same items, source rows and keys as the pipeline as written, and its cursors mean the same.

    A run that was started as written continues with the plan, and the other way round, after every item and through bytes. Check it for
    stages and sources with traits: `projection`, `columns_read`, `predicates`, `fuse`, `restricted`. The time
    grows with the square of the number of items: use a short dataset.

    >>> import mlxfp as fp
    >>> assert_plans_agree(fp.pipe(fp.from_examples([{"x": 1, "y": 2}]), fp.select_columns(["y"])))
    """
    written = unoptimized(dataset)
    expected = collect(written, epoch=epoch)
    assert_same(collect(dataset, epoch=epoch), expected, f"the plan of {dataset!r} gives the same as the pipeline as it was written")
    for begun, continued, how in ((written, dataset, "begun as written, continued as planned"), (dataset, written, "the other way round")):
        for place, (_, cursor) in enumerate(iterate(begun, epoch=epoch), 1):
            rest = expected[place:] if isinstance(expected, list) else expected.slice(place)
            found = collect(continued, _copied(cursor))
            assert_same(found, rest, f"resuming {dataset!r} after item {place - 1}, {how}, gives exactly the rest")
            assert next((item for item, _ in iterate(continued, cursor)), None) is not None or not len(rest)


def assert_transparent(transform: Transform, dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: a transform changes neither the items nor where an error is raised, also after resuming, and when the consumer stops early.

    For transforms that change how a dataset runs and not what it gives: prefetching, caching, profiling.

    >>> import mlxfp as fp
    >>> assert_transparent(fp.prefetch(2), fp.from_examples([{"x": 1}, {"x": 2}]))
    """
    wrapped = transform(dataset)
    plain, found = _outcomes(iterate(dataset, epoch=epoch)), _outcomes(iterate(wrapped, epoch=epoch))
    expected = [outcome for outcome, _ in plain]
    assert_same([outcome for outcome, _ in found], expected, f"{wrapped!r} gives what {dataset!r} gives, errors included")
    for place, (_, cursor) in enumerate(found, 1):
        if cursor is not None:
            rest = [outcome for outcome, _ in _outcomes(iterate(wrapped, cursor))]
            assert_same(rest, expected[place:], f"{wrapped!r} continues after item {place - 1} as {dataset!r} does")
            stopped = iterate(wrapped, epoch=epoch)
            early = [item for _, (item, _) in zip(range(place), stopped, strict=False)]
            stopped.close()  # type: ignore[attr-defined]  # a generator
            assert_same(early, expected[:place], f"{wrapped!r} gives the first {place} items to a consumer that then stops")


def assert_runners_agree(dataset: Dataset[Any], workers: Transform, *, epoch: int = 0) -> None:
    """Law: with any workers, items, cursors and errors are the same, and a run may go on with other workers.

    `workers` is a `prefetch` with several, as in `prefetch(4, workers=2, kind="processes")`.

    >>> import mlxfp as fp
    >>> rows = fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.map(dict), fp.batch(2))
    >>> assert_runners_agree(rows, fp.prefetch(4, workers=2))
    """
    alone, shared = prefetch(1)(dataset), workers(dataset)
    plain, found = _outcomes(iterate(alone, epoch=epoch)), _outcomes(iterate(shared, epoch=epoch))
    said = f"{shared!r} gives what one thread gives"
    assert_same([outcome for outcome, _ in found], [outcome for outcome, _ in plain], f"{said}, errors included")
    for place, ((_, one), (_, other)) in enumerate(zip(plain, found, strict=True)):
        assert one == other, f"law broken: {said}, with the same cursor after item {place}: got {other!r} instead of {one!r}"
    middle = sum(cursor is not None for _, cursor in found) // 2
    for began, then in ((plain, shared), (found, alone)):
        cursor = began[middle][1] if began else None
        if cursor is not None:
            rest = [outcome for outcome, _ in _outcomes(iterate(then, _copied(cursor)))]
            assert_same(rest, [outcome for outcome, _ in plain[middle + 1 :]], f"{then!r} continues what others began")


def _outcomes(items: Iterator[tuple[Any, Cursor]]) -> list[tuple[Any, Cursor | None]]:
    """Collect the items with their cursors, and at the end the error, if one was raised."""
    found: list[tuple[Any, Cursor | None]] = []
    try:
        found.extend(items)
    except Exception as error:  # noqa: BLE001  # any error of a user's function
        found.append(((type(error).__name__, str(error)), None))
    return found


def _copied(cursor: Cursor) -> Cursor:
    return Cursor.from_bytes(cursor.to_bytes())
