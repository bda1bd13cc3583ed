"""Sources in memory: examples, tables of other libraries, and Python iterables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.gathering import Rows, rows_of, takeable
from mlxfp.core.chunks import CHUNK_ROWS, HIDDEN, Example, RecordBatch, Schema, check_schema, chunked, from_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, SchemaError
from mlxfp.core.identity import comparable, fingerprint
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, Source


def from_examples(examples: Sequence[Example], *, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset of a list of mappings, held in memory as an Arrow table.

    Columns are those of all examples, null where one lacks it; types are inferred from all values unless `schema` is given. numpy arrays
    of one shape become tensor columns. Raises `SchemaError` naming the first value that does not fit.

    >>> list(from_examples([{"x": 1, "name": "a"}, {"x": 2}]))
    [{'x': 1, 'name': 'a'}, {'x': 2, 'name': None}]

    See also: `from_table` for columns, `from_iterable` for more than memory holds.
    """
    check_schema(schema)
    rows = list(examples)
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ArgumentTypeError(
                f"Every example must be a mapping of column names to values, got {type(row).__name__} at {place}: {row!r:.60}."
            )
    return Dataset(_FromExamples(pa.Table.from_batches([from_rows(rows, schema, range(len(rows)))])))


def from_table(table: Any) -> Dataset[Example]:
    """Make a dataset of a table of another library, without copying it where the library allows that.

    Takes whatever has `__arrow_c_stream__` or `__arrow_c_array__`: pyarrow, polars, pandas, DuckDB, Hugging Face datasets; and a mapping
    of column names to sequences or numpy arrays. Raises `ArgumentTypeError` for anything else.

    >>> [row["x"] for row in from_table(pa.table({"x": [1, 2]}))]
    [1, 2]
    """
    return Dataset(_FromTable(_as_table(table)))


def from_iterable(examples: Iterable[Example] | Callable[[], Iterable[Example]], *, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset of an iterable of mappings, read as it is needed; it may be endless.

    The iterable is iterated anew for every epoch, so a generator will not do: pass the function that makes it. Without `schema`, the first
    128 examples are read once more to infer it. Resuming pulls and drops the examples before the cursor. At most 256 examples are pulled
    ahead of the ones that come out.

    >>> from itertools import count
    >>> next(iter(from_iterable(lambda: ({"x": i} for i in count()))))
    {'x': 0}
    """
    check_schema(schema)
    if isinstance(examples, Iterator):
        raise ArgumentTypeError(
            f"from_iterable needs something that can be iterated again, got the one-pass {type(examples).__name__}. "
            "Pass the function that makes it, as in from_iterable(lambda: (... for ...)), or a list."
        )
    if not (callable(examples) or isinstance(examples, Iterable)):
        raise ArgumentTypeError(f"from_iterable needs an iterable or a function that returns one, got {type(examples).__name__}.")
    return Dataset(_FromIterable(examples, schema))


@frozen(repr=False)
class _FromTable(Source):
    table: pa.Table = field(eq=fingerprint)  # by content, with nan equal to nan: a pickled copy is the same value

    @cached_property
    def rows(self) -> Rows:
        """The rows, to be taken by number."""
        return rows_of(self.table)

    @property
    def indexable(self) -> bool:
        return True

    def schema(self) -> Schema:
        return self.table.schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first = position or 0
        for chunk in self.table.slice(first).to_batches(max_chunksize=CHUNK_ROWS):
            first += chunk.num_rows
            yield chunk, first

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.rows.take(indices)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, table=self.table.select(list(columns)))

    def length(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"from_table({self.table.num_rows:,} rows)"


class _FromExamples(_FromTable):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"from_examples({self.table.num_rows:,} rows)"


@frozen(repr=False)
class _FromIterable(Source):
    examples: Iterable[Example] | Callable[[], Iterable[Example]] = field(eq=comparable)
    _schema: Schema | None = None

    def schema(self) -> Schema:
        if self._schema is not None:
            return self._schema
        rows = list(islice(self._examples(), SAMPLE_ROWS))
        return from_rows(rows, None, range(len(rows))).schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        schema, first = self.schema(), position or 0
        for rows in chunked(islice(self._examples(), first, None), _ROWS_PULLED):
            yield from_rows(rows, schema, range(first, first + len(rows))), first + len(rows)
            first += len(rows)

    def notes(self) -> tuple[str, ...]:
        return ("resuming pulls and drops the examples before the cursor",)

    def _examples(self) -> Iterator[Example]:
        made = self.examples() if callable(self.examples) else self.examples
        for place, row in enumerate(made):
            if not isinstance(row, Mapping):
                raise ArgumentTypeError(
                    f"Every example must be a mapping of column names to values, got {type(row).__name__} at {place}: {row!r:.60}."
                )
            yield row


_ROWS_PULLED = 256  # rows of a chunk from an iterable: user code may be slow, so the first batch should not wait for thousands


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        made = table
    elif isinstance(table, Mapping):
        made = pa.Table.from_batches([_columns(table)])
    elif hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        made = pa.table(table)
    else:
        raise ArgumentTypeError(
            f"from_table needs a table with __arrow_c_stream__ or a mapping of columns, got {type(table).__name__}. "
            "For a list of dicts use from_examples, for anything that yields dicts from_iterable."
        )
    names = made.schema.names
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaError(f"The table has several columns named {doubled[0]!r}; rename them, for names select columns here.")
    reserved = [name for name in names if name in HIDDEN]
    if reserved:
        raise SchemaError(f"The column name {reserved[0]!r} is reserved; rename the column.")
    movable = pa.schema([field.with_type(takeable(field.type)) for field in made.schema], made.schema.metadata)
    return made if movable.equals(made.schema) else made.cast(movable)


def _columns(columns: Mapping[str, Any]) -> RecordBatch:
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ArgumentError(f"The columns of a table have one length, got {sizes}.")
    arrays = {name: _array(column) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def _array(column: Any) -> pa.Array:
    if isinstance(column, np.ndarray) and column.ndim > 1:
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(column))
    made = pa.array(column)
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
