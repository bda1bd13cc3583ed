"""The law of shuffling catches what is no permutation and what has one order too few."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mlxfp.data.sources import from_table
from mlxfp.testing.laws import assert_shuffles
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


def _anew(rows: Any, seed: int, epoch: int) -> Any:
    return np.random.default_rng().permutation(rows)


def _shuffle(order: Callable[..., Any]) -> Callable[[int], Any]:
    return lambda seed: broken.wrapped(broken.Permuted, seed, order)


def test_a_permutation_by_seed_and_epoch_passes() -> None:
    assert_shuffles(_shuffle(_right), ROWS)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (_same_every_epoch, r"the same: \[\(0, 0\), \(0, 1\), \(1, 0\), \(1, 1\)\]"),
        (_no_seed, "another order for each"),
        (_seed_plus_epoch, r"the same: \[\(0, 1\), \(1, 0\)\]"),
        (_with_replacement, "gives each row of its input once"),
        (_drops_one, "gives each row of its input once"),
        (_anew, "gives one order for one seed and epoch"),
    ],
)
def test_the_law_catches(order: Callable[..., Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_shuffles(_shuffle(order), ROWS)


def test_a_few_rows_may_have_one_order_by_chance() -> None:
    assert_shuffles(_shuffle(_same_every_epoch), from_table({"x": [1, 2]}))
