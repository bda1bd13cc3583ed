"""Checks and conversions of JSON lines before Arrow parses them."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.exact_values import loses
from mlxfp.data.sources.columns import LONGEST_EXACT
from mlxfp.data.sources.records.line_blocks import newlines

DEEPEST = 64  # maximum nesting depth of a line, equal to the limit of Arrow's JSON reader
# Nesting depth that Arrow parses safely on a thread with a stack of 2 MB. A stack of 8 MB overflows at about 16,000.
_SAFE = 4096

_CR, _OPENS, _CLOSES = b"\r{}"
_FOLD = 32  # Bitwise OR with this number turns [ into { and ] into }, so that one comparison finds arrays and objects.
_KEY = re.compile(r'[\s{,]*"((?:[^"\\]|\\.)*+)"\s*:\s*')
_LARGE = re.compile(rb"\d{8}|\d[eE]")  # Finds integers that float32 may round: at least 8 digits, or an exponent.
_scan_value = json.scanner.make_scanner(json.JSONDecoder())  # type: ignore[attr-defined]  # its types lack it


def count_objects(data: bytes) -> int:
    """Return the number of lines that are not blank. Raise `ArrowInvalid` for a line that is nested too deeply or is not a single object.

    Arrow also accepts null, several objects in a line, and an object over several lines. The caller therefore compares the result with the
    number of rows that Arrow returns.
    """
    stops = object_ends(data)
    if stops is not None:  # Nearly all files pass this quick test: every line begins with { and ends with }.
        starts = np.concatenate([[0], stops[:-1]])
        long = np.flatnonzero(stops - starts > _SAFE).tolist()
        _check_depth(data[starts[line] : stops[line]] for line in long)
        return len(stops)
    lines = [line for part in data.split(b"\n") if (line := part.strip(b" \t\r"))]
    if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        raise pa.ArrowInvalid("a line is not a single JSON object")
    _check_depth(line for line in lines if len(line) > _SAFE)
    return len(lines)


def object_ends(data: bytes) -> NDArray[np.int64] | None:
    """Return the end offsets of the lines, int64[N], if every line begins with { and ends with }. Otherwise return None."""
    codes = np.frombuffer(data, np.uint8)
    stops = newlines(codes)
    stops = stops if data.endswith(b"\n") else np.append(stops, len(codes))
    starts = np.concatenate([[0], stops[:-1] + 1])
    if not len(codes) or not (codes[starts] == _OPENS).all():
        return None
    last = stops - 1
    last -= codes[last] == _CR
    return np.minimum(stops + 1, len(codes)) if (codes[last] == _CLOSES).all() else None


def _check_depth(lines: Iterable[bytes]) -> None:
    """Raise `ArrowInvalid` for a line nested so deep that Arrow's parser could overflow the stack."""
    for line in lines:
        if np.count_nonzero((np.frombuffer(line, np.uint8) | _FOLD) == _OPENS) > _SAFE and depth(line) > DEEPEST:
            raise pa.ArrowInvalid("a line is nested too deeply")


def depth(line: bytes) -> int:
    """Return the nesting depth of a line. Brackets in strings do not count."""
    outside = b"".join(line.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    codes = np.frombuffer(outside, np.uint8) | _FOLD
    return int(np.cumsum((codes == _OPENS).astype(np.int64) - (codes == _CLOSES)).max(initial=0))


def levels_of(kind: pa.DataType) -> int:
    """Return the nesting depth of a type. Uses a loop instead of recursion, because a type may have thousands of levels."""
    kinds, levels = [kind], 0
    while kinds:
        kinds, levels = [parent.field(index).type for parent in kinds for index in range(parent.num_fields)], levels + 1
    return levels


def with_texts(line: str, names: Collection[str]) -> str:
    """Replace the values of the keys `names` by strings that hold their JSON text. Nulls and a line with invalid JSON stay unchanged."""
    parts, done, offset = list[str](), 0, 0
    try:
        while key := _KEY.match(line, offset):
            start = key.end()
            _, offset = _scan_value(line, start)
            name = json.loads(f'"{key[1]}"') if "\\" in key[1] else key[1]
            if name in names and line[start:offset] != "null":
                parts += line[done:start], json.dumps(line[start:offset], ensure_ascii=False)
                done = offset
    except (StopIteration, ValueError, RecursionError):
        return line
    return "".join((*parts, line[done:]))


def lossy_keys(data: bytes, kinds: Mapping[str, pa.DataType]) -> set[str]:
    """Return the names of float columns that cannot hold a number in the data.

    A float would round a large integer, or turn a very large number into infinity.
    """
    keys: set[str] = set()
    for line in _lines_with(_LARGE, data):
        values = as_object(line)
        keys.update(name for name, kind in kinds.items() if loses(values.get(name), kind))
    return keys


def as_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line as a dict. Returns an empty dict if the line is no object."""
    try:
        values = json.loads(line, parse_int=lambda digits: int(digits[:400]))  # Python refuses to read integers of more than 4,300 digits.
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def holds_long(value: Any) -> bool:
    """Return True if a JSON value is or contains an integer too long for float64."""
    if isinstance(value, dict):
        return any(map(holds_long, value.values()))
    if isinstance(value, list):
        return any(map(holds_long, value))
    return isinstance(value, int) and abs(value) > LONGEST_EXACT


def _lines_with(pattern: re.Pattern[bytes], data: bytes) -> Iterator[bytes]:
    """Yield each line in which the regular expression finds a match."""
    offset = 0
    while match := pattern.search(data, offset):
        stop = data.find(b"\n", match.end())
        offset = len(data) if stop < 0 else stop
        yield data[data.rfind(b"\n", 0, match.start()) + 1 : offset]
