"""Types of the columns of CSV files: checks of types that Arrow infers, the number of digits of integers, and notes about dates."""

import datetime as dt
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.data.sources.columns import LONGEST_EXACT
from mlxfp.support.formatted_numbers import rare_words, without_words

TIMES = tuple(map(pa.timestamp, ("s", "ms", "us")))  # inferred types of dates with a time
_DATE = r"^(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4})([ T,]+\d.*)?$"
_DAY_FIRST = r"^(\d{1,2}\.|(1[3-9]|[23]\d)[-/])"  # pattern for one date of a column with the day first
_ZONE = r":\d\d.*(Z|[+-]\d{2}:?\d{2})$"  # pattern for a time with a time zone
_HEXADECIMAL = re.compile(rb"0[xX]")
_LEAST = b"least"  # metadata key for the smallest integer with the digit count of a column, such as 10000 for ZIP codes


def is_early(column: pa.Array) -> bool:
    """Return True for a column with dates before the year 1, such as 0000-01-01."""
    dated = pa.types.is_date32(column.type) or column.type in TIMES
    return dated and pc.any(pc.less(column, pa.scalar(dt.date.min).cast(column.type))).as_py() is True


def has_hexadecimal(data: bytes) -> bool:
    """Return True if bytes contain 0x or 0X. The search for x is the fast path of numbers, the regular expression the fast path of text.

    >>> has_hexadecimal(b"1,0XFF"), has_hexadecimal(b"10,x")
    (True, False)
    """
    return (b"x" in data or b"X" in data) and _HEXADECIMAL.search(data) is not None


def date_notes(name: str, texts: pa.Array) -> Iterator[str]:
    """Yield a note about a text column of dates with a year of four digits. Words for missing values are ignored.

    The code in the note first writes the year at the start of all dates, because pandas cannot read two orders in one column.
    """
    words = rare_words(texts)
    dates = without_words(texts, words)
    if len(dates) and pc.all(pc.match_substring_regex(dates, _DATE)).as_py():
        order = r"\3-\2-\1" if pc.any(pc.match_substring_regex(dates, _DAY_FIRST)).as_py() else r"\3-\1-\2"
        frame = rf"frame[{name!r}].str.replace(r'^(\d+)\D(\d+)\D(\d{{4}})', r'{order}', regex=True)"
        zoned = pc.any(pc.match_substring_regex(dates, _ZONE)).as_py()
        zone, utc = (", utc=True", ".dt.tz_localize(None)") if zoned else ("", "")  # times with a zone become times in UTC
        invalid = ", errors='coerce'" if words else ""
        yield (
            f"the text column {name!r} looks like dates, such as {dates[0].as_py()!r}; inferred dates look like 1997-05-22 or 1997-05-22 "
            f"12:30; convert a pandas frame with frame[{name!r}] = pandas.to_datetime({frame}, format='mixed'{zone}{invalid}){utc}"
        )


def suggested_type(text: str) -> pa.DataType:
    """Return the type that an error message suggests for a value that does not fit its column: float64 or string."""
    try:
        number = abs(float(text))
    except ValueError:
        return pa.string()
    return pa.string() if number == np.inf or (number >= LONGEST_EXACT and text.strip().lstrip("+-").isdecimal()) else pa.float64()


def with_digits(chunk: RecordBatch, integers: Sequence[str]) -> RecordBatch:
    """Store the number of digits for each column of `integers` whose values may be codes of equal length, such as ZIP codes.

    The values of such a column are positive and have the same number of digits, at least two. The metadata of the field get the smallest
    integer with this number of digits, such as 10000 for five digits. `short_columns` reads this integer.
    """
    schema = chunk.schema
    for name in integers:
        index = schema.get_field_index(name)
        least, most = (str(end) for end in pc.min_max(chunk.column(index)).as_py().values())
        if len(least) == len(most) > 1 and least.isdecimal():
            schema = schema.set(index, schema.field(index).with_metadata({_LEAST: f"1{'0' * (len(least) - 1)}"}))
    return pa.RecordBatch.from_arrays(chunk.columns, schema=schema)


def short_columns(chunk: RecordBatch, schema: Schema) -> list[str]:
    """Return the columns with an integer that has fewer digits than all integers of the first block.

    The text of such an integer may have leading zeros.
    """
    limits = (
        (field.name, column, int(field.metadata[_LEAST])) for field, column in zip(schema, chunk.columns, strict=True) if field.metadata
    )
    return [name for name, column, least in limits if column.drop_null().to_numpy().min(initial=least) < least]


def missing_hint(text: str, kind: pa.DataType, null_values: Sequence[str]) -> str:
    """Return the remedy for a text without digits in a column of numbers or times. Such a text, as "k.A.", often marks a missing value."""
    if re.search(r"\d", text) or pa.types.is_boolean(kind) or not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        return ""
    return f"If the value is missing, give null_values={[*null_values, text]} (in a spec, the same list under null_values). "
