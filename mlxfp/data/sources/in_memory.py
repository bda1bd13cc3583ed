"""Sources in memory: examples, tables of other libraries, and Python iterables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.gathering import Rows, rows_of
from mlxfp.core.chunks import Example, RecordBatch, Schema, check_schema, from_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import comparable, fingerprint
from mlxfp.core.sources import InTable, Position, Source, SourceTraits, places_as_numbered
from mlxfp.data.sources.arrow_datasets import dataset_source
from mlxfp.data.sources.foreign_tables import as_table
from mlxfp.data.sources.row_chunks import check_example, count_rows, infer_schema, read_table, rows_to_chunks
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentTypeError


@explain_call
def from_examples(examples: Sequence[Example], *, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset from a list of mappings, held in memory as an Arrow table.

    The columns are the keys of all examples; a missing key is null. Types are inferred from all values unless `schema` is given. Arrays
    (numpy, MLX, torch) of more than one axis become tensor columns, all of one shape; those of one axis become lists, others numbers.
    Raises `ArgumentTypeError` for an example that is not a mapping, and `SchemaError` naming the first value that does not fit its column.

    >>> list(from_examples([{"x": 1, "name": "a"}, {"x": 2}]))
    [{'x': 1, 'name': 'a'}, {'x': 2, 'name': None}]

    See also: `from_table` for columns, `from_iterable` for more than memory holds.
    """
    check_schema(schema)
    rows = [check_example(row, place) for place, row in enumerate(examples)]
    return Dataset(_FromExamples(pa.Table.from_batches([from_rows(rows, schema, range(len(rows)))])))


@explain_call
def from_table(table: Any) -> Dataset[Example]:
    """Make a dataset from a table of another library, without copying it where the library allows that.

    Takes any object with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, pandas, DuckDB, Daft, Hugging Face datasets), a
    Series of pandas or polars with a name, or a mapping of column names to sequences or arrays (numpy, MLX, torch) of one length; an array
    of more than one axis becomes a tensor column. The files of a `pyarrow.dataset` are read lazily, with its partitions and filter. Other
    lazy tables are computed here, once, and held in memory: a LazyFrame of polars (its `collect`), a scanner of pyarrow, Ray Data, Ibis.

    Raises `ArgumentTypeError` for anything else, `ArgumentError` for columns of different lengths, and `SchemaError` for a column name that
    is repeated or reserved and for a value that does not fit its column.

    >>> [row["x"] for row in from_table(pa.table({"x": [1, 2]}))]
    [1, 2]

    See also: `from_examples` for a list of dicts.
    """
    source = dataset_source(table)
    return Dataset(_FromTable(as_table(table)) if source is None else source)


@explain_call
def from_iterable(examples: Iterable[Example] | Callable[[], Iterable[Example]], *, schema: Schema | None = None) -> Dataset[Example]:
    """Make a dataset from an iterable of mappings, read lazily; it may be endless.

    Every epoch iterates again, so a generator cannot be passed: pass the function that makes it. Without `schema`, the first 128 examples
    are read once more to infer it. Resuming reads the examples before the cursor again, and drops them. At most 256 examples are read
    ahead of those that come out.

    Raises `ArgumentTypeError` for an iterator, or for anything that cannot be iterated; while reading, for an example that is not a
    mapping, and `SchemaError` for a value that does not fit its column.

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
    return Dataset(FromIterable(examples, schema))


@frozen(repr=False)
class _FromTable(Source):
    table: pa.Table = field(eq=fingerprint)  # by content, with nan equal to nan: a pickled copy is the same value
    indexable = True

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(
            taken_in=frozenset({"threads"}),  # other processes would each get a copy of the table
            restricted=lambda columns, conditions: attrs.evolve(self, table=self.table.select(list(columns))),
            in_table=lambda: InTable(self, places_as_numbered),
        )

    @cached_property
    def rows(self) -> Rows:
        """The rows, to be taken by number."""
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


class _FromExamples(_FromTable):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"from_examples({self.table.num_rows:,} rows)"


@frozen(repr=False)
class FromIterable(Source):
    """Examples that are iterated again for every epoch. Positions are the number of examples before them."""

    examples: Iterable[Example] | Callable[[], Iterable[Example]] = field(eq=comparable)
    _schema: Schema | None = None

    def schema(self) -> Schema:
        """Return the declared schema, or infer it from the first examples."""
        return infer_schema(self._examples()) if self._schema is None else self._schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield chunks of examples."""
        first = position or 0
        yield from count_rows(rows_to_chunks(islice(self._examples(), first, None), self.schema(), first), first)

    @property
    def traits(self) -> SourceTraits:
        """A note on the cost of resuming."""
        return SourceTraits(notes=lambda: ("resuming reads the examples before the cursor again, and drops them",))

    def _examples(self) -> Iterator[Example]:
        examples = self.examples() if callable(self.examples) else self.examples
        return (check_example(row, place) for place, row in enumerate(examples))
