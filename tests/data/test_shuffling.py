"""How well each way of shuffling shuffles, and that it is exact."""

import numpy as np
import pytest

from mlxfp.core.cursors import iterate
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.core.pipelines import pipe
from mlxfp.data.elements import filter
from mlxfp.data.permuting import permute
from mlxfp.data.shuffling import shuffle, shuffle_quality
from mlxfp.data.sources import from_examples, from_table


def test_a_whole_shuffle_is_as_good_as_chance_and_a_buffer_moves_rows_by_about_its_size():
    rows = from_table({"x": np.arange(20_000)})
    whole, buffered = (shuffle_quality(pipe(rows, shuffle(0, buffer=buffer))) for buffer in (None, 500))
    assert abs(whole.moved - 1 / 3) < 0.01
    assert abs(whole.correlation) < 0.03
    assert whole.neighbours < 0.001
    assert 0.01 < buffered.moved < 0.05
    assert buffered.neighbours < 0.01


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
    rows = from_examples([{"x": i} for i in range(50)])
    orders = [
        tuple(row["x"] for row, _ in iterate(pipe(rows, shuffle(seed, buffer=buffer)), epoch=epoch))
        for seed in range(4)
        for epoch in range(4)
        for buffer in (None, 20)
    ]
    assert len(set(orders)) == len(orders)


def test_rows_without_random_access_are_shuffled_like_those_with_it():
    rows = from_examples([{"x": i} for i in range(100)])
    assert list(pipe(rows, filter(lambda row: True), shuffle(3))) == list(pipe(rows, shuffle(3)))


def test_mistakes_are_named():
    with pytest.raises(ArgumentTypeError, match="seed must be an int"):
        shuffle(None)
    with pytest.raises(ArgumentError, match="buffer must be at least 1, got buffer=0"):
        shuffle(0, buffer=0)
    with pytest.raises(DataError, match="at least two rows, got 1"):
        shuffle_quality(from_examples([{"x": 1}]))
