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
    if pa.types.is_string(kind):  # skip the checks below for plain text: the checks take as long as tokenizing a short text
        return column
    if pa.types.is_dictionary(kind):
        return decoded(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return decoded(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(kind) else column


def schema_code(types: Iterable[tuple[str, pa.DataType]]) -> str:
    """Return the code of a `schema=` argument that declares these types, for messages.

    >>> schema_code([("age", pa.float64())])
    "schema={'age': pa.float64()}"
    """
    return f"schema={{{', '.join(f'{name!r}: {type_code(kind)}' for name, kind in types)}}}"


def type_code(kind: pa.DataType) -> str:  # noqa: PLR0911  # one return per kind of constructor
    """Return the Python code for a type, for messages."""
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
    name, _, unit = str(kind).removesuffix("]").partition("[")
    name = {"double": "float64", "float": "float32", "halffloat": "float16", "bool": "bool_"}.get(name, name)
    arguments = "" if unit in ("", "day") or name == "date64" else repr(tuple(unit.split(", tz="))).removesuffix(",)").strip("()")
    return f"pa.{name}({arguments})" if name.isidentifier() else f"pa.{name}"


def with_text_names(schema: pa.Schema) -> pa.Schema:
    """Return a schema from untrusted bytes after decoding all names and time zones. Arrow decodes lazily, and the bytes may not be UTF-8.

    Raises `UnicodeDecodeError`.
    """
    for column in schema:
        _decode_names(column)
    return schema


def _decode_names(column: pa.Field) -> None:
    kind = column.type
    _ = column.name, getattr(kind, "tz", None)
    for index in range(kind.num_fields):
        _decode_names(kind.field(index))
