"""Text formats of predictions in a submission, called spellings. Functions find, check and write the format of a column."""

import re
from collections.abc import Collection, Iterable
from math import isfinite
from typing import Any, Literal, get_args

from attrs import frozen

from mlxfp.support.formatted_numbers import NUMBER

Spelling = Literal["integer", "boolean", "number", "text"]

_TRUTHS = (("True", "False"), ("true", "false"), ("TRUE", "FALSE"))
_WHOLE = re.compile(r"-?\d+", re.ASCII)
_NUMBER = re.compile(NUMBER, re.ASCII)
_MISSING = {"", "nan", "none", "null", "na", "inf", "-inf", "infinity", "-infinity"}
_NAMES_OF_TRUTHS = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None and isfinite(float(cell))


def have_fractions(cells: Iterable[str]) -> bool:
    """Return True if a cell is a number with a fraction, such as 0.5."""
    return any(_is_number(cell) and not float(cell).is_integer() for cell in cells)


def _is_absent(value: Any) -> bool:
    """Return True for None, NaN, NaT, a masked value, and NA of pandas."""
    if value is None:
        return True
    try:
        return not value == value  # noqa: SIM201  # only missing values differ from themselves
    except TypeError:  # `bool(pandas.NA)` raises TypeError
        return True


@frozen
class CellSpelling:
    """Format of the cells in a submission column. The same answer may be 1 in one format, True in another. Returned by `find_spelling`."""

    name: Spelling
    truths: tuple[str, str] = _TRUTHS[0]

    def fits(self, cell: str) -> bool:
        """Return True if the text of a cell has this format."""
        if self.name == "boolean":
            return cell in self.truths
        return self.name == "text" or (_WHOLE.fullmatch(cell) is not None if self.name == "integer" else _is_number(cell))

    def is_missing(self, cell: str) -> bool:
        """Return True if a cell has no value: an empty cell or, except in text columns, a word such as nan, null or inf."""
        return not cell.strip() if self.name == "text" else cell.strip().lower() in _MISSING

    def write(self, value: Any) -> str:
        """Return a prediction as text in the format of the column.

        A class name that already has this format stays unchanged. Other class names that denote a number or a truth value are converted:
        in an integer column, "yes" becomes "1". A class name without a conversion stays unchanged, and `fits` returns False for the
        result. A missing prediction, such as None, becomes an empty cell.
        """
        if _is_absent(value) or (self.name == "text" and value in (float("inf"), float("-inf"))):
            return ""
        if isinstance(value, str):
            return value if self.fits(value) else self._translate(value)
        if self.name == "boolean" and value in (0, 1):
            return self.truths[0] if value else self.truths[1]
        is_whole = isinstance(value, bool) or (self.name == "integer" and isinstance(value, float) and value.is_integer())
        return str(int(value) if is_whole and self.name in ("integer", "number") else value)

    def _translate(self, name: str) -> str:
        truth = _NAMES_OF_TRUTHS.get(name.lower())
        if self.name == "boolean":
            return name if truth is None else self.write(truth)
        if _is_number(name):
            return str(int(float(name))) if float(name).is_integer() else name
        return name if truth is None else str(int(truth))

    def __str__(self) -> str:
        descriptions = {"integer": "whole numbers", "boolean": f"spelled {' or '.join(self.truths)}", "number": "numbers", "text": "text"}
        return descriptions[self.name]


def find_spelling(cells: Collection[str], name: Spelling | None = None) -> CellSpelling:
    """Return the format of cells: the first of integer, boolean, number and text that fits all cells. Without cells, return text format.

    If `name` is given, return the format `name` instead. In both cases, truth values are spelled as in the cells: "true", "True" or "TRUE".
    """
    truths = next((pair for pair in _TRUTHS if set(cells) <= set(pair)), _TRUTHS[0])
    spellings = [CellSpelling(spelling, truths) for spelling in get_args(Spelling)]
    narrowest = next(spelling for spelling in spellings if all(map(spelling.fits, cells))) if cells else spellings[-1]
    return narrowest if name is None else CellSpelling(name, truths)
