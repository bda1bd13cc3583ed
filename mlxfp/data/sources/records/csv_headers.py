"""Headers of CSV files: comment lines above a header, and headers with another delimiter."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path
from shlex import quote as quote_path

import numpy as np

from mlxfp.data.sources.records.csv_quotes import filled_record_ends, record_ends, split_fields
from mlxfp.data.sources.records.line_blocks import Block, count_lines, shorten
from mlxfp.support.errors import DataError
from mlxfp.support.file_formats import COMPRESSIONS

DELIMITERS = ",;\t|"  # common delimiters, suggested in messages
_FEW = 20  # number of records whose fields are compared with the header


def next_records(data: bytes, delimiter: str, quote: str | None) -> list[list[str]]:
    """Return the fields of the first 20 records."""
    ends = [0, *filled_record_ends(data, delimiter, quote)[:_FEW].tolist()]
    records = [data[start:end].decode(errors="replace").strip("\r\n") for start, end in pairwise(ends)]
    return [split_fields(record, delimiter, quote) for record in records]


def other_delimiter(records: bytes, quote: str | None) -> str | None:
    """Return a delimiter that splits the first two records into the same number of fields, at least two. Return None if none fits."""
    for other in DELIMITERS:
        ends = [0, *record_ends(records, other, quote)[:2].tolist(), len(records)]
        first = [records[start:end].decode(errors="replace").strip("\r\n") for start, end in pairwise(ends[:3])]
        counts = {len(split_fields(record, other, quote)) for record in first if record}
        if len(counts) == 1 and counts != {1}:
            return other
    return None


def check_comment(header: str, below: Block, marks: tuple[str, str | None, str], null_values: Sequence[str]) -> None:
    """Raise `DataError` if the first record, a line that begins with #, is a comment with as many fields as the table.

    `below` holds the next records, and `marks` the delimiter, the quote and the decimal mark.
    """
    delimiter, quote, decimal = marks
    data, path, line = below.data, below.path, below.line - count_lines(header.encode())
    rows = next_records(data, delimiter, quote)
    comments = sum(1 for _ in takewhile(lambda fields: fields[0].startswith("#"), rows))
    rows = rows[comments:]
    if not rows or len(rows[0]) != len(split_fields(header, delimiter, quote)) or not _are_names(rows, null_values, decimal):
        return
    end = int(filled_record_ends(data, delimiter, quote)[comments - 1]) if comments else 0
    number = below.line + count_lines(data[: len(data) - len(data[end:].lstrip(b"\r\n"))])
    plain = "://" not in path and Path(path).suffix not in COMPRESSIONS
    command = f": tail -n +{number} {quote_path(path)} > {quote_path(str(Path(path).with_stem('converted')))}" if plain else ""
    raise DataError(
        f"The first line is probably a comment: got {shorten(header.strip())}, in line {line} of {path}. Line {number} looks like the "
        f"header: {shorten(delimiter.join(rows[0]))}. Remove the lines above line {number}{command}. If line {line} is the header, remove "
        "the '#'."
    )


def _are_names(rows: Sequence[Sequence[str]], null_values: Sequence[str], decimal: str) -> bool:
    """Return True if the first of the rows looks like a header: distinct texts that no column repeats, above a column of numbers."""
    names, *records = rows
    if len({*names}) < len(names) or any(name in null_values or _is_number(name, decimal) for name in names):
        return False
    columns = [[value for value in column if value not in null_values] for column in zip(*records, strict=False)]
    repeated = any(name in column for name, column in zip(names, columns, strict=False))
    return not repeated and any(column and all(_is_number(value, decimal) for value in column) for column in columns)


def _is_number(text: str, decimal: str) -> bool:
    with suppress(ValueError):
        return bool(np.isfinite(float(text.replace(decimal, "."))))
    return False
