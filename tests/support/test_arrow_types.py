"""Tests of Arrow types answer by what a column holds, for every layout of it."""

import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support import arrow_types as types
from mlxfp.support.arrow_types import decoded, is_tensor, value_type

TEXT = [pa.string(), pa.large_string(), pa.string_view()]
BINARY = [pa.binary(), pa.large_binary(), pa.binary_view()]
NUMBERS = [pa.int8(), pa.uint64(), pa.float16(), pa.float64()]
LISTS = [pa.list_(pa.string()), pa.large_list(pa.int8())]
TENSOR = pa.fixed_shape_tensor(pa.int8(), (2, 3))
OTHERS = [pa.date32(), pa.struct([("x", pa.string())]), pa.map_(pa.string(), pa.int8()), pa.dictionary(pa.int8(), pa.string()), TENSOR]
MEMBERS = {
    "is_text": TEXT,
    "is_binary": BINARY,
    "is_number": NUMBERS,
    "is_number_like": [*NUMBERS, pa.bool_(), pa.null(), pa.decimal128(3, 1)],
    "is_list": LISTS,
    "is_list_like": [*LISTS, pa.list_(pa.int8(), 2)],
    "is_large": [TEXT[1], BINARY[1], LISTS[1]],
}
KINDS = [*TEXT, *BINARY, *NUMBERS, *LISTS, pa.list_(pa.int8(), 2), pa.bool_(), pa.null(), pa.decimal128(3, 1), *OTHERS]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_test_is_true_of_its_types_and_of_no_others(name: str):
    assert [kind for kind in KINDS if getattr(types, name)(kind)] == [kind for kind in KINDS if kind in MEMBERS[name]]


def test_tensors_are_told_apart_by_their_axes():
    assert is_tensor(TENSOR)
    assert [is_tensor(TENSOR, axes=axes) for axes in (1, 2, 3)] == [False, True, False]
    assert not is_tensor(TENSOR.storage_type)


@given(st.lists(st.sampled_from(["a", "b", None])), st.sampled_from(["dictionary", "run ends", "view", "plain"]))
def test_decoding_keeps_the_values(values: list[str | None], layout: str):
    column = pa.array(values, pa.string())
    if layout == "dictionary":
        laid = column.dictionary_encode()
    elif layout == "run ends":
        laid = pa.compute.run_end_encode(column)
    else:
        laid = column.cast(pa.string_view() if layout == "view" else pa.string())
    assert decoded(laid).equals(column)
    assert value_type(laid.type) == (pa.string_view() if layout == "view" else pa.string())
    assert decoded(column.cast(pa.binary()).cast(pa.binary_view())).equals(column.cast(pa.binary()))
