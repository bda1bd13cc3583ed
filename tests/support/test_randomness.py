"""Keys: the same for one row as for many, and spread as evenly as random numbers are."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlxfp.support.randomness import fold_in, fold_in_rows, fold_into_rows, generator

KEYS = st.integers(0, 2**64 - 1)
PARTS = st.lists(st.integers(-(2**63), 2**64 - 1) | st.text(max_size=4), max_size=3)
MANY = 100_000


@given(KEYS, st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_one_number_gives_the_key_that_it_gives_among_many(key: int, rows: list[int]):
    assert fold_in_rows(key, np.array(rows, np.int64)).tolist() == [fold_in(key, row) for row in rows]


@given(st.lists(KEYS), PARTS)
def test_one_key_gives_the_key_that_it_gives_among_many(keys: list[int], parts: list[int | str]):
    assert fold_into_rows(np.array(keys, np.uint64), *parts).tolist() == [fold_in(key, *parts) for key in keys]


@given(KEYS, PARTS, PARTS)
def test_folding_in_turn_is_folding_at_once(key: int, first: list[int | str], second: list[int | str]):
    assert fold_in(key, *first, *second) == fold_in(fold_in(key, *first), *second)
    assert 0 <= fold_in(key, *first) < 2**64


@given(KEYS, st.sets(st.integers(0, 2**64 - 1), max_size=50))
def test_different_numbers_never_give_the_same_key(key: int, numbers: set[int]):
    assert len({fold_in(key, number) for number in numbers}) == len(numbers)


def test_names_and_their_order_matter():
    parts: list[tuple[int | str, ...]] = [("a",), ("b",), ("a", "b"), ("b", "a"), ("ab",), ("a", 1), (1, "a"), (1,), ("1",), (0,), ()]
    assert len({fold_in(7, *part) for part in parts}) == len(parts)


def _rows(key: int) -> NDArray[np.uint64]:
    return fold_in_rows(key, np.arange(MANY))


def _seeds(key: int) -> NDArray[np.uint64]:
    return np.array([fold_in(0, seed, "shuffle", key) for seed in range(MANY // 10)], np.uint64)


def _stages(key: int) -> NDArray[np.uint64]:
    return fold_into_rows(fold_in_rows(fold_in(0, key), np.arange(MANY)), "flat_map", key)


@pytest.mark.parametrize("keys", [_rows, _seeds, _stages])
@pytest.mark.parametrize("key", [0, 1, 2**64 - 1])
def test_keys_are_spread_evenly(keys: Callable[[int], NDArray[np.uint64]], key: int):
    found = keys(key)
    bits = np.unpackbits(found.view(np.uint8)).reshape(-1, 64)
    count = len(found)
    assert len(np.unique(found)) == count
    assert abs(bits.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / count**0.5, "each bit is set in half of the keys"
    agreeing = (bits[1:] == bits[:-1]).mean(axis=0)
    assert abs(agreeing - 0.5).max() < 4.5 * 0.5 / count**0.5, "a bit says nothing of the same bit of the next key"
    for modulus in (3, 10, 64):
        counts = np.bincount((found % np.uint64(modulus)).astype(np.int64), minlength=modulus)
        chi = ((counts - count / modulus) ** 2 / (count / modulus)).sum()
        assert chi < modulus - 1 + 6 * (2 * (modulus - 1)) ** 0.5, "each remainder is as frequent as any other"


def test_the_statistics_catch_keys_that_only_count():
    with pytest.raises(AssertionError):
        test_keys_are_spread_evenly(lambda key: np.arange(MANY, dtype=np.uint64) + np.uint64(key), 0)
    with pytest.raises(AssertionError):
        test_keys_are_spread_evenly(lambda key: _rows(key) | np.uint64(1), 0)


def test_one_bit_of_the_key_or_the_row_changes_half_of_the_bits():
    rng = generator(3)
    keys = rng.integers(0, 2**63, 2000, dtype=np.uint64)
    for bit in range(0, 63, 7):
        flipped = fold_into_rows(keys ^ np.uint64(1 << bit), "name") ^ fold_into_rows(keys, "name")
        assert 31 < np.bitwise_count(flipped).mean() < 33
        rows = fold_in_rows(5, keys ^ np.uint64(1 << bit)) ^ fold_in_rows(5, keys)
        assert 31 < np.bitwise_count(rows).mean() < 33


def test_keys_never_change_for_cursors_and_caches_outlive_a_version():
    assert fold_in(0, 1) == 0xDCE423FC82C0D5B8
    assert fold_in(7, "dropout", 3) == 0x0300F7193EC5C6D4
    assert fold_in_rows(7, np.arange(3)).tolist() == [236966933211079599, 12966676493058619558, 3270201391739464176]
    assert generator(5).integers(0, 1000, 4).tolist() == [206, 733, 52, 590]


def test_generators_are_functions_of_their_key():
    assert generator(5).random() == generator(5).random() != generator(6).random()
