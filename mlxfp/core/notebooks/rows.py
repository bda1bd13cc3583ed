"""Notebook output of rows: HTML of bounded size with escaped data.

Notebooks call `_repr_html_`, which works in every notebook. A registry of formatters would work only in IPython and would need
code to run when mlxfp is imported.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from mlxfp.core.notebooks.tokens import Decoder, decoded
from mlxfp.support.html import Html, clip, element, fragment, joined, table

ROWS, COLUMNS, VALUE = 5, 12, 120  # maximum number of rows, columns and characters per value
_ELEMENTS, _TEXT = 12, 500  # maximum number of shown elements of a list, and of shown characters of a decoded text


def examples_html(group: Sequence[Mapping[str, Any]], decoders: Mapping[str, Decoder]) -> str:
    """Return HTML with the first rows of a group."""
    rows = rows_html(list(islice(group, ROWS)), decoders)
    return fragment(rows, element("p", f"{len(group):,} examples", class_="muted"))


def show(value: Any) -> str:
    """Return a value as a short text: arrays by dtype and shape, long lists and texts truncated.

    >>> show([1, 2]), show(list(range(100))), show(b"abc")
    ('[1, 2]', '100 values: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …', '3 bytes')
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).rpartition('.')[2]}{list(value.shape)}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, list | tuple) and len(value) > _ELEMENTS:
        return clip(f"{len(value):,} values: {', '.join(show(item) for item in value[:_ELEMENTS])}, …", VALUE)
    return clip("" if value is None else value, VALUE)


def rows_html(rows: Sequence[Mapping[str, Any]], decoders: Mapping[str, Decoder]) -> Html:
    """Return rows as a table. If the tokenizer of a column is known, a tooltip shows the text of the ids."""
    present = list(rows[0]) if rows else []
    # First and last columns are shown, because stages append columns at the end.
    names = present if len(present) <= COLUMNS else [*present[: COLUMNS // 2], *present[-COLUMNS // 2 :]]
    cells = [[_cell(row[name], decoders.get(name)) for name in names] for row in rows]
    left_out = len(present) - len(names)
    more = [element("p", f"and {left_out:,} more columns between them", class_="muted")] if left_out else []
    return joined([table([clip(name, VALUE) for name in names], cells), *more])


def _cell(value: Any, decoder: Decoder | None) -> Any:
    if isinstance(value, int | float):
        return value
    text = decoded(value, decoder)
    return show(value) if text is None else element("span", show(value), title=clip(text, _TEXT), class_="tip")
