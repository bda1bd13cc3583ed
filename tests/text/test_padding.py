"""The law of padding: what a few lines of Python do to each row."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.ragged import to_lists
from mlxfp.core.chunks import number_rows
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError
from tests.text.corpora import stage_of

KINDS = [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint8()), pa.list_(pa.float32()), pa.list_(pa.int16(), 3)]


def assert_pads(stage: Any, column: pa.Array, *, length: int, pad_id: int, side: str) -> None:
    """Law: each row is its values and the filling, on the right or the left; the mask is 1 on values, 0 on filling."""
    chunk = pa.record_batch({"input_ids": column})
    found = stage.apply(chunk)
    rows = column.to_pylist()
    filling = [[pad_id] * (length - len(row)) for row in rows]
    zeros, ones = ([[0] * len(part) for part in filling], [[1] * len(row) for row in rows])
    if side == "right":
        expected = [row + part for row, part in zip(rows, filling, strict=True)]
        mask = [row + part for row, part in zip(ones, zeros, strict=True)]
    else:
        expected = [part + row for row, part in zip(rows, filling, strict=True)]
        mask = [part + row for row, part in zip(ones, zeros, strict=True)]
    assert found["input_ids"].to_pylist() == expected
    assert found["attention_mask"].to_pylist() == mask
    assert found.schema.equals(stage.schema(chunk.schema))


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, int]:
    kind = draw(st.sampled_from(KINDS))
    fixed = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    values = st.integers(0, 99) if pa.types.is_integer(kind.value_type) else st.floats(-9, 9, width=32)
    rows = draw(st.lists(st.lists(values, min_size=fixed or 0, max_size=fixed or 6), max_size=6))
    column = pa.array(rows, kind).slice(draw(st.integers(0, len(rows))))
    return column, draw(st.integers(max([1, *map(len, column.to_pylist())]), 9))


@given(columns(), st.integers(0, 99), st.sampled_from(["right", "left"]))
def test_padding_a_chunk_is_padding_each_row(case: tuple[pa.Array, int], pad_id: int, side: Any):
    column, length = case
    assert_pads(stage_of(fp.pad(length, pad_id=pad_id, side=side)), column, length=length, pad_id=pad_id, side=side)


def test_the_law_catches_padding_on_the_wrong_side_and_a_mask_by_value():
    column = pa.array([[0, 5], [7]], pa.list_(pa.int32()))

    class MaskByValue:
        def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
            padded = stage_of(fp.pad(3, pad_id=0)).apply(chunk)
            real = padded["input_ids"].values.to_numpy() != 0
            mask = to_lists(real.astype(np.int32), np.arange(len(padded) + 1) * 3)
            return pa.record_batch({"input_ids": padded["input_ids"], "attention_mask": mask})

    assert_pads(stage_of(fp.pad(3, pad_id=0)), column, length=3, pad_id=0, side="right")
    for broken in (stage_of(fp.pad(3, pad_id=0, side="left")), MaskByValue()):
        with pytest.raises(AssertionError):
            assert_pads(broken, column, length=3, pad_id=0, side="right")


def test_rows_of_one_length_with_a_mask():
    rows = fp.from_examples([{"input_ids": [5, 6], "label": 1}, {"input_ids": [], "label": 0}])
    assert list(fp.pipe(rows, fp.pad(3, pad_id=9))) == [
        {"input_ids": [5, 6, 9], "label": 1, "attention_mask": [1, 1, 0]},
        {"input_ids": [9, 9, 9], "label": 0, "attention_mask": [0, 0, 0]},
    ]


def test_other_columns_of_the_same_rows_take_their_own_filling():
    rows = fp.from_examples([{"input_ids": [5, 6], "labels": [1, 2]}])
    assert list(fp.pipe(rows, fp.pad(3, pad_id=0), fp.pad(3, pad_id=-100, column="labels", mask=None))) == [
        {"input_ids": [5, 6, 0], "labels": [1, 2, -100], "attention_mask": [1, 1, 0]}
    ]


def test_the_stage_prints_as_its_call():
    assert repr(fp.pad(4, pad_id=0, side="left")) == "pad(length=4, pad_id=0, side='left')"


def test_rows_that_do_not_fit_are_named():
    stage = stage_of(fp.pad(2, pad_id=0))
    for rows, message in (
        ([[1], [1, 2, 3]], r"pad\(length=2\) got 3 values in column 'input_ids' of source row 31\. Truncate rows with tokenize"),
        ([[1], None], r"pad: column 'input_ids' of source row 31 is null\. Call fp\.map to replace the null"),
        ([[1], [None, 2]], r"pad: column 'input_ids' of source row 31 holds a null in its list\. Call fp\.map to replace the null"),
    ):
        chunk = number_rows(pa.record_batch({"input_ids": pa.array(rows, pa.list_(pa.int32()))}), 0, 30)
        with pytest.raises(DataError, match=message):
            stage.apply(chunk)


def test_columns_and_arguments_are_checked_before_any_row():
    with pytest.raises(SchemaError, match="pad needs lists of numbers in column 'input_ids', got string"):
        _ = fp.pipe(fp.from_examples([{"input_ids": "a"}]), fp.pad(3, pad_id=0)).resolved
    with pytest.raises(SchemaError, match="pad needs the column 'ids', which is missing"):
        _ = fp.pipe(fp.from_examples([{"input_ids": [1]}]), fp.pad(3, pad_id=0, column="ids")).resolved
    schema = pa.schema({"input_ids": pa.list_(pa.uint8())})
    with pytest.raises(SchemaError, match="pad_id=-100 does not fit column 'input_ids' of list<item: uint8>"):
        stage_of(fp.pad(3, pad_id=-100)).schema(schema)
    with pytest.raises(ArgumentError, match="length must be at least 1"):
        fp.pad(0, pad_id=0)
    with pytest.raises(ArgumentTypeError, match="pad_id must be an int, got pad_id=None"):
        fp.pad(3, pad_id=None)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(UnknownNameError, match="No side is named 'top'"):
        fp.pad(3, pad_id=0, side="top")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentError, match="mask='input_ids' is empty, reserved or the name of the padded column"):
        fp.pad(3, pad_id=0, mask="input_ids")
