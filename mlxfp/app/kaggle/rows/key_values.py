"""Reading rows that were written as "age: 22; sex: female;"."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.support.checks import check_text, check_types
from mlxfp.support.errors import DataError, unknown_name

_PAIR = re.compile(r"((?:[^\\:]|\\.)*): ((?:[^\\;]|\\.)*);(?: |\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def read_key_values(text: str, spec: DatasetSpec) -> dict[str, str]:
    r"""Read a row that was written with `fit_row_to_text(form="key_value")`: the text of each column's value, as in the file.

    Names of values become the values that they name; numbers are as precise as they were written. Missing values were left out, or are
    read as "unknown" or "none". A backslash escapes the end of a title (`:`) or of a value (`;`), and itself. Raises `DataError` for text
    in another form, `UnknownNameError` for an unknown title.

    >>> from mlxfp.app.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="train.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> columns = [ColumnSpec(name="Pclass", type="categorical", values={"1": "first"}), ColumnSpec(name="Ticket", type="text")]
    >>> read_key_values(r"pclass: first; ticket: a\; b;", DatasetSpec(name="ship", kind="binary", columns=columns, **about))
    {'Pclass': '1', 'Ticket': 'a; b'}
    """
    check_text(text=text)
    check_types(DatasetSpec, spec=spec)
    columns = {column.title: column for column in spec.columns}
    found, place = {}, 0
    while place < len(text):
        pair = _PAIR.match(text, place)
        if pair is None:
            raise DataError(f"A row of keys and values reads 'age: 22; sex: female;', got {text[place:]!r:.60} at character {place}.")
        title, value = (_ESCAPED.sub(r"\1", part) for part in pair.groups())
        if title not in columns:
            raise unknown_name(f"column of {spec.name!r}", title, columns)
        found[columns[title].name] = {name: code for code, name in columns[title].values}.get(value, value)
        place = pair.end()
    return found


def escape_key(title: str) -> str:
    """Put a backslash before characters that would end a title."""
    return title.replace("\\", "\\\\").replace(":", "\\:")


def escape_values(values: pa.StringArray) -> pa.StringArray:
    """Put a backslash before characters that would end a value."""
    return pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), ";", "\\;")
