"""Arrays of other libraries as values of rows: taken as the numpy arrays that they are, by every way in."""

from array import array
from datetime import date
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import DataError, SchemaError
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


class Traced:
    """An array of JAX: it offers `__array__`, and iterating over it gives more of them."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Traced":
        return Traced(self.values[index])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values


class Picture:
    """An image of Pillow before it had `__array__`."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)
        self.__array_interface__ = self.values.__array_interface__


Picture.__array_interface__ = None  # type: ignore[attr-defined]  # types are looked at before values


def strided(values: Any) -> np.ndarray:
    """A view of every second value along each axis."""
    values = np.array(values)
    if not values.shape:
        return values
    wide = np.zeros([2 * size for size in values.shape], values.dtype)
    view = wide[tuple(slice(None, None, -2) for _ in values.shape)]
    view[...] = values
    return view


def swapped(values: Any) -> np.ndarray:
    return np.array(values).astype(np.asarray(values).dtype.newbyteorder("S"))


def bare(values: Any) -> Any:
    """A scalar of numpy where there are no axes."""
    return np.array(values)[()]


KINDS = {
    "mlx": mx.array,
    "torch": Tensor,
    "dlpack": Exchanged,
    "jax": Traced,
    "interface": Picture,
    "read-only": read_only,
    "strided": strided,
    "fortran": lambda values: np.array(values, order="F"),
    "swapped": swapped,
    "unmasked": lambda values: np.ma.array(values, mask=False),
    "scalar": bare,
}
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
WAYS = {
    "from_examples": fp.from_examples,
    "from_iterable": fp.from_iterable,
    "map": lambda rows: fp.pipe(fp.from_examples([{"place": place} for place in range(len(rows))]), fp.map(lambda row: rows[row["place"]])),
    "flat_map": lambda rows: fp.pipe(
        fp.from_examples([{"place": place} for place in range(len(rows))]), fp.flat_map(lambda row: [rows[row["place"]]])
    ),
    "from_torch": fp.from_torch,
    "from_table": lambda rows: fp.from_table({name: [row[name] for row in rows] for name in rows[0]}),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@settings(max_examples=12)
@given(
    shape=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    dtype=st.sampled_from(DTYPES),
    count=st.integers(1, 3),
)
def test_an_array_is_the_numpy_array_that_it_is_whatever_made_it(way: Any, kind: Any, shape: tuple[int, ...], dtype: str, count: int):
    if kind is mx.array and dtype == "float64":  # which it makes float32 of
        dtype = "float32"
    shape = shape[:1] if dtype == "bool" else shape  # Arrow has no tensors of these
    plain = [(np.arange(np.prod(shape, dtype=int)) + place).reshape(shape).astype(dtype) for place in range(count)]
    expected = way([{"x": value.item() if not shape else value} for value in plain])
    found = way([{"x": kind(value)} for value in plain])
    assert [np.asarray(row["x"]).tolist() for row in found] == [value.tolist() for value in plain]
    if shape:
        laws.assert_same_items(found, expected)
    else:
        assert same(list(found), list(expected))


def test_arrays_in_lists_and_mappings_and_beside_plain_values_are_taken_too():
    rows = [
        {"x": [mx.array(1), 2], "y": {"a": mx.array([1, 2]), "b": Tensor(3.5)}, "z": [mx.array([[1, 2]])]},
        {"x": [3], "y": {"a": [3], "b": 1.0}, "z": []},
    ]
    assert list(fp.from_examples(rows)) == [
        {"x": [1, 2], "y": {"a": [1, 2], "b": 3.5}, "z": [[[1, 2]]]},
        {"x": [3], "y": {"a": [3], "b": 1.0}, "z": []},
    ]
    mixed = fp.from_examples([{"x": mx.array([1, 2])}, {"x": [3]}, {"x": None}, {"x": np.array([4])}, {"x": pa.array([5, None])}])
    assert [row["x"] for row in mixed] == [[1, 2], [3], None, [4], [5, None]]
    assert [row["x"] for row in fp.from_examples([{"x": array("i", [1, 2])}, {"x": array("i")}])] == [[1, 2], []]
    assert [row["x"] for row in fp.from_examples([{"x": np.array(np.datetime64("2024-01-02"))}])] == [date(2024, 1, 2)]


def test_whole_columns_of_other_libraries_are_columns():
    rows = fp.from_table({"x": mx.array([1, 2, 3]), "y": Tensor(np.ones((3, 2), np.float32)), "z": mx.zeros((3, 2, 2))})
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
        SchemaError, match=r"numpy cannot read an array of mlx.core.array of mlx.core.bfloat16: .*Cast bfloat16.* to float32\."
    ):
        list(way(rows))
    nested = [{"x": [rows[0]["x"]]}]
    with pytest.raises(SchemaError, match=r"Cast bfloat16, unknown to numpy, to float32"):
        list(way(nested))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_no_value_at_all_is_named_with_what_is(way: Any):
    with pytest.raises(
        SchemaError, match=r"Column 'x' of row 0: .* does not fit the type of any Arrow column\. Make it a number of at most 64"
    ):
        list(way([{"x": object()}]))


def test_masked_values_are_null():
    rows = [{"x": np.ma.array([1, 2, 3], mask=[0, 1, 0])}, {"x": np.ma.array([4], mask=[0])}, {"x": np.array([5])}]
    assert [row["x"] for row in fp.from_examples(rows)] == [[1, None, 3], [4], [5]]
    assert [row["x"] for row in fp.from_examples([{"x": np.ma.masked}, {"x": 2.5}])] == [None, 2.5]
    table = fp.from_table({"x": np.ma.array([1, 2], mask=[True, False], dtype=np.int8)})
    assert table.source.schema() == pa.schema({"x": pa.int8()})
    assert [row["x"] for row in table] == [None, 2]
    square = np.ma.array([[1, 2]], mask=[[0, 1]])
    for make in (lambda: fp.from_examples([{"x": square}]), lambda: fp.from_table({"x": square})):
        with pytest.raises(
            SchemaError, match=r"tensors have no nulls: got an array of shape \(1, 2\) with masked values\. Fill the masked values"
        ):
            make()


MASKED = np.ma.array([1, 2, 3], mask=[0, 1, 0])
HOLDING = {
    "array": (MASKED, [1, None, 3]),
    "list": ([MASKED, np.array([4])], [[1, None, 3], [4]]),
    "list of masked numbers": ([np.ma.masked, 2.5], [None, 2.5]),
    "mapping": ({"a": MASKED, "b": 7}, {"a": [1, None, 3], "b": 7}),
    "masked number in a mapping": ({"a": np.ma.masked, "b": 7}, {"a": None, "b": 7}),
    "list of mappings": ([{"a": MASKED}, {"a": [4]}], [{"a": [1, None, 3]}, {"a": [4]}]),
    "list of lists": ([[MASKED], [[4]]], [[[1, None, 3]], [[4]]]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", HOLDING)
def test_masked_values_are_null_wherever_an_array_is(way: Any, name: str):
    value, expected = HOLDING[name]
    assert [row["x"] for row in way([{"x": value}, {"x": value}])] == [expected, expected]


def test_masked_values_in_a_tensor_are_refused():
    rows = [{"x": np.array([[1, 2, 3]])}, {"x": [MASKED]}]
    with pytest.raises(DataError, match=r"Column 'x' of row 1 has masked values, and a column of fixed-shape tensors \(1, 3\) cannot hold"):
        fp.from_examples(rows)


def test_numbers_of_64_bits_without_a_sign_are_kept():
    largest = 2**64 - 1
    for value in (np.uint64(largest), np.array(largest, np.uint64), mx.array(np.uint64([largest]))[0], np.array([largest], np.uint64)):
        assert np.ravel(next(iter(fp.from_examples([{"x": value}])))["x"]).tolist() == [largest]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_text_of_numpy_and_a_matrix_are_what_they_hold():
    assert [row["x"] for row in fp.from_examples([{"x": np.array(["a", "é"], np.dtypes.StringDType())}])] == [["a", "é"]]
    assert next(iter(fp.from_examples([{"x": np.matrix([[1, 2]])}])))["x"].tolist() == [[1, 2]]


@pytest.mark.parametrize("shape", [(2,), (1, 2)])
def test_numbers_wider_than_those_of_arrow_are_named(shape: tuple[int, ...]):
    with pytest.raises(SchemaError, match=r"Column 'x'.* (does not fit the type of any Arrow column|Arrow tensors hold integers)"):
        fp.from_examples([{"x": np.ones(shape, np.longdouble).astype(np.complex64 if shape == (2,) else np.longdouble)}])


class Remote:
    """An array on a device that it does not leave unasked, as those of CuPy."""

    dtype = "float32"

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")


class Unnamed:
    """One that says nothing of its device."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("not on the CPU")


@pytest.mark.parametrize("value", [Remote(), Unnamed(), [Remote()], {"a": Unnamed()}])
def test_an_array_on_another_device_is_named_with_its_cure(value: Any):
    with pytest.raises(
        SchemaError, match=r"Column 'x' of row 0: numpy cannot read .* Cast the array, or move it to the CPU, before storing it"
    ):
        fp.from_examples([{"x": value}])


def test_arrays_of_torch():
    torch = pytest.importorskip("torch")
    for shape in ((), (3,), (2, 3)):
        for dtype in (torch.float32, torch.int64, torch.uint8, torch.float16):
            value = torch.ones(shape, dtype=dtype)
            for way in WAYS.values():
                found = list(way([{"x": value}, {"x": value * 2}]))
                assert [np.asarray(row["x"]).tolist() for row in found] == [value.tolist(), (value * 2).tolist()]
    graph = torch.ones(2, requires_grad=True) * 2
    assert next(iter(fp.from_examples([{"x": [graph], "y": {"z": graph[0]}}]))) == {"x": [[2.0, 2.0]], "y": {"z": 2.0}}
    assert list(fp.from_table({"x": torch.arange(2), "y": torch.ones(2, requires_grad=True)})) == [{"x": 0, "y": 1.0}, {"x": 1, "y": 1.0}]
    for value in (torch.ones(2, dtype=torch.bfloat16), torch.eye(2).to_sparse()):
        with pytest.raises(SchemaError, match=r"numpy cannot read an array of torch\.Tensor"):
            fp.from_examples([{"x": value}])


def test_arrays_of_jax():
    numpy = pytest.importorskip("jax.numpy")
    for shape in ((), (3,), (2, 3)):
        value = numpy.ones(shape, "float32")
        for way in WAYS.values():
            assert [np.asarray(row["x"]).tolist() for row in way([{"x": value}])] == [value.tolist()]
    for shape in ((), (3,), (2, 3)):
        with pytest.raises(SchemaError, match=r"bfloat16"):
            fp.from_examples([{"x": numpy.ones(shape, "bfloat16")}])
