"""Stages that select, drop or rename columns. Readers do not read the columns that these stages remove."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from attrs import frozen
from toolz import identity

from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.stages import Projection, RowWise, Traits
from mlxfp.support.checks import as_strings, check_columns, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, SchemaError

Row = TypeVar("Row", bound="Example | Sequence[Example]")


@explain_call
def select_columns(columns: Sequence[str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Keep the listed columns, in this order. Raises `SchemaError` for an unknown column.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1, "y": 2, "z": 3}]), fp.select_columns(["z", "x"])))
    [{'z': 3, 'x': 1}]
    """
    return _SelectColumns(as_strings("columns", columns, empty=False))


@explain_call
def drop_columns(columns: Sequence[str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Remove the listed columns. Raises `SchemaError` for an unknown column.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1, "y": 2}]), fp.drop_columns(["y"])))
    [{'x': 1}]
    """
    return _DropColumns(as_strings("columns", columns, empty=False))


@explain_call
def rename_columns(names: Mapping[str, str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Rename columns with a mapping from old to new names.

    Raises `SchemaError` if an old name is unknown or a new name is already in use.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1, "y": 2}]), fp.rename_columns({"x": "y", "y": "x"})))
    [{'y': 1, 'x': 2}]
    """
    check_types(Mapping, names=names)
    for name in names.values():
        check_text(name=name)
    if not names:
        raise ArgumentError("rename_columns needs at least one name, got none.")
    return _RenameColumns(tuple(names.items()))


@frozen(repr=False)
class _SelectColumns(RowWise):
    columns: tuple[str, ...]

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk.select([*self.columns, *(name for name in chunk.schema.names if name in HIDDEN)])

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, projection=self._projection, longest_row=identity)

    def _projection(self, names: Sequence[str]) -> Projection:
        return tuple((name, name) for name in self.columns)

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, schema.names, "select_columns")
        return pa.schema([schema.field(name) for name in self.columns])


@frozen(repr=False)
class _DropColumns(RowWise):
    columns: tuple[str, ...]

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk.select([name for name, _ in self._projection(chunk.schema.names)])

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, projection=self._projection, longest_row=identity)

    def _projection(self, names: Sequence[str]) -> Projection:
        dropped = frozenset(self.columns)
        return tuple((name, name) for name in names if name not in dropped)

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, schema.names, "drop_columns")
        return pa.schema([schema.field(name) for name, _ in self._projection(schema.names)])


@frozen(repr=False)
class _RenameColumns(RowWise):
    names: tuple[tuple[str, str], ...]

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        new = dict(self.names)
        return chunk.rename_columns([new.get(name, name) for name in chunk.schema.names])

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, projection=self._projection)

    def _projection(self, names: Sequence[str]) -> Projection:
        new = dict(self.names)
        return tuple((new.get(name, name), name) for name in names)

    def schema(self, schema: Schema) -> Schema:
        new = dict(self.names)
        check_columns(tuple(new), schema.names, "rename_columns")
        names = [new.get(name, name) for name in schema.names]
        clashes = sorted(name for name, count in Counter(names).items() if count > 1 or name in HIDDEN)
        if clashes:
            raise SchemaError(f"The new name {clashes[0]!r} in rename_columns is reserved or used by several columns. Choose another name.")
        return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
