"""What data may have chosen, such as names of columns, on the lines of a terminal: bounded, and without what a terminal obeys."""

from itertools import islice
from typing import Any

from mlxfp.support.html import clip

COLUMNS = 100  # of a table that are printed
_TYPE = 200  # characters of the type of a column


def printable(text: str) -> str:
    r"""Return the text with what would control a terminal, or turn text around, escaped.

    >>> printable("\x1b[31mred\u202e")
    '\\x1b[31mred\\u202e'
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def one_line(text: str) -> str:
    r"""Return a message with several lines as one line.

    >>> one_line("no server\nat \x1b[2J")
    'no server at \\x1b[2J'
    """
    return printable(" ".join(text.splitlines()))


def printed(value: object, size: int = 60) -> str:
    """Write a value, such as a name, on a line, with about `size` characters at most.

    >>> printed("a" * 70)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa… (70 characters)'
    """
    return printable(clip(value, size))


def columns_text(schema: Any) -> str:
    """Write the names and types of the first columns of a `pyarrow.Schema`; the command line, which prints other text, does not load Arrow.

    >>> import pyarrow as pa
    >>> columns_text(pa.schema([("age", pa.int64()), ("name", pa.string())]))
    'age int64, name string'
    """
    said = [f"{printed(field.name)} {printed(field.type, _TYPE)}" for field in islice(schema, COLUMNS)]
    return ", ".join([*said, *([f"{len(schema) - COLUMNS:,} more"] if len(schema) > COLUMNS else [])]) or "no columns"
