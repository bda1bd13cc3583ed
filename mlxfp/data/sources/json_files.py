"""JSON lines: one object per line."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import Example, RecordBatch, Schema, one_chunk
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import DataError
from mlxfp.data.sources.column_types import as_types, settled, type_code
from mlxfp.data.sources.files import Paths, packed
from mlxfp.data.sources.line_files import Fault, LineSource, Opening, fails, first_failure, guard, shorten

DEEPEST = 64  # levels of a line, as many as Arrow writes to files; on 100,000 its parser overflows the stack
_SHORT = 1024  # bytes; a shorter line has too few levels to overflow a stack, so its levels are not counted

_LF, _CR, _OPENS, _CLOSES = b"\n\r{}"
_FOLD = 32  # turns [ and ] into { and }, and no other byte into these


def read_jsonl(path: Paths, *, schema: Mapping[str, pa.DataType] | None = None) -> Dataset[Example]:
    r"""Read JSON lines, lazily: one path, several, a pattern such as `"data/*.jsonl"`, or a folder; gzip and zstd by suffix.

    Each line is an object. The columns are the keys of the lines in the first block, about 1 MB of the first file; nested objects become
    struct columns, arrays become list columns, missing keys become null. Dates stay text. `schema` declares columns that occur only later,
    and types other than the inferred ones, as in `{"score": pa.float64()}`. Blank lines are skipped. Remote files are named by an address,
    as in `s3://bucket/a.jsonl` or `https://...`, with the extra `remote` (fsspec).

    Memory holds about one block, whatever the size of a file, and resuming starts at a block. Reading raises `DataError` naming file and
    line for a line that is not a JSON object, a value that does not fit its column, a key that is not a column, or text that is not UTF-8;
    and `MissingFileError` where a path matches no file.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text('{"text": "good", "tags": ["a"]}\n{"text": "bad"}\n')
    ...     for row in read_jsonl(Path(folder, "a.jsonl")):
    ...         print(row)
    {'text': 'good', 'tags': ['a']}
    {'text': 'bad', 'tags': None}

    See also: `read_csv`, `read_text`.
    """
    return Dataset(_ReadJsonl(path, types=as_types(schema)))


@frozen(repr=False)
class _ReadJsonl(LineSource):
    suffixes = packed(".jsonl", ".ndjson")

    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        try:
            return self._parse_lines(data, schema)
        except pa.ArrowInvalid as error:
            return self._fault(data, schema, error)

    def finished(self, schema: Schema, path: str) -> Schema:
        if not schema.names:
            raise DataError(f"The columns cannot be inferred: got no key in {path}, nor in the files after it. Declare them with schema=.")
        return super().finished(schema, path)

    def _parse_lines(self, data: bytes, schema: Schema | None) -> RecordBatch:
        count = _count_objects(data)
        chunk = _parse_json(data, pa.schema(self.types) if schema is None else schema, "infer" if schema is None else "error")
        if chunk.num_rows != count or (schema is None and any(_levels(kind) > DEEPEST for kind in chunk.schema.types)):
            raise pa.ArrowInvalid("a line is not one object, or it is nested too deep")
        return chunk if schema is not None else _in_order_of_keys(chunk, data)

    def _fault(self, data: bytes, schema: Schema | None, error: Exception) -> Fault:
        """Find the first line that cannot be parsed, and why. Slower than parsing, so it runs only after parsing has failed."""
        ends = [*(newline.end() for newline in re.finditer(rb"\n", data)), len(data)]
        start, end = first_failure(ends, lambda stop: self._parse_lines(data[:stop], schema))
        levels = depth(data[start:end])
        if levels > DEEPEST:
            return Fault(start, f"A line is nested too deep: got {levels:,} levels, more than {DEEPEST}", "Flatten it, or remove it.")
        line = data[start:end].decode().strip()
        known = self._parse_lines(data[:start], None).schema if schema is None else schema
        reason = str(error).partition(" in row ")[0]  # row numbers in the block, which mean nothing to a user
        unknown = f"A line cannot be read ({reason}): got {shorten(line)}", "Correct it."
        return Fault(start, *(_explain(line, known, more_keys=schema is None) or unknown))


def _parse_json(data: bytes, schema: Schema, other_keys: str) -> RecordBatch:
    guarded = guard(data)
    return one_chunk(
        arrow_json.read_json(
            pa.BufferReader(guarded),
            read_options=arrow_json.ReadOptions(block_size=len(guarded) + 1, use_threads=False),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other_keys),
        )
    )


def _count_objects(data: bytes) -> int:
    """Return the number of lines that are not blank; raise unless each begins and ends as an object does, and none is nested too deep.

    Arrow also accepts null, several objects in a line, and one over several lines. Of two lines like these, the second one cannot go on
    inside the first one, so it is enough to count the levels of each.
    """
    codes = np.frombuffer(data, np.uint8)
    stops = np.flatnonzero(codes == _LF)
    stops = stops if data.endswith(b"\n") else np.append(stops, len(codes))
    starts = np.concatenate([[0], stops[:-1] + 1])
    if len(codes) and (codes[starts] == _OPENS).all():
        last = stops - 1
        last -= codes[last] == _CR
        if (codes[last] == _CLOSES).all():  # nearly all files pass this quick test
            _check_depth(data, codes, starts, stops)
            return len(starts)
    lines = [line for each in data.split(b"\n") if (line := each.strip(b" \t\r"))]
    if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines) or depth(b"".join(lines)) > DEEPEST:
        raise pa.ArrowInvalid("a line is not one object, or it is nested too deep")
    return len(lines)


def _check_depth(data: bytes, codes: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
    """Raise if a line is nested too deep: only lines that have more than `DEEPEST` opening brackets can be."""
    longest = int((stops - starts).max())
    if longest <= _SHORT:
        return
    opens = np.flatnonzero((codes | _FOLD) == _OPENS)
    first = opens[:-DEEPEST][opens[DEEPEST:] - opens[:-DEEPEST] < longest]  # others are in a later line when `DEEPEST` more have come
    which = np.unique(np.searchsorted(starts, first, "right") - 1)
    # In a line that is not JSON, brackets may not match: levels are wrong from there on, but Arrow does not read on from there, either.
    if depth(b"".join(data[start:stop] for start, stop in zip(starts[which].tolist(), stops[which].tolist(), strict=True))) > DEEPEST:
        raise pa.ArrowInvalid("a line is nested too deep")


def depth(line: bytes) -> int:
    """Return how many levels of arrays and objects a line has: brackets in strings do not count."""
    outside = b"".join(line.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    codes = np.frombuffer(outside, np.uint8) | _FOLD
    return int(np.cumsum((codes == _OPENS).astype(np.int64) - (codes == _CLOSES)).max(initial=0))


def _levels(kind: pa.DataType) -> int:
    """Return how many levels a type has; without recursion, for it may have thousands."""
    kinds, levels = [kind], 0
    while kinds:
        kinds, levels = [within.field(place).type for within in kinds for place in range(within.num_fields)], levels + 1
    return levels


def _in_order_of_keys(chunk: RecordBatch, data: bytes) -> RecordBatch:
    """Order columns as in the first line; Arrow puts declared ones first."""
    first = _parse_json(data.lstrip().partition(b"\n")[0], pa.schema([]), "infer")
    return chunk.select(list(dict.fromkeys([*first.schema.names, *chunk.schema.names])))


def _explain(line: str, known: Schema, *, more_keys: bool) -> tuple[str, str] | None:
    """Say what is wrong with a line and what to do; None if that is not known."""
    got = f"got {shorten(line)}"
    try:
        found = json.loads(line)
    except ValueError as error:
        return f"A line is not JSON ({error}): {got}", "Write one JSON object per line."
    if not isinstance(found, dict):
        return f"A line is not a JSON object: {got}", 'Write one object per line, as in {"text": ...}.'
    for key, value in found.items():
        kind = _infer_type(key, value)
        if kind is None or (more_keys and key not in known.names):
            continue
        if key not in known.names:
            declared = f"schema={{{key!r}: {type_code(kind)}}}"
            return f"A key is not a column: got {key!r}, not one of {shorten(known.names)}", f"Declare it, as in {declared}, or remove it."
        expected = known.field(key).type
        if not _fits(key, value, expected):
            what = f"A value does not fit the column {key!r} of {expected}: got {shorten(value)}"
            return what, _cure(key, expected, kind)
    return None


def _infer_type(key: str, value: Any) -> pa.DataType | None:
    try:
        return settled(_parse_json(json.dumps({key: value}).encode(), pa.schema([]), "infer").schema.field(0).type)
    except pa.ArrowInvalid:
        return None


def _fits(key: str, value: Any, kind: pa.DataType) -> bool:
    return not fails(lambda: _parse_json(json.dumps({key: value}).encode(), pa.schema([(key, kind)]), "error"))


def _cure(key: str, expected: pa.DataType, found: pa.DataType) -> str:
    kinds = [pa.schema([(key, kind)]) for kind in (expected, found)]
    try:
        both = pa.unify_schemas(kinds, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        both = expected
    taken_for_text = both == expected and pa.string() in (expected, getattr(expected, "value_type", None))
    if both == expected and not taken_for_text:
        return "Make the values of a column one type."
    declared = f"Declare the type, as in schema={{{key!r}: {type_code(found if taken_for_text else both)}}}"
    return f"{declared}{', if all earlier values are null' * taken_for_text}, or make the values of a column one type."
