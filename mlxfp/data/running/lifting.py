"""`lift` turns a recipe into a function of tables, for engines that partition data themselves (Ray, Spark, Dask, Daft, `datasets`).

An engine passes arbitrary subsets of the rows, in any order and in any process. The stages of the recipe must therefore treat each row
alone and declare their schemas. Row keys, from which random numbers are derived, come from a key column or from row numbers.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.chunks import HIDDEN, KEY, LEAF_BITS, ROW, RecordBatch, Schema, one_chunk, visible
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import execute, start
from mlxfp.core.nodes import brief, flat_parts
from mlxfp.core.running.steps import Hooks, Plan, Rows
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.core.stages import Stage, starts_empty
from mlxfp.data.sources.in_memory import from_table
from mlxfp.data.sources.row_chunks import count_rows, most_rows
from mlxfp.support.arrow_types import decoded, is_binary, is_tensor, is_text
from mlxfp.support.checks import check_callable, check_columns, check_not_negative, check_text, check_types, explain_call, not_none
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MlxfpError, PipelineError, SchemaError
from mlxfp.support.randomness import Keys, fold_in, fold_in_rows
from mlxfp.support.terminal import columns_text

_UNSEEN = (
    "lift builds a recipe before any table exists, but this recipe reads columns or the number of rows while it is built. Remove stages "
    "that combine rows, and name columns explicitly."
)

Table = TypeVar("Table")
Numbers = tuple[NDArray[np.int64], Keys]  # row number `__row__` and key `__key__` of each row


@explain_call
def lift(recipe: Callable[[Dataset[Any]], Dataset[Any]], *, key: str | None = None) -> "_Lifted":
    """Turn a recipe (a function that adds stages to a dataset) into a function that takes a table and returns a table.

    The call `lift(recipe)(table)` returns the rows of `pipe(from_table(table), recipe)`. Use the function with `map_batches` of Ray,
    `mapInArrow` of Spark, `map_partitions` of Dask or `map` of `datasets`. The function takes a `pyarrow.Table`, a `RecordBatch`, a pandas
    DataFrame (without its index), a polars DataFrame or a mapping of columns, and returns the same type. For a mapping, the result is a
    dict of NumPy arrays. The function can be pickled, has a fingerprint, and is planned once per schema. `lift(recipe).schema(schema)`
    returns the output schema for an input schema, as Spark needs.

    A recipe with random stages must identify each row, because otherwise every subset of the rows would get the same random numbers. There
    are two ways to identify rows:

    - The argument `key` names a column of integers, text or bytes with a distinct value per row. Integer keys are used as row numbers.
    - The call `lift(recipe)(table, offset=4096)` gives the index of the first row in the whole table.

    If keys or offsets number the rows of the whole table from 0, all subsets together contain exactly the rows of
    `pipe(from_table(whole), recipe)`, in any order of execution.

    Raises `PipelineError` for a stage that combines rows (`shuffle`, `take`, `pack`, `batch`, `cache`, `on_error`, ...). A call of the
    returned function raises:

    - `PipelineError` for a random stage without `key` and `offset`
    - `SchemaError` for a function without a declared schema, which could differ between subsets
    - `SchemaError` for a missing key column or a key of another type
    - `DataError` for a null key

    >>> import mlxfp as fp
    >>> expensive = fp.lift(fp.compose(fp.filter_by([("fare", ">", 8)]), fp.rename_columns({"fare": "price"})))
    >>> expensive(pa.table({"name": ["Ann", "Bob"], "fare": [7.25, 8.05]})).to_pylist()
    [{'name': 'Bob', 'price': 8.05}]
    >>> expensive.schema(pa.schema({"name": pa.string(), "fare": pa.float64()})).names
    ['name', 'price']

    See also: `to_table`, and `from_table` for the tables of other libraries.
    """
    check_callable(recipe=recipe)
    check_text(**not_none(key=key))
    lifted = _Lifted(recipe, key)
    _ = lifted.stages  # Build the stages now, so that `lift` itself raises the errors of an invalid argument `recipe`.
    return lifted


@frozen(repr=False)
class _Lifted:
    recipe: Callable[[Dataset[Any]], Dataset[Any]]
    key: str | None

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Stages that the recipe adds to a dataset. Raises `PipelineError` if a stage combines rows."""
        try:
            result = self.recipe(Dataset(_Table()))
        except MlxfpError as error:
            error.add_note(f"while building the recipe {brief(self.recipe)} for lift, without a table")
            raise
        if not isinstance(result, Dataset):
            raise ArgumentTypeError(f"A recipe must return a dataset, got {type(result).__name__} from {brief(self.recipe)}.")
        for stage in flat_parts(result):
            works_by_row = isinstance(stage, Stage) and stage.emits is None and starts_empty(stage)
            if not isinstance(stage, _Table) and not works_by_row:
                raise PipelineError(
                    f"{stage!r} cannot be used with lift, because each call gets only some of the rows, in any order: got {self!r}. "
                    "Remove this stage from the recipe. Do its work with Ray, Spark or a similar engine, or in the pipeline that reads the "
                    "output of the engine."
                )
        return result.stages

    @cached_property
    def plans(self) -> dict[Schema, "_Ready"]:
        """Cached plans, by input schema. A plan is added when the first table with this schema arrives."""
        return {}

    def __call__(self, table: Table, *, offset: int | None = None) -> Table:
        """Run the stages of the recipe on `table`. Return the resulting rows as a table of the same type.

        The argument `offset` is the index of the first row of `table`, if `table` is a part of a larger table.
        """
        input_table, convert_back = _as_table(table)
        whole = input_table if isinstance(input_table, pa.Table) else _checked(input_table)
        rows, ready = whole, self.plans.get(whole.schema)
        try:
            if ready is None or ready.cast is not None:
                rows = _checked(whole) if ready is None else whole.cast(ready.cast)
            numbers, keys = self._numbers(rows, offset)
            numbered = rows.append_column(ROW, pa.array(numbers)).append_column(KEY, pa.array(keys))
            if ready is None:
                ready = self.plans[whole.schema] = self._plan(numbered, None if rows is whole else rows.schema)
            source = attrs.evolve(ready.plan.source, table=numbered)  # type: ignore[misc]  # a _Table, too
            chunks = [visible(chunk) for chunk, _ in execute(attrs.evolve(ready.plan, source=source), start(0, None))]
        except Exception as error:
            error.add_note(f"in a table of {rows.num_rows:,} rows for {self!r}; {self._rows_text(rows, offset)}")
            raise
        output: Table = convert_back(pa.Table.from_batches(chunks, schema=ready.schema))
        return output

    def schema(self, schema: Schema) -> Schema:
        """Return the output schema for an input schema."""
        output: Schema = self(schema.empty_table(), offset=0 if self.key is None else None).schema
        return output

    def _plan(self, table: pa.Table, cast: Schema | None) -> "_Ready":
        dataset: Dataset[Any] = Dataset(_Table(table), self.stages, hooks=_Declared())
        plan = dataset.plan
        # The plan outlives this call and must not keep the table in memory, so the table is left out.
        return _Ready(attrs.evolve(plan, source=attrs.evolve(plan.source, table=None)), dataset.resolved.schemas[-1], cast)  # type: ignore[misc]

    def _numbers(self, rows: pa.Table, offset: int | None) -> Numbers:
        """Return the row number and the row key of each row of a table."""
        if self.key is not None:
            if offset is not None:
                raise ArgumentError(
                    f"lift takes row numbers from key or from offset, not from both: got key={self.key!r} and offset={offset}. "
                    "Remove one of the two arguments."
                )
            check_columns([self.key], rows.column_names, "lift(key=)")
            return _numbers_of(rows.column(self.key), self.key)
        if offset is None:
            drawing = next((stage for stage in self.stages if stage.traits.draws), None)
            if drawing is not None:
                raise PipelineError(
                    f"{drawing!r} needs key or offset, because it would draw the same random numbers in every table: got {self!r}. "
                    'Name a column of distinct values: lift(recipe, key="id"). Or give the index of the first row of each table: '
                    "lift(recipe)(table, offset=4096)."
                )
        else:
            check_types((int, np.integer), offset=offset)
            check_not_negative(offset=int(offset))
        numbers = np.arange(rows.num_rows) + (offset or 0)
        return numbers, _keys_of(numbers)

    def _rows_text(self, rows: pa.Table, offset: int | None) -> str:
        """Return a note for error messages that explains how rows are numbered."""
        if self.key is None:
            return f"its rows are counted from {offset or 0}"
        first = rows.column(self.key)[:1].to_pylist() if self.key in rows.column_names else []
        return f"rows are numbered by the column {self.key!r} if it contains integers, else from 0; the first key is {first!r:.60}"

    def __repr__(self) -> str:
        return f"lift({brief(self.recipe)}{'' if self.key is None else f', key={self.key!r}'})"


@frozen(eq=False)
class _Ready:
    """Plan and output schema for all tables with the same input schema.

    If `cast` is not None, each table is first converted to the schema `cast`. Some column types need this, because Arrow cannot read
    their rows by index.
    """

    plan: Plan
    schema: Schema
    cast: Schema | None


@frozen(repr=False)
class _Table(Source):
    """Source for the table that the user passes to the result of `lift`. The table includes the hidden columns `__row__` and `__key__`."""

    table: pa.Table = field(default=None, eq=False)
    columns: tuple[str, ...] | None = None  # names of the columns that the stages need; None: all
    indexable = True

    def schema(self) -> Schema:
        if self.table is None:
            raise PipelineError(_UNSEEN)
        return pa.schema([column for column in self._needed().schema if column.name not in HIDDEN], self.table.schema.metadata)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        table = self._needed()
        most = most_rows(table)
        for first in range(0, table.num_rows, most):  # `lift` returns all rows at once, so small first chunks would not help.
            yield from count_rows(table.slice(first, most).to_batches(), first)

    def length(self) -> int:
        raise PipelineError(_UNSEEN)

    def _needed(self) -> pa.Table:
        return self.table if self.columns is None else self.table.select([*self.columns, *HIDDEN])

    @property
    def traits(self) -> SourceTraits:
        return SourceTraits(restricted=lambda columns, conditions: attrs.evolve(self, columns=tuple(columns)))

    def __repr__(self) -> str:
        return "a table"


@frozen
class _Declared(Hooks):
    """Hooks that raise an error for a stage without a declared schema. A schema inferred from some rows may not fit other rows."""

    def infer(self, stage: Stage, index: int) -> Callable[[Schema, Rows], Stage]:
        inner = super().infer(stage, index)

        def infer(schema: Schema, rows: Rows) -> Stage:
            requests: list[bool] = []

            def watched_rows() -> Iterator[RecordBatch]:
                requests.append(True)
                return rows()

            declared = inner(schema, watched_rows)
            if requests:
                columns = columns_text(declared.schema(schema))
                raise SchemaError(
                    f"The schema of {stage!r} is not declared, got {columns} from the rows of one table. Other tables could give "
                    "another schema. Declare the schema, as in map(function, schema=pa.schema({'x': pa.int64()}))."
                )
            return declared

        return infer


def _checked(table: Any) -> pa.Table:
    """Check the columns of a table with `from_table`, and convert the columns to types that can be read by row index."""
    return from_table(table).source.table  # type: ignore[attr-defined]


def _numbers_of(column: pa.ChunkedArray, name: str) -> Numbers:
    """Return row numbers and row keys. The row numbers are the keys if all keys are integers from 0 to 2**44 - 1, else 0, 1, 2, ..."""
    values = decoded(column.combine_chunks())
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"The key column {name!r} is null in row {row} of the table. Give each row a distinct key.")
    numbers = np.arange(len(values))
    if pa.types.is_integer(values.type):
        keys = values.to_numpy()
        numbered = not len(keys) or (keys.min() >= 0 and keys.max() < 1 << LEAF_BITS)
        return (keys.astype(np.int64) if numbered else numbers), _keys_of(keys)
    if not (is_text(values.type) or is_binary(values.type) or pa.types.is_fixed_size_binary(values.type)):
        raise SchemaError(f"The key column {name!r} needs integers, text or bytes, got {values.type}. Cast the column, or name another.")
    plain = (value.encode() if isinstance(value, str) else value for value in values.to_pylist())
    digests = b"".join(blake2b(value, digest_size=8).digest() for value in plain)
    return numbers, _keys_of(np.frombuffer(digests, "<u8"))


def _keys_of(numbers: NDArray[np.int64] | Keys) -> Keys:
    """Return the random keys of rows in epoch 0, computed from the given row numbers."""
    return fold_in_rows(fold_in(0, 0), numbers)


def _as_table(given: Any) -> tuple[Any, Callable[[pa.Table], Any]]:
    """Return `given` as an argument for `from_table`, and a function that converts a `pyarrow.Table` back to the type of `given`."""
    library = type(given).__module__.partition(".")[0]
    if isinstance(given, pa.Table):
        return given, identity
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given]), one_chunk
    if isinstance(given, Mapping):
        return given, _to_arrays
    if library in ("pandas", "polars") and type(given).__name__ == "DataFrame":
        plain = library == "pandas"
        whole = pa.Table.from_pandas(given, preserve_index=False).replace_schema_metadata(None) if plain else given
        return whole, pa.Table.to_pandas if plain else type(given)
    raise ArgumentTypeError(
        "A function made by lift takes a pyarrow Table or RecordBatch, a DataFrame of pandas or polars, or a mapping of columns, got "
        f"{type(given).__name__}: {given!r:.60}. For a dataset, use pipe(dataset, recipe)."
    )


def _to_arrays(table: pa.Table) -> dict[str, NDArray[Any]]:
    chunk = one_chunk(table)
    return {
        name: column.to_numpy_ndarray() if is_tensor(column.type) else column.to_numpy(zero_copy_only=False)
        for name, column in zip(chunk.schema.names, chunk.columns, strict=True)
    }
