"""JSON lines: one object per line."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json
from attrs import frozen

from mlxfp.core.chunks import Example, RecordBatch, Schema, one_chunk
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import DataError
from mlxfp.data.sources.files import Paths, packed
from mlxfp.data.sources.line_files import Fault, LineSource, Opening, as_types, fails, first_failure, guard, settled, shorten, type_code

_STARTS_WITH_NULL = re.compile(rb"\s*null")
_NOT_AN_OBJECT = re.compile(rb"^[ \t\r]*[^\s{]", re.MULTILINE)  # a line that is not blank and does not begin with a brace
_LINE = re.compile(rb"^[ \t\r]*\S", re.MULTILINE)


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
        if _STARTS_WITH_NULL.match(data):
            raise pa.ArrowInvalid("null is not an object")  # Arrow 26 crashes on it
        chunk = _parse_json(data, pa.schema(self.types) if schema is None else schema, "infer" if schema is None else "error")
        _check_one_object_per_line(data, chunk.num_rows)
        return chunk if schema is not None else _in_order_of_keys(chunk, data)

    def _fault(self, data: bytes, schema: Schema | None, error: Exception) -> Fault:
        """Find the first line that cannot be parsed, and why. Slower than parsing, so it runs only after parsing has failed."""
        ends = [*(newline.end() for newline in re.finditer(rb"\n", data)), len(data)]
        start, end = first_failure(ends, lambda stop: self._parse_lines(data[:stop], schema))
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


def _check_one_object_per_line(data: bytes, rows: int) -> None:
    """Raise unless each line that is not blank is one object: Arrow also accepts several in a line, one over several lines, and null."""
    codes = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(codes == ord("\n")) + 1
    starts = np.concatenate([[0], starts[starts < len(codes)]])
    if len(starts) == rows and (codes[starts] == ord("{")).all():
        return  # nearly all files pass this quick test
    if _NOT_AN_OBJECT.search(data) or len(_LINE.findall(data)) != rows:
        raise pa.ArrowInvalid("a line is not one object")


def _in_order_of_keys(chunk: RecordBatch, data: bytes) -> RecordBatch:
    """Order columns as in the first line; Arrow puts declared ones first."""
    first = _parse_json(data.lstrip().partition(b"\n")[0], pa.schema([]), "infer")
    return chunk.select(list(dict.fromkeys([*first.schema.names, *chunk.schema.names])))


def _explain(line: str, known: Schema, *, more_keys: bool) -> tuple[str, str] | None:
    """Say what is wrong with a line and what to do; None if that is not known."""
    got = f"got {shorten(line)}"
    try:
        found = json.loads(line)
    except RecursionError:
        return None
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
