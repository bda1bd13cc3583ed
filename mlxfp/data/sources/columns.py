"""Functions for the columns of files: check names, read declared types, and find a common type for several files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from mlxfp.core.arrow.exact_casts import largest_exact
from mlxfp.core.chunks import HIDDEN, check_fields
from mlxfp.support.arrow_types import TEXT_OF_JSON, is_binary, is_large, is_list_like, is_text, schema_code, value_type
from mlxfp.support.checks import as_strings
from mlxfp.support.errors import ArgumentTypeError, SchemaError, listed

Declared = Mapping[str, pa.DataType] | Literal["scan"] | None  # type of the argument `schema` of a reader
Types = tuple[tuple[str, pa.DataType], ...]  # names and types of declared columns

SCAN = "scan"
LONGEST_EXACT = 1 << 53  # float64 holds every integer up to this limit


def as_columns(columns: Any) -> tuple[str, ...] | None:
    """Return the argument `columns` of a reader as a tuple, or None. Raises `ArgumentError` for an empty list or repeated names."""
    return None if columns is None else as_strings("columns", columns, empty=False)


def check_names(names: Sequence[str], path: str) -> None:
    """Raise `SchemaError` for a file without columns, for repeated column names and for reserved column names."""
    if not names:
        raise SchemaError(f"The table in the file {path} has no columns. Remove the file.")
    check_unique_names(names, path)


def check_unique_names(names: Sequence[str], where: str) -> None:
    """Raise `SchemaError` for repeated or reserved column names, because columns are selected by name."""
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled:
        raise SchemaError(
            f"Several columns have the same name: got {', '.join(map(repr, doubled))} more than once, in {where}. Rename the columns."
        )
    reserved = sorted(set(names) & set(HIDDEN))
    if reserved:
        raise SchemaError(f"A column has a reserved name: got {reserved[0]!r}, in {where}. Rename the column.")


def check_same_names(names: Sequence[str], path: str, expected: Sequence[str], first: str) -> None:
    """Raise `SchemaError` unless a file has the same column names as the first file, in any order."""
    if sorted(names) == sorted(expected):
        return
    present, required = frozenset(names), frozenset(expected)  # Sets are used for speed, because a file may have thousands of columns.
    missing, extra = ([name for name in expected if name not in present], [name for name in names if name not in required])
    texts = [listed(map(repr, group)) if group else "nothing" for group in (missing, extra)]
    raise SchemaError(
        f"Two files have different columns: {path} lacks {texts[0]} and adds {texts[1]}, compared with {first}. Pass schema='scan', or "
        "read the files separately."
    )


def as_types(schema: Any) -> Types:
    """Return the argument `schema` of a reader as a tuple of (name, type). Return an empty tuple for None and for "scan"."""
    if schema is None or (isinstance(schema, str) and schema == SCAN):
        return ()
    if not isinstance(schema, Mapping):
        raise ArgumentTypeError(f'schema must map column names to Arrow types, or be "scan", got {type(schema).__name__}: {schema!r:.60}.')
    for name, kind in schema.items():
        if not isinstance(name, str) or not isinstance(kind, pa.DataType):
            raise ArgumentTypeError(
                f"schema must map column names to Arrow types, for example {{'age': pa.float64()}}, got {{{name!r}: {kind!r:.60}}}."
            )
    check_fields(pa.schema(list(schema.items())), "schema=")
    return tuple(schema.items())


def schema_argument(types: Types, *, scan: bool) -> str:
    """Return the argument `schema` of a reader as source code for a `repr`. Returns an empty string if nothing was declared."""
    if scan:  # With schema="scan", `types` holds only types of columns in the argument `json_columns`.
        return f", schema={SCAN!r}" + (f", json_columns={[name for name, _ in types]!r}" if types else "")
    return f", {schema_code(types)}" if types else ""


def settled(kind: pa.DataType, null: pa.DataType | None = None) -> pa.DataType:
    """Return the column type for a type that Arrow inferred. Dates and times become text.

    A column of nulls gets the type `null`, or becomes text if `null` is None.
    """
    if pa.types.is_null(kind):
        return pa.string() if null is None else null
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(settled(kind.value_type, null))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, settled(f.type, null)) for f in kind])
    return kind


def shown(schema: pa.Schema) -> pa.Schema:
    """Return the schema without metadata. Columns of JSON text get the type string."""
    return pa.schema([(column.name, pa.string() if column.type == TEXT_OF_JSON else column.type) for column in schema])


def rounding_columns(chunk: pa.RecordBatch) -> dict[str, pa.DataType]:
    """Return the columns with very large floats. Such a float may be a rounded integer, or an infinity that stands for a finite number."""
    return {column.name: column.type for column, values in zip(chunk.schema, chunk.columns, strict=True) if _may_round(values)}


def _may_round(column: pa.Array) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        dtype, limit = np.dtype(f"f{kind.bit_width // 8}"), largest_exact(kind)
        values = np.frombuffer(column.buffers()[1] or b"", dtype)[column.offset : column.offset + len(column)]
        if values.min(initial=0) > -limit and values.max(initial=0) < limit:
            return False  # Most columns return here. For NaN, both comparisons are False, so the next line tests the column.
        return bool((np.abs(values) >= limit).any())  # A null holds an arbitrary float in the buffer.
    if is_list_like(kind) and (pa.types.is_nested(kind.value_type) or pa.types.is_floating(kind.value_type)):
        return _may_round(column.values)
    return pa.types.is_struct(kind) and any(_may_round(column.field(index)) for index in range(kind.num_fields))


def joined_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:  # noqa: PLR0911  # one for each kind of types
    """Return the common type of two column types. Returns None if no common type exists.

    Integers with floats give float64, uint64 with signed integers gives int64, and two time types give the finer unit. If the common type
    cannot hold a value exactly, the later conversion of this value raises an error.
    """
    if first == second:
        return first
    if TEXT_OF_JSON in (first, second):
        return TEXT_OF_JSON
    first, second = value_type(first), value_type(second)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _joined_structs(first, second)
    if is_list_like(first) and is_list_like(second):
        return _joined_lists(first, second)
    for one, other in ((first, second), (second, first)):
        if is_text(one) and (is_binary(other) or pa.types.is_fixed_size_binary(other)):
            return None
        if pa.types.is_floating(one) and pa.types.is_decimal(other):
            return None
        if pa.types.is_floating(one) and pa.types.is_integer(other) and other.bit_width > 16:
            return pa.float64()
    try:
        return pa.unify_schemas([pa.schema({"": first}), pa.schema({"": second})], promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # ArrowInvalid is raised for more than 76 decimal digits
        return None


def _joined_structs(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    fields: dict[str, pa.DataType | None] = {}
    for field in chain(first, second):
        old = fields.get(field.name, field.type)
        fields[field.name] = None if old is None else joined_type(old, field.type)
    return None if None in fields.values() else pa.struct(fields)


def _joined_lists(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    values = joined_type(first.value_type, second.value_type)
    if values is None:
        return None
    if pa.types.is_fixed_size_list(first) and pa.types.is_fixed_size_list(second) and first.list_size == second.list_size:
        return pa.list_(values, first.list_size)
    return pa.large_list(values) if is_large(first) or is_large(second) else pa.list_(values)
