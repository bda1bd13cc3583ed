"""Checks of Arrow types, and the Python code of a type for messages.

A check such as `is_text` accepts every memory layout of the type.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

TEXT_OF_JSON = pa.json_()  # column type for JSON values stored as text

_TEXT = {pa.string().id, pa.large_string().id, pa.string_view().id}
_BINARY = {pa.binary().id, pa.large_binary().id, pa.binary_view().id}
_LISTS = {pa.list_(pa.null()).id, pa.large_list(pa.null()).id}
_LIST_LIKE = {*_LISTS, pa.list_(pa.null(), 1).id}
_LARGE = {pa.large_list(pa.null()).id, pa.large_string().id, pa.large_binary().id}


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary-encoded or run-end-encoded type. Return other types unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Return True for a text type, with 32-bit or 64-bit offsets or as a view."""
    return kind.id in _TEXT


def is_binary(kind: pa.DataType) -> bool:
    """Return True for a variable-length binary type, with 32-bit or 64-bit offsets or as a view."""
    return kind.id in _BINARY


def is_number(kind: pa.DataType) -> bool:
    """Return True for an integer or floating-point type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_number_like(kind: pa.DataType) -> bool:
    """Return True if all values of the type can be read as floats: number, decimal, boolean and null types."""
    return is_number(kind) or bool(pa.types.is_decimal(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind))


def float_widths(kind: pa.DataType) -> set[int]:
    """Return the bit widths of all float types inside an Arrow type, such as {32} for lists of float32 values."""
    kind = value_type(kind)
    inner = (float_widths(kind.field(index).type) for index in range(kind.num_fields))
    return {kind.bit_width} if pa.types.is_floating(kind) else set[int]().union(*inner)


def has_times(kind: pa.DataType) -> bool:
    """Return True for a type of dates, times or durations, also inside lists and structs."""
    kind = value_type(kind)
    return bool(pa.types.is_temporal(kind)) or any(has_times(kind.field(index).type) for index in range(kind.num_fields))


def in_unit(kind: pa.DataType, unit: str) -> pa.DataType:  # noqa: PLR0911  # one return per kind of types
    """Set the time unit of all timestamps, durations and 64-bit times of day in an Arrow type, also inside lists and structs.

    >>> in_unit(pa.list_(pa.timestamp("us", "UTC")), "ns")
    ListType(list<item: timestamp[ns, tz=UTC]>)
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp(unit, kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration(unit)
    if pa.types.is_time64(kind):
        return pa.time64(unit)
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(in_unit(member.type, unit)) for member in kind])
    if pa.types.is_map(kind):
        return pa.map_(in_unit(kind.key_type, unit), in_unit(kind.item_type, unit))
    if is_list_like(kind):
        values = in_unit(kind.value_type, unit)
        return (
            pa.list_(values, kind.list_size)
            if pa.types.is_fixed_size_list(kind)
            else pa.large_list(values)
            if is_large(kind)
            else pa.list_(values)
        )
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Return True for a variable-length list type, with 32-bit or 64-bit offsets."""
    return kind.id in _LISTS


def is_list_like(kind: pa.DataType) -> bool:
    """Return True for a list type of variable or fixed length."""
    return kind.id in _LIST_LIKE


def is_tensor(kind: pa.DataType, *, axes: int | None = None) -> bool:
    """Return True for a type of fixed-shape tensors, optionally with exactly `axes` axes."""
    return isinstance(kind, pa.FixedShapeTensorType) and axes in (None, len(kind.shape))


def is_large(kind: pa.DataType) -> bool:
    """Return True for a list, text or binary type with 64-bit offsets."""
    return kind.id in _LARGE


def decoded(column: pa.Array) -> pa.Array:
    """Return a dictionary-encoded, run-end-encoded or view column as a plain column with equal values."""
    kind = column.type
    if pa.types.is_string(kind):  # a shortcut for plain text, because the type checks below take as long as tokenizing a short text
        return column
    if pa.types.is_dictionary(kind):
        return decoded(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return decoded(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(kind) else column


def parts_of(column: pa.Array) -> list[pa.Array]:
    """Return the child columns of a list, struct or map column: the list values, the fields, or the keys and items."""
    if pa.types.is_struct(column.type):
        return column.flatten()  # type: ignore[no-any-return]
    if pa.types.is_map(column.type):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return [column.keys[first:last], column.items[first:last]]
    return [column.flatten()] if is_list_like(column.type) else []


def schema_code(types: Iterable[tuple[str, pa.DataType]]) -> str:
    """Return Python code for a `schema=` argument with the given columns and types. Error messages suggest this code.

    >>> schema_code([("age", pa.float64())])
    "schema={'age': pa.float64()}"
    """
    return f"schema={{{', '.join(f'{name!r}: {type_code(kind)}' for name, kind in types)}}}"


def type_code(kind: pa.DataType) -> str:  # noqa: PLR0911  # one return per kind of constructor
    """Return the Python code for an Arrow type, for error messages."""
    if kind == TEXT_OF_JSON:
        return "pa.json_()"
    if is_tensor(kind):
        return f"pa.fixed_shape_tensor({type_code(kind.value_type)}, {tuple(kind.shape)})"
    if is_list_like(kind):
        size = f", {kind.list_size}" if pa.types.is_fixed_size_list(kind) else ""
        return f"pa.{'large_list' if is_large(kind) else 'list_'}({type_code(kind.value_type)}{size})"
    if pa.types.is_struct(kind):
        return f"pa.struct({{{', '.join(f'{f.name!r}: {type_code(f.type)}' for f in kind)}}})"
    if pa.types.is_dictionary(kind):
        return f"pa.dictionary({type_code(kind.index_type)}, {type_code(kind.value_type)})"
    if pa.types.is_fixed_size_binary(kind):
        return f"pa.binary({kind.byte_width})"
    if pa.types.is_map(kind):
        return f"pa.map_({type_code(kind.key_type)}, {type_code(kind.item_type)})"
    name, _, unit = str(kind).removesuffix("]").partition("[")
    name = {"double": "float64", "float": "float32", "halffloat": "float16", "bool": "bool_"}.get(name, name)
    arguments = "" if unit in ("", "day") or name == "date64" else repr(tuple(unit.split(", tz="))).removesuffix(",)").strip("()")
    return f"pa.{name}({arguments})" if name.isidentifier() else f"pa.{name}"


def with_text_names(schema: pa.Schema) -> pa.Schema:
    """Decode all column names and time zones of a schema from untrusted bytes, and return the schema.

    Raises `UnicodeDecodeError` for bytes that are not UTF-8. Arrow itself decodes names lazily, and would raise the error later.
    """
    for column in schema:
        _decode_names(column)
    return schema


def _decode_names(column: pa.Field) -> None:
    kind = column.type
    _ = column.name, getattr(kind, "tz", None)
    for index in range(kind.num_fields):
        _decode_names(kind.field(index))
