"""Source for tests. The source yields given chunks and logs the chunks read."""

from collections.abc import Iterator, Sequence
from functools import reduce

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import fingerprint
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.support.errors import ArgumentError


def from_chunks(chunks: Sequence[RecordBatch], *, log: list[int] | None = None) -> Dataset[Example]:
    """Return a dataset of the given chunks, without random access.

    Reading a chunk appends its number of rows to `log`, so a test can check what is read and in which order. With optimization, chunks lack
    unused columns, and may have nulls in rows that a filter removes. Raises `ArgumentError` if `chunks` is empty or the schemas differ.

    >>> import pyarrow as pa
    >>> log = []
    >>> rows = iter(from_chunks([pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3]})], log=log))
    >>> next(rows), log
    ({'x': 1}, [2])
    """
    if len({chunk.schema.remove_metadata() for chunk in chunks}) != 1:
        raise ArgumentError(
            f"from_chunks needs at least one chunk and a single schema, got chunks with the columns "
            f"{[chunk.schema.names for chunk in chunks]}."
        )
    return Dataset(_FromChunks(tuple(chunks), [] if log is None else log))


def _pruned(chunk: RecordBatch, columns: Sequence[str], conditions: tuple[Condition, ...]) -> RecordBatch:
    """Return the selected columns of a chunk. In rows that break one of `conditions`, set the values of nullable columns to null.

    A file reader, too, may skip values of rows that a later filter removes.
    """
    meets = [pc.fill_null(condition.mask(chunk), fill_value=False) for condition in conditions]
    kept, chunk = reduce(pc.and_, meets) if meets else None, chunk.select(list(columns))
    if kept is None or not columns:
        return chunk
    arrays = [
        column.take(pc.if_else(kept, pa.array(range(len(chunk)), pa.int64()), pa.scalar(None, pa.int64()))) for column in chunk.columns
    ]
    nullable = [array if field.nullable else column for array, column, field in zip(arrays, chunk.columns, chunk.schema, strict=True)]
    return pa.RecordBatch.from_arrays(nullable, schema=chunk.schema)


@frozen(repr=False)
class _FromChunks(Source):
    """Source of given chunks. A resume position is the index of the next chunk."""

    chunks: tuple[RecordBatch, ...] = field(eq=fingerprint)
    log: list[int] = field(eq=False, repr=False)

    def schema(self) -> Schema:
        return self.chunks[0].schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        for index in range(position or 0, len(self.chunks)):
            self.log.append(self.chunks[index].num_rows)
            yield self.chunks[index], index + 1

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(restricted=self._restricted)

    def _restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, chunks=tuple(_pruned(chunk, columns, conditions) for chunk in self.chunks))

    def length(self) -> int:
        return sum(chunk.num_rows for chunk in self.chunks)

    def __repr__(self) -> str:
        return f"from_chunks({[chunk.num_rows for chunk in self.chunks]})"
