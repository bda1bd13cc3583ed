"""The laws of orders and parts catch an order that is not a permutation, an order that repeats, and parts that are not a partition."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.testing.laws import assert_partitions, assert_shuffles, assert_stay_apart
from tests.testing.laws import broken

ROWS = fp.from_table(pa.table({"x": range(20)}))


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
    assert_shuffles(_shuffle(_same_every_epoch), fp.from_table({"x": [1, 2]}))


@pytest.mark.parametrize("epoch", [0, 1])
def test_splits_shards_and_what_is_put_together_are_partitions(epoch: int):
    others = fp.from_table(pa.table({"x": [5, 5, -1]}))
    assert_partitions(fp.split((0.5, 0.3, 0.2), seed=0)(ROWS), ROWS, epoch=epoch)
    assert_partitions([fp.shard(index, 3)(ROWS) for index in range(3)], ROWS, epoch=epoch)
    for whole in (fp.concat([ROWS, others]), fp.interleave([ROWS, others]), fp.mix([ROWS, others], (2, 1), stop="all")):
        assert_partitions([ROWS, others], whole, epoch=epoch)


def test_rows_that_no_part_or_two_parts_have_are_caught():
    with pytest.raises(AssertionError, match=r"but they lose \[\"{'x': 1}\", [^\]]*\]$"):
        assert_partitions([fp.shard(0, 2)(ROWS)], ROWS)
    with pytest.raises(AssertionError, match=r"but they add \[\"{'x': 0}\","):
        assert_partitions([ROWS, fp.shard(0, 2)(ROWS)], ROWS)
    with pytest.raises(AssertionError, match=r"but they lose \[.* and add \[\"{'x': 7}\"\]"):
        assert_partitions([fp.from_table(pa.table({"x": [7]}))], fp.from_table(pa.table({"x": [8]})))


def test_rows_that_go_over_to_another_part_in_a_later_epoch_are_caught():
    shuffled = fp.shuffle(seed=0)(ROWS)
    assert_stay_apart(fp.split((0.8, 0.2), seed=0)(shuffled), shuffled)
    with pytest.raises(AssertionError, match=r"row \d+ is in part [01] in epoch 1 and was in part [01], of \["):
        assert_stay_apart([fp.take(16, redraw=True)(shuffled), fp.skip(16, redraw=True)(shuffled)], shuffled)
    with pytest.raises(AssertionError, match="but they add"):
        assert_stay_apart([ROWS, ROWS], ROWS)
