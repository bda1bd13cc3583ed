"""The collator that takes columns as they are."""

from datetime import date
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError


def test_every_kind_of_column_becomes_what_it_can():
    view = fp.Examples(
        pa.record_batch(
            {
                "count": pa.array([1, 2], pa.int8()),
                "code": pa.array([7, 7]).dictionary_encode(),
                "ratio": pa.array([0.5, 1.5], pa.float16()),
                "flag": [True, False],
                "word": ["a", "b"],
                "tokens": [[1, 2, 3], []],
                "scores": pa.array([[0.5], [1.0, 2.0]], pa.large_list(pa.float64())),
                "marks": [[True], [False, True]],
                "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
                "image": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype=np.uint8).reshape(2, 2, 2)),
                "vector": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(4, dtype=np.float64).reshape(2, 2)),
            }
        )
    )
    batch = fp.collators.default(pad_multiple=2)(view)
    assert batch.pop("word") == ("a", "b")
    assert {name: (values.dtype, values.tolist()) for name, values in batch.items()} == {
        "count": (mx.int32, [1, 2]),
        "code": (mx.int32, [7, 7]),
        "ratio": (mx.float32, [0.5, 1.5]),
        "flag": (mx.bool_, [True, False]),
        "tokens": (mx.int32, [[1, 2, 3, 0], [0, 0, 0, 0]]),
        "tokens_mask": (mx.int32, [[1, 1, 1, 0], [0, 0, 0, 0]]),
        "scores": (mx.float32, [[0.5, 0], [1.0, 2.0]]),
        "scores_mask": (mx.int32, [[1, 0], [1, 1]]),
        "marks": (mx.bool_, [[True, False], [False, True]]),
        "marks_mask": (mx.int32, [[1, 0], [1, 1]]),
        "pair": (mx.int32, [[1, 2], [3, 4]]),
        "pair_mask": (mx.int32, [[1, 1], [1, 1]]),
        "image": (mx.uint8, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
        "vector": (mx.float32, [[0, 1], [2, 3]]),
    }
    again = fp.collators.default(pad_multiple=2)(list(view))
    assert {name: values.tolist() for name, values in again.items() if name != "word"} == {name: v.tolist() for name, v in batch.items()}


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (
            {"when": [date(2020, 1, 1), None]},
            SchemaError,
            (
                "collators.default takes numbers, text, tensors and lists of numbers, got date32[day] in column 'when'. "
                "Convert the column to one of these types before batch, or remove the column with drop_columns(['when'])."
            ),
        ),
        (
            {"when": [date(2020, 1, 1)]},
            SchemaError,
            (
                "collators.default takes numbers, text, tensors and lists of numbers, got date32[day] in column 'when'. "
                "Convert the column to one of these types before batch, or remove the column with drop_columns(['when'])."
            ),
        ),
        ({"words": [["a"]]}, SchemaError, "collators.default: column 'words' must hold lists of numbers, got list<item: string>."),
        (
            {"x": [[1]], "x_mask": [1]},
            SchemaError,
            "collators.default: the mask of column 'x' would replace the column 'x_mask'. Rename 'x_mask'.",
        ),
        (
            {"x": [1, None]},
            DataError,
            "collators.default: column 'x' of row 1 of the group is null. Call fp.map to replace the null, or fp.filter to remove the row.",
        ),
    ],
)
def test_a_column_that_cannot_be_batched_is_named(columns: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error) as raised:
        fp.collators.default()(fp.Examples(pa.record_batch(columns)))
    assert str(raised.value) == message


def test_examples_without_columns_are_an_error():
    with pytest.raises(SchemaError, match="needs at least one column"):
        fp.collators.default()([{}, {}])


def test_arguments_that_cannot_be_are_refused_at_once():
    with pytest.raises(ArgumentTypeError, match="pad_id must be an int"):
        fp.collators.default(pad_id=0.5)
    with pytest.raises(ArgumentError, match="pad_multiple must be at least 1"):
        fp.collators.default(pad_multiple=0)
