"""Recognition of numbers in text columns: with units, separators or decimal commas. Recognition of words for missing values."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.support.errors import listed

NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"  # Arrow uses RE2, which does not support lookaround
_SPACE = r"[\s\x{a0}\x{202f}]"  # space, no-break space, narrow no-break space
_SIGN = r"(?:[$€£¥₹₽%]|[A-Z]{3}|kr|zł|Kč)"
_UNIT = rf"(?:{_SIGN}|[gmlshkKM]|[\p{{L}}°µ²³/]{{2,8}}|[\s\x{{a0}}\x{{202f}}][\p{{L}}°µ]|°)"  # kg, km/h, °C, g; not the a of 12a
_POINTED = rf"(?:[1-9]\d{{0,2}}(?:[,']\d{{3}}|{_SPACE}\d{{3}})+|\d+)(?:\.\d+)?"  # 1,234.50 and 1 234.50
_COMMAED = rf"(?:[1-9]\d{{0,2}}(?:[.']\d{{3}}|{_SPACE}\d{{3}})+|\d+)(?:,\d+)?"  # 1.234,50 and 1 234,50
_BEFORE, _AFTER = rf"^\s*[-+]?(?:{_SIGN}{_SPACE}*)?[-+]?", rf"(?:{_SPACE}*{_UNIT})?\s*$"
_NO_UNIT = r"[-+\d.,'\s\x{a0}\x{202f}]"
_PLAIN = r"^\s*[-+]?\d*\.?\d*\s*$"
_ONLY_COMMA = r"^\s*[-+]?\d+(?:,\d+)?\s*$"  # pattern for numbers that Arrow parses with decimal_point=","
_LEADING_ZERO = r"^\s*[-+]?0\d+\s*$"
_WORDS = 3  # maximum number of words for missing values in a column of numbers
_NUMBERS = 0.75  # minimum share of numbers or dates in a column; the other texts are words for missing values
_UNITS = 8  # maximum number of different units in a column; a column of dates such as "12 May" has more words


def gap_words(texts: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return words that probably mean a missing value in a column of numbers, such as "k.A." and "-".

    The result is empty unless all other texts are numbers. Formatted numbers count as numbers.

    >>> gap_words(pa.array(["12", "7.5", "3", "k.A.", None])), gap_words(pa.array(["12", "k.A."]))
    (['k.A.'], [])
    """
    words = rare_words(texts)
    numbers = without_words(texts, words).unique()
    return words if _all_match(numbers, f"^{NUMBER}$") or decimal_mark(numbers) is not None else []


def rare_words(texts: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the texts without digits if there are at most three distinct ones, in at most a quarter of the non-null rows.

    >>> rare_words(pa.array(["2026-11-23", "2026-11-24", "2026-11-25", "k.A.", None])), rare_words(pa.array(["7", "a", "b"]))
    (['k.A.'], [])
    """
    counts = texts.drop_null().value_counts()
    values, sizes = counts.field("values"), counts.field("counts")
    words = pc.invert(pc.match_substring_regex(values, r"\d"))
    others = values.filter(words)
    if not 0 < len(others) <= _WORDS or pc.sum(sizes.filter(words)).as_py() > (1 - _NUMBERS) * pc.sum(sizes).as_py() + 1e-9:
        return []
    result: list[str] = others.to_pylist()
    return result


def without_words(texts: pa.Array | pa.ChunkedArray, words: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """Return the texts other than `words` and null."""
    known = texts.drop_null()
    return known.filter(pc.invert(pc.is_in(known, pa.array(words, pa.string()))))


def units(texts: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the sorted units of formatted numbers, such as "kg" and "g". Numbers without a unit have the unit "".

    >>> units(pa.array(["4.9 kg", "2695 g", None]))
    ['g', 'kg']
    """
    return sorted(pc.replace_substring_regex(texts.drop_null(), _NO_UNIT, "").unique().to_pylist())


def decimal_mark(texts: pa.Array | pa.ChunkedArray, marks: str = ".,") -> str | None:
    """Return the decimal mark of a column of texts with formatted numbers: a point or a comma.

    Numbers may have a currency sign, a percent sign or a unit, such as "4.9 kg". The result is None if a text is not a number, if all texts
    are plain numbers, such as "12.5", or if the texts have more than eight units. If both marks are possible, as in "1,234", the result is
    the first of `marks`.

    >>> decimal_mark(pa.array(["€1,234.50", "€7"])), decimal_mark(pa.array(["12,5 %", None])), decimal_mark(pa.array(["1.2.1997"]))
    ('.', ',', None)
    >>> decimal_mark(pa.array(["1,234"])), decimal_mark(pa.array(["1,234"]), ",.")
    ('.', ',')
    """
    known = texts.drop_null().unique()
    if not len(known) or _all_match(known, _PLAIN):
        return None
    forms = {".": _POINTED, ",": _COMMAED}
    mark = next((mark for mark in marks if _all_match(known, f"{_BEFORE}(?:{forms[mark]}){_AFTER}")), None)
    return mark if mark is not None and len(units(known)) <= min(_UNITS, (len(known) + 1) // 2) else None


def gap_notes(columns: Mapping[str, pa.Array], null_values: Sequence[str]) -> Iterator[str]:
    """Yield a note about columns of numbers that contain a few words, such as "k.A.". The note suggests to read the words as null."""
    words = {name: gap_words(texts) for name, texts in columns.items()}
    named = [f"{name!r} ({', '.join(map(repr, gaps))} in {_count(columns[name], gaps):,} rows)" for name, gaps in words.items() if gaps]
    if named:
        nulls = list(dict.fromkeys([*null_values, *chain.from_iterable(words.values())]))
        yield f"text columns of numbers with a few words: {listed(named)}; if the words mean missing values, give null_values={nulls!r}"


def _count(texts: pa.Array, words: Sequence[str]) -> int:
    return len(texts.drop_null()) - len(without_words(texts, words))


def number_notes(name: str, texts: pa.Array, marks: str) -> Iterator[str]:
    """Yield notes about a text column of a CSV file with formatted numbers or leading zeros. Words for missing values are ignored."""
    numbers = without_words(texts, gap_words(texts))
    mark = decimal_mark(numbers, marks)
    if mark is not None:
        cell, kinds = f"row[{name!r}]", units(numbers)
        factors = ", after setting the factors of the units" if len([*filter(None, kinds)]) > 1 else ""
        convert = (
            f"import re, and convert the texts with fp.map(lambda row: {{**row, {name!r}: {cell} and {conversion(cell, mark, kinds)}}})"
        )
        remedy = "read decimal commas with decimal=','" if mark == "," and have_only_commas(numbers) else convert + factors
        yield f"the text column {name!r} looks like numbers, such as {numbers[0].as_py()!r}; {remedy}"
    if have_leading_zeros(numbers) and _all_match(numbers, r"^\s*[-+]?\d{1,18}\s*$"):
        yield f"the text column {name!r} keeps leading zeros; for numbers, give schema={{{name!r}: pa.int64()}}"


def have_only_commas(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return True if a CSV reader can parse all texts as numbers with the decimal mark ",". Currency signs, for example, give False."""
    return _all_match(texts.drop_null(), _ONLY_COMMA)


def conversion(cells: str, mark: str, units: Sequence[str] = ()) -> str:
    r"""Return Python code that converts a text to a number. `cells` is the Python expression for the text.

    For several `units`, the code has a factor for each unit. All factors are 1, and users set the right factors.

    >>> conversion("row['price']", ",")
    "float(re.sub(r'[^0-9,+-]', '', row['price']).replace(',', '.'))"
    >>> print(conversion("text", ".", ["g", "kg"]))
    float(re.sub(r'[^0-9.+-]', '', text)) * {'g': 1, 'kg': 1}[re.sub(r"[-+0-9.,'\s]", '', text)]
    """
    digits = f"re.sub(r'[^0-9{mark}+-]', '', {cells})"
    number = f"float({digits}.replace(',', '.'))" if mark == "," else f"float({digits})"
    factors = f" * {dict.fromkeys(units, 1)!r}[re.sub(r\"[-+0-9.,'\\s]\", '', {cells})]" if len([*filter(None, units)]) > 1 else ""
    return number + factors


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
