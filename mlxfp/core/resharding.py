"""Conversion of cursors to another number of ranks. The resumed run yields the same global batches.

On every rank, the stages before `shard` process the same rows in the same order. The next row of a rank therefore depends only on the
number of completed batches. A source with random access continues at the next row. Another source continues earlier and skips rows.
"""

from typing import Any

from attrs import evolve

from mlxfp.core.cursors import Cursor, Snapshot
from mlxfp.core.identity import Division, difference
from mlxfp.core.nodes import Pipeline, children
from mlxfp.core.stages import is_empty, starts_empty
from mlxfp.support.errors import ArgumentError, CursorMismatchError


def resharded(dataset: Pipeline[Any], cursor: Cursor) -> Cursor:
    """Convert a cursor to the number of ranks of `dataset`. The number of completed global batches stays the same.

    Returns the cursor of another pipeline unchanged. Raises `ArgumentError` if the number of rows in a global batch would change, and
    `CursorMismatchError` if global batches depend on the number of ranks.
    """
    before, now = cursor.division, dataset.division
    if before is None or before.fingerprint != now.fingerprint or not now.shards or difference(cursor.identity, dataset.identity) is None:
        return cursor
    if before.shards == now.shards and (before.batch_rows != now.batch_rows or not now.batch_rows):
        return cursor
    _check_batch_rows(before, now)
    return evolve(_moved(dataset, cursor, before, now), owner=dataset)


def _moved(dataset: Any, cursor: Cursor, before: Division, now: Division) -> Cursor:
    """Convert a cursor to the new number of ranks (`now`). The number of completed batches stays the same."""
    base, stages = cursor.base, dataset.stages
    index = next((index for index, stage in enumerate(stages) if stage.traits.share is not None), None)
    later = range(0 if index is None else index + 1, len(stages))
    for number in later:
        state = () if base.states is None else base.states[number]
        if stages[number].emits == "examples" or not starts_empty(stages[number]) or not is_empty(state):
            raise _refused(stages[number], before)
    if index is not None:
        for stage in stages[:index]:
            if not stage.traits.row_wise:
                raise _refused(stage, before)
        batches = base.rows // before.batch_rows + cursor.done
        moved = _after_rows(dataset, cursor, batches * now.batch_rows, before)
        return evolve(moved, base=evolve(moved.base, items=batches))
    if base.position is None:
        return cursor
    inner = children(dataset.source)
    if len(inner) != 1 or not _cursors_in(base.position):
        raise _refused(dataset.source, before)
    return evolve(cursor, base=evolve(base, position=_mapped(base.position, inner[0], before, now)))


def _mapped(position: Any, dataset: Any, before: Division, now: Division) -> Any:
    """Convert all cursors in a source position to the new number of ranks (`now`)."""
    if isinstance(position, Cursor):
        return _moved(dataset, position, before, now)
    if isinstance(position, tuple):
        return tuple(_mapped(value, dataset, before, now) for value in position)
    return position


def _cursors_in(position: Any) -> bool:
    return isinstance(position, Cursor) or (isinstance(position, tuple) and any(map(_cursors_in, position)))


def _after_rows(dataset: Any, cursor: Cursor, rows: int, before: Division) -> Cursor:
    """Return the cursor after the first `rows` rows of this rank."""
    base, source = cursor.base, dataset.source
    share = source.traits.share
    if share is not None and share.position_after is not None:
        position = share.position_after(base.epoch, base.position, rows)
    else:
        inner = children(source)
        if len(inner) != 1 or not source.traits.same_items or not isinstance(base.position, Cursor | None):
            raise _refused(source, before)
        for stage in inner[0].stages:
            if not stage.traits.row_wise:
                raise _refused(stage, before)
        position = _after_rows(inner[0], base.position or Cursor(Snapshot(base.epoch), 0), rows, before)
    return Cursor(Snapshot(base.epoch, position, rows), 0)


def _refused(part: Any, before: Division) -> CursorMismatchError:
    return CursorMismatchError(
        f"The cursor of a run with {_ranks(before)} cannot continue on another number of ranks: {part!r} follows shard, so the global "
        f"batches depend on the number of ranks. Put {part!r} before shard, or start {_ranks(before)}."
    )


def _check_batch_rows(before: Division, now: Division) -> None:
    if not before.batch_rows:
        raise CursorMismatchError(
            f"The run began with {_ranks(before)} and cannot continue with {_ranks(now)}: the pipeline has no batch(size) after shard, so "
            f"the global batches depend on the number of ranks. Put pack or bucket_by_length before shard and batch(size) after shard, "
            f"or start {_ranks(before)}."
        )
    rows, rows_now = before.shards * before.batch_rows, now.shards * now.batch_rows
    if rows == rows_now:
        return
    share, rest = divmod(rows, now.shards)
    remedy = (
        f"Make batches of {share} rows on each rank: batch({share})."
        if not rest
        else f"{rows} rows are not divisible by {now.shards}: start {_divisors(rows)} ranks with equal shares."
    )
    raise ArgumentError(
        f"The global batches would change from {rows} to {rows_now} rows. The run began with {_ranks(before)} and batches of "
        f"{before.batch_rows} rows on each rank. It would continue with {_ranks(now)} and batches of {now.batch_rows} rows. {remedy}"
    )


def _ranks(division: Division) -> str:
    return "1 rank" if division.shards == 1 else f"{division.shards} ranks"


def _divisors(rows: int) -> str:
    some = [str(count) for count in range(1, min(rows, 64) + 1) if rows % count == 0]
    return f"{', '.join(some[:-1])} or {some[-1]}" if len(some) > 1 else some[0]
