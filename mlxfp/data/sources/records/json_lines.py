"""Lines of JSON before Arrow parses them: what it does not check, and what it does not keep."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.data.sources.columns import LONGEST_EXACT
from mlxfp.data.sources.records.line_blocks import newlines

DEEPEST = 64  # levels of a line, as many as Arrow writes to files
_SAFE = 4096  # levels that Arrow parses with 2 MB of stack; with 8 MB it overflows at about 16,000

_CR, _OPENS, _CLOSES = b"\r{}"
_FOLD = 32  # turns [ and ] into { and }, and no other byte into these
_KEY = re.compile(r'[\s{,]*"((?:[^"\\]|\\.)*+)"\s*:\s*')
_LONG = re.compile(rb"\d{16}")
_scan_value = json.scanner.make_scanner(json.JSONDecoder())  # type: ignore[attr-defined]  # its types lack it


def count_objects(data: bytes) -> int:
    """Return the number of lines that are not blank; raise unless each begins and ends as an object does, and none is nested too deep.

    Arrow also accepts null, several objects in a line, and one over several lines. Of two lines like these, the second one cannot go on
    inside the first one, so it is enough to count the levels of each.
    """
    stops = object_ends(data)
    if stops is not None:  # nearly all files pass this quick test
        starts = np.concatenate([[0], stops[:-1]])
        long = np.flatnonzero(stops - starts > _SAFE).tolist()
        _check_depth(data[starts[line] : stops[line]] for line in long)
        return len(stops)
    lines = [line for each in data.split(b"\n") if (line := each.strip(b" \t\r"))]
    if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        raise pa.ArrowInvalid("a line is not one object")
    _check_depth(line for line in lines if len(line) > _SAFE)
    return len(lines)


def object_ends(data: bytes) -> NDArray[np.int64] | None:
    """Return the offsets at which lines end, int64[N], if each begins and ends as an object does; None if one does not, or is blank."""
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
    """Raise if one of the lines could overflow the stack."""
    for line in lines:
        if np.count_nonzero((np.frombuffer(line, np.uint8) | _FOLD) == _OPENS) > _SAFE and depth(line) > DEEPEST:
            raise pa.ArrowInvalid("a line is nested too deep")


def depth(line: bytes) -> int:
    """Return how many levels of arrays and objects a line has: brackets in strings do not count."""
    outside = b"".join(line.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    codes = np.frombuffer(outside, np.uint8) | _FOLD
    return int(np.cumsum((codes == _OPENS).astype(np.int64) - (codes == _CLOSES)).max(initial=0))


def levels_of(kind: pa.DataType) -> int:
    """Return how many levels a type has; without recursion, for it may have thousands."""
    kinds, levels = [kind], 0
    while kinds:
        kinds, levels = [within.field(place).type for within in kinds for place in range(within.num_fields)], levels + 1
    return levels


def with_texts(data: bytes, names: Collection[str]) -> bytes:
    """Write the values of some keys as strings that hold their JSON text; nulls stay, and so do lines that are not JSON."""
    return "\n".join(_with_texts(line, names) for line in data.decode().split("\n")).encode()


def _with_texts(line: str, names: Collection[str]) -> str:
    parts, done, at = list[str](), 0, 0
    try:
        while key := _KEY.match(line, at):
            start = key.end()
            _, at = _scan_value(line, start)
            name = json.loads(f'"{key[1]}"') if "\\" in key[1] else key[1]
            if name in names and line[start:at] != "null":
                parts += line[done:start], json.dumps(line[start:at], ensure_ascii=False)
                done = at
    except (StopIteration, ValueError, RecursionError):
        return line
    return "".join((*parts, line[done:]))


def long_keys(data: bytes, names: Collection[str]) -> set[str]:
    """Return the keys, of these, under which a line has an integer that a float64 may not hold exactly."""
    found: set[str] = set()
    for line in _lines_with(_LONG, data):
        values = as_object(line)
        found.update(name for name in names if holds_long(values.get(name)))
    return found


def as_object(line: bytes) -> dict[str, Any]:
    """Return the keys and values of a line; none where it is not an object."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def holds_long(value: Any) -> bool:
    """Say whether a value of JSON is, or has in it, an integer that a float64 may not hold exactly."""
    if isinstance(value, dict):
        return any(map(holds_long, value.values()))
    if isinstance(value, list):
        return any(map(holds_long, value))
    return isinstance(value, int) and abs(value) > LONGEST_EXACT


def _lines_with(pattern: re.Pattern[bytes], data: bytes) -> Iterator[bytes]:
    """Yield each line in which the pattern occurs."""
    at = 0
    while match := pattern.search(data, at):
        stop = data.find(b"\n", match.end())
        at = len(data) if stop < 0 else stop
        yield data[data.rfind(b"\n", 0, match.start()) + 1 : at]
