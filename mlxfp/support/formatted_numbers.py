"""Recognition of numbers with currency signs, percent signs, thousands separators or decimal commas, and of codes with leading zeros."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_SPACE = r"[\s\x{a0}\x{202f}]"  # space, no-break space, narrow no-break space
_SIGN = r"(?:[$€£¥₹₽%]|[A-Z]{3}|kr|zł|Kč)"
_POINTED = rf"(?:[1-9]\d{{0,2}}(?:[,']\d{{3}}|{_SPACE}\d{{3}})+|\d+)(?:\.\d+)?"  # 1,234.50 and 1 234.50
_COMMAED = rf"(?:[1-9]\d{{0,2}}(?:[.']\d{{3}}|{_SPACE}\d{{3}})+|\d+)(?:,\d+)?"  # 1.234,50 and 1 234,50
_PLAIN = r"^\s*[-+]?\d*\.?\d*\s*$"
_ONLY_COMMA = r"^\s*[-+]?\d+(?:,\d+)?\s*$"  # Arrow parses these numbers with decimal_point=","
_LEADING_ZERO = r"^\s*[-+]?0\d+\s*$"


def decimal_mark(texts: pa.Array | pa.ChunkedArray) -> str | None:
    """Return the decimal mark of a column of texts with formatted numbers: a point or a comma.

    The result is None if a text is not a number, or if all texts are plain numbers, such as "12.5". If both marks are possible, as in
    "1,234", the comma separates thousands.

    >>> decimal_mark(pa.array(["€1,234.50", "€7"])), decimal_mark(pa.array(["12,5 %", None])), decimal_mark(pa.array(["1.2.1997"]))
    ('.', ',', None)
    """
    known = texts.drop_null().unique()
    if not len(known) or _all_match(known, _PLAIN):
        return None
    before, after = rf"^\s*[-+]?(?:{_SIGN}{_SPACE}*)?[-+]?", rf"(?:{_SPACE}*{_SIGN})?\s*$"
    return next((mark for mark, number in ((".", _POINTED), (",", _COMMAED)) if _all_match(known, f"{before}(?:{number}){after}")), None)


def number_notes(name: str, texts: pa.Array) -> Iterator[str]:
    """Yield a note about a text column of a CSV file with formatted numbers or leading zeros."""
    mark = decimal_mark(texts)
    if mark is not None:
        cell = f"row[{name!r}]"
        convert = f"import re, and convert the texts with fp.map(lambda row: {{**row, {name!r}: {cell} and {conversion(cell, mark)}}})"
        remedy = "read decimal commas with decimal=','" if mark == "," and have_only_commas(texts) else convert
        yield f"the text column {name!r} looks like numbers, such as {texts.drop_null()[0].as_py()!r}; {remedy}"
    if have_leading_zeros(texts) and _all_match(texts.drop_null(), r"^\s*[-+]?\d{1,18}\s*$"):
        yield f"the text column {name!r} keeps leading zeros; for numbers, give schema={{{name!r}: pa.int64()}}"


def have_only_commas(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return True if a CSV reader with the decimal mark "," can parse all texts. Texts with signs or thousands separators give False."""
    return _all_match(texts.drop_null(), _ONLY_COMMA)


def conversion(cells: str, mark: str) -> str:
    """Return Python code that converts a text to a number. `cells` is the Python expression for the text.

    >>> conversion("row['price']", ",")
    "float(re.sub(r'[^0-9,+-]', '', row['price']).replace(',', '.'))"
    """
    digits = f"re.sub(r'[^0-9{mark}+-]', '', {cells})"
    return f"float({digits}.replace(',', '.'))" if mark == "," else f"float({digits})"


def have_leading_zeros(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return True if at least one text is an integer with leading zeros, such as the ZIP code 01234.

    >>> have_leading_zeros(pa.array(["01234", "94110"])), have_leading_zeros(pa.array(["0", "0.5", None]))
    (True, False)
    """
    return first_leading_zero(texts) >= 0


def first_leading_zero(texts: pa.Array | pa.ChunkedArray) -> int:
    """Return the index of the first integer with leading zeros. Return -1 if no text has leading zeros.

    >>> first_leading_zero(pa.array(["94110", "01234"])), first_leading_zero(pa.array(["0", "0.5", None]))
    (1, -1)
    """
    index: int = pc.index(pc.match_substring_regex(texts, _LEADING_ZERO), True).as_py()
    return index


def _all_match(texts: pa.Array | pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())
