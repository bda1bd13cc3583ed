"""How well each way of shuffling shuffles, and that it is exact."""

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.core.arrow.gathering import rows_in
from mlxfp.data.rows import shuffle_buffers, shuffling
from mlxfp.data.rows.permuting import permute
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing.laws import assert_resumable
from mlxfp.testing.probing import from_chunks


def test_a_whole_shuffle_is_as_good_as_chance_and_a_buffer_moves_rows_by_about_its_size():
    rows = fp.from_table({"x": np.arange(20_000)})
    whole, buffered = (np.array([row["x"] for row in fp.pipe(rows, fp.shuffle(seed=0, buffer=buffer))]) for buffer in (None, 500))
    places = np.arange(20_000)
    assert abs(np.abs(whole - places).mean() / 20_000 - 1 / 3) < 0.01
    assert abs(np.corrcoef(whole, places)[0, 1]) < 0.03
    assert (np.abs(np.diff(whole)) == 1).mean() < 0.001
    assert 0.01 < np.abs(buffered - places).mean() / 20_000 < 0.05
    assert (np.abs(np.diff(buffered)) == 1).mean() < 0.01


def test_every_order_of_few_rows_is_as_likely():
    orders = [tuple(permute(np.arange(3), count=3, key=key).tolist()) for key in range(6000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts) < 150


@pytest.mark.parametrize("count", [2**20 + 1, 2**20 + 12_345, 3 * 10**6])
def test_large_permutations_are_permutations_computed_anywhere(count: int):
    order = permute(np.arange(count), count=count, key=7)
    assert np.bincount(order, minlength=count).max() == 1
    some = np.array([0, 5, count - 1])
    assert permute(some, count=count, key=7).tolist() == order[some].tolist()
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.01


def test_no_epoch_of_one_seed_is_an_epoch_of_another():
    rows = fp.from_examples([{"x": i} for i in range(50)])
    orders = [
        tuple(row["x"] for row, _ in fp.iterate(fp.pipe(rows, fp.shuffle(seed=seed, buffer=buffer)), epoch=epoch))
        for seed in range(4)
        for epoch in range(4)
        for buffer in (None, 20)
    ]
    assert len(set(orders)) == len(orders)


def test_rows_without_random_access_are_shuffled_like_those_with_it():
    rows = fp.from_examples([{"x": i} for i in range(100)])
    assert list(fp.pipe(rows, fp.filter(lambda row: True), fp.shuffle(seed=3))) == list(fp.pipe(rows, fp.shuffle(seed=3)))


def test_rows_that_are_gathered_lie_in_few_chunks_as_each_costs_for_every_few_rows(monkeypatch):
    found = []
    monkeypatch.setattr(shuffling, "rows_in", lambda schema, chunks: found.append(len(chunks)) or rows_in(schema, chunks))
    rows = from_chunks([pa.record_batch({"x": [place] * 10}) for place in range(300)])
    assert sorted(row["x"] for row in fp.pipe(rows, fp.shuffle(seed=0))) == [place for place in range(300) for _ in range(10)]
    assert found == [1]


def test_a_buffer_joins_small_chunks_as_each_costs_at_every_step(monkeypatch):
    sizes = []
    monkeypatch.setattr(shuffle_buffers, "rows_in", lambda schema, chunks: sizes.append(len(chunks)) or rows_in(schema, chunks))
    small, large = (from_chunks([pa.record_batch({"x": range(at, at + size)}) for at in range(0, 2000, size)]) for size in (1, 2000))
    assert list(fp.pipe(small, fp.shuffle(seed=0, buffer=300))) == list(fp.pipe(large, fp.shuffle(seed=0, buffer=300)))
    assert max(sizes) < 20
    assert_resumable(fp.pipe(small, fp.take(30), fp.shuffle(seed=0, buffer=10)))


def test_mistakes_are_named():
    with pytest.raises(ArgumentTypeError, match="seed must be an int"):
        fp.shuffle(seed=None)
    with pytest.raises(ArgumentError, match="buffer must be at least 1, got buffer=0"):
        fp.shuffle(seed=0, buffer=0)
