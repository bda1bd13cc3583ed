"""Lift: a recipe as a function of tables, for other engines (Ray, Spark, Dask, Daft, `datasets`), which cut data as they like.

An engine gives some of the rows at a time, in any order, in any process. So the stages of a lifted recipe look at one row at a time, their
schemas are declared, and the key of a row, which its randomness derives from, comes from the row itself or from its number.
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
from mlxfp.support.checks import check_callable, check_columns, check_not_negative, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MlxfpError, PipelineError, SchemaError
from mlxfp.support.randomness import Keys, fold_in, fold_in_rows
from mlxfp.support.terminal import columns_text

_UNSEEN = (
    "A lifted recipe is given its tables later, some of the rows at a time: got one that asks for columns or the number of rows when it "
    "is built. Leave out what works across rows, and name the columns that it needs."
)

Table = TypeVar("Table")
Numbers = tuple[NDArray[np.int64], Keys]  # of each row: `__row__` and `__key__`


@explain_call
def lift(recipe: Callable[[Dataset[Any]], Dataset[Any]], *, key: str | None = None) -> "_Lifted":
    """Make a function of tables out of a recipe: `lift(recipe)(table)` has the rows that `pipe(from_table(table), recipe)` gives.

    It is for engines that cut data into parts: `map_batches` of Ray, `mapInArrow` of Spark, `map_partitions` of Dask, `map` of `datasets`.
    It takes a `pyarrow.Table` or `RecordBatch`, a DataFrame of pandas (whose index is left out) or polars, or a mapping of columns, and
    returns the same kind; for a mapping, a dict of numpy arrays. It pickles, has a fingerprint, and plans once for each schema.
    `lift(recipe).schema(schema)` is the schema of what comes out of tables of a schema, for engines that ask for it, as Spark does.

    A stage that draws random numbers would draw the same ones in every part, so it needs to know which rows these are: by `key`, a column
    of integers, text or bytes with another value in each row, or by the number of the first row in the whole data, as in
    `lift(recipe)(table, offset=4096)`. An integer key is taken as the number of its row. With the numbers that the rows have in the whole
    table, from 0 on, all parts together are exactly the rows of `pipe(from_table(whole), recipe)`, in whatever order they run.

    Raises `PipelineError`, naming the stage, for one that looks across rows (`shuffle`, `take`, `pack`, `batch`, `cache`, `on_error`, ...)
    and, when it is called, for one that draws without `key` and `offset`; `SchemaError` for a function without a declared schema, which
    could differ between parts, and for a key column that is not there or of another type; `DataError` for a row whose key is null.

    >>> import mlxfp as fp
    >>> expensive = fp.lift(fp.compose(fp.filter_by([("fare", ">", 8)]), fp.rename_columns({"fare": "price"})))
    >>> expensive(pa.table({"name": ["Ann", "Bob"], "fare": [7.25, 8.05]})).to_pylist()
    [{'name': 'Bob', 'price': 8.05}]
    >>> expensive.schema(pa.schema({"name": pa.string(), "fare": pa.float64()})).names
    ['name', 'price']

    See also: `to_table`, and `from_table` for the tables of other libraries.
    """
    check_callable(recipe=recipe)
    if key is not None:
        check_text(key=key)
    lifted = _Lifted(recipe, key)
    _ = lifted.stages  # raises errors here, not inside the engine
    return lifted


@frozen(repr=False)
class _Lifted:
    recipe: Callable[[Dataset[Any]], Dataset[Any]]
    key: str | None

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the recipe. Raises unless each looks at one row at a time."""
        try:
            made = self.recipe(Dataset(_Table()))
        except MlxfpError as error:
            error.add_note(f"while lifting {brief(self.recipe)}, before it is given a table")
            raise
        if not isinstance(made, Dataset):
            raise ArgumentTypeError(f"A recipe turns a dataset into another one, got {type(made).__name__} from {brief(self.recipe)}.")
        for part in flat_parts(made):
            if not isinstance(part, _Table) and not _works_by_row(part):
                raise PipelineError(
                    f"{part!r} does not work on one row at a time, and a lifted recipe is given some of the rows, in any order: got it in "
                    f"{self!r}. Leave it to the engine, or to the pipeline that reads what the engine has written."
                )
        return made.stages

    @cached_property
    def plans(self) -> dict[Schema, "_Ready"]:
        """What runs for tables of a schema. Filled as tables come; not part of the value."""
        return {}

    def __call__(self, table: Table, *, offset: int | None = None) -> Table:
        """Return the rows that come out of a table, as the same kind of table; `offset` is the number of its first row."""
        taken, given_back = _as_table(table)
        whole = taken if isinstance(taken, pa.Table) else _checked(taken)
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
        made: Table = given_back(pa.Table.from_batches(chunks, schema=ready.schema))
        return made

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of what comes out of tables of this schema."""
        made: Schema = self(schema.empty_table(), offset=0 if self.key is None else None).schema
        return made

    def _plan(self, table: pa.Table, cast: Schema | None) -> "_Ready":
        dataset: Dataset[Any] = Dataset(_Table(table), self.stages, hooks=_Declared())
        plan = dataset.plan
        # Without the table, which would be held as long as the plan.
        return _Ready(attrs.evolve(plan, source=attrs.evolve(plan.source, table=None)), dataset.resolved.schemas[-1], cast)  # type: ignore[misc]

    def _numbers(self, rows: pa.Table, offset: int | None) -> Numbers:
        """Return the number and the key of each row."""
        if self.key is not None:
            if offset is not None:
                raise ArgumentError(f"Rows have one key each, got key={self.key!r} and offset={offset}. Give one of them.")
            check_columns([self.key], rows.column_names, "lift(key=)")
            return _numbers_of(rows.column(self.key), self.key)
        if offset is None:
            drawing = next((stage for stage in self.stages if stage.traits.draws), None)
            if drawing is not None:
                raise PipelineError(
                    f"{drawing!r} draws random numbers, and would draw the same ones in every table: got one without keys and offset, in "
                    f'{self!r}. Name a column with another value in each row, as in lift(recipe, key="id"), or give the number of the '
                    "first row, as in lift(recipe)(table, offset=4096)."
                )
        else:
            check_types((int, np.integer), offset=offset)
            check_not_negative(offset=int(offset))
        numbers = np.arange(rows.num_rows) + (offset or 0)
        return numbers, _keys_of(numbers)

    def _rows_text(self, rows: pa.Table, offset: int | None) -> str:
        """Say what the numbers of rows in an error mean."""
        if self.key is None:
            return f"its rows are counted from {offset or 0}"
        first = rows.column(self.key)[:1].to_pylist() if self.key in rows.column_names else []
        return f"a row is named by the column {self.key!r} where that has numbers, else counted from 0; the first value is {first!r:.60}"

    def __repr__(self) -> str:
        return f"lift({brief(self.recipe)}{'' if self.key is None else f', key={self.key!r}'})"


@frozen(eq=False)
class _Ready:
    """The plan for tables of one schema, the resulting schema, and the schema to cast to for random access, if it differs."""

    plan: Plan
    schema: Schema
    cast: Schema | None


@frozen(repr=False)
class _Table(Source):
    """The input table of a lifted recipe, with the hidden columns."""

    table: pa.Table = field(default=None, eq=False)
    columns: tuple[str, ...] | None = None  # columns that the recipe needs; None selects all
    indexable = True

    def schema(self) -> Schema:
        if self.table is None:
            raise PipelineError(_UNSEEN)
        return pa.schema([each for each in self._needed().schema if each.name not in HIDDEN], self.table.schema.metadata)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        table = self._needed()
        most = most_rows(table)
        for first in range(0, table.num_rows, most):  # no short ones first: nobody waits for the first rows, and a chunk costs time
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
    """Refuses a schema that is inferred from rows: those of another part of the data could give another one."""

    def infer(self, stage: Stage, place: int) -> Callable[[Schema, Rows], Stage]:
        inner = super().infer(stage, place)

        def infer(schema: Schema, rows: Rows) -> Stage:
            asked: list[bool] = []

            def seen() -> Iterator[RecordBatch]:
                asked.append(True)
                return rows()

            declared = inner(schema, seen)
            if asked:
                found = columns_text(declared.schema(schema))
                raise SchemaError(
                    f"The schema of {stage!r} is not declared, and another part of the data could give another one: got {found} from the "
                    "rows of this part. Declare it, as in map(function, schema=pa.schema({'x': pa.int64()}))."
                )
            return declared

        return infer


def _checked(table: Any) -> pa.Table:
    """Return a table as `from_table` takes it: with its checks, and its types that rows can be taken of."""
    return from_table(table).source.table  # type: ignore[attr-defined]


def _works_by_row(part: Any) -> bool:
    """Return whether a part is a stage whose rows come from one row each, whatever the other rows are."""
    return isinstance(part, Stage) and part.emits is None and starts_empty(part)


def _numbers_of(column: pa.ChunkedArray, name: str) -> Numbers:
    """Return the number and the key of each row from a column of keys; rows without a number are counted from 0."""
    values = decoded(column.combine_chunks())
    if values.null_count:
        place = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"The key of a row is null: row {place} of the table in the column {name!r}. Give each row a key of its own.")
    places = np.arange(len(values))
    if pa.types.is_integer(values.type):
        found = values.to_numpy()
        numbered = not len(found) or (found.min() >= 0 and found.max() < 1 << LEAF_BITS)
        return (found.astype(np.int64) if numbered else places), _keys_of(found)
    if not (is_text(values.type) or is_binary(values.type) or pa.types.is_fixed_size_binary(values.type)):
        raise SchemaError(f"A key is an integer, text or bytes, got the column {name!r} of {values.type}. Cast it, or name another column.")
    plain = (value.encode() if isinstance(value, str) else value for value in values.to_pylist())
    return places, _keys_of(np.fromiter((_digest(value) for value in plain), np.uint64, len(values)))


def _digest(value: bytes) -> int:
    return int.from_bytes(blake2b(value, digest_size=8).digest(), "little")


def _keys_of(numbers: NDArray[np.int64] | Keys) -> Keys:
    """Return the key of each row: that of a row with this number in epoch 0."""
    return fold_in_rows(fold_in(0, 0), numbers)


def _as_table(given: Any) -> tuple[Any, Callable[[pa.Table], Any]]:
    """Return what `from_table` takes, and what makes the same kind of table of a `pyarrow.Table`."""
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
        "A lifted recipe takes a pyarrow Table or RecordBatch, a DataFrame of pandas or polars, or a mapping of columns, got "
        f"{type(given).__name__}: {given!r:.60}. For a dataset use pipe(dataset, recipe)."
    )


def _to_arrays(table: pa.Table) -> dict[str, NDArray[Any]]:
    chunk = one_chunk(table)
    return {
        name: column.to_numpy_ndarray() if is_tensor(column.type) else column.to_numpy(zero_copy_only=False)
        for name, column in zip(chunk.schema.names, chunk.columns, strict=True)
    }
