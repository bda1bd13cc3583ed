"""Sources for data in memory: lists of examples, tables of other libraries, and Python iterables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.gathering import Rows, rows_of
from mlxfp.core.chunks import Example, RecordBatch, Schema, check_schema, table_from_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import comparable, fingerprint
from mlxfp.core.nodes import brief
from mlxfp.core.sources import InTable, Position, Source, SourceTraits, places_as_numbered
from mlxfp.data.sources.arrow_datasets import dataset_source, lance_source
from mlxfp.data.sources.foreign_tables import as_table
from mlxfp.data.sources.row_chunks import check_example, count_rows, infer_schema, read_table, rows_to_chunks
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentTypeError, listed


@explain_call
def from_examples(examples: Sequence[Example], *, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset from a list of mappings, stored as an Arrow table.

    Each key of an example becomes a column. An example without a key has a null in that column. Types are inferred from all values unless
    `schema` is given. Arrays (NumPy, MLX, torch) with several axes become columns of tensors of the same shape. Arrays with one axis
    become lists, and arrays without axes become numbers.

    Raises `ArgumentTypeError` for an example that is not a mapping, and `SchemaError` for the first value that does not fit its column.

    >>> list(from_examples([{"x": 1, "name": "a"}, {"x": 2}]))
    [{'x': 1, 'name': 'a'}, {'x': 2, 'name': None}]

    See also: `from_table` for columns, `from_iterable` for more than memory holds.
    """
    check_schema(schema)
    if isinstance(examples, Mapping):
        raise ArgumentTypeError(f"from_examples takes rows, got columns: {listed(map(repr, examples))}. Write fp.from_table(columns).")
    if not isinstance(examples, Iterable):
        raise ArgumentTypeError(f"from_examples takes a list of mappings, got {type(examples).__name__}: {examples!r:.60}.")
    rows = [check_example(row, index) for index, row in enumerate(examples)]
    return Dataset(_FromExamples(table_from_rows(rows, schema)))


@explain_call
def from_table(table: Any) -> Dataset[Example]:
    """Make a dataset from a table of another library, without a copy if possible.

    `table` is one of the following:

    - an object with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, pandas, DuckDB, Daft, Hugging Face datasets),
    - a named Series of pandas or polars,
    - a mapping of column names to sequences or arrays (NumPy, MLX, torch) of equal length, in which an array with several axes becomes a
      tensor column,
    - a `pyarrow.dataset`, whose files are read lazily, with partitions and filter,
    - a Lance dataset (extra `lance`), read lazily, with random access; the version of the dataset belongs to the fingerprint,
    - another lazy table, computed once by this call and kept in memory: a polars LazyFrame, a pyarrow scanner, Ray Data, Ibis.

    Raises `ArgumentTypeError` for other objects, `ArgumentError` for columns of different lengths, and `SchemaError` for repeated or
    reserved column names and for a value that does not fit its column.

    >>> [row["x"] for row in from_table(pa.table({"x": [1, 2]}))]
    [1, 2]

    See also: `from_examples` for a list of dicts.
    """
    source = lance_source(table) or dataset_source(table)
    return Dataset(FromTable(as_table(table)) if source is None else source)


@explain_call
def from_iterable(examples: Iterable[Example] | Callable[[], Iterable[Example]], *, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset from an iterable of mappings, read lazily. The iterable may be endless.

    Every epoch iterates from the start, so pass a generator function instead of a generator. Without `schema`, types are inferred from
    the first 128 examples, which are therefore read twice. After a resume, the examples before the cursor are read again and dropped. At
    most 256 examples are read ahead.

    Raises `ArgumentTypeError` for an iterator and for an object that is not iterable. Reading raises `ArgumentTypeError` for an example
    that is not a mapping, and `SchemaError` for a value that does not fit its column.

    >>> from itertools import count
    >>> next(iter(from_iterable(lambda: ({"x": i} for i in count()))))
    {'x': 0}
    """
    check_schema(schema)
    if isinstance(examples, Iterator):
        raise ArgumentTypeError(
            f"from_iterable needs an iterable that can be iterated repeatedly, got the one-pass {type(examples).__name__}. "
            "Pass a list, or a function as in from_iterable(lambda: (... for ...))."
        )
    if not (callable(examples) or isinstance(examples, Iterable)):
        raise ArgumentTypeError(f"from_iterable needs an iterable or a function that returns one, got {type(examples).__name__}.")
    return Dataset(FromIterable(examples, schema))


@frozen(repr=False)
class FromTable(Source):
    """Source of the rows of a table in memory."""

    # Tables are compared by content, and nan equals nan, so that a pickled copy is equal to the original.
    table: pa.Table = field(eq=fingerprint)
    indexable = True

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(
            take_workers=frozenset({"threads"}),  # Only threads are possible, because every worker process would get a copy of the table.
            restricted=lambda columns, conditions: attrs.evolve(self, table=self.table.select(list(columns))),
            in_table=lambda: InTable(self, places_as_numbered),
        )

    @cached_property
    def rows(self) -> Rows:
        """Random access to the rows of the table."""
        return rows_of(self.table)

    def schema(self) -> Schema:
        return self.table.schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        yield from read_table(self.table, position or 0)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.rows.take(indices)

    def length(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"from_table({self.table.num_rows:,} rows)"


class _FromExamples(FromTable):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"from_examples({self.table.num_rows:,} rows)"


@frozen(repr=False)
class FromIterable(Source):
    """Source of examples from an iterable.

    Every epoch iterates from the start. A resume position is the number of examples already read.
    """

    examples: Iterable[Example] | Callable[[], Iterable[Example]] = field(eq=comparable)
    _schema: Schema | None = None

    def schema(self) -> Schema:
        return infer_schema(self._examples()) if self._schema is None else self._schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        first = position or 0
        yield from count_rows(rows_to_chunks(islice(self._examples(), first, None), self.schema(), first), first)

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(notes=lambda: ("resuming reads the examples before the cursor again, and drops them",))

    def _examples(self) -> Iterator[Example]:
        examples = self.examples() if callable(self.examples) else self.examples
        if not isinstance(examples, Iterable):
            raise ArgumentTypeError(
                f"The function of from_iterable must return an iterable of mappings, got {type(examples).__name__}: {examples!r:.60}, "
                f"from {brief(self.examples)}. Did you forget return?"
            )
        return (check_example(row, index) for index, row in enumerate(examples))
