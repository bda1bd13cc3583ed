"""Blocks of whole records: where they are, how their lines are counted, and why one cannot be parsed."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

MARK = b"\xef\xbb\xbf"  # the byte order mark that some programs put in front of UTF-8
LF, CR = 10, 13
PIECE = 1 << 16  # bytes looked at together: so few that numpy's results stay in the CPU's cache


@frozen
class Opening:
    """What comes before the first record of a file: a byte order mark, a header."""

    offset: int
    line: int = 1
    names: tuple[str, ...] = ()  # the columns in the order of the file, where it has a header


@frozen
class Block:
    """Whole records of a file, and where they are."""

    data: bytes
    opening: Opening
    path: str
    line: int  # of the first record
    next_line: int
    end: int | None  # the offset after them; None: the file ends here


@frozen
class Fault:
    """Why a block cannot be parsed: the offset of the record in the block, what is wrong with what we got, and what to do."""

    at: int
    what: str
    cure: str
    column: str | None = None  # the column that a value does not fit
    kinds: tuple[pa.DataType | None, pa.DataType | None] = (None, None)  # its type, and that of the value


def line_ends(codes: NDArray[np.uint8], *, returns: bool = True) -> NDArray[np.bool_]:
    r"""Mark the bytes that end a line: \n, the \n of \r\n, and a lone \r; `returns=False` where there is no \r, to be faster."""
    ends: NDArray[np.bool_] = codes == LF
    if returns:
        lone = codes == CR
        lone[:-1] &= ~ends[1:]
        ends |= lone
    return ends


def count_lines(data: bytes) -> int:
    r"""Return the number of lines that end in the data: at \n, \r\n or a lone \r."""
    codes, returns = np.frombuffer(data, np.uint8), b"\r" in data
    pieces = (codes[first : first + PIECE + 1] for first in range(0, len(codes), PIECE))  # with the byte after, which tells a lone \r
    return sum(int(np.count_nonzero(line_ends(piece, returns=returns)[:PIECE])) for piece in pieces)


def newlines(codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return where the newlines are, int64[N]."""
    found = [first + np.flatnonzero(codes[first : first + PIECE] == LF) for first in range(0, len(codes), PIECE)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def guard(data: bytes) -> bytes:
    """Put a blank line in front where Arrow needs it: Arrow drops a byte order mark at the start, and fails on empty data."""
    return data if data and not data.startswith(MARK) else b"\n" + data


def fails(parse: Callable[[], object]) -> bool:
    """Say whether Arrow rejects the data."""
    try:
        parse()
    except pa.ArrowInvalid:
        return True
    return False


def first_failure(ends: Sequence[int], parse: Callable[[int], object]) -> tuple[int, int]:
    """Return (start, end) of the first record with which `parse(end)` fails, given that parsing all records fails."""
    which = bisect_left(ends, 1, key=lambda end: int(fails(lambda: parse(end))))
    return (ends[which - 1] if which else 0), ends[which]


def shorten(value: object) -> str:
    """Print a value in at most 80 characters, for messages."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
