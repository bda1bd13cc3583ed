"""Cursors of a run that goes on with another number of ranks."""

import pytest

import mlxfp as fp
from mlxfp.core.resharding import resharded
from mlxfp.support.errors import ArgumentError, CursorMismatchError
from tests.properties.ranks.rank_programs import ROWS, shared


def cursor_after(count, dataset):
    cursor = [cursor for _, cursor in fp.iterate(dataset)][count - 1]
    return fp.Cursor.from_bytes(cursor.to_bytes())


def test_a_cursor_goes_on_with_the_same_global_batches_on_other_ranks():
    before = cursor_after(3, shared(fp.distributed.World(1, 2), 4))
    now = [shared(fp.distributed.World(rank, 4), 2) for rank in range(4)]
    rest = [[item for item, _ in fp.iterate(each, resharded(each, before))] for each in now]
    rows = [sorted(number for part in parts for number in part["number"].tolist()) for parts in zip(*rest, strict=True)]
    expected = [sorted(item["number"].tolist()) for item in shared(fp.distributed.World(0, 1), 8)][3:]
    assert rows == expected
    same = cursor_after(3, shared(fp.distributed.World(1, 2), 4))
    assert resharded(shared(fp.distributed.World(1, 2), 4), same) is same


def test_global_batches_of_another_size_are_refused():
    before = cursor_after(3, shared(fp.distributed.World(0, 2), 4))
    said = (
        r"would change from 8 to 16 rows\. The run began with 2 ranks and batches of 4 rows on each rank\. "
        r"It would continue with 4 ranks and batches of 4 rows\. Make batches of 2 rows on each"
    )
    with pytest.raises(ArgumentError, match=said):
        resharded(shared(fp.distributed.World(0, 4), 4), before)
    with pytest.raises(ArgumentError, match=r"8 rows are not divisible by 3: start 1, 2, 4 or 8 ranks"):
        resharded(shared(fp.distributed.World(0, 3), 3), before)


def test_a_cursor_says_how_its_pipeline_divides_rows():
    dataset = fp.pipe(ROWS, fp.shard(1, 3), fp.batch(4))
    cursor = cursor_after(2, dataset)
    assert cursor.division == dataset.division
    assert (dataset.division.shards, dataset.division.batch_rows) == (3, 4)
    assert dataset.division.fingerprint == fp.pipe(ROWS, fp.shard(0, 2), fp.batch(6)).division.fingerprint
    assert dataset.division.fingerprint != fp.pipe(ROWS, fp.shard(1, 3, ends="drop"), fp.batch(4)).division.fingerprint
    assert (ROWS.division.shards, ROWS.division.batch_rows) == (0, 0)


def test_a_cursor_of_another_pipeline_stays_one():
    before = cursor_after(3, fp.pipe(ROWS, fp.shard(0, 2), fp.batch(4)))
    for other in (
        fp.pipe(ROWS, fp.shard(0, 4), fp.batch(2, drop_last=True)),
        fp.pipe(ROWS, fp.shard(0, 2), fp.batch(5)),
        fp.pipe(ROWS, fp.batch(4)),
    ):
        assert resharded(other, before) is before
        with pytest.raises(CursorMismatchError):
            fp.iterate(other, resharded(other, before))
