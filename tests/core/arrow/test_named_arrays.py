"""What collate functions return becomes arrays by name, whatever it is made of."""

from collections import UserDict
from importlib.util import find_spec
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.core.arrow.named_arrays import dtype_name, named_arrays, named_parts
from mlxfp.support.errors import ArgumentTypeError


class Pair(NamedTuple):
    x: Any
    y: Any


X, Y = np.array([1, 2]), np.array([0.5, 1.5], np.float32)


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        ({"x": X, "y": Y}, ["x", "y"]),
        (UserDict(x=X, y=Y), ["x", "y"]),
        ((X, Y), ["0", "1"]),
        ([X, Y], ["0", "1"]),
        (Pair(X, Y), ["0", "1"]),
        (({"a": X}, [Y]), ["0.a", "1.0"]),
        ({"x": {"a": X, "b": (Y, Y)}}, ["x.a", "x.b.0", "x.b.1"]),
        (X, ["0"]),
        ({}, []),
        ({"x": X, "texts": ["a", "b"]}, ["x", "texts"]),
        ((X, ("a", "b")), ["0", "1"]),
    ],
)
def test_parts_are_named_by_key_and_place(batch: Any, names: list[str]):
    assert list(named_parts(batch)) == list(named_arrays(batch)) == names


def test_arrays_stay_as_they_are_and_texts_become_tuples():
    parts = named_parts({"x": X, "texts": ["a"]})
    assert parts["x"] is X
    assert parts["texts"] == ("a",)
    assert np.shares_memory(named_arrays({"x": X})["x"], X)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32, mx.int8, mx.bool_])
def test_arrays_of_mlx_become_those_of_numpy(dtype: Any):
    array = mx.array([1, 0]).astype(dtype)
    assert named_arrays({"x": array})["x"].tolist() == array.tolist()
    assert dtype_name(array) == str(dtype).removeprefix("mlx.core.")


@pytest.mark.parametrize(
    ("batch", "where"),
    [
        (None, "the batch is NoneType: None"),
        ("text", "the batch is str: 'text'"),
        (["a"], "the batch is list"),
        ([1, 2], "the batch is list"),
        ({"x": 5}, "'x' is int: 5"),
        ({"x": [[1], [2, 3]]}, r"'x' is list: \[\[1\], \[2, 3\]\]"),
        (({"x": None},), "'0.x' is NoneType"),
    ],
)
def test_what_is_neither_array_nor_text_is_refused(batch: Any, where: str):
    with pytest.raises(ArgumentTypeError, match=f"A batch holds arrays and lists of texts, in a mapping or a tuple, but {where}"):
        named_arrays(batch)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: pip install 'mlxfp[bench]'")
def test_tensors_of_torch_are_taken_out_of_the_graph():
    import torch

    made = named_arrays({"x": torch.ones(2, requires_grad=True), "half": torch.ones(2, dtype=torch.bfloat16)})
    assert {name: (array.tolist(), array.dtype.name) for name, array in made.items()} == {
        "x": ([1.0, 1.0], "float32"),
        "half": ([1.0, 1.0], "float32"),
    }
    assert dtype_name(torch.zeros(1, dtype=torch.int64)) == "int64"
