"""shard: the global batches are the same sets for any number of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, CursorMismatchError, SchemaError


def rows(count: int, *, streamed: bool):
    made = fp.from_examples([{"x": i} for i in range(count)]) if count else fp.from_examples([])
    kept = fp.pipe(made, fp.filter(lambda row: True)) if streamed else made
    return fp.pipe(kept, fp.shuffle(seed=3))


def numbers(dataset) -> list[int]:
    return [row["x"] for row in dataset]


@given(st.integers(1, 40), st.integers(1, 7), st.booleans())
def test_uneven_shards_are_every_nth_row(count: int, ranks: int, streamed: bool):
    whole = rows(count, streamed=streamed)
    for rank in range(ranks):
        mine = fp.pipe(whole, fp.shard(rank, ranks))
        assert numbers(mine) == numbers(whole)[rank::ranks]
        assert fp.length(mine) in (None, len(numbers(mine)))


@given(st.integers(1, 40), st.integers(1, 7), st.booleans())
def test_dropping_leaves_out_the_last_incomplete_round(count: int, ranks: int, streamed: bool):
    whole = rows(count, streamed=streamed)
    for rank in range(ranks):
        mine = fp.pipe(whole, fp.shard(rank, ranks, ends="drop"))
        assert numbers(mine) == numbers(whole)[: count // ranks * ranks][rank::ranks]
        assert fp.length(mine) in (None, count // ranks)


@given(st.integers(1, 40), st.integers(1, 7), st.booleans())
def test_padding_gives_every_rank_as_many_rows_and_the_added_ones_no_weight(count: int, ranks: int, streamed: bool):
    whole = rows(count, streamed=streamed)
    for rank in range(ranks):
        mine = list(fp.pipe(whole, fp.shard(rank, ranks, ends="pad")))
        assert [row["x"] for row in mine if row["weight"]] == numbers(whole)[rank::ranks]
        assert len(mine) == -(-count // ranks)
        assert all(row["weight"] in (0.0, 1.0) for row in mine)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_padded_shard_keeps_the_weights_of_the_rows(streamed: bool):
    rows = fp.pipe(fp.from_examples([{"weight": 5.0}, {"weight": 6.0}, {"weight": 7.0}]), *([fp.filter(lambda row: True)] * streamed))
    with pytest.raises(SchemaError, match=r"would replace the column 'weight' of the rows\. Rename the column before shard"):
        list(fp.pipe(rows, fp.shard(1, 2, ends="pad")))
    renamed = fp.pipe(rows, fp.rename_columns({"weight": "example_weight"}), fp.shard(1, 2, ends="pad"))
    assert list(renamed) == [{"example_weight": 6.0, "weight": 1.0}, {"example_weight": 7.0, "weight": 0.0}]


def test_functions_after_a_padded_shard_see_the_weights():
    weighted = fp.pipe(rows(5, streamed=False), fp.shard(1, 2, ends="pad"), fp.map(lambda row: {"double": 2 * row["weight"]}))
    assert [row["double"] for row in weighted] == [2.0, 2.0, 0.0]


@given(st.integers(1, 3), st.sampled_from([1, 2, 3, 4, 6]))
def test_the_global_batches_are_the_same_sets_for_any_number_of_ranks(per_rank: int, ranks: int):
    whole, size = rows(48, streamed=False), 12
    expected = [set(numbers(group)) for group in fp.pipe(whole, fp.batch(size))]
    shards = [fp.pipe(whole, fp.shard(rank, ranks), fp.batch(size // ranks)) for rank in range(ranks)]
    together = [{number for group in groups for number in numbers(group)} for groups in zip(*shards, strict=True)]
    assert together == expected


def test_ranks_that_share_a_model_read_the_same_rows_and_others_disjoint_ones():
    worlds = [fp.distributed.World(rank, 8, tensor=2, pipeline=2) for rank in range(8)]
    assert [world.copy for world in worlds] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {world.copies for world in worlds} == {2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fp.shard(2, 2), "index must be from 0 to 1, got index=2 of count=2"),
        (lambda: fp.shard(0, 0), "count must be at least 1"),
        (lambda: fp.distributed.World(4, 4), "rank must be from 0 to 3, got rank=4"),
        (
            lambda: fp.distributed.World(0, 6, tensor=4),
            r"size=6 ranks cannot be divided into model copies of tensor \* pipeline = 4 \* 1 ranks",
        ),
    ],
)
def test_impossible_shards_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("index", "count", "message"),
    [
        (1, 2, r"the cursor has shard\(index=0, count=2\), the pipeline shard\(index=1, count=2\)"),
        (0, 1, r"began with 2 ranks and cannot continue with 1 rank: the pipeline has no batch\(size\) after shard"),
        (0, 4, r"began with 2 ranks and cannot continue with 4 ranks: the pipeline has no batch\(size\) after shard"),
    ],
)
def test_a_cursor_without_batches_is_refused_by_another_shard_with_both_numbers(index, count, message):
    _, cursor = next(fp.iterate(fp.pipe(fp.from_examples([{"x": i} for i in range(8)]), fp.shard(0, 2))))
    other = fp.pipe(fp.from_examples([{"x": i} for i in range(8)]), fp.shard(index, count))
    with pytest.raises(CursorMismatchError, match=message):
        fp.iterate(other, cursor)
