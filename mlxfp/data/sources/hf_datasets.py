"""Datasets of the Hugging Face package `datasets`: tables as they are, streams as they come."""

import copy
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core._optional import optional
from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.gathering import Rows, rows_of
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema, chunked, from_rows, one_chunk
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentTypeError, CursorError, FingerprintError
from mlxfp.core.identity import fingerprint
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, Source

_ROWS_PULLED = 256  # rows of a chunk of a stream: it may be slow, so the first batch should not wait for thousands

# Streams whose `state_dict` says exactly where they are. Of others it does not: a shuffle buffer is filled anew after a resume, and mapping
# by batches may skip one.
_EXACT = ("ExamplesIterable", "ArrowExamplesIterable", "SelectColumnsIterable", "SkipExamplesIterable", "TakeExamplesIterable")


def from_hf(dataset: Any) -> Dataset[Example]:
    """Make a dataset of one of the Hugging Face package `datasets`, a `Dataset` or an `IterableDataset`.

    Of a `Dataset`, the Arrow table is used as it is, memory-mapped where it was, without a copy; rows can be taken in any order, and those
    chosen by `select` or `shuffle` are looked up by their number. An `IterableDataset` is streamed, and `epoch` is handed to its
    `set_epoch`; where its features are not known, types are inferred from the first 128 rows. It resumes by its `state_dict` where that is
    exact, else by reading again what stands before, as where it shuffles through a buffer.

    Columns are those of the table: no format of `with_format` applies, images and sound stay structs of `bytes` and `path`, labels stay
    numbers, and arrays of fixed shape are lists. Raises `ArgumentTypeError` for anything else, also for a `DatasetDict`: pass a split.

    >>> class Rows:  # what from_hf uses of a datasets.Dataset
    ...     data, _indices, _fingerprint = pa.table({"x": [1, 2, 3]}), pa.table({"indices": [2, 0]}), "9f3a"
    >>> list(from_hf(Rows()))
    [{'x': 3}, {'x': 1}]

    See also: `from_table` for tables of other libraries, `read_arrow` for the cache files of `datasets`.
    """
    if hasattr(dataset, "data") and hasattr(dataset, "_indices"):
        return Dataset(_FromHf(dataset))
    if hasattr(dataset, "set_epoch") and hasattr(dataset, "with_format") and hasattr(dataset, "features"):
        return Dataset(_FromHfStream(dataset))
    hint = f" It holds the splits {', '.join(map(repr, dataset))}: pass one of them." if isinstance(dataset, dict) else ""
    raise ArgumentTypeError(
        f"from_hf needs a Dataset or an IterableDataset of the package datasets, got {type(dataset).__name__}: {dataset!r:.60}."
        f"{hint or ' For other tables use from_table, for anything that yields dicts from_iterable.'}"
    )


def _table_identity(held: Any) -> Any:
    """Identify a table by the hash of its history that `datasets` keeps: data on disk need not be read for it."""
    known = getattr(held, "_fingerprint", None)
    return known if known is not None else fingerprint((held.data, held._indices))  # noqa: SLF001  # there is no public name


@frozen(repr=False)
class _FromHf(Source):
    held: Any = field(eq=_table_identity)  # not its table: what is memory-mapped is pickled as the name of a file
    kept: tuple[str, ...] | None = None  # the columns that are looked at; None: all

    @property
    def indexable(self) -> bool:
        return True

    @property
    def table(self) -> pa.Table:
        """The rows before any were chosen."""
        whole = _plain(getattr(self.held.data, "table", self.held.data))
        return whole if self.kept is None else whole.select(list(self.kept))

    @cached_property
    def rows(self) -> Rows:
        """Those rows, to be taken by number."""
        return rows_of(self.table)

    @property
    def chosen(self) -> pa.ChunkedArray | None:
        """Which rows of the table these are, uint64[N], or None for all of them."""
        indices = self.held._indices  # noqa: SLF001  # there is no public name
        return None if indices is None else indices.column(0)

    def schema(self) -> Schema:
        return self.table.schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first, count = position or 0, self.length()
        if self.chosen is None:
            for chunk in self.table.slice(first).to_batches(max_chunksize=CHUNK_ROWS):
                first += chunk.num_rows
                yield chunk, first
        else:
            for at in range(first, count, CHUNK_ROWS):
                stop = min(at + CHUNK_ROWS, count)
                yield self.take(epoch, np.arange(at, stop)), stop

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.rows.take(indices if self.chosen is None else self.chosen.take(pa.array(indices)).to_numpy().astype(np.int64))

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, kept=tuple(columns))

    def length(self) -> int:
        return int(self.table.num_rows if self.chosen is None else len(self.chosen))

    def __fingerprint__(self) -> Any:
        return _table_identity(self.held)

    def __repr__(self) -> str:
        return f"from_hf({self.length():,} rows)"


def _stream_identity(held: Any) -> Any:
    """Identify a stream by what it reads and how, as `datasets` hashes it; a class of another package says it by `__fingerprint__`."""
    if hasattr(type(held), "__fingerprint__"):
        return held.__fingerprint__()
    hasher = optional("datasets.fingerprint", extra="hf", needed_by="The fingerprint of a stream in from_hf").Hasher
    fresh = _opened(held, 0)
    try:
        return hasher.hash((str(fresh.features), fresh._ex_iterable, fresh._distributed))  # noqa: SLF001  # there is no public name
    except Exception as error:  # whatever it holds that cannot be pickled
        raise FingerprintError(
            f"A stream of datasets has no fingerprint: {type(error).__name__}: {error}, in {held!r:.80}. Make its functions and their "
            "arguments plain values, or load what they use inside of them."
        ) from error


def _compared(held: Any) -> Any:
    try:
        return fingerprint(_stream_identity(held))
    except FingerprintError:
        return held


@frozen(repr=False)
class _FromHfStream(Source):
    """Positions are what `state_dict` returned, as JSON, or the number of rows before them."""

    held: Any = field(eq=_compared)

    def schema(self) -> Schema:
        if self.held.features is not None:
            return _plain(self.held.features.arrow_schema.empty_table()).schema
        rows = list(islice(_opened(self.held, 0), SAMPLE_ROWS))
        return from_rows(rows, None, range(len(rows))).schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        schema, stream = self.schema(), _opened(self.held, epoch)
        exact, skipped, done = _is_exact(stream), 0, 0
        if position is not None and isinstance(position, str) is not exact:
            raise CursorError(f"The cursor is of another version of datasets: got {position!r:.60}, in {self!r}. Start the epoch anew.")
        if exact and position is not None:
            stream.load_state_dict(json.loads(position))
        elif position is not None:
            skipped = position
        for chunk in _chunks(stream, schema):
            done += chunk.num_rows
            if done > skipped:  # positions are ends of chunks, which are the same each time
                yield chunk, json.dumps(stream.state_dict()) if exact else done

    def notes(self) -> tuple[str, ...]:
        return () if _is_exact(self.held) else ("resuming reads the rows before the cursor again, and drops them",)

    def __fingerprint__(self) -> Any:
        return _stream_identity(self.held)

    def __repr__(self) -> str:
        return f"from_hf(stream of {'unknown columns' if self.held.features is None else ', '.join(self.held.features)})"


def _opened(held: Any, epoch: int) -> Any:
    """Return a stream of its own at the start of an epoch: iterating changes what a stream holds."""
    stream = copy.deepcopy(held).with_format(None if held.features is None else "arrow")
    stream.set_epoch(epoch)
    return stream


def _is_exact(stream: Any) -> bool:
    part: Any = getattr(stream, "_ex_iterable", None)
    while type(part).__name__ in _EXACT and hasattr(part, "ex_iterable"):
        part = part.ex_iterable
    return type(part).__name__ in _EXACT and getattr(stream, "_distributed", None) is None


def _chunks(stream: Any, schema: Schema) -> Iterator[RecordBatch]:
    if stream.features is not None:
        for table in stream.iter(_ROWS_PULLED):
            yield one_chunk(_plain(table).cast(schema))
        return
    first = 0
    for rows in chunked(stream, _ROWS_PULLED):
        yield from_rows(rows, schema, range(first, first + len(rows)))
        first += len(rows)


def _plain(table: pa.Table) -> pa.Table:
    """Leave out what only `datasets` understands: its metadata, and its types for arrays of fixed shape, which are lists underneath."""
    for place, column in enumerate(table.schema):
        if isinstance(column.type, pa.ExtensionType):  # made in Python: Arrow's own, such as tensors, are no instances of it
            pieces = [piece.storage for piece in table.column(place).chunks]
            table = table.set_column(place, column.name, pa.chunked_array(pieces, column.type.storage_type))
    return table.replace_schema_metadata(None)
