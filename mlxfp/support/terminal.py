"""Safe text for terminals: names and values from data, shortened and without control characters."""

from itertools import islice
from typing import Any

from mlxfp.support.html import clip

COLUMNS = 100  # maximum number of printed columns
_TYPE = 200  # maximum number of characters of a column type


def printable(text: str) -> str:
    r"""Return the text with control characters and bidirectional marks escaped.

    >>> printable("\x1b[31mred\u202e")
    '\\x1b[31mred\\u202e'
    """
    return text if text.isprintable() else "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def one_line(text: str) -> str:
    r"""Return a message as one line.

    >>> one_line("no server\nat \x1b[2J")
    'no server at \\x1b[2J'
    """
    return printable(" ".join(text.splitlines()))


def printed(value: object, size: int = 60) -> str:
    """Return a value as printable text of about `size` characters.

    >>> printed("a" * 70)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa… (70 characters)'
    """
    return printable(clip(value, size))


def columns_text(schema: Any) -> str:
    """Return names and types of the first columns of a `pyarrow.Schema`. The command line calls this function without importing Arrow.

    >>> import pyarrow as pa
    >>> columns_text(pa.schema([("age", pa.int64()), ("words", pa.list_(pa.string()))]))
    'age int64, words list<string>'
    """
    texts = [f"{printed(field.name)} {printed(_type_text(field.type), _TYPE)}" for field in islice(schema, COLUMNS)]
    return ", ".join([*texts, *([f"{len(schema) - COLUMNS:,} more"] if len(schema) > COLUMNS else [])]) or "no columns"


def _type_text(kind: Any) -> str:
    """Return a short name of an Arrow type: `list<int64>` for `list<item: int64>`, and `tensor<float>[2, 2]` for a tensor type."""
    shape = getattr(kind, "shape", None)  # only tensor types of a fixed size have the attribute `shape`
    return str(kind).replace("<item: ", "<") if shape is None else f"tensor<{kind.value_type}>{list(shape)}"
