"""Where CSV records end: at the newlines outside quoted fields.

A field is quoted if a quote is its first character; inside it, a doubled quote means one, and a single one ends the quoting. A quote
anywhere else is text. Arrow's parser and Python's csv module follow the same rules, so they see records end at the same places.
"""

import re
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlxfp.data.sources.records.line_blocks import CR, LF, PIECE, line_ends


def record_ends(data: bytes, delimiter: str, quote: str | None) -> NDArray[np.int64]:
    """Return the offsets at which records end, int64[N]; `data` starts at a record."""
    ends = np.flatnonzero(line_ends(np.frombuffer(data, np.uint8), returns=b"\r" in data))
    turns = _turns(data, delimiter, quote)
    if len(turns):
        ends = ends[np.searchsorted(turns, ends) % 2 == 0]
    return ends + 1


def filled_record_ends(data: bytes, delimiter: str, quote: str | None) -> NDArray[np.int64]:
    """Return the offsets at which records end that are not blank lines, int64[N]; the last one may end with the data."""
    ends = record_ends(data, delimiter, quote)
    if data and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    codes, starts = np.frombuffer(data, np.uint8), np.concatenate([[0], ends[:-1]])[: len(ends)]
    first, sizes = codes[starts], ends - starts
    blank = ((sizes == 1) & ((first == LF) | (first == CR))) | ((sizes == 2) & (first == CR) & (codes[ends - 1] == LF))
    return ends[~blank] if blank.any() else ends


def last_record_end(data: bytes, delimiter: str, quote: str | None) -> int:
    r"""Return the last record end that no following byte can undo, or 0: a final \r is not one, because a \n may follow it."""
    last = _last_newline(data, len(data) - data.endswith(b"\r"))
    if quote is None or quote.encode() not in data or _is_outside(data, last, delimiter, quote):
        return last
    edges = _edges(data, delimiter, quote)
    while (turns := int(np.searchsorted(edges, last - 1))) % 2:
        last = _last_newline(data, int(edges[turns - 1]))  # before the quote that it is inside
    return last


def _last_newline(data: bytes, end: int) -> int:
    return max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end)) + 1


def open_quote(data: bytes, delimiter: str, quote: str | None) -> int | None:
    """Return the offset of a quote that is never closed, or None; `data` starts at a record."""
    edges = _edges(data, delimiter, quote)
    return int(edges[-1]) if len(edges) % 2 else None


def split_fields(record: str, delimiter: str, quote: str | None) -> list[str]:
    """Return the fields of one record."""
    text = record.rstrip("\r\n")
    if quote is None:
        return text.split(delimiter)
    q, d = re.escape(quote), re.escape(delimiter)
    fields = re.finditer(rf"(?:{q}((?:[^{q}]++|{q}{q})*+){q}?)?([^{d}]*+)({d}?)", text)
    found = [((field[1] or "").replace(quote * 2, quote) + field[2], field[3]) for field in fields]
    return [text for text, _ in found[: next(place for place, (_, more) in enumerate(found, 1) if not more)]]


def _is_outside(data: bytes, end: int, delimiter: str, quote: str) -> bool:
    """Say whether quoting is off at `end`; False also means that this quick test cannot tell.

    If every second quote, from the first on, is where a field can begin or directly after the quote that it doubles, then (by induction)
    every quote turns quoting on or off. This holds in nearly all files, and numpy checks it ten times faster than a regex.
    """
    codes, begins, count = np.frombuffer(data, np.uint8), _begins(delimiter, quote), 0
    for first in range(0, end, PIECE):
        quotes = np.flatnonzero(codes[first : min(first + PIECE, end)] == ord(quote)) + first
        before = np.maximum(quotes[count % 2 :: 2] - 1, 0)  # a field begins at the first byte too: a quote there is compared with itself
        if not begins.take(codes.take(before)).all():
            return False
        count += len(quotes)
    return count % 2 == 0


@lru_cache(maxsize=64)
def _begins(delimiter: str, quote: str) -> NDArray[np.bool_]:
    """Mark the bytes after which a field can begin, or a quote that is doubled ends: bool[256]."""
    begins = np.zeros(256, bool)
    begins[[LF, CR, ord(delimiter), ord(quote)]] = True
    return begins


def _turns(data: bytes, delimiter: str, quote: str | None) -> NDArray[np.int64]:
    """Return offsets at which quoting turns on and off, alternately, so that it is right at every newline: all quotes where that is so."""
    if quote is None or quote.encode() not in data:
        return np.empty(0, np.int64)
    codes = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(codes == ord(quote))
    before = np.maximum(quotes[::2] - 1, 0)
    return quotes if _begins(delimiter, quote).take(codes.take(before)).all() else _edges(data, delimiter, quote)


def _edges(data: bytes, delimiter: str, quote: str | None) -> NDArray[np.int64]:
    """Return the offsets at which quoting is turned on and off, alternately: int64[N]."""
    if quote is None:
        return np.empty(0, np.int64)
    fields = _quoted_field(delimiter, quote).finditer(data)
    return np.array([place for field in fields for place in (field.start(), field.end() - 1)[: 1 + bool(field[1])]], np.int64)


@lru_cache(maxsize=64)
def _quoted_field(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """Match a quoted field, up to its closing quote (group 1) or the end; not a quote inside an unquoted field."""
    q, d = re.escape(quote), re.escape(delimiter)
    return re.compile(rf"{q}(?<![^{d}\r\n]{q})(?:[^{q}]++|{q}{q})*+({q}?)".encode())
