"""Hugging Face datasets: tables without a copy, streams that resume exactly."""

import json
import sys
import threading
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.execution import iterate, run, start
from mlxfp.support.errors import ArgumentTypeError, CursorError, DataError, FingerprintError
from mlxfp.testing import laws

try:
    import datasets
except ModuleNotFoundError:
    datasets = None

needs_datasets = pytest.mark.skipif(datasets is None, reason="the package datasets is not installed")


class Rows:
    """What from_hf uses of a Dataset."""

    def __init__(self, data: pa.Table, indices: list[int] | None = None, version: str | None = None) -> None:
        self.data = data
        self._indices = None if indices is None else pa.table({"indices": pa.array(indices, pa.uint64())})
        self._fingerprint = version


class Features(dict[str, Any]):
    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema(dict(self))


class Stream:
    """What from_hf uses of an IterableDataset: without an inside that is known, it is read again to resume."""

    def __init__(self, rows: list[dict[str, Any]], features: Features | None = None) -> None:
        self.rows = rows
        self.features = features
        self.epoch = 0

    def with_format(self, kind: str | None) -> "Stream":
        assert kind == (None if self.features is None else "arrow")
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return ({**row, "epoch": self.epoch} for row in self.rows)

    def iter(self, size: int) -> Any:
        return (pa.Table.from_pylist(list(self)[at : at + size]) for at in range(0, len(self.rows), size))


class Known(Stream):
    def __fingerprint__(self) -> Any:
        return self.rows, self.features is None


@given(st.lists(st.integers(-9, 9), max_size=20), st.data())
def test_a_table_with_chosen_rows_is_the_table_of_these_rows(values: list[int], data: st.DataObject):
    table = pa.table({"x": pa.array(values, pa.int64())})
    indices = data.draw(st.none() | st.lists(st.integers(0, len(values) - 1), max_size=30)) if values else None
    dataset = fp.from_hf(Rows(table, indices))
    chosen = table if indices is None else table.take(pa.array(indices, pa.int64()))
    laws.assert_same_items(dataset, fp.from_table(chosen))
    laws.assert_value(dataset)
    laws.assert_reads(dataset.source)
    laws.assert_described(dataset)
    if len(chosen):
        laws.assert_random_access(dataset, np.array(data.draw(st.lists(st.integers(0, len(chosen) - 1))), np.int64))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**53 + 1, pa.float64()), (2, pa.bool_()), (1e39, pa.float32()), (datetime(2024, 1, 1, 7), pa.date32()), (300, pa.int8())],
)
def test_a_value_of_a_stream_that_its_feature_would_change_raises_an_error(value: Any, kind: pa.DataType):
    """Arrow itself casts the first four values without an error."""
    features = Features({"x": kind, "epoch": pa.int64()})
    with pytest.raises(DataError, match=r"A value does not fit the feature 'x' of .*Give the column another feature with cast_column"):
        list(fp.from_hf(Known([{"x": value}], features)))


def test_a_table_is_used_without_a_copy():
    table = pa.table({"x": pa.array(range(9000))})
    chunks = [chunk for chunk, _ in fp.from_hf(Rows(table)).source.read(0, None)]
    ours, theirs = (column.chunk(0).buffers()[1].address for column in (pa.Table.from_batches(chunks)["x"], table["x"]))
    assert ours == theirs


def test_a_table_is_known_by_its_history_or_else_by_its_rows():
    table = pa.table({"x": [1, 2]})
    laws.assert_told_apart(fp.from_hf(Rows(table, version="a")), fp.from_hf(Rows(table, version="b")))
    laws.assert_told_apart(fp.from_hf(Rows(table)), fp.from_hf(Rows(table, [1, 0])))
    assert repr(fp.from_hf(Rows(table, [0, 0, 1]))) == "pipe(from_hf(3 rows))"


@pytest.mark.parametrize("features", [None, Features(x=pa.int32(), epoch=pa.int64())])
def test_a_stream_is_read_in_each_epoch_and_resumed_by_reading_again(features: Features | None):
    dataset = fp.from_hf(Known([{"x": i} for i in range(300)], features))
    assert dataset.source.schema().field("x").type == (pa.int64() if features is None else pa.int32())
    laws.assert_reads(dataset.source, epoch=2)
    laws.assert_repeatable(dataset)
    laws.assert_resumable(dataset, epoch=1)
    laws.assert_value(dataset)
    laws.assert_told_apart(dataset, fp.from_hf(Known([{"x": 0}], features)))
    assert {row["epoch"] for row in list(dataset)} == {0}
    assert "reads the rows before the cursor again" in str(fp.explain(dataset))


class ArrowExamplesIterable:
    """The inside of a stream whose state says exactly where it is."""


class SkipExamplesIterable:
    """One that is exact where what it holds is."""

    ex_iterable = ArrowExamplesIterable()


class StepExamplesIterable:
    """The inside of one that from_hf does not know."""

    ex_iterable = ArrowExamplesIterable()


class Stated(Known):
    """A stream that knows where it is."""

    _distributed = None

    def __init__(self, rows: list[dict[str, Any]], inside: Any) -> None:
        super().__init__(rows)
        self._ex_iterable = inside
        self.start = self.at = 0

    def __iter__(self) -> Any:
        for place in range(self.start, len(self.rows)):
            self.at = place + 1
            yield self.rows[place]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["at"]


def test_a_stream_resumes_by_its_state_where_that_is_exact():
    rows = [{"x": i} for i in range(600)]
    exact, again = (fp.from_hf(Stated(rows, inside)) for inside in (SkipExamplesIterable(), StepExamplesIterable()))
    assert [position for _, position in exact.source.read(0, None)] == ['{"at": 256}', '{"at": 512}', '{"at": 600}']
    assert [position for _, position in again.source.read(0, None)] == [256, 512, 600]
    for dataset in (exact, again):
        laws.assert_reads(dataset.source)
        laws.assert_repeatable(dataset)
    assert exact.source.traits.notes() == ()


class Grid(pa.ExtensionType):
    """A type that is made in Python, as those of datasets are."""

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.int8()), "tests.grid")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> "Grid":
        return cls()


class FileSystem:
    """One for each thread, kept for the whole process, and made by copying one of another thread: as in the package huggingface_hub."""

    kept: ClassVar[dict[int, "FileSystem"]] = {}

    def __new__(cls) -> Self:
        return cls.kept.setdefault(threading.get_ident(), super().__new__(cls))

    def __deepcopy__(self, memo: Any) -> "FileSystem":
        return FileSystem()


class IterableDataset(Stated):
    """A stream that refers to the file systems of the process, and each copy of which belongs to the thread that iterates over it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__(rows, SkipExamplesIterable())
        self.__hffs_cache = FileSystem.kept
        self.owner = 0

    def __iter__(self) -> Any:
        for row in super().__iter__():
            FileSystem()
            self.owner = self.owner or threading.get_ident()
            assert self.owner == threading.get_ident(), "a stream was iterated in two threads"
            yield row

    def state_dict(self) -> dict[str, int]:
        assert self.owner in (0, threading.get_ident()), "a stream was asked in another thread than the one that iterates over it"
        return super().state_dict()


def test_a_stream_is_read_in_each_thread_and_epoch_from_a_copy_of_its_own():
    FileSystem()
    stream = IterableDataset([{"x": i} for i in range(600)])
    dataset = fp.pipe(fp.from_hf(stream), fp.batch(64), fp.prefetch(2))
    for epoch in range(3):
        items = [(group, cursor.to_bytes()) for group, cursor in iterate(dataset, epoch=epoch)]
        assert [row["x"] for group, _ in items for row in group] == list(range(600))
        rest = [group for group, _ in iterate(dataset, fp.Cursor.from_bytes(items[4][1]))]
        assert rest == [group for group, _ in items[5:]]
    both = fp.mix([fp.prefetch(1)(fp.from_hf(stream)), fp.prefetch(1)(fp.from_hf(stream))], [1, 1], stop="all")
    assert len(list(both)) == 1200
    assert stream.owner == stream.at == 0  # what was given is not iterated itself


def test_the_first_rows_are_read_once_to_find_the_types():
    stream = Known([{"x": i} for i in range(3)])
    opened = []
    stream.with_format = lambda kind: opened.append(kind) or stream  # type: ignore[method-assign]
    dataset = fp.pipe(fp.from_hf(stream), fp.prefetch(1))
    for _ in range(2):
        list(dataset)
    assert len(opened) == 1 + 2


def test_types_that_only_datasets_understands_become_what_they_are_stored_as():
    grids = pa.ExtensionArray.from_storage(Grid(), pa.array([[1, 2], [3]], pa.list_(pa.int8())))
    dataset = fp.from_hf(Rows(pa.table({"grid": grids}, metadata={"huggingface": "{}"}), [1]))
    assert dataset.source.schema().equals(pa.schema({"grid": pa.list_(pa.int8())}), check_metadata=True)
    assert list(dataset) == [{"grid": [3]}]


def test_a_stream_is_hashed_by_datasets_and_iterates_where_that_fails(monkeypatch: pytest.MonkeyPatch):
    dataset = fp.from_hf(Stream([{"x": 1}]))
    assert list(dataset) == [{"x": 1, "epoch": 0}]
    hasher = type("Hasher", (), {"hash": staticmethod(lambda value: "hashed")})
    monkeypatch.setitem(sys.modules, "datasets", ModuleType("datasets"))
    monkeypatch.setitem(sys.modules, "datasets.fingerprint", SimpleNamespace(Hasher=hasher))
    with pytest.raises(
        FingerprintError,
        match=r"The fingerprint of a Hugging Face stream cannot be computed: AttributeError: .*_ex_iterable.*Use functions",
    ):
        fp.inspect.fingerprint(dataset)
    assert dataset == fp.from_hf(dataset.source.stream)
    dataset.source.stream._ex_iterable = dataset.source.stream._distributed = None
    assert dataset.source.__fingerprint__() == "hashed"


def test_mistakes_are_named():
    with pytest.raises(ArgumentTypeError, match=r"from_hf needs a Dataset or an IterableDataset of the package datasets, got list: \[1\]"):
        fp.from_hf([1])
    with pytest.raises(ArgumentTypeError, match=r"Pass one of the splits 'train', 'test'\."):
        fp.from_hf({"train": 1, "test": 2})
    source = fp.from_hf(Stream([{"x": 1}])).source
    with pytest.raises(CursorError, match="The cursor is from another version of the package datasets"):
        list(source.read(0, "{}"))


class Formatted(Rows):
    """What from_hf uses of a Dataset with a function that `with_transform` has set: it gets lists, and an item is its first row."""

    def __init__(self, data: pa.Table, transform: Any, indices: list[int] | None = None, version: str | None = None) -> None:
        super().__init__(data, indices, version)
        self.format = {"type": "custom", "format_kwargs": {"transform": transform}}

    def __len__(self) -> int:
        return len(self.data if self._indices is None else self._indices)

    def __getitem__(self, index: int) -> Any:
        place = index if self._indices is None else self._indices["indices"][index].as_py()
        made = self.format["format_kwargs"]["transform"](self.data.slice(place, 1).to_pydict())
        return {name: column[0] for name, column in made.items()}


def doubled(rows: dict[str, Any]) -> dict[str, Any]:
    return {"y": [2 * x for x in rows["x"]], "array": [np.full((2, 2), x) for x in rows["x"]]}


def counted(rows: dict[str, Any]) -> dict[str, Any]:
    return {"count": [len(rows["x"]) for _ in rows["x"]]}


def test_a_transform_makes_the_rows_each_alone():
    found = fp.from_hf(Formatted(pa.table({"x": list(range(600))}), doubled, [5, 3, *range(500)]))
    assert [row["y"] for row in found][:3] == [10, 6, 0]
    assert found[1]["array"].tolist() == [[3, 3], [3, 3]]
    laws.assert_reads(found.source)
    laws.assert_value(found)
    laws.assert_random_access(found, np.array([3, 0, 500]))
    laws.assert_repeatable(found)
    assert repr(found) == "pipe(from_hf(502 rows, transformed by doubled))"
    table = pa.table({"x": [1, 2, 3]})
    assert list(fp.from_hf(Formatted(table, counted))) == [{"count": 1}] * 3
    laws.assert_told_apart(fp.from_hf(Formatted(table, counted)), fp.from_hf(Formatted(table, doubled)))
    laws.assert_told_apart(fp.from_hf(Formatted(table, counted)), fp.from_hf(Rows(table)))


def test_what_a_transform_makes_must_be_rows():
    broken = Formatted(pa.table({"x": [1]}), doubled)
    broken.__class__ = type("Broken", (Formatted,), {"__getitem__": lambda self, index: [index]})
    with pytest.raises(ArgumentTypeError, match=r"Every example must be a mapping of column names to values, got list at index 0: \[0\]"):
        list(fp.from_hf(broken))


LABEL = {"names": ["no", "yes"], "_type": "ClassLabel"}
FEATURES = {
    "label": LABEL,
    "x": {"dtype": "int64", "_type": "Value"},
    "tags": {"feature": LABEL, "_type": "List"},
    "plain": {"feature": {"dtype": "int64", "_type": "Value"}, "length": -1, "_type": "Sequence"},
    "parts": {"_type": {"dtype": "string", "_type": "Value"}, "deep": [LABEL]},
}


def test_what_datasets_knows_of_a_column_stays_with_it():
    row = {"label": 1, "x": 5, "tags": [0], "plain": [1], "parts": {"_type": "a", "deep": [1]}}
    text = json.dumps({"info": {"features": FEATURES}})
    rows = fp.from_hf(
        Rows(pa.Table.from_pylist([row] * 9, pa.Table.from_pylist([row]).schema.with_metadata({"huggingface": text})), [0] * 9)
    )
    assert list(rows) == [row] * 9
    kept = {field.name: json.loads((field.metadata or {}).get(b"huggingface", b"null")) for field in fp.schema(rows)}
    assert kept == {name: feature if name in ("label", "tags", "parts") else None for name, feature in FEATURES.items()}
    assert not fp.schema(rows).metadata


def same_label(chunk: pa.RecordBatch) -> pa.RecordBatch:
    return chunk


STAGES = {
    "select": fp.select_columns(["label"]),
    "drop": fp.drop_columns(["x"]),
    "filter": fp.filter(lambda row: True),
    "filter_by": fp.filter_by([("x", ">", 0)]),
    "map_chunks": fp.map_chunks(same_label),
    "take": fp.take(3),
    "skip": fp.skip(3),
    "shuffle": fp.shuffle(seed=0),
    "buffer": fp.shuffle(seed=0, buffer=4),
    "shard": fp.shard(0, 2),
    "repeat": fp.repeat(2),
    "batch": fp.batch(2),
    "prefetch": fp.prefetch(2),
    "load": fp.load(),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_names_of_classes_pass_through_stages_that_keep_the_column(stage: Any):
    text = json.dumps({"info": {"features": {"label": LABEL}}})
    rows = fp.from_hf(Rows(pa.table({"label": [0, 1] * 5, "x": list(range(10))}, metadata={"huggingface": text})))
    for dataset in (fp.pipe(rows, stage), fp.pipe(rows, fp.batch(2), fp.unbatch(), stage) if stage is not STAGES["batch"] else rows):
        assert json.loads(fp.schema(dataset).field("label").metadata[b"huggingface"])["names"] == ["no", "yes"]
        chunk = next(chunk for chunk, _ in run(dataset, start(0, None)))
        assert json.loads(chunk.schema.field("label").metadata[b"huggingface"])["names"] == ["no", "yes"]


def test_names_of_classes_follow_a_renamed_column_and_a_cache(tmp_path: Path):
    text = json.dumps({"info": {"features": {"label": LABEL}}})
    rows = fp.from_hf(Rows(pa.table({"label": [0, 1] * 5}, metadata={"huggingface": text})))
    for dataset, name in (
        (fp.rename_columns({"label": "y"})(rows), "y"),
        (fp.cache(tmp_path)(rows), "label"),
        (fp.concat([rows, rows]), "label"),
    ):
        list(dataset)
        assert json.loads(fp.schema(dataset).field(name).metadata[b"huggingface"])["names"] == ["no", "yes"]


def stream_of(count: int, shards: int) -> Any:
    return datasets.Dataset.from_dict({"x": list(range(count)), "t": [str(i) for i in range(count)]}).to_iterable_dataset(num_shards=shards)


def generated(count: int) -> Any:
    return ({"x": i} for i in range(count))


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"y": row["x"] * 2}


def even(row: dict[str, Any]) -> bool:
    return row["x"] % 2 == 0


def pairs(rows: dict[str, Any]) -> dict[str, Any]:
    return {"x": [value for value in rows["x"] for _ in range(2)]}


# Each with whether its state_dict is used to resume.
STREAMS = {
    "shards": (lambda: stream_of(300, 3), True),
    "one shard": (lambda: stream_of(300, 1), True),
    "generated": (lambda: datasets.IterableDataset.from_generator(generated, gen_kwargs={"count": 300}), True),
    "generated, typed": (
        lambda: datasets.IterableDataset.from_generator(
            generated, gen_kwargs={"count": 300}, features=datasets.Features({"x": datasets.Value("int32")})
        ),
        True,
    ),
    "columns, skip, take": (lambda: stream_of(600, 2).select_columns(["x"]).skip(7).take(500), True),
    "mapped": (lambda: stream_of(300, 2).map(double), False),
    "mapped by batches": (lambda: stream_of(300, 2).map(pairs, batched=True, batch_size=100, remove_columns=["t"]), False),
    "filtered": (lambda: stream_of(600, 2).filter(even), False),
    "shuffled": (lambda: stream_of(300, 2).shuffle(seed=1, buffer_size=50), False),
    "as tensors": (lambda: stream_of(300, 1).with_format("numpy"), True),
}


@needs_datasets
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("name", STREAMS)
def test_real_streams_obey_the_laws_of_sources(name: str, epoch: int):
    make, exact = STREAMS[name]
    dataset = fp.from_hf(make())
    laws.assert_reads(dataset.source, epoch=epoch)
    laws.assert_repeatable(dataset, epoch=epoch)
    laws.assert_value(dataset)
    assert fp.inspect.fingerprint(dataset) == fp.inspect.fingerprint(fp.from_hf(make()))
    assert dataset.source.traits.notes() == (() if exact else ("resuming reads the rows before the cursor again, and drops them",))


@needs_datasets
@pytest.mark.parametrize("name", STREAMS)
def test_real_streams_are_read_ahead_in_every_epoch(name: str):
    stream = fp.from_hf(STREAMS[name][0]())
    for epoch in range(3):
        alone = [row for row, _ in iterate(stream, epoch=epoch)]
        ahead = []
        for place, (row, cursor) in enumerate(iterate(fp.prefetch(2)(stream), epoch=epoch)):
            ahead.append(row)
            if place % 100 == 0:
                cursor.to_bytes()  # names the stream, while the thread reads it
        assert ahead == alone


@needs_datasets
def test_a_real_stream_gives_what_it_gives_alone_and_is_left_as_it_was():
    for make, _ in STREAMS.values():
        stream = make()
        expected = [int(row["x"]) for row in stream]
        before = stream.state_dict()
        assert [row["x"] for row in fp.from_hf(stream)] == expected
        assert stream.state_dict() == before
        laws.assert_told_apart(fp.from_hf(stream), fp.from_hf(stream.take(3)))


@needs_datasets
def test_real_tables_are_read_by_number():
    whole = datasets.Dataset.from_dict({"x": list(range(5000)), "t": [str(i) for i in range(5000)]})
    chosen = whole.shuffle(seed=0).select(range(4500))
    for dataset in (whole, chosen, whole.with_format("numpy"), chosen.train_test_split(0.5, seed=0)["test"]):
        found = fp.from_hf(dataset)
        laws.assert_reads(found.source)
        laws.assert_value(found)
        laws.assert_random_access(found, np.array([3, 0, 2000]))
        assert [row["x"] for row in found] == [int(x) for x in dataset.with_format(None)["x"]]
    laws.assert_told_apart(fp.from_hf(whole), fp.from_hf(chosen))
    assert fp.inspect.fingerprint(fp.from_hf(whole)) == fp.inspect.fingerprint(
        fp.from_hf(datasets.Dataset.from_dict({"x": whole["x"][:], "t": whole["t"][:]}))
    )


@needs_datasets
def test_a_real_transform_is_applied():
    rows = datasets.Dataset.from_dict({"x": list(range(300))}).select(range(299, -1, -1))
    for dataset in (rows.with_transform(doubled), rows.with_transform(counted), rows.with_transform(doubled, columns=["x"])):
        found = fp.from_hf(dataset)
        expected = [{name: np.asarray(value).tolist() for name, value in dataset[index].items()} for index in (0, 299)]
        assert [{name: np.asarray(value).tolist() for name, value in found[index].items()} for index in (0, 299)] == expected
        laws.assert_reads(found.source)
        laws.assert_value(found)
    laws.assert_told_apart(fp.from_hf(rows), fp.from_hf(rows.with_transform(doubled)))
    changed = rows.with_format(None)
    changed.set_transform(doubled)
    assert next(iter(fp.from_hf(changed)))["y"] == 598


@needs_datasets
def test_real_names_of_classes_stay_in_the_field():
    kinds = datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"]), "tags": datasets.List(datasets.ClassLabel(names=["O"]))})
    rows = datasets.Dataset.from_dict({"label": [1], "tags": [[0]]}, features=kinds)
    for found in (fp.from_hf(rows), fp.from_hf(rows.to_iterable_dataset())):
        assert json.loads(fp.schema(found).field("label").metadata[b"huggingface"])["names"] == ["no", "yes"]
        assert json.loads(fp.schema(found).field("tags").metadata[b"huggingface"])["feature"]["names"] == ["O"]
        assert list(found) == [{"label": 1, "tags": [0]}]


@needs_datasets
def test_labels_images_and_arrays_are_plain_columns():
    kinds = datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"]), "grid": datasets.Array2D((2, 2), "int8")})
    grids = datasets.Dataset.from_dict({"label": [1], "grid": [[[1, 2], [3, 4]]]}, features=kinds)
    image = datasets.Features({"image": datasets.Image()})
    picture = {"image": {"bytes": b"\x89PNG", "path": None}}
    images = datasets.Dataset(pa.Table.from_pylist([picture], schema=image.arrow_schema), info=datasets.DatasetInfo(features=image))
    for dataset, expected in ((grids, {"label": 1, "grid": [[1, 2], [3, 4]]}), (images, picture)):
        for found in (fp.from_hf(dataset), fp.from_hf(dataset.to_iterable_dataset())):
            assert list(found) == [expected]
            laws.assert_reads(found.source)
