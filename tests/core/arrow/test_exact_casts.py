from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.arrow.exact_casts import cast_exactly
from mlxfp.core.arrow.exact_values import array_of, loses

HALF, SINGLE, DOUBLE = pa.float16(), pa.float32(), pa.float64()

LOST = [
    ([1e39], SINGLE),
    ([1.0, -1e39], SINGLE),
    ([3.4028236e38], SINGLE),  # the first decimal above the largest float32 that rounds to infinity
    ([70000.0], HALF),
    ([2**24 + 1], SINGLE),
    ([2**24 + 2], SINGLE),
    ([2049], HALF),
    ([2**53 + 1], DOUBLE),
    ([[1.0], [1e39]], pa.list_(SINGLE)),
    ([None, [1e39]], pa.large_list(SINGLE)),
    ([[1e39, 1.0]], pa.list_(SINGLE, 2)),
    ([{"a": 1e39}], pa.struct({"a": SINGLE})),
    ([{"a": [{"b": 2049}]}], pa.struct({"a": pa.list_(pa.struct({"b": HALF}))})),
]
KEPT: list[tuple[list[Any], pa.DataType]] = [
    ([0.1, 3.4028235e38, 16777217.5, None, 1e-300], SINGLE),
    ([float("inf"), float("-inf")], SINGLE),
    ([2**24, -(2**24)], SINGLE),
    ([2**53, 1e308], DOUBLE),
    ([65504.0, 2048], HALF),
    ([[0.1], [], None], pa.list_(SINGLE)),
    ([{"a": 0.5, "b": 2**40}], pa.struct({"a": SINGLE, "b": pa.int64()})),
]


@pytest.mark.parametrize(("values", "kind"), LOST)
def test_a_number_that_floats_would_lose_is_an_error(values: list[Any], kind: pa.DataType):
    """From Python values and from a column of a wider type."""
    assert any(loses(value, kind) for value in values)
    with pytest.raises(pa.ArrowInvalid):
        array_of(values, kind)
    with pytest.raises(pa.ArrowInvalid):
        cast_exactly(pa.array(values), kind)


@pytest.mark.parametrize(("values", "kind"), KEPT)
def test_decimals_are_rounded_and_infinities_stay(values: list[Any], kind: pa.DataType):
    assert not any(loses(value, kind) for value in values)
    assert array_of(values, kind).equals(pa.array(values, kind))
    assert cast_exactly(pa.array(values), kind).equals(pa.array(values, kind))


@pytest.mark.parametrize("kind", [HALF, SINGLE, DOUBLE])
@given(st.lists(st.floats(allow_nan=False) | st.none()))
def test_a_cast_fails_exactly_if_numpy_gives_a_new_infinity(kind: pa.DataType, values: list[float | None]):
    column = pa.array(values, DOUBLE)
    with np.errstate(over="ignore"):
        numbers = np.array([value for value in values if value is not None])
        new = np.isinf(numbers.astype(f"f{kind.bit_width // 8}")) & np.isfinite(numbers)
    assert new.any() == any(loses(value, kind) for value in values)
    if new.any():
        with pytest.raises(pa.ArrowInvalid, match=r"the number .* does not fit"):
            cast_exactly(column, kind)
    else:
        assert cast_exactly(column, kind).equals(column.cast(kind))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([Decimal(2**53 + 1)]), DOUBLE),
        (pa.array([Decimal(2**24 + 1)]), SINGLE),
        (pa.array([Decimal(10**39)]), SINGLE),
        (pa.array(["16777217"]), SINGLE),
        (pa.array(["1", "1e400"]), DOUBLE),
        (pa.array([1e39]).dictionary_encode(), SINGLE),
        (pa.array([0.5, 1e39]).slice(1), SINGLE),
        (pa.array([[0.5], [1e39]]).slice(1), pa.list_(SINGLE)),
    ],
)
def test_other_columns_lose_no_number(column: pa.Array, kind: pa.DataType):
    with pytest.raises(pa.ArrowInvalid):
        cast_exactly(column, kind)


def test_values_outside_a_slice_and_under_nulls_do_not_count():
    hidden = pa.StructArray.from_arrays([pa.array([1e39, 0.5])], names=["a"], mask=pa.array([True, False]))
    assert cast_exactly(hidden, pa.struct({"a": SINGLE})).to_pylist() == [None, {"a": 0.5}]
    assert cast_exactly(pa.array([1e39, 0.5]).slice(1), SINGLE).to_pylist() == [0.5]
    assert cast_exactly(pa.array([Decimal("9007199254740992.5")]), DOUBLE).to_pylist() == [9007199254740992.0]
    assert cast_exactly(pa.array(["inf", "-Infinity", "16777217.0"]), SINGLE).to_pylist() == [float("inf"), float("-inf"), 16777216.0]


@pytest.mark.parametrize("text", ["0xFF", "0x7F", "0X0a"])
@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()])
def test_a_hexadecimal_text_is_no_integer(text: str, kind: pa.DataType):
    """Arrow reads 0xFF as the int8 -1."""
    with pytest.raises(pa.ArrowInvalid, match=rf"the value {text} does not fit the type|out of range|Failed to parse"):
        cast_exactly(pa.array(["12", text]), kind)
    assert cast_exactly(pa.array(["12", "-7", None]), pa.int64()).to_pylist() == [12, -7, None]
