"""Laws of resumed and optimized runs: a resumed run continues exactly after its last item, and workers or optimizations change no item."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.core.describing import schema
from mlxfp.core.execution import iterate
from mlxfp.core.nodes import children
from mlxfp.data.rows.columns import select_columns
from mlxfp.data.running.prefetching import prefetch
from mlxfp.support.errors import CursorMismatchError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform, collect, logged, sampled_indices

__tracebackhide__ = True

_COLUMNS = 4  # maximum number of columns in `assert_selects_columns`, because each column needs a call of `assert_plans_agree`


def assert_resumable(dataset: Dataset[Any], *, epoch: int = 0, after: Sequence[int] | None = None) -> None:
    """Check that a run resumed after any item gives exactly the remaining items.

    The law also checks a run that is interrupted and resumed after every item. A cursor and its copy restored from bytes must give the same
    items. Every cursor counts the items of the epoch. Hidden columns are compared too. With `after`, the law resumes only after the first
    item, the last item, and the items with the indices `after`. With `after=None`, the law resumes after every item, in quadratic time.

    >>> import mlxfp as fp
    >>> assert_resumable(fp.from_examples([{"x": 1}, {"x": 2}]))
    """
    whole, expected = list(iterate(dataset, epoch=epoch)), collect(dataset, epoch=epoch)
    assert len(whole) == len(expected), f"{dataset!r} gives {len(expected)} items, but iterate gave {len(whole)}"
    indices = sampled_indices(len(whole), after)
    for count, cursor in ((index + 1, whole[index][1]) for index in indices):
        rest = expected[count:] if isinstance(expected, list) else expected.slice(count)
        where = f"after item {count - 1} of {len(whole)} of {dataset!r}, epoch {epoch}"
        assert cursor.epoch == epoch, f"the cursor {where} says epoch {cursor.epoch}"
        assert cursor.items == count, f"the cursor {where} counts {cursor.items} items"
        assert_same(collect(dataset, cursor), rest, f"resuming {where} gives exactly the rest")
        assert_same(collect(dataset, copied(cursor)), rest, f"resuming from the bytes of the cursor {where} gives exactly the rest")
    latest = whole[0][1] if whole else None
    for before, index in pairwise(indices):
        steps = list(islice(iterate(dataset, latest and copied(latest)), index - before))
        how = f"resuming {dataset!r} at {'every item' if after is None else 'several items'}"
        assert len(steps) == index - before, f"{how} ends after {before + 1 + len(steps)} of {len(whole)} items"
        assert_same(steps[-1][0], whole[index][0], f"{how} gives item {index} as without stopping")
        latest = steps[-1][1]
        assert latest.items == index + 1, f"{how} counts {latest.items} items after item {index}"


def assert_refused(dataset: Dataset[Any], other: Dataset[Any]) -> None:
    """Check that a pipeline raises `CursorMismatchError` for the cursors of another pipeline, also for cursors restored from bytes.

    >>> import mlxfp as fp
    >>> assert_refused(fp.from_examples([{"x": 1}]), fp.from_examples([{"x": 2}]))
    """
    for _, foreign in iterate(other):
        for cursor in (foreign, copied(foreign)):
            try:
                iterate(dataset, cursor)
            except CursorMismatchError:
                continue
            raise AssertionError(f"{dataset!r} must raise CursorMismatchError for the cursors of {other!r}, but accepted {cursor!r}")


def assert_replay_is_bounded(transform: Transform, chunks: Sequence[RecordBatch], *, epoch: int = 0) -> None:
    """Check that a resumed run reads at most one source chunk again.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> assert_replay_is_bounded(fp.batch(2), [pa.record_batch({"x": [i]}) for i in range(5)])
    """
    dataset, log = logged(transform, chunks)
    stops = [(cursor, len(log)) for _, cursor in iterate(dataset, epoch=epoch)]
    reads = [*(read for _, read in stops[1:]), len(log)][: len(stops)]
    for index, ((cursor, before), after) in enumerate(zip(stops, reads, strict=True)):
        log.clear()
        next(iterate(dataset, cursor), None)
        allowed = after - before + 1
        assert len(log) <= allowed, (
            f"resuming {dataset!r} after item {index} reads at most {allowed} chunks until the next item, but it read {len(log)}"
        )


def assert_plans_agree(dataset: Dataset[Any], *, epoch: int = 0, after: Sequence[int] | None = None) -> None:
    """Check that optimization changes neither the items of a dataset nor their source rows and keys.

    The law compares runs with and without optimization. Each run must be able to continue from cursors of the other run. If optimization
    does not change the pipeline, the law compares only the items, because `assert_resumable` checks the cursors. `after` limits the number
    of cursors, as in `assert_resumable`.

    Check this law for stages and sources with one of the traits `projection`, `columns_read`, `predicates`, `fuse` or `restricted`.

    >>> import mlxfp as fp
    >>> assert_plans_agree(fp.pipe(fp.from_examples([{"x": 1, "y": 2}]), fp.select_columns(["y"])))
    """
    written = unoptimized(dataset)
    expected = collect(written, epoch=epoch)
    try:
        planned = collect(dataset, epoch=epoch)
    except Exception as error:
        raise AssertionError(
            f"the optimized plan of {dataset!r} must give the same items as the pipeline without optimization, but only the plan raises "
            f"{type(error).__name__}: {error}. The traits of a stage may be wrong: for example, columns_read lacks a column "
            "that the stage reads"
        ) from error
    assert_same(planned, expected, f"the optimized plan of {dataset!r} gives the same items as the pipeline without optimization")
    if _is_as_written(dataset):
        return  # cursors of a pipeline without optimization are checked by `assert_resumable`
    for started, continued, how in (
        (written, dataset, "begun as written, continued as planned"),
        (dataset, written, "the other way round"),
    ):
        cursors = [cursor for _, cursor in iterate(started, epoch=epoch)]
        for count, cursor in ((index + 1, cursors[index]) for index in sampled_indices(len(cursors), after)):
            rest = expected[count:] if isinstance(expected, list) else expected.slice(count)
            actual = collect(continued, copied(cursor))
            assert_same(actual, rest, f"resuming {dataset!r} after item {count - 1}, {how}, gives exactly the rest")
            assert next((item for item, _ in iterate(continued, cursor)), None) is not None or not len(rest)


def _is_as_written(dataset: Dataset[Any]) -> bool:
    planned, stages = dataset.plan, dataset.resolved.stages
    same_stages = [id(step.stage) for step in planned.steps] == [id(stage) for stage in stages]
    return same_stages and planned.source is dataset.source and not children(dataset.source)


def assert_selects_columns(dataset: Dataset[Any], *, epoch: int = 0, after: Sequence[int] | None = None) -> None:
    """Check that `select_columns([name])` after a dataset gives the same values with and without optimization, for each column.

    A stage with a wrong `columns_read`, or a source with a wrong `restricted`, breaks the law. `after` limits the number of cursors from
    which a run is resumed, as in `assert_resumable`.

    >>> import mlxfp as fp
    >>> assert_selects_columns(fp.pipe(fp.from_examples([{"x": 1, "y": 2}]), fp.rename_columns({"x": "z"})))
    """
    for name in schema(dataset).names[-_COLUMNS:] if dataset.level == "examples" else ():
        assert_plans_agree(select_columns([name])(dataset), epoch=epoch, after=after)


def assert_transparent(transform: Transform, dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Check that `transform(dataset)` gives the same items and errors as `dataset`, in the same order.

    The law also checks a resumed run, and a consumer that stops early. The law applies to transforms that change only the execution of a
    dataset, such as prefetching, caching or profiling.

    >>> import mlxfp as fp
    >>> assert_transparent(fp.prefetch(2), fp.from_examples([{"x": 1}, {"x": 2}]))
    """
    wrapped = transform(dataset)
    plain, actual = _outcomes(iterate(dataset, epoch=epoch)), _outcomes(iterate(wrapped, epoch=epoch))
    expected = [outcome for outcome, _ in plain]
    assert_same([outcome for outcome, _ in actual], expected, f"{wrapped!r} gives what {dataset!r} gives, errors included")
    for count, (_, cursor) in enumerate(actual, 1):
        if cursor is not None:
            rest = [outcome for outcome, _ in _outcomes(iterate(wrapped, cursor))]
            assert_same(rest, expected[count:], f"{wrapped!r} continues after item {count - 1} as {dataset!r} does")
            stopped = iterate(wrapped, epoch=epoch)
            early = [item for _, (item, _) in zip(range(count), stopped, strict=False)]
            stopped.close()  # type: ignore[attr-defined]  # the iterator is a generator
            assert_same(early, expected[:count], f"{wrapped!r} gives the first {count} items to a consumer that then stops")


def assert_runners_agree(dataset: Dataset[Any], workers: Transform, *, epoch: int = 0) -> None:
    """Check that a run with workers gives the same items, cursors and errors as a run with one thread.

    Each of the two runs must also be able to continue from a cursor of the other run.

    >>> import mlxfp as fp
    >>> rows = fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.map(dict), fp.batch(2))
    >>> assert_runners_agree(rows, fp.prefetch(4, workers=2))
    """
    alone, shared = prefetch(1)(dataset), workers(dataset)
    plain, actual = _outcomes(iterate(alone, epoch=epoch)), _outcomes(iterate(shared, epoch=epoch))
    claim = f"{shared!r} gives what one thread gives"
    assert_same([outcome for outcome, _ in actual], [outcome for outcome, _ in plain], f"{claim}, errors included")
    for index, ((_, one), (_, other)) in enumerate(zip(plain, actual, strict=True)):
        assert one == other, f"law broken: {claim}, with the same cursor after item {index}: got {other!r} instead of {one!r}"
    middle = sum(cursor is not None for _, cursor in actual) // 2
    for outcomes, continued in ((plain, shared), (actual, alone)):
        cursor = outcomes[middle][1] if outcomes else None
        if cursor is not None:
            rest = [outcome for outcome, _ in _outcomes(iterate(continued, copied(cursor)))]
            assert_same(rest, [outcome for outcome, _ in plain[middle + 1 :]], f"{continued!r} continues what others began")


def _outcomes(items: Iterator[tuple[Any, Cursor]]) -> list[tuple[Any, Cursor | None]]:
    """Return the (item, cursor) pairs of a run. If the run raises an error, the last pair is ((name of the error class, message), None)."""
    outcomes: list[tuple[Any, Cursor | None]] = []
    try:
        outcomes.extend(items)
    except Exception as error:  # noqa: BLE001  # user functions may raise any error
        outcomes.append(((type(error).__name__, str(error)), None))
    return outcomes


def copied(cursor: Cursor) -> Cursor:
    """Return a copy of a cursor, restored from bytes."""
    return Cursor.from_bytes(cursor.to_bytes())
