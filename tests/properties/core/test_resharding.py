"""Cursors of a run that goes on with another number of ranks."""

import pytest

from mlxfp.core.cursors import Cursor
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.core.resharding import resharded
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.sharding import World, shard
from mlxfp.support.errors import ArgumentError, CursorMismatchError
from tests.properties.ranks.rank_programs import ROWS, shared


def cursor_after(count, dataset):
    cursor = [cursor for _, cursor in iterate(dataset)][count - 1]
    return Cursor.from_bytes(cursor.to_bytes())


def test_a_cursor_goes_on_with_the_same_global_batches_on_other_ranks():
    before = cursor_after(3, shared(World(1, 2), 4))
    now = [shared(World(rank, 4), 2) for rank in range(4)]
    rest = [[item for item, _ in iterate(each, resharded(each, before))] for each in now]
    rows = [sorted(number for part in parts for number in part["number"].tolist()) for parts in zip(*rest, strict=True)]
    expected = [sorted(item["number"].tolist()) for item in shared(World(0, 1), 8)][3:]
    assert rows == expected
    same = cursor_after(3, shared(World(1, 2), 4))
    assert resharded(shared(World(1, 2), 4), same) is same


def test_global_batches_of_another_size_are_refused():
    before = cursor_after(3, shared(World(0, 2), 4))
    said = (
        r"began with 2 ranks and batches of 4 rows on each rank, 8 rows together, but would continue with 4 ranks .* "
        r"Make batches of 2 rows on each"
    )
    with pytest.raises(ArgumentError, match=said):
        resharded(shared(World(0, 4), 4), before)
    with pytest.raises(ArgumentError, match=r"8 rows are not divisible by 3: start 1, 2, 4 or 8 ranks"):
        resharded(shared(World(0, 3), 3), before)


def test_a_cursor_says_how_its_pipeline_divides_rows():
    dataset = pipe(ROWS, shard(1, 3), batch(4))
    cursor = cursor_after(2, dataset)
    assert cursor.division == dataset.division
    assert (dataset.division.shards, dataset.division.batch_rows) == (3, 4)
    assert dataset.division.fingerprint == pipe(ROWS, shard(0, 2), batch(6)).division.fingerprint
    assert dataset.division.fingerprint != pipe(ROWS, shard(1, 3, ends="drop"), batch(4)).division.fingerprint
    assert (ROWS.division.shards, ROWS.division.batch_rows) == (0, 0)


def test_a_cursor_of_another_pipeline_stays_one():
    before = cursor_after(3, pipe(ROWS, shard(0, 2), batch(4)))
    for other in (pipe(ROWS, shard(0, 4), batch(2, drop_last=True)), pipe(ROWS, shard(0, 2), batch(5)), pipe(ROWS, batch(4))):
        assert resharded(other, before) is before
        with pytest.raises(CursorMismatchError):
            iterate(other, resharded(other, before))
