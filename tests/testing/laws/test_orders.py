"""The laws of orders and parts catch an order that is not a permutation, an order that repeats, and parts that are not a partition."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mlxfp.data.rows.map_filter import skip, take
from mlxfp.data.rows.mixing import concat, interleave, mix
from mlxfp.data.rows.selecting import split
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_table
from mlxfp.testing.laws import assert_partitions, assert_shuffles, assert_stay_apart
from tests.testing.laws import broken

ROWS = from_table(pa.table({"x": range(20)}))


def _random(*seeds: int) -> Any:
    return np.random.Generator(np.random.Philox(key=list(seeds)))


def _right(rows: Any, seed: int, epoch: int) -> Any:
    return _random(seed, epoch).permutation(rows)


def _same_every_epoch(rows: Any, seed: int, epoch: int) -> Any:
    return _random(seed, 0).permutation(rows)


def _no_seed(rows: Any, seed: int, epoch: int) -> Any:
    return _random(0, epoch).permutation(rows)


def _seed_plus_epoch(rows: Any, seed: int, epoch: int) -> Any:
    return _random(seed + epoch, 0).permutation(rows)


def _with_replacement(rows: Any, seed: int, epoch: int) -> Any:
    return _random(seed, epoch).choice(rows, len(rows))


def _drops_one(rows: Any, seed: int, epoch: int) -> Any:
    return _right(rows, seed, epoch)[1:]


def _another_each_time(rows: Any, seed: int, epoch: int) -> Any:
    return np.random.default_rng().permutation(rows)


def _shuffle(order: Callable[..., Any]) -> Callable[[int], Any]:
    return lambda seed: broken.wrapped(broken.Permuted, seed, order)


def test_a_permutation_by_seed_and_epoch_passes():
    assert_shuffles(_shuffle(_right), ROWS)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (_same_every_epoch, r"the same: \[\(0, 0\), \(0, 1\), \(1, 0\), \(1, 1\)\]"),
        (_no_seed, "a different order for each"),
        (_seed_plus_epoch, r"the same: \[\(0, 1\), \(1, 0\)\]"),
        (_with_replacement, "gives each row of its input once"),
        (_drops_one, "gives each row of its input once"),
        (_another_each_time, "gives one order for one seed and epoch"),
    ],
)
def test_the_law_catches(order: Callable[..., Any], words: str):
    with pytest.raises(AssertionError, match=words):
        assert_shuffles(_shuffle(order), ROWS)


def test_a_few_rows_may_have_one_order_by_chance():
    assert_shuffles(_shuffle(_same_every_epoch), from_table({"x": [1, 2]}))


@pytest.mark.parametrize("epoch", [0, 1])
def test_splits_shards_and_what_is_put_together_are_partitions(epoch: int):
    others = from_table(pa.table({"x": [5, 5, -1]}))
    assert_partitions(split((0.5, 0.3, 0.2), seed=0)(ROWS), ROWS, epoch=epoch)
    assert_partitions([shard(index, 3)(ROWS) for index in range(3)], ROWS, epoch=epoch)
    for whole in (concat([ROWS, others]), interleave([ROWS, others]), mix([ROWS, others], (2, 1), stop="all")):
        assert_partitions([ROWS, others], whole, epoch=epoch)


def test_rows_that_no_part_or_two_parts_have_are_caught():
    with pytest.raises(AssertionError, match=r"but they lose \[\"{'x': 1}\", [^\]]*\]$"):
        assert_partitions([shard(0, 2)(ROWS)], ROWS)
    with pytest.raises(AssertionError, match=r"but they add \[\"{'x': 0}\","):
        assert_partitions([ROWS, shard(0, 2)(ROWS)], ROWS)
    with pytest.raises(AssertionError, match=r"but they lose \[.* and add \[\"{'x': 7}\"\]"):
        assert_partitions([from_table(pa.table({"x": [7]}))], from_table(pa.table({"x": [8]})))


def test_rows_that_go_over_to_another_part_in_a_later_epoch_are_caught():
    shuffled = shuffle(seed=0)(ROWS)
    assert_stay_apart(split((0.8, 0.2), seed=0)(shuffled), shuffled)
    with pytest.raises(AssertionError, match=r"row \d+ is in part [01] in epoch 1 and was in part [01], of \["):
        assert_stay_apart([take(16, redraw=True)(shuffled), skip(16, redraw=True)(shuffled)], shuffled)
    with pytest.raises(AssertionError, match="but they add"):
        assert_stay_apart([ROWS, ROWS], ROWS)
