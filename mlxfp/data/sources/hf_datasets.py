"""Datasets of the Hugging Face package `datasets`: tables and streams."""

import copy
import json
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.exact_casts import cast_exactly
from mlxfp.core.arrow.gathering import Rows, rows_of
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema, one_chunk
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import fingerprint
from mlxfp.core.nodes import brief
from mlxfp.core.sources import Position, Source, SourceTraits, read_tasks
from mlxfp.data.sources.row_chunks import ROWS_PULLED, check_example, count_rows, infer_schema, read_table, rows_to_chunks, tasks_in_order
from mlxfp.data.sources.torch_datasets import FromItems
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentTypeError, CursorError, DataError, FingerprintError
from mlxfp.support.optional import optional

# Stream classes of `datasets` whose `state_dict` resumes exactly.
# Streams with a shuffle buffer or a batched `map` do not resume exactly: after the resume, rows may be missing or different.
_EXACT = ("ExamplesIterable", "ArrowExamplesIterable", "SelectColumnsIterable", "SkipExamplesIterable", "TakeExamplesIterable")
_FEATURES = b"huggingface"  # key under which the package `datasets` stores features in the metadata of a schema
_PLAIN = ("Value", "List", "LargeList", "Sequence")  # feature classes of the package `datasets` that add no information to the Arrow type


@explain_call
def from_hf(dataset: Any) -> Dataset[Example]:
    """Make a dataset from a `Dataset` or an `IterableDataset` of the Hugging Face package `datasets`.

    The Arrow table of a `Dataset` is used without a copy and stays memory-mapped. Rows have random access, also after `select` or
    `shuffle`. An `IterableDataset` is streamed, and each epoch calls its method `set_epoch`. For a stream without features, types are
    inferred from the first 128 rows. If the `state_dict` of a stream is exact, a resumed run continues there. Any other stream, for
    example with a shuffle buffer, reads the rows before the cursor again and drops these rows.

    Columns are the columns of the Arrow table. `with_format` is ignored, images and sound stay structs of `bytes` and `path`, labels stay
    numbers, and arrays of fixed shape become lists. Other information of a feature, such as class names, is kept in the metadata of the
    Arrow field: `json.loads(fp.schema(rows).field("label").metadata[b"huggingface"])["names"]`.

    A function of `with_transform` or `set_transform` is applied to each row alone, as in `dataset[0]`. The function must be
    deterministic. Use `map(seed=)` for randomness. Types are inferred from the first 128 rows, which are therefore read twice.

    Raises `ArgumentTypeError` for other objects. A `DatasetDict` is refused: pass one of its splits.

    >>> class Rows:  # what from_hf uses of a datasets.Dataset
    ...     data, _indices, _fingerprint = pa.table({"x": [1, 2, 3]}), pa.table({"indices": [2, 0]}), "9f3a"
    >>> list(from_hf(Rows()))
    [{'x': 3}, {'x': 1}]

    See also: `from_table` for tables of other libraries, `read_arrow` for the cache files of `datasets`.
    """
    if hasattr(dataset, "data") and hasattr(dataset, "_indices"):
        return Dataset(_FromHf(dataset) if _transform(dataset) is None else _FromHfTransformed(_Transformed(dataset), None))
    if hasattr(dataset, "set_epoch") and hasattr(dataset, "with_format") and hasattr(dataset, "features"):
        return Dataset(_FromHfStream(dataset))
    hint = f" Pass one of the splits {', '.join(map(repr, dataset))}." if isinstance(dataset, dict) else ""
    raise ArgumentTypeError(
        f"from_hf needs a Dataset or an IterableDataset of the package datasets, got {type(dataset).__name__}: {dataset!r:.60}."
        f"{hint or ' Use from_table for other tables, or from_iterable for an iterable of dicts.'}"
    )


def _table_identity(dataset: Any) -> Any:
    """Return the hash that `datasets` stores for a dataset. Reading this hash needs no data.

    If there is no stored hash, the data are hashed.
    """
    known = getattr(dataset, "_fingerprint", None)
    return known if known is not None else fingerprint((dataset.data, dataset._indices, _transform(dataset)))  # noqa: SLF001  # no public name exists


def _transform(dataset: Any) -> Any:
    """Return the function set by `with_transform`, or None if no function is set."""
    stated = getattr(dataset, "format", None) or {}
    return stated["format_kwargs"]["transform"] if stated.get("type") == "custom" else None


@frozen(repr=False)
class _FromHf(Source):
    # Datasets are compared by the hash that `datasets` stores, because a pickled dataset may hold only the file name of the table.
    dataset: Any = field(eq=_table_identity)
    kept: tuple[str, ...] | None = None  # columns to read; None reads all columns
    indexable = True

    @property
    def table(self) -> pa.Table:
        """All rows of the underlying Arrow table, before `select` or `shuffle`."""
        table = getattr(self.dataset.data, "table", self.dataset.data)
        whole = _without_hf_types(table)
        whole = pa.Table.from_arrays(whole.columns, schema=_with_features(whole.schema, table.schema.metadata))
        return whole if self.kept is None else whole.select(list(self.kept))

    @cached_property
    def rows(self) -> Rows:
        """Random access to the rows of `table`."""
        return rows_of(self.table)

    @property
    def chosen(self) -> pa.ChunkedArray | None:
        """Indices of the selected rows in the underlying table, uint64[N]. None if all rows are selected."""
        indices = self.dataset._indices  # noqa: SLF001  # no public name exists
        return None if indices is None else indices.column(0)

    def schema(self) -> Schema:
        return self.table.schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first = position or 0
        yield from read_table(self.table, first) if self.chosen is None else read_tasks(tasks_in_order(self, epoch, first, CHUNK_ROWS))

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.rows.take(indices if self.chosen is None else self.chosen.take(pa.array(indices)).to_numpy().astype(np.int64))

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(restricted=lambda columns, conditions: attrs.evolve(self, kept=tuple(columns)))

    def length(self) -> int:
        return int(self.table.num_rows if self.chosen is None else len(self.chosen))

    def __fingerprint__(self) -> Any:
        return _table_identity(self.dataset)

    def __repr__(self) -> str:
        return f"from_hf({self.length():,} rows)"


@frozen
class _Transformed:
    """Sequence of rows of a Hugging Face dataset after its transform function. The function is called for one row at a time."""

    dataset: Any

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Example:
        return check_example(self.dataset[index], index)

    def __fingerprint__(self) -> Any:
        return _table_identity(self.dataset)


class _FromHfTransformed(FromItems):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"from_hf({self.length():,} rows, transformed by {brief(_transform(self.items.dataset))})"


def _stream_identity(stream: Any) -> Any:
    """Return the hash that `datasets` computes for the data source and the steps of a stream.

    A stream class of another package defines its hash with `__fingerprint__`.
    """
    if hasattr(type(stream), "__fingerprint__"):
        return stream.__fingerprint__()
    hasher = optional("datasets.fingerprint", extra="hf", needed_by="The fingerprint of a stream in from_hf").Hasher
    fresh = _open_stream(stream, 0)
    try:
        return hasher.hash((str(fresh.features), fresh._ex_iterable, fresh._distributed))  # noqa: SLF001  # no public name exists
    except Exception as error:  # Pickling can fail with any error, because a stream may hold any object.
        raise FingerprintError(
            f"The fingerprint of a Hugging Face stream cannot be computed: {type(error).__name__}: {error}, in "
            f"{stream!r:.80}. Use functions and arguments that can be pickled, or load resources inside the functions."
        ) from error


def _compared(stream: Any) -> Any:
    try:
        return fingerprint(_stream_identity(stream))
    except FingerprintError:
        return stream


@frozen(repr=False)
class _FromHfStream(Source):
    """Source that reads a stream of the Hugging Face library `datasets`.

    If the `state_dict` of the stream stores the exact position, a resume position is this `state_dict` as JSON text. Otherwise, a resume
    position is the number of rows already read.
    """

    stream: Any = field(eq=_compared)

    @cached_property
    def inferred(self) -> Schema:
        """Schema of the stream.

        The schema is cached, because threads that read ahead must not read the first rows at the same time.
        """
        if self.stream.features is not None:
            stated = self.stream.features.arrow_schema
            return _with_features(_without_hf_types(stated.empty_table()).schema, stated.metadata)
        return infer_schema(_open_stream(self.stream, 0))

    def schema(self) -> Schema:
        return self.inferred

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        schema, stream = self.schema(), _open_stream(self.stream, epoch)
        exact, skipped = _is_exact(stream), 0
        if position is not None and isinstance(position, str) is not exact:
            raise CursorError(
                f"The cursor is from another version of the package datasets: got {position!r:.60}, in {self!r}. Start the epoch again."
            )
        if exact and position is not None:
            stream.load_state_dict(json.loads(position))
        elif position is not None:
            skipped = position
        typed = (self._typed(table, schema) for table in stream.iter(ROWS_PULLED))
        for chunk, done in count_rows(rows_to_chunks(stream, schema, 0) if stream.features is None else typed, 0):
            if done > skipped:  # Skip the chunks before the resume position, which is always the end of a chunk.
                yield chunk, json.dumps(stream.state_dict()) if exact else done

    def _typed(self, table: pa.Table, schema: Schema) -> RecordBatch:
        """Return the rows of a table with the types of the features. Raises `DataError` for a value that its feature would change."""
        chunk = one_chunk(_without_hf_types(table))
        columns = []
        for column in schema:
            try:
                values = chunk[column.name]
                columns.append(values if values.type == column.type else cast_exactly(values, column.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f"A value does not fit the feature {column.name!r} of {column.type}: {error}, in {self!r}. Give the column another "
                    "feature with cast_column, or correct the value."
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(notes=self.notes)

    def notes(self) -> tuple[str, ...]:
        return () if _is_exact(self.stream) else ("resuming reads the rows before the cursor again, and drops them",)

    def __fingerprint__(self) -> Any:
        return _stream_identity(self.stream)

    def __repr__(self) -> str:
        return f"from_hf(stream of {'unknown columns' if self.stream.features is None else ', '.join(self.stream.features)})"


def _open_stream(stream: Any, epoch: int) -> Any:
    """Return a copy of the stream at the start of an epoch. Each thread needs its own copy, because iteration changes the stream.

    All copies share the file system objects, because copying in another thread would make fsspec create new objects.
    """
    shared = getattr(stream, "_IterableDataset__hffs_cache", None)
    copied = copy.deepcopy(stream, {id(shared): shared}).with_format(None if stream.features is None else "arrow")
    copied.set_epoch(epoch)
    return copied


def _is_exact(stream: Any) -> bool:
    part: Any = getattr(stream, "_ex_iterable", None)
    while type(part).__name__ in _EXACT and hasattr(part, "ex_iterable"):
        part = part.ex_iterable
    return type(part).__name__ in _EXACT and getattr(stream, "_distributed", None) is None


def _without_hf_types(table: pa.Table) -> pa.Table:
    """Remove Arrow types and metadata that only `datasets` knows. Arrays of fixed shape become lists."""
    for index, column in enumerate(table.schema):
        if isinstance(column.type, pa.ExtensionType):  # Arrow's own tensor type is no ExtensionType in Python and stays unchanged.
            pieces = [piece.storage for piece in table.column(index).chunks]
            table = table.set_column(index, column.name, pa.chunked_array(pieces, column.type.storage_type))
    return table.replace_schema_metadata(None)


def _with_features(schema: Schema, metadata: Any) -> Schema:
    """Add to the field metadata all feature information that the Arrow type does not express, such as class names."""
    features = _features((metadata or {}).get(_FEATURES, b"{}"))
    return pa.schema([column.with_metadata({_FEATURES: features[column.name]}) if column.name in features else column for column in schema])


@lru_cache(maxsize=64)
def _features(text: bytes) -> dict[str, bytes]:
    features = json.loads(text).get("info", {}).get("features") or {}
    return {name: json.dumps(feature).encode() for name, feature in features.items() if _says_more(feature)}


def _says_more(feature: Any) -> bool:
    """Return True if a feature, or a feature nested in it, has information that its Arrow type does not express."""
    if isinstance(feature, list):
        return any(map(_says_more, feature))
    if not isinstance(feature, dict):
        return False
    kind = feature.get("_type", "Value")
    if not isinstance(kind, str):  # This is no feature class, but a struct with a field named `_type`.
        return any(map(_says_more, feature.values()))
    return kind not in _PLAIN or any(map(_says_more, feature.values()))
