"""Checks of column names: those that an argument lists, and those that files have."""

from collections.abc import Sequence
from typing import Any

from mlxfp.core.checks import as_strings
from mlxfp.core.chunks import HIDDEN
from mlxfp.core.errors import SchemaError


def as_columns(columns: Any) -> tuple[str, ...] | None:
    """Return the argument `columns` of a reader as a tuple, or None; raise unless it names at least one column, and each name once."""
    return None if columns is None else as_strings("columns", columns, empty=False)


def check_names(names: Sequence[str], path: str) -> None:
    """Raise `SchemaError` if a file has no columns, two columns of one name, or a column with a reserved name."""
    if not names:
        raise SchemaError(f"A table has no columns, in {path}. Leave it out.")
    check_unique_names(names, path)


def check_unique_names(names: Sequence[str], where: str) -> None:
    """Raise `SchemaError` if two columns have one name, or one has a reserved name: columns are selected by name."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaError(f"Several columns have one name: got {', '.join(map(repr, doubled))} more than once, in {where}. Rename them.")
    reserved = sorted(set(names) & set(HIDDEN))
    if reserved:
        raise SchemaError(f"A column has a reserved name: got {reserved[0]!r}, in {where}. Rename it.")


def check_same_names(names: Sequence[str], path: str, expected: Sequence[str], first: str) -> None:
    """Raise `SchemaError` unless a file has the columns that the first file has, in any order."""
    if sorted(names) == sorted(expected):
        return
    missing = ", ".join(repr(name) for name in expected if name not in names) or "nothing"
    extra = ", ".join(repr(name) for name in names if name not in expected) or "nothing"
    raise SchemaError(
        f"Two files have different columns: {path} lacks {missing} and adds {extra}, compared with {first}. Read them separately."
    )
