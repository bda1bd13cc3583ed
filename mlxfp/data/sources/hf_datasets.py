"""Datasets of the Hugging Face package `datasets`: tables, and streams."""

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

from mlxfp.core.arrow.gathering import Rows, rows_of
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema, one_chunk
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import fingerprint
from mlxfp.core.nodes import brief
from mlxfp.core.sources import Position, Source, SourceTraits, read_tasks
from mlxfp.data.sources.row_chunks import ROWS_PULLED, check_example, count_rows, infer_schema, read_table, rows_to_chunks, tasks_in_order
from mlxfp.data.sources.torch_datasets import FromItems
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentTypeError, CursorError, FingerprintError
from mlxfp.support.optional import optional

# Streams whose `state_dict` is exact. It is not for others: after a resume, a shuffle buffer is filled with other rows, and mapping by
# batches may skip one.
_EXACT = ("ExamplesIterable", "ArrowExamplesIterable", "SelectColumnsIterable", "SkipExamplesIterable", "TakeExamplesIterable")
_FEATURES = b"huggingface"  # the key of `datasets` in the metadata of a schema
_PLAIN = ("Value", "List", "LargeList", "Sequence")  # features that the Arrow type says all of


@explain_call
def from_hf(dataset: Any) -> Dataset[Example]:
    """Make a dataset from one of the Hugging Face package `datasets`: a `Dataset` or an `IterableDataset`.

    The Arrow table of a `Dataset` is used without a copy, memory-mapped if it was; rows can be taken in any order, and those chosen by
    `select` or `shuffle` are looked up by their number. An `IterableDataset` is streamed, and its `set_epoch` is called with the epoch;
    where its features are not known, types are inferred from the first 128 rows. It resumes by its `state_dict` where that is exact.
    Otherwise, for example with a shuffle buffer, the rows before the cursor are read again and dropped.

    Columns are those of the table: formats set by `with_format` are ignored, images and sound stay structs of `bytes` and `path`, labels
    stay numbers, and arrays of fixed shape become lists. What the package knows of such a column, as the names of classes, stays in the
    metadata of its Arrow field: `json.loads(fp.schema(rows).field("label").metadata[b"huggingface"])["names"]`.

    Where `with_transform` or `set_transform` has set a function, rows are what it makes of each row alone, as in `dataset[0]`, so that they
    do not depend on how they are grouped. It must give the same each time: use `map(seed=)` for randomness. Types are inferred from the
    first 128 rows, which are read once more.

    Raises `ArgumentTypeError` for anything else, including a `DatasetDict`: pass one of its splits.

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
    hint = f" It holds the splits {', '.join(map(repr, dataset))}: pass one of them." if isinstance(dataset, dict) else ""
    raise ArgumentTypeError(
        f"from_hf needs a Dataset or an IterableDataset of the package datasets, got {type(dataset).__name__}: {dataset!r:.60}."
        f"{hint or ' For other tables use from_table, for anything that yields dicts from_iterable.'}"
    )


def _table_identity(held: Any) -> Any:
    """Identify a table by the hash that `datasets` keeps of how it was made, so that the data need not be read."""
    known = getattr(held, "_fingerprint", None)
    return known if known is not None else fingerprint((held.data, held._indices, _transform(held)))  # noqa: SLF001  # there is no public name


def _transform(held: Any) -> Any:
    """Return the function that `with_transform` has set, or None."""
    stated = getattr(held, "format", None) or {}
    return stated["format_kwargs"]["transform"] if stated.get("type") == "custom" else None


@frozen(repr=False)
class _FromHf(Source):
    held: Any = field(eq=_table_identity)  # not its table: `datasets` pickles a memory-mapped table as the name of its file
    kept: tuple[str, ...] | None = None  # the columns that the pipeline needs; None: all
    indexable = True

    @property
    def table(self) -> pa.Table:
        """All rows, before `select` or `shuffle`."""
        table = getattr(self.held.data, "table", self.held.data)
        whole = _without_hf_types(table)
        whole = pa.Table.from_arrays(whole.columns, schema=_with_features(whole.schema, table.schema.metadata))
        return whole if self.kept is None else whole.select(list(self.kept))

    @cached_property
    def rows(self) -> Rows:
        """The same rows, to be taken by number."""
        return rows_of(self.table)

    @property
    def chosen(self) -> pa.ChunkedArray | None:
        """Which rows of the table these are, uint64[N], or None for all of them."""
        indices = self.held._indices  # noqa: SLF001  # there is no public name
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
        return _table_identity(self.held)

    def __repr__(self) -> str:
        return f"from_hf({self.length():,} rows)"


@frozen
class _Transformed:
    """The rows that a transform makes, each alone: how rows are grouped must not change them."""

    held: Any

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: int) -> Example:
        return check_example(self.held[index], index)

    def __fingerprint__(self) -> Any:
        return _table_identity(self.held)


class _FromHfTransformed(FromItems):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"from_hf({self.length():,} rows, transformed by {brief(_transform(self.items.held))})"


def _stream_identity(held: Any) -> Any:
    """Identify a stream by the hash that `datasets` computes of what it reads and how; a class of another package has `__fingerprint__`."""
    if hasattr(type(held), "__fingerprint__"):
        return held.__fingerprint__()
    hasher = optional("datasets.fingerprint", extra="hf", needed_by="The fingerprint of a stream in from_hf").Hasher
    fresh = _open_stream(held, 0)
    try:
        return hasher.hash((str(fresh.features), fresh._ex_iterable, fresh._distributed))  # noqa: SLF001  # there is no public name
    except Exception as error:  # raised by anything that it holds and that cannot be pickled
        raise FingerprintError(
            f"A stream of datasets has no fingerprint: {type(error).__name__}: {error}, in {held!r:.80}. Make its functions and their "
            "arguments plain values, or load what they use inside them."
        ) from error


def _compared(held: Any) -> Any:
    try:
        return fingerprint(_stream_identity(held))
    except FingerprintError:
        return held


@frozen(repr=False)
class _FromHfStream(Source):
    """A stream. Positions are its `state_dict` as JSON where that is exact, else the number of rows before them."""

    held: Any = field(eq=_compared)

    @cached_property
    def found(self) -> Schema:
        """The schema, found once: a thread that reads ahead needs it too, and must not read the first rows while another one does."""
        if self.held.features is not None:
            stated = self.held.features.arrow_schema
            return _with_features(_without_hf_types(stated.empty_table()).schema, stated.metadata)
        return infer_schema(_open_stream(self.held, 0))

    def schema(self) -> Schema:
        return self.found

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        schema, stream = self.schema(), _open_stream(self.held, epoch)
        exact, skipped = _is_exact(stream), 0
        if position is not None and isinstance(position, str) is not exact:
            raise CursorError(f"The cursor is of another version of datasets: got {position!r:.60}, in {self!r}. Start the epoch again.")
        if exact and position is not None:
            stream.load_state_dict(json.loads(position))
        elif position is not None:
            skipped = position
        typed = (one_chunk(_without_hf_types(table).cast(schema)) for table in stream.iter(ROWS_PULLED))
        for chunk, done in count_rows(rows_to_chunks(stream, schema, 0) if stream.features is None else typed, 0):
            if done > skipped:  # positions are ends of chunks, and the chunks are the same each time
                yield chunk, json.dumps(stream.state_dict()) if exact else done

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(notes=self.notes)

    def notes(self) -> tuple[str, ...]:
        return () if _is_exact(self.held) else ("resuming reads the rows before the cursor again, and drops them",)

    def __fingerprint__(self) -> Any:
        return _stream_identity(self.held)

    def __repr__(self) -> str:
        return f"from_hf(stream of {'unknown columns' if self.held.features is None else ', '.join(self.held.features)})"


def _open_stream(held: Any, epoch: int) -> Any:
    """Return a copy of the stream at the start of an epoch: iterating changes a stream, so each thread iterates over a copy of its own.

    The file systems of the whole process, which a stream refers to, are not copied: copying one in another thread than the one that made
    it adds one to them.
    """
    shared = getattr(held, "_IterableDataset__hffs_cache", None)
    stream = copy.deepcopy(held, {id(shared): shared}).with_format(None if held.features is None else "arrow")
    stream.set_epoch(epoch)
    return stream


def _is_exact(stream: Any) -> bool:
    part: Any = getattr(stream, "_ex_iterable", None)
    while type(part).__name__ in _EXACT and hasattr(part, "ex_iterable"):
        part = part.ex_iterable
    return type(part).__name__ in _EXACT and getattr(stream, "_distributed", None) is None


def _without_hf_types(table: pa.Table) -> pa.Table:
    """Drop what only `datasets` understands: its metadata of all columns, and its types for arrays of fixed shape, stored as lists."""
    for place, column in enumerate(table.schema):
        if isinstance(column.type, pa.ExtensionType):  # defined in Python: Arrow's own, such as tensors, are not instances of it
            pieces = [piece.storage for piece in table.column(place).chunks]
            table = table.set_column(place, column.name, pa.chunked_array(pieces, column.type.storage_type))
    return table.replace_schema_metadata(None)


def _with_features(schema: Schema, metadata: Any) -> Schema:
    """Put what `datasets` says of a column beyond its type, such as the names of classes, into the metadata of its field."""
    features = _features((metadata or {}).get(_FEATURES, b"{}"))
    return pa.schema([each.with_metadata({_FEATURES: features[each.name]}) if each.name in features else each for each in schema])


@lru_cache(maxsize=64)
def _features(text: bytes) -> dict[str, bytes]:
    features = json.loads(text).get("info", {}).get("features") or {}
    return {name: json.dumps(feature).encode() for name, feature in features.items() if _says_more(feature)}


def _says_more(feature: Any) -> bool:
    """Say whether a feature, or one in it, is more than an Arrow type."""
    if isinstance(feature, list):
        return any(map(_says_more, feature))
    if not isinstance(feature, dict):
        return False
    kind = feature.get("_type", "Value")
    if not isinstance(kind, str):  # a struct with a field of that name
        return any(map(_says_more, feature.values()))
    return kind not in _PLAIN or any(map(_says_more, feature.values()))
