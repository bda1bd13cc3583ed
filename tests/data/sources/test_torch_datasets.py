"""PyTorch datasets: the same rows as a list of dicts, in any order, whatever the items are made of."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.execution import take_rows
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, FingerprintError
from mlxfp.testing import laws


class Pairs:
    """A map-style dataset, as PyTorch asks for no base class."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.array([self.values[index], index], np.float32), index % 2

    def __fingerprint__(self) -> Any:
        return self.values


class Plain:
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Stream:
    """An iterable-style dataset."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


class Twice(Plain):
    def __getitem__(self, index: int) -> Any:
        return self.rows[index] * 2


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=600), st.data())
def test_a_map_style_dataset_obeys_the_laws_of_sources(values: list[int], data: st.DataObject):
    dataset = fp.from_torch(Plain(values), columns=["x"])
    laws.assert_reads(dataset.source)
    laws.assert_value(dataset)
    laws.assert_described(dataset)
    laws.assert_same_items(dataset, fp.from_examples([{"x": value} for value in values]))
    indices = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9))
    laws.assert_random_access(dataset, np.array(indices, np.int64))


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=600))
def test_an_iterable_style_dataset_obeys_the_laws_of_sources(values: list[int]):
    dataset = fp.from_torch(Stream(values), columns=["x"])
    laws.assert_reads(dataset.source)
    laws.assert_value(dataset)
    laws.assert_repeatable(dataset)
    laws.assert_same_items(dataset, fp.from_examples([{"x": value} for value in values]))


def test_resuming_is_exact():
    for dataset in (Plain(list(range(300))), Stream(list(range(300)))):  # more than a chunk
        laws.assert_resumable(fp.pipe(fp.from_torch(dataset, columns=["x"]), fp.batch(9)))


def test_a_tuple_becomes_columns_and_arrays_keep_their_type():
    dataset = fp.from_torch(Pairs([0.5, 1.5, 2.5]), columns=["features", "label"])
    assert list(dataset)[1] == {"features": [1.5, 1.0], "label": 1}
    assert dataset.source.schema().field("features").type == pa.list_(pa.float32())
    assert repr(dataset) == "pipe(from_torch(Pairs of 3))"


def test_a_mapping_keeps_its_names_and_arrays_with_axes_become_tensors():
    row = {"image": np.ones((2, 3), np.uint8), "at": {"x": np.int64(1)}, "words": ["a", "b"]}
    (found,) = fp.from_torch(Plain([row]))
    assert found["image"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert (found["at"], found["words"]) == ({"x": 1}, ["a", "b"])


class Tensor:
    """What from_torch uses of a tensor."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return self


def test_tensors_become_arrays_and_those_without_axes_numbers():
    dataset = fp.from_torch(Plain([(Tensor([1.5, 2.5]), Tensor(3), [Tensor(4)])]), columns=["x", "y", "z"])
    assert list(dataset) == [{"x": [1.5, 2.5], "y": 3, "z": [4]}]
    laws.assert_value(dataset)


def test_taking_a_row_asks_for_no_other_once_the_types_are_known():
    asked = []

    class Noted(Plain):
        def __getitem__(self, index: int) -> Any:
            asked.append(index)
            return self.rows[index]

    dataset = fp.from_torch(Noted(list(range(9))), columns=["x"], schema=pa.schema({"x": pa.int64()}))
    assert asked == []
    assert take_rows(dataset, 0, np.array([7, 2])).column("x").to_pylist() == [7, 2]
    assert asked == [7, 2]


def test_what_is_read_and_how_tells_datasets_apart():
    for kind, others in ((Plain, ([1, 3],)), (Stream, ([1, 3],))):
        laws.assert_told_apart(fp.from_torch(kind([1, 2]), columns=["x"]), fp.from_torch(kind(*others), columns=["x"]))
    laws.assert_told_apart(fp.from_torch(Plain([1, 2]), columns=["x"]), fp.from_torch(Twice([1, 2]), columns=["x"]))
    laws.assert_told_apart(fp.from_torch(Plain([1]), columns=["x"]), fp.from_torch(Plain([1]), columns=["y"]))
    laws.assert_told_apart(fp.from_torch(Plain(Plain([1])), columns=["x"]), fp.from_torch(Plain(Plain([2])), columns=["x"]))


def test_what_cannot_be_told_apart_still_iterates():
    dataset = fp.from_torch(Plain([1]), columns=["x"])
    dataset.source.items.dataset.handle = object()
    assert list(dataset) == [{"x": 1}]
    with pytest.raises(FingerprintError, match="has no fingerprint"):
        fp.inspect.fingerprint(dataset)


def test_mistakes_are_named():
    with pytest.raises(
        ArgumentError, match=r"a name for each part of an item, got tuple of 2 for item 0 of Pairs\. Name the parts with columns="
    ):
        list(fp.from_torch(Pairs([1.0])))
    with pytest.raises(DataError, match=r"Item 0 of Pairs has 2 parts, but there are 1 columns \(x\)\. Name every part"):
        list(fp.from_torch(Pairs([1.0]), columns=["x"]))
    with pytest.raises(ArgumentTypeError, match="from_torch needs __getitem__ and __len__, or an __iter__ that starts over each time"):
        fp.from_torch(7)
    with pytest.raises(ArgumentTypeError, match="For a generator, pass the generator function to from_iterable"):
        fp.from_torch(x for x in "ab")
    with pytest.raises(ArgumentError, match="at least one column"):
        fp.from_torch([1], columns=[])


def test_real_datasets_of_torch_are_read():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset

    features, labels = torch.arange(12, dtype=torch.float32).reshape(4, 3), torch.tensor([0, 1, 0, 1])
    whole = TensorDataset(features, labels)
    part = ConcatDataset([Subset(whole, [3, 1]), whole])
    dataset = fp.from_torch(part, columns=["features", "label"])
    laws.assert_value(dataset)
    laws.assert_reads(dataset.source)
    laws.assert_random_access(dataset, np.array([5, 0]))
    assert dataset[0] == {"features": [9.0, 10.0, 11.0], "label": 1}
    assert dataset.source.schema() == pa.schema({"features": pa.list_(pa.float32()), "label": pa.int64()})
    laws.assert_told_apart(dataset, fp.from_torch(ConcatDataset([Subset(whole, [3, 2]), whole]), columns=["features", "label"]))

    class Counting(IterableDataset):
        def __iter__(self) -> Any:
            return ({"x": torch.tensor(i), "image": torch.zeros(1, 2)} for i in range(300))

        def __len__(self) -> int:
            return 300

    stream = fp.from_torch(Counting())
    assert not stream.indexable
    laws.assert_reads(stream.source)
    assert [row["x"] for row in stream] == list(range(300))
