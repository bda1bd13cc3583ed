"""`map` with a seed and with workers; what it does without them is tested with the other stages over elements."""

import math
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.randomness import fold_in, generator
from mlxfp.testing.laws import (
    assert_chunks_do_not_matter,
    assert_resumable,
    assert_told_apart,
    assert_value,
)
from mlxfp.testing.strategies import rechunkings


def numbers(count):
    return fp.from_table({"x": np.arange(count)})


def noisy(row, random):
    return {"x": row["x"], "noise": float(random.random())}


def fails_at_seven(row):
    time.sleep(0.001 * (row["x"] % 3))  # rows take different times, so that threads would mix them up
    return {"x": 1 / (row["x"] - 7)}


@given(data=st.data(), seed=st.integers(-5, 2**70), epoch=st.integers(0, 3))
def test_noise_depends_on_the_row_the_epoch_and_the_seed_alone(data, seed, epoch):
    table = pa.table({"x": range(10)})
    transform = fp.map(noisy, seed=seed)
    assert_chunks_do_not_matter(transform, data.draw(rechunkings(table)), data.draw(rechunkings(table)), epoch=epoch)
    expected = [generator(fold_in(fold_in(fold_in(0, epoch), x), "map", seed)).random() for x in range(10)]
    found = [row for row, _ in fp.iterate(transform(numbers(10)), epoch=epoch)]
    assert [row["noise"] for row in found] == expected


def test_noise_is_the_same_through_shuffles_shards_filters_and_groups():
    plain = {row["x"]: row["noise"] for row in fp.pipe(numbers(100), fp.map(noisy, seed=3))}
    for parts in (
        [fp.shuffle(seed=1)],
        [fp.shuffle(seed=1, buffer=7)],
        [fp.shard(1, 3)],
        [fp.filter(lambda row: row["x"] > 5)],
        [fp.prefetch(2)],
    ):
        for row in fp.pipe(numbers(100), *parts, fp.map(noisy, seed=3)):
            assert row["noise"] == plain[row["x"]]
    groups = fp.pipe(numbers(100), fp.shuffle(seed=2), fp.batch(7), fp.map(noisy, seed=3))
    assert all(row["noise"] == plain[row["x"]] for group in groups for row in group)


def test_noise_is_another_one_each_epoch_and_for_each_seed():
    passes = [row["noise"] for row in fp.pipe(numbers(50), fp.map(noisy, seed=3), fp.repeat(3))]
    others = [row["noise"] for row in fp.pipe(numbers(50), fp.map(noisy, seed=4))]
    assert len({*passes, *others}) == 200


def test_noise_that_depends_on_chunks_would_be_caught():
    @frozen(repr=False)
    class ByChunk(fp.RowWise):
        def apply(self, chunk: RecordBatch) -> RecordBatch:
            return chunk.set_column(0, "x", pa.array(generator(0).random(chunk.num_rows)))

        def schema(self, schema):
            return pa.schema({"x": pa.float64()})

    whole = pa.record_batch({"x": [1, 2, 3]})
    with pytest.raises(AssertionError, match="chunk boundaries do not change the items"):
        assert_chunks_do_not_matter(ByChunk(), [whole], [whole.slice(0, 1), whole.slice(1)])


def test_seeds_are_part_of_how_it_prints():
    assert repr(fp.map(noisy, seed=1)) == "map(function=noisy, seed=1)"
    assert repr(fp.map(dict)) == "map(function=dict)"
    assert_value(fp.map(noisy, seed=1))
    assert_told_apart(fp.map(noisy, seed=1), fp.map(noisy, seed=2))
    assert_told_apart(fp.map(noisy, seed=1), fp.map(noisy))


def test_noise_resumes_exactly():
    assert_resumable(fp.pipe(numbers(12), fp.shuffle(seed=1), fp.map(noisy, seed=5), fp.batch(5)), epoch=1)


def test_an_error_names_row_and_stage_with_a_seed():
    def fails(row, random):
        raise KeyError("missing")

    with pytest.raises(KeyError) as caught:
        list(fp.pipe(numbers(3), fp.map(fails, seed=1, schema=pa.schema({"x": pa.int64()}))))
    assert caught.value.__notes__[0] == "on source row 0: {'x': 0}"


@pytest.mark.parametrize("empty", [None, math.nan])
def test_an_error_names_empty_columns_of_a_cut_row(empty):
    """The repr of a long row is cut, so that an empty column need not be visible."""
    row = {"a": 1.0, "text": "x" * 99, "b": empty, "c": empty, "end": "y" * 99}
    with pytest.raises(ZeroDivisionError) as caught:
        list(fp.pipe(fp.from_examples([row]), fp.map(lambda row: 1 / 0)))
    cut = repr(row)
    assert caught.value.__notes__[0] == f"on source row 0: {cut[:60]}...{cut[-16:]}; empty: 'b', 'c'"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"seed": "0"}, ArgumentTypeError, "seed must be an int, got seed='0'."),
        ({"seed": 0.5}, ArgumentTypeError, "seed must be an int, got seed=0.5."),
    ],
)
def test_messages(options, kind, message):
    with pytest.raises(kind, match=message):
        fp.map(noisy, **options)


def plus(row, by, *, name):
    return {name: row["x"] + by}


@pytest.mark.parametrize("make", [fp.map, fp.filter, fp.flat_map, fp.map_chunks])
def test_a_function_with_arguments_filled_in_is_a_value(make):
    stage = make(partial(plus, by=1, name="x"))
    assert_value(stage)
    assert_value(stage(numbers(3)))
    assert stage == make(partial(plus, by=1, name="x"))
    assert_told_apart(stage, make(partial(plus, by=2, name="x")))


def test_what_is_declared_prints_as_it_was_written():
    assert repr(fp.map(dict, schema=pa.schema({"x": pa.int64()}))) == "map(function=dict, schema=x: int64)"
    assert repr(fp.flat_map(list, schema=pa.schema({"x": pa.int64()}))) == "flat_map(function=list, schema=x: int64)"
    assert repr(fp.map_chunks(len, schema=pa.schema({"x": pa.int64()}))) == "map_chunks(function=len, schema=x: int64)"
