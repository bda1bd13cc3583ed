"""Blocks of whole records, functions that find lines, and descriptions of invalid records."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

MARK = b"\xef\xbb\xbf"  # UTF-8 byte order mark, written by some programs
LF, CR = 10, 13
PIECE = 1 << 16  # Number of bytes per NumPy call. The number is small, so that intermediate arrays stay in the CPU cache.


@frozen
class Opening:
    """Part of a file before the first record: byte order mark and header."""

    offset: int
    line: int = 1
    names: tuple[str, ...] = ()  # column names in file order, if the file has a header


@frozen
class Block:
    """Block of whole records of a file, with its location in the file."""

    data: bytes
    opening: Opening
    path: str
    line: int  # line number of the first record
    next_line: int
    end: int | None  # offset after the last record; None at the end of the file


@frozen
class Fault:
    """Description of an invalid record: offset of the record in the block, problem and remedy."""

    offset: int
    problem: str
    remedy: str
    column: str | None = None  # name of the column, if a value has a wrong type
    kinds: tuple[pa.DataType | None, pa.DataType | None] = (None, None)  # expected type of the column, and type of the invalid value


def line_ends(codes: NDArray[np.uint8], *, returns: bool = True) -> NDArray[np.bool_]:
    r"""Return a mask of the bytes that end a line: each \n, and each \r that is not followed by \n.

    `returns=False` skips the search for \r, to save time for data without \r.
    """
    ends: NDArray[np.bool_] = codes == LF
    if returns:
        lone = codes == CR
        lone[:-1] &= ~ends[1:]
        ends |= lone
    return ends


def count_lines(data: bytes) -> int:
    r"""Return the number of line ends in the data. A line end is \n, \r\n, or \r without \n."""
    codes, returns = np.frombuffer(data, np.uint8), b"\r" in data
    # Pieces of the data overlap by one byte, because the byte after \r decides between the line ends \r and \r\n.
    pieces = (codes[first : first + PIECE + 1] for first in range(0, len(codes), PIECE))
    return sum(int(np.count_nonzero(line_ends(piece, returns=returns)[:PIECE])) for piece in pieces)


def newlines(codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the offsets of the newlines, int64[N]."""
    offsets = [first + np.flatnonzero(codes[first : first + PIECE] == LF) for first in range(0, len(codes), PIECE)]
    return np.concatenate(offsets) if offsets else np.empty(0, np.int64)


def guard(data: bytes) -> bytes:
    """Prepend a newline to data that is empty or begins with a byte order mark.

    Without the newline, Arrow would reject empty data and drop the byte order mark.
    """
    return data if data and not data.startswith(MARK) else b"\n" + data


def fails(parse: Callable[[], object]) -> bool:
    """Return True if `parse` raises an error of Arrow."""
    try:
        parse()
    except pa.ArrowInvalid:
        return True
    return False


def first_failure(ends: Sequence[int], parse: Callable[[int], object]) -> tuple[int, int]:
    """Return the start and end offset of the first invalid record. `parse(end)` must fail if a record before offset `end` is invalid."""
    index = bisect_left(ends, 1, key=lambda end: int(fails(lambda: parse(end))))
    return (ends[index - 1] if index else 0), ends[index]


def shorten(value: object) -> str:
    """Return the `repr` of a value for messages, at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
