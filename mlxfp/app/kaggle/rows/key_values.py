"""Parser for rows in the form "age: 22; sex: female;"."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.support.checks import check_text, check_types
from mlxfp.support.errors import DataError, unknown_name

_PAIR = re.compile(r"((?:[^\\:]|\\.)*): ((?:[^\\;]|\\.)*);(?: |\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def read_key_values(text: str, spec: DatasetSpec) -> dict[str, str]:
    r"""Parse a row written with `fit_row_to_text(form="key_value")`. Return the value of each column as text, as in the file.

    Names of values become the original values. Numbers keep the written precision. Missing values are absent from the result, or
    have the text "unknown" or "none". Backslashes escape `:` in titles, `;` in values, and backslashes. Raises `DataError` for text
    in a different form, and `UnknownNameError` for an unknown title.

    >>> from mlxfp.app.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="train.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> columns = [ColumnSpec(name="Pclass", type="categorical", values={"1": "first"}), ColumnSpec(name="Ticket", type="text")]
    >>> read_key_values(r"pclass: first; ticket: a\; b;", DatasetSpec(name="ship", kind="binary", columns=columns, **about))
    {'Pclass': '1', 'Ticket': 'a; b'}
    """
    check_text(text=text)
    check_types(DatasetSpec, spec=spec)
    columns = {column.title: column for column in spec.columns}
    values, position = {}, 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise DataError(f"A row must have the form 'age: 22; sex: female;', got {text[position:]!r:.60} at character {position}.")
        title, value = (_ESCAPED.sub(r"\1", part) for part in pair.groups())
        if title not in columns:
            raise unknown_name(f"column of {spec.name!r}", title, columns)
        values[columns[title].name] = {name: code for code, name in columns[title].values}.get(value, value)
        position = pair.end()
    return values


def escape_key(title: str) -> str:
    """Escape colons and backslashes in a column title."""
    return title.replace("\\", "\\\\").replace(":", "\\:")


def escape_values(values: pa.StringArray) -> pa.StringArray:
    """Escape semicolons and backslashes in values."""
    return pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), ";", "\\;")
