"""Arrays of other libraries as values of rows: taken as the numpy arrays that they are, by every way in."""

from array import array
from datetime import date
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.errors import SchemaError
from mlxfp.core.pipelines import pipe
from mlxfp.data.rows.map_filter import flat_map, map
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
from mlxfp.data.sources.torch_datasets import from_torch
from mlxfp.testing import laws
from mlxfp.testing.comparing import same


class Tensor:
    """What a tensor of torch offers, on another device and in the graph of gradients."""

    def __init__(self, values: Any, device: str = "gpu") -> None:
        self.values, self.device = np.asarray(values), device

    dtype = property(lambda self: self.values.dtype)

    def __len__(self) -> int:
        return len(self.values)

    def detach(self) -> "Tensor":
        return Tensor(self.values, "detached")

    def cpu(self) -> "Tensor":
        assert self.device == "detached"
        return Tensor(self.values, "cpu")

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        assert self.device == "cpu", "a tensor on another device has no numpy array"
        return self.values


class Exchanged:
    """An array that offers DLPack only."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


def read_only(values: Any) -> np.ndarray:
    made = np.array(values)
    made.flags.writeable = False
    return made


KINDS = {"mlx": mx.array, "torch": Tensor, "dlpack": Exchanged, "read-only": read_only}
WAYS = {
    "from_examples": from_examples,
    "from_iterable": from_iterable,
    "map": lambda rows: pipe(from_examples([{"place": place} for place in range(len(rows))]), map(lambda row: rows[row["place"]])),
    "flat_map": lambda rows: pipe(
        from_examples([{"place": place} for place in range(len(rows))]), flat_map(lambda row: [rows[row["place"]]])
    ),
    "from_torch": from_torch,
    "from_table": lambda rows: from_table({name: [row[name] for row in rows] for name in rows[0]}),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@given(
    shape=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    dtype=st.sampled_from(["int32", "uint8", "float32", "float16"]),
    count=st.integers(1, 3),
)
def test_an_array_is_the_numpy_array_that_it_is_whatever_made_it(way: Any, kind: Any, shape: tuple[int, ...], dtype: str, count: int):
    plain = [np.full(shape, place, dtype) for place in range(count)]
    expected = way([{"x": value.item() if not shape else value} for value in plain])
    found = way([{"x": kind(value)} for value in plain])
    if shape:
        laws.assert_same_items(found, expected)
    else:
        assert same(list(found), list(expected))


def test_arrays_in_lists_and_mappings_and_beside_plain_values_are_taken_too():
    rows = [
        {"x": [mx.array(1), 2], "y": {"a": mx.array([1, 2]), "b": Tensor(3.5)}, "z": [mx.array([[1, 2]])]},
        {"x": [3], "y": {"a": [3], "b": 1.0}, "z": []},
    ]
    assert list(from_examples(rows)) == [
        {"x": [1, 2], "y": {"a": [1, 2], "b": 3.5}, "z": [[[1, 2]]]},
        {"x": [3], "y": {"a": [3], "b": 1.0}, "z": []},
    ]
    mixed = from_examples([{"x": mx.array([1, 2])}, {"x": [3]}, {"x": None}, {"x": np.array([4])}, {"x": pa.array([5, None])}])
    assert [row["x"] for row in mixed] == [[1, 2], [3], None, [4], [5, None]]
    assert [row["x"] for row in from_examples([{"x": array("i", [1, 2])}, {"x": array("i")}])] == [[1, 2], []]
    assert [row["x"] for row in from_examples([{"x": np.array(np.datetime64("2024-01-02"))}])] == [date(2024, 1, 2)]


def test_whole_columns_of_other_libraries_are_columns():
    rows = from_table({"x": mx.array([1, 2, 3]), "y": Tensor(np.ones((3, 2), np.float32)), "z": mx.zeros((3, 2, 2))})
    assert rows.source.schema().types == [
        pa.int32(),
        pa.fixed_shape_tensor(pa.float32(), [2]),
        pa.fixed_shape_tensor(pa.float32(), [2, 2]),
    ]
    assert rows[1]["x"] == 2


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_numpy_has_no_type_for_is_named_with_its_cure(way: Any):
    rows = [{"x": mx.array([1.0]).astype(mx.bfloat16)}] * 2
    with pytest.raises(
        SchemaError, match=r"numpy cannot read an array of mlx.core.array of mlx.core.bfloat16: .*bfloat16, which .* to float32\."
    ):
        list(way(rows))
    nested = [{"x": [rows[0]["x"]]}]
    with pytest.raises(SchemaError, match=r"bfloat16, which numpy does not have, to float32"):
        list(way(nested))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_no_value_at_all_is_named_with_what_is(way: Any):
    with pytest.raises(
        SchemaError, match=r"Column 'x' of row 0: .* does not fit the type of any Arrow column\. Make it a number of at most 64"
    ):
        list(way([{"x": object()}]))
