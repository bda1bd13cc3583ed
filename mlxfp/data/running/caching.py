"""Stages that store rows: `load` in memory, `cache` in memory-mapped Arrow files."""

import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.content import content_bits
from mlxfp.core.arrow.gathering import Rows
from mlxfp.core.chunks import (
    HIDDEN,
    KEY,
    RecordBatch,
    Schema,
    no_rows,
    number_rows,
    row_keys,
    set_column,
)
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Combinator, Dataset, Wrapper
from mlxfp.core.execution import read_all
from mlxfp.core.identity import fingerprint
from mlxfp.core.nodes import inner_parts, known_length
from mlxfp.core.sources import InTable, Position, Source, SourceTraits, places_as_numbered
from mlxfp.core.stages import Batch
from mlxfp.data.manifests import Manifest, is_written, read_manifest
from mlxfp.data.row_views import rows_at_once
from mlxfp.data.running.cached_files import CachedItems, check_hash, open_files, reading_cache
from mlxfp.data.running.part_files import FORMATS, ITEMS
from mlxfp.data.running.writing import AsChunks, rows_of_a_file, write_in_order
from mlxfp.data.running.written_folders import WrittenFolder
from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.data.sources.row_chunks import chunk_end
from mlxfp.support.checks import check_utf8, explain_call
from mlxfp.support.errors import PipelineError
from mlxfp.support.randomness import fold_into_rows

Item = TypeVar("Item")

_FEWEST = 64  # number of rows whose size in bytes is measured to choose the chunk size
_ITEMS = 256  # number of batches in a file


@explain_call
def load() -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Store all rows in memory as Arrow columns. All earlier stages run only once, and the result has random access.

    Rows are loaded at the first use and kept as long as the dataset exists. Random stages before `load` draw once, as in epoch 0. Random
    stages after `load` draw again in every epoch. Raises `PipelineError` for an endless dataset.

    After `batch`, `load` stores groups of rows. After `collate`, `load` stores finished batches. The stored groups and batches are the same
    in every epoch.

    >>> import mlxfp as fp
    >>> even = fp.pipe(fp.from_examples([{"x": i} for i in range(9)]), fp.filter(lambda row: row["x"] % 2 == 0), fp.load())
    >>> even[-1], even[1:3].column("x").to_pylist()
    ({'x': 8}, [2, 4])

    See also: `cache` for more than memory holds, or to keep the rows for other runs.
    """
    return Combinator(_load, {})


def _load(dataset: Dataset[Any]) -> "_Load | _LoadItems":
    return _Load(dataset) if dataset.level == "examples" else _LoadItems(dataset)


@explain_call
def cache(path: str | os.PathLike[str]) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Store all rows in memory-mapped Arrow files in the folder `path`, with fast random access. Later runs reuse the files.

    The data may be larger than memory. The rows are in a subfolder named by a fingerprint of all earlier stages and of the sizes and times
    of the source files, so a changed stage or source gets a new subfolder. mlxfp never deletes old subfolders.

    Files are written at the first use. If the run is killed, the next run continues with the missing files. If several processes use the
    same cache, one process writes while the others wait. Random stages before `cache` draw once, as in epoch 0.

    After `batch`, `cache` stores groups of rows. After `collate`, `cache` stores finished batches: a row per batch, with a tensor per array
    in the Arrow layout `variable_shape_tensor`. All batches need the same names, dtypes and numbers of axes, otherwise `ArgumentError` is
    raised.

    Raises `FingerprintError` for an earlier function or value without stable content. The message explains how to give it a name. Raises
    `PipelineError` for an endless dataset.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     cached = fp.pipe(fp.from_examples([{"x": i} for i in range(9)]), fp.cache(folder))
    ...     print(cached[3], len(list(Path(folder).iterdir())))
    {'x': 3} 1

    See also: `write`, for files that are handed on.
    """
    check_utf8(path, "folder")
    return Combinator(_cache, {"path": os.fspath(path)})


def _cache(dataset: Dataset[Any], path: str) -> "_Cache | _CacheItems":
    return _Cache(dataset, path) if dataset.level == "examples" else _CacheItems(dataset, path)


@frozen(repr=False)
class _Stored(Wrapper):
    """Source of rows that `load` or `cache` has stored in epoch 0. The stored table includes the hidden columns `__row__` and `__key__`."""

    @property
    def traits(self) -> SourceTraits:
        return evolve(
            super().traits,
            gathers=True,
            same_items=True,
            reorders=False,  # Stored rows have the same order in every epoch, even if a shuffle comes before the storing stage.
            redraws=False,
            take_workers=frozenset({"threads"}),  # Worker processes are not used, because each process would need a copy of all rows.
            in_table=lambda: InTable(self, places_as_numbered),
        )

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the stored columns that users never see: row number, random key, and the error column of `on_error`."""
        return (*HIDDEN, self.dataset.hooks.changes.marks)

    @property
    @abstractmethod
    def table(self) -> pa.Table:
        """Table of the stored rows, including the columns listed in `hidden`."""

    @property
    def indexable(self) -> bool:
        return True

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first = position or 0
        while first < self.table.num_rows:
            self.check(first)
            rows = self.table.slice(first, max(_FEWEST, chunk_end(first) - first)).to_batches()[0]
            chunk = rows.slice(0, rows_at_once(content_bits(rows), rows.num_rows))
            first += chunk.num_rows
            yield _in_epoch(chunk, epoch), first

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return _in_epoch(self.rows.take(indices), epoch)

    @cached_property
    def rows(self) -> Rows:
        """Random access to the stored rows."""
        batches = [batch for batch in self.table.to_batches() if batch.num_rows]
        starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        return Rows(self.table.schema, starts, tuple(map(partial(partial, self._checked), starts.tolist(), batches)))

    def check(self, row: int) -> None:
        """Raise `DataError` if the file that holds row `row` is damaged."""

    def _checked(self, row: int, batch: RecordBatch) -> RecordBatch:
        self.check(row)
        return batch

    def exact_length(self) -> int:
        return int(self.table.num_rows)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return _SomeColumns(self.dataset, self, tuple(columns))


@frozen(repr=False)
class _SomeColumns(_Stored):
    """Source with some columns of another stored source. The data are not copied."""

    stored: _Stored
    columns: tuple[str, ...]

    @property
    def table(self) -> pa.Table:
        whole = self.stored.table
        present = set(whole.column_names)
        return whole.select([*self.columns, *(name for name in self.hidden if name in present)])

    def check(self, row: int) -> None:
        self.stored.check(row)

    def schema(self) -> Schema:
        whole = self.stored.schema()
        return pa.schema([whole.field(name) for name in self.columns])

    def __repr__(self) -> str:
        return repr(self.stored)


@frozen(repr=False)
class _Load(_Stored):
    @cached_property
    def table(self) -> pa.Table:
        with closing(read_all(self.dataset, reader="load")) as chunks:
            batches = list(chunks)
        return pa.Table.from_batches(batches or [number_rows(no_rows(self.schema()), 0, 0)]).combine_chunks()

    def notes(self) -> tuple[str, ...]:
        return ("holds all rows in memory from the first use or len() on",)


@frozen(repr=False)
class _Cache(_Stored):
    path: str

    @cached_property
    def folder(self) -> Path:
        """Folder of the cached rows. The folder lies inside `path`."""
        return _folder(self.dataset, self.path)

    @property
    def table(self) -> pa.Table:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[pa.Table, tuple[int, ...], tuple[FileStamp, ...]]:
        """Table of all cached rows, cumulative number of rows at the end of each file, and stamps of the files."""
        manifest = read_manifest(self.folder) or _written(self.dataset, self.folder)
        with reading_cache(self.folder):
            readers, files = open_files(self.folder, manifest)
            tables = [reader.read_all() for reader in readers]
            return pa.concat_tables(tables), tuple(accumulate(table.num_rows for table in tables)), files

    def check(self, row: int) -> None:
        _, ends, files = self._opened
        with reading_cache(self.folder):
            check_hash(files[bisect_right(ends, row)])

    @property
    def _is_written(self) -> bool:
        return is_written(self.folder)

    def schema(self) -> Schema:
        """Return the schema of the stored rows if they exist, else the schema of the dataset."""
        if not self._is_written:
            return super().schema()
        return pa.schema([field for field in self.table.schema if field.name not in self.hidden])

    def length(self) -> int | None:
        return self.exact_length() if self._is_written else super().length()

    def head(self) -> Iterator[RecordBatch]:
        return (chunk for chunk, _ in self.read(0, None)) if self._is_written else super().head()

    def notes(self) -> tuple[str, ...]:
        return (f"memory-mapped from {self.path}",)


@frozen(repr=False)
class _LoadItems(Wrapper):
    """Source of groups or batches that `load` or `cache` has stored. All epochs yield the items that were computed in epoch 0.

    A resume position is the index of the next item.
    """

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, gathers=True, same_items=True, reorders=False, redraws=False)

    @cached_property
    def items(self) -> Sequence[Any]:
        """All stored groups or batches."""
        return self._all()

    def _all(self) -> Sequence[Any]:
        with closing(read_all(self.dataset, reader="load")) as items:
            return tuple(items)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        for index in range(position or 0, len(self.items)):
            item = self.items[index]
            yield dict(item) if isinstance(item, dict) else _in_epoch(item, epoch), index + 1

    def exact_length(self) -> int:
        return len(self.items)

    def length(self) -> int | None:
        return known_length(self.dataset)

    def notes(self) -> tuple[str, ...]:
        return (f"holds all {self.dataset.level} in memory from the first use on",)

    def __repr__(self) -> str:
        return "load()"


@frozen(repr=False)
class _CacheItems(_LoadItems):
    path: str

    @cached_property
    def items(self) -> Sequence[Any]:
        """Sequence of the cached groups or batches. Items are read from the files on access."""
        if self.dataset.level == "batches" and not self.dataset.hooks.changes.collates:
            return self._all()  # The files hold collated batches, but the caller needs groups of rows.
        folder = _folder(self.dataset, self.path)
        manifest = read_manifest(folder) or _written(self.dataset, folder)
        with reading_cache(folder):
            restored = _storing(self.dataset).restored if self.dataset.level == "batches" else None
            return CachedItems(*open_files(folder, manifest), folder, restored)

    def notes(self) -> tuple[str, ...]:
        return (f"memory-mapped from {self.path}",)

    def __repr__(self) -> str:
        return f"cache(path={self.path!r})"


@runtime_checkable
class StoresBatches(Protocol):
    """Protocol of a stage, such as `collate`, that can convert its batches for `cache`."""

    def stored(self, batch: Batch, schema: Schema | None) -> RecordBatch:
        """Return a table row with a column per array of `batch`. Raise an error if the schema of earlier rows, `schema`, differs."""

    def restored(self, row: RecordBatch) -> Batch:
        """Convert a stored table row back to a batch."""


def _storing(dataset: Dataset[Any]) -> StoresBatches:
    """Return the stage that creates the batches of a dataset. If the dataset has no such stage, search in its first child dataset."""
    maker = next((stage for stage in reversed(dataset.stages) if stage.emits == "batches"), None)
    if maker is None:
        return _storing(inner_parts(dataset.source)[0])
    if not isinstance(maker, StoresBatches):
        raise PipelineError(f"cache cannot store the batches of {maker!r}. Put cache before this stage, or use load().")
    return maker


def _folder(dataset: Dataset[Any], path: str) -> Path:
    return Path(path).expanduser() / fingerprint((dataset, dataset.hooks.changes.marks, dataset.source.version()))


def _written(dataset: Dataset[Any], folder: Path) -> Manifest:
    """Write the missing files of a cache. The manifest is written last and marks the cache as complete."""
    out = WrittenFolder(
        folder,
        FORMATS["arrow"] if dataset.level == "examples" else ITEMS,
        _ITEMS if dataset.level == "batches" else rows_of_a_file(dataset),
        number_rows(no_rows(dataset.plan.schema), 0, 0).schema,
        tuple(text for text, _ in dataset.identity),
        folder.name,
        hidden=True,
    )
    as_chunks: AsChunks = partial(_rows_of_batches, _storing(dataset)) if dataset.level == "batches" else identity
    with out.alone():
        try:
            return out.begin() or out.finish(write_in_order(dataset, out, as_chunks)[0])
        except Exception:
            out.clear()  # Delete the files. No later run can use them, because a corrected pipeline writes to another folder.
            raise


def _rows_of_batches(maker: StoresBatches, batches: Iterator[tuple[Any, Cursor]]) -> Iterator[tuple[RecordBatch, Cursor]]:
    schema = None
    for batch, cursor in batches:
        row = maker.stored(batch, schema)
        schema = row.schema
        yield row, cursor


def _in_epoch(chunk: RecordBatch, epoch: int) -> RecordBatch:
    """Return a chunk whose row keys belong to the given epoch. Stored rows have the keys of epoch 0."""
    return (
        chunk
        if epoch == 0 or KEY not in chunk.schema.names
        else set_column(chunk, KEY, pa.array(fold_into_rows(row_keys(chunk), "epoch", epoch)))
    )
