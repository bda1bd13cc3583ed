"""Keeping rows: `load` in memory, `cache` in a memory-mapped Arrow file."""

import os
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.content import content_bits
from mlxfp.core.arrow.gathering import Rows, large_chunks, rows_of
from mlxfp.core.arrow.messages import is_compressed
from mlxfp.core.atomic_files import written_whole
from mlxfp.core.checks import explain_call
from mlxfp.core.chunks import (
    HIDDEN,
    KEY,
    Example,
    RecordBatch,
    Schema,
    no_rows,
    number_rows,
    row_keys,
    set_column,
)
from mlxfp.core.datasets import Combinator, Dataset, Wrapper
from mlxfp.core.describing import known_length
from mlxfp.core.errors import DataError
from mlxfp.core.execution import read_all
from mlxfp.core.identity import fingerprint
from mlxfp.core.randomness import fold_into_rows
from mlxfp.core.sources import Position, Source
from mlxfp.data.rows.row_views import rows_at_once
from mlxfp.data.sources.row_chunks import chunk_end

Item = TypeVar("Item")
Row = TypeVar("Row", bound="Example | Sequence[Example]")

_FEWEST = 64  # rows looked at, of which a chunk has as many as are to be read at once
_MAGIC_BYTES = 8  # of an Arrow file, before its first message


@explain_call
def load() -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Keep all rows in memory, as Arrow columns: everything before it runs once, and rows can be taken by number.

    Rows are loaded at the first use and kept as long as the dataset. Random stages before `load` draw once, as in epoch 0; those after
    it draw again in every epoch. After `batch` it keeps the groups, after `collate` the finished batches: both are the same in every epoch.
    Raises `PipelineError` for data that is known to have no end.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.map_filter import filter
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> even = pipe(from_examples([{"x": i} for i in range(9)]), filter(lambda row: row["x"] % 2 == 0), load())
    >>> even[-1], even[1:3].column("x").to_pylist()
    ({'x': 8}, [2, 4])

    See also: `cache` for more than memory holds, or to keep the rows for other runs.
    """
    return Combinator(_load, {})


def _load(dataset: Dataset[Any]) -> "_Load | _LoadItems":
    return _Load(dataset) if dataset.level == "examples" else _LoadItems(dataset)


@explain_call
def cache(path: str | os.PathLike[str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Keep all rows in an Arrow file in the folder `path`, memory-mapped: fast random access to more than memory holds, for every run.

    The file is named by the fingerprint of everything before it and by the sizes and times of the files read, so a changed stage or
    source makes a new one. It is written at the first use under a temporary name and renamed when complete; several processes may
    do so at once. Random stages before `cache` draw once, as in epoch 0. After `batch` it keeps the groups; put it before `collate`, whose
    arrays are MLX's. Raises `FingerprintError` if a function or value before it has no stable content, and says how to give it a name, and
    `PipelineError` for data that is known to have no end. Old files are yours to delete.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> with TemporaryDirectory() as folder:
    ...     cached = pipe(from_examples([{"x": i} for i in range(9)]), cache(folder))
    ...     print(cached[3], len(list(Path(folder).iterdir())))
    {'x': 3} 1
    """
    return Combinator(_cache, {"path": os.fspath(path)}, frozenset({"examples", "groups"}))


def _cache(dataset: Dataset[Any], path: str) -> "_Cache | _CacheGroups":
    return _Cache(dataset, path) if dataset.level == "examples" else _CacheGroups(dataset, path)


@frozen(repr=False)
class _Stored(Wrapper):
    """Rows in a table with their hidden columns, as they were in epoch 0."""

    gathers = True
    taken_in = frozenset({"threads"})  # other processes would each read all rows
    reorders = False  # nor do they change with the epoch, whatever stands before
    redraws = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of what is kept with the columns."""
        return (*HIDDEN, self.dataset.hooks.marks)

    @property
    @abstractmethod
    def table(self) -> pa.Table:
        """The rows, with the hidden columns."""

    @property
    def indexable(self) -> bool:
        return True

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first = position or 0
        while first < self.table.num_rows:
            held = self.table.slice(first, max(_FEWEST, chunk_end(first) - first)).to_batches()[0]
            chunk = held.slice(0, rows_at_once(content_bits(held), held.num_rows))
            first += chunk.num_rows
            yield _in_epoch(chunk, epoch), first

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return _in_epoch(self.rows.take(indices), epoch)

    @cached_property
    def rows(self) -> Rows:
        """The rows, to be taken by number."""
        return rows_of(self.table)

    @property
    def table_holder(self) -> Source:
        return self

    def exact_length(self) -> int:
        return int(self.table.num_rows)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return _SomeColumns(self.dataset, self, tuple(columns))


@frozen(repr=False)
class _SomeColumns(_Stored):
    """Some columns of what another one keeps: it is kept once."""

    stored: _Stored
    columns: tuple[str, ...]

    @property
    def table(self) -> pa.Table:
        whole = self.stored.table
        present = set(whole.column_names)
        return whole.select([*self.columns, *(name for name in self.hidden if name in present)])

    def schema(self) -> Schema:
        whole = self.stored.schema()
        return pa.schema([whole.field(name) for name in self.columns])

    def __repr__(self) -> str:
        return repr(self.stored)


@frozen(repr=False)
class _Load(_Stored):
    @cached_property
    def table(self) -> pa.Table:
        with closing(read_all(self.dataset)) as chunks:
            held = list(chunks)
        return pa.Table.from_batches(held or [number_rows(no_rows(self.schema()), 0, 0)]).combine_chunks()

    def notes(self) -> tuple[str, ...]:
        return ("holds all rows in memory from the first use on",)


@frozen(repr=False)
class _Cache(_Stored):
    path: str

    @cached_property
    def file(self) -> Path:
        """The file that holds the rows, once it has been written."""
        return _file(self.dataset, self.path)

    @cached_property
    def table(self) -> pa.Table:
        reader = _opened(self.dataset, self.file)
        with _named(self.file):
            return reader.read_all()

    def schema(self) -> Schema:
        """Return the schema that was kept, else that of the dataset: what is kept need not be inferred again."""
        if not self.file.exists():
            return super().schema()
        return pa.schema([field for field in self.table.schema if field.name not in self.hidden])

    def head(self) -> Iterator[RecordBatch]:
        return (chunk for chunk, _ in self.read(0, None)) if self.file.exists() else super().head()

    def notes(self) -> tuple[str, ...]:
        return (f"memory-mapped from {self.path}",)


@frozen(repr=False)
class _LoadItems(Wrapper):
    """Groups or batches, as they were in epoch 0. Positions are the number of items before them."""

    gathers = True
    reorders = False
    redraws = False

    @cached_property
    def items(self) -> Sequence[Any]:
        """All of them."""
        with closing(read_all(self.dataset)) as items:
            return tuple(items)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        for place in range(position or 0, len(self.items)):
            item = self.items[place]
            yield dict(item) if isinstance(item, dict) else _in_epoch(item, epoch), place + 1

    def exact_length(self) -> int:
        return len(self.items)

    def length(self) -> int | None:
        return known_length(self.dataset)

    def notes(self) -> tuple[str, ...]:
        return (f"holds all {self.level} in memory from the first use on",)

    def __repr__(self) -> str:
        return "load()"


@frozen(repr=False)
class _CacheGroups(_LoadItems):
    path: str

    @cached_property
    def items(self) -> Sequence[Any]:
        """Each is read when it is asked for."""
        file = _file(self.dataset, self.path)
        return _Groups(_opened(self.dataset, file), file)

    def notes(self) -> tuple[str, ...]:
        return (f"memory-mapped from {self.path}",)

    def __repr__(self) -> str:
        return f"cache(path={self.path!r})"


class _Groups(Sequence[RecordBatch]):
    """The groups in a file, a record batch each."""

    def __init__(self, reader: pa.ipc.RecordBatchFileReader, file: Path) -> None:
        self._reader, self._file = reader, file

    def __getitem__(self, place: Any) -> Any:
        with _named(self._file):
            return self._reader.get_batch(place)

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)


def _file(dataset: Dataset[Any], folder: str) -> Path:
    return Path(folder).expanduser() / f"{fingerprint((dataset, dataset.hooks.marks, dataset.source.version()))}.arrow"


def _opened(dataset: Dataset[Any], file: Path) -> pa.ipc.RecordBatchFileReader:
    """Open the cache file of a dataset, memory-mapped; write it if it is not there."""
    if not file.exists():
        _write(dataset, file)
    with _named(file):
        mapped = pa.memory_map(str(file))
        rows = pa.ipc.open_file(mapped)
        mapped.seek(_MAGIC_BYTES)
        if is_compressed(mapped):
            raise pa.ArrowInvalid("it is compressed, which a cache never is, and could fill the memory")
    return rows


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Say in errors which cache file cannot be read."""
    try:
        yield
    except (pa.ArrowInvalid, OSError, struct.error) as error:
        raise DataError(f"The cache file {file} cannot be read: {error}. Delete it: it is made again at the next use.") from error


def _write(dataset: Dataset[Any], file: Path) -> None:
    """Write a temporary file and rename it: a file with this name always has all the rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file, suffix="") as temporary, closing(read_all(dataset)) as chunks:
        first = next(chunks, None)
        schema = (number_rows(no_rows(dataset.plan.schema), 0, 0) if first is None else first).schema
        with pa.OSFile(str(temporary), "wb") as out, pa.ipc.new_file(out, schema) as writer:
            every = chunks if first is None else chain((first,), chunks)
            for written in large_chunks(every) if dataset.level == "examples" else every:
                writer.write_batch(written)


def _in_epoch(chunk: RecordBatch, epoch: int) -> RecordBatch:
    """Give the rows the keys of an epoch: those of epoch 0 are stored."""
    return (
        chunk
        if epoch == 0 or KEY not in chunk.schema.names
        else set_column(chunk, KEY, pa.array(fold_into_rows(row_keys(chunk), "epoch", epoch)))
    )
