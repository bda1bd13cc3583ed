"""The laws of numbers as text: what is written says what was there, and quantiles know only what they were fitted on."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.app.kaggle.rows.numbers import NumberFormat, find_bins
from mlxfp.app.kaggle.specs.cells import as_floats, shortest
from tests.app.kaggle.drawing import NUMBERS


@given(number=NUMBERS, integer=st.integers())
def test_raw_numbers_read_back_as_themselves(number: float, integer: int):
    assert float(shortest(number)) == number
    assert int(shortest(integer)) == integer


@given(values=st.lists(st.none() | st.floats()), digits=st.integers(0, 5))
def test_rounded_numbers_are_as_near_as_round_says(values: list[float | None], digits: int):
    for value, text in zip(values, NumberFormat("round", digits).write(pa.array(values, pa.float64())).to_pylist(), strict=True):
        if value is None or math.isnan(value):
            assert text is None
        else:
            assert float(text) == round(value, digits)
            assert text != "-0"


@given(
    train=st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), more=st.lists(st.floats(), max_size=10), count=st.integers(2, 12)
)
def test_a_number_is_in_the_range_that_is_said(train: list[float], more: list[float], count: int):
    bins = find_bins(np.array(train), count)
    assert {low for low, _ in bins} <= set(train)
    for value, text in zip(train + more, NumberFormat("quantile", count, bins).write(pa.array(train + more)).to_pylist(), strict=True):
        if math.isnan(value):
            assert text is None
        else:
            assert _holds(text, value), f"{value} was said to be {text!r}"


@given(train=st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), count=st.integers(2, 12))
def test_percents_are_the_shares_of_training_rows_below(train: list[float], count: int):
    for low, percent in find_bins(np.array(train), count):
        below, upto = np.mean(np.array(train) < low), np.mean(np.array(train) <= low)
        assert 100 * below - 1 <= percent <= 100 * upto + 1


def _holds(text: str, value: float) -> bool:
    said = text.rpartition(", quantile")[0]
    if not said:
        return True
    if said.startswith("below "):
        return value < float(said[6:])
    if said.endswith(" or more"):
        return value >= float(said[:-8])
    low, high = map(float, said.split(" to "))
    return low <= value < high


@pytest.mark.parametrize(
    ("style", "digits", "values", "texts"),
    [
        ("raw", 0, [22.0, 7.25, None, 1e-7, float("inf")], ["22", "7.25", None, "1e-07", "inf"]),
        ("round", 1, [22.0, 7.25, -0.01, 1e20], ["22", "7.2", "0", "1e+20"]),
        ("quantile", 2, [5.0], ["quantile 0-100 %"]),
    ],
)
def test_numbers_are_written_as_people_do(style: Any, digits: int, values: list[float | None], texts: list[str | None]):
    bins = ((5.0, 0),) if style == "quantile" else ()
    assert NumberFormat(style, digits, bins).write(pa.array(values, pa.float64())).to_pylist() == texts


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, None]),
        pa.array([1, None], pa.uint8()),
        pa.array([1, None], pa.decimal128(5, 2)),
        pa.array(np.array([1, np.nan], np.float16)),
        pa.array([1.0, None]).dictionary_encode(),
    ],
)
def test_numbers_of_any_type_are_written(column: pa.Array):
    assert NumberFormat("raw", 0).write(column).to_pylist() == ["1", None]
    assert np.array_equal(as_floats(column), [1, np.nan], equal_nan=True)


def test_without_any_number_to_compare_with_all_is_missing():
    assert find_bins(np.array([np.nan]), 4) == ()
    assert NumberFormat("quantile", 4).write(pa.array([1.0])).to_pylist() == [None]
    assert NumberFormat("quantile", 4, ((1.0, 0),)).write(pa.nulls(2)).to_pylist() == [None, None]
