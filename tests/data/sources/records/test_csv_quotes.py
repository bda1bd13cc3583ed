"""The law of cuts: a cut in a CSV file never changes its rows, and every end of a record is found."""

import csv
import io
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfp.data.sources.records.csv_quotes import last_record_end, open_quote, record_ends, split_fields
from mlxfp.data.sources.records.line_blocks import count_lines

# Pieces that CSV files are made of, well and badly: what matters is where quotes, newlines and delimiters meet.
PIECES = st.sampled_from(["a", ",", ";", '"', '""', "\n", "\r\n", "\r", ' "', '",', ',"', '"\n', "é", "\ufeff", "\x00", "5'", "'"])
WILD = st.lists(PIECES, max_size=24).map("".join)
DIALECTS = st.sampled_from([(",", '"'), (";", '"'), (",", "'"), (",", None)])

Cut = Callable[[bytes, str, str | None], int]


def rows(text: str, delimiter: str, quote: str | None) -> list[list[str]]:
    """Return what Python's csv module reads, without blank lines."""
    rules: Any = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **rules) if row]


def assert_cuts_where_records_end(cut: Cut, data: bytes, delimiter: str, quote: str | None) -> None:
    """Law: the rows before a cut and those after it are the rows of the whole, whatever follows what was read; no later cut is one too."""
    at = cut(data, delimiter, quote)
    assert 0 <= at <= len(data)
    for more in ("", "\n", 'x",y\n'):
        after = data[at:].decode() + more
        assert rows(data[:at].decode(), delimiter, quote) + rows(after, delimiter, quote) == rows(data.decode() + more, delimiter, quote)
    if at < len(data) - data.endswith(b"\r"):
        rest = data[at:].decode()
        assert all(len(rows(rest[:end] + "x,y", delimiter, quote)) == 1 for end in range(1, len(rest) + (not rest.endswith("\r"))))


@given(WILD.map(str.encode), DIALECTS)
@example(b'"a""\n', (",", '"'))
@example(b'a"\n"b\n"', (",", '"'))
@example(b'"a"b"\n', (",", '"'))
@example(b'"a\r', (",", '"'))
def test_a_cut_is_where_a_record_ends(data: bytes, dialect: tuple[str, str | None]):
    assert_cuts_where_records_end(last_record_end, data, *dialect)


@given(WILD.map(str.encode), DIALECTS)
def test_every_end_of_a_record_is_found(data: bytes, dialect: tuple[str, str | None]):
    ends = [0, *record_ends(data, *dialect).tolist(), len(data)]
    pieces = [data[start:end] for start, end in pairwise(ends)]
    assert [row for piece in pieces for row in rows(piece.decode(), *dialect)] == rows(data.decode(), *dialect)
    assert all(len(rows(piece.decode(), *dialect)) <= 1 for piece in pieces)


@given(WILD, DIALECTS)
@example('"a"",', (",", '"'))
def test_a_record_is_split_into_its_fields(text: str, dialect: tuple[str, str | None]):
    data = text.encode()
    ends = [0, *record_ends(data, *dialect).tolist(), len(data)]
    records = [data[start:end].decode() for start, end in pairwise(ends) if data[start:end].strip(b"\r\n")]
    if open_quote(data, *dialect) is None:
        assert [split_fields(record, *dialect) for record in records] == rows(text, *dialect)


@given(WILD.map(str.encode), DIALECTS)
def test_a_quote_is_open_where_a_newline_would_be_text(data: bytes, dialect: tuple[str, str | None]):
    at = open_quote(data, *dialect)
    last = rows(data.decode() + "\nx", *dialect)[-1]
    assert (at is not None) == last[-1].endswith("\nx")
    assert at is None or (dialect[1] and data[at:].decode().startswith(dialect[1]))


def cut_at_newline(data: bytes, delimiter: str, quote: str | None) -> int:
    """A broken cut: quotes are not looked at."""
    return data.rfind(b"\n") + 1


def cut_by_parity(data: bytes, delimiter: str, quote: str | None) -> int:
    """A broken cut: a quote amid a field is taken for one that begins it."""
    ends = [place + 1 for place in range(len(data)) if data[place : place + 1] == b"\n" and data[:place].count(b'"') % 2 == 0]
    return ends[-1] if ends else 0


def cut_between_return_and_newline(data: bytes, delimiter: str, quote: str | None) -> int:
    """A broken cut: the \r at the end of what was read is taken for a newline of its own."""
    return len(data) if data.endswith(b"\r") else last_record_end(data, delimiter, quote)


@pytest.mark.parametrize(
    ("broken", "data"),
    [
        (cut_at_newline, b'a,"b\nc'),
        (cut_by_parity, b'5" pipe\na,"b\nc'),
        (cut_between_return_and_newline, b'"a\r'),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_law_catches(broken: Cut, data: bytes):
    assert_cuts_where_records_end(last_record_end, data, ",", '"')
    with pytest.raises(AssertionError):
        assert_cuts_where_records_end(broken, data, ",", '"')


def test_quotes_are_seen_across_the_pieces_that_are_looked_at_together():
    record = b'1,"' + b"a\n" * 40_000 + b'"\n'
    for inside in range(0, 80_000, 9_001):
        assert last_record_end(record * 2 + record[:inside], ",", '"') == 2 * len(record)


@given(WILD.map(str.encode), st.integers(0, 30))
def test_lines_are_counted_as_python_splits_them(data: bytes, cut: int):
    assert count_lines(data) == len(io.StringIO(data.decode() + "x", newline="").readlines()) - 1
    if data[cut - 1 : cut + 1] != b"\r\n":
        assert count_lines(data[:cut]) + count_lines(data[cut:]) == count_lines(data)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r", b"x\r\n"])
def test_lines_are_counted_across_the_pieces_that_are_looked_at_together(newline: bytes):
    assert count_lines(newline * 70_001) == 70_001
