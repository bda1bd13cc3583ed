"""JSON lines: one object per line."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import Example, RecordBatch, Schema, one_chunk, set_column
from mlxfp.core.datasets import Dataset
from mlxfp.data.sources.columns import SCAN, Declared, as_types, joined_type, rounding_columns, settled, shown
from mlxfp.data.sources.files import BLOCK, Paths
from mlxfp.data.sources.line_files import LineSource
from mlxfp.data.sources.records.json_lines import (
    DEEPEST,
    as_object,
    count_objects,
    depth,
    holds_long,
    levels_of,
    long_keys,
    object_ends,
    with_texts,
)
from mlxfp.data.sources.records.line_blocks import Fault, Opening, fails, first_failure, guard, shorten
from mlxfp.support.arrow_types import TEXT_OF_JSON, schema_code
from mlxfp.support.checks import as_strings, check_choice, explain_call
from mlxfp.support.errors import DataError
from mlxfp.support.file_formats import with_compressions

Unknown = Literal["raise", "ignore"]

_TOO_LONG = "an integer is too long for float64"
_KEEP_AS_TEXT = "Make the values of a column one type, or keep them as JSON text, as in {declared}."


@explain_call
def read_jsonl(path: Paths, *, schema: Declared = None, json_columns: Sequence[str] = (), unknown: Unknown = "raise") -> Dataset[Example]:
    r"""Read JSON lines, lazily: one path, several, a pattern such as `"data/*.jsonl"`, or a folder; gzip, zstd and zip by suffix.

    Each line is an object. The columns are the keys of the lines in the first block, about 1 MB of the first file; nested objects become
    struct columns, arrays become list columns, missing keys become null. Dates stay text, and so do integers too long for int64. `schema`
    declares columns that occur only later, and types other than the inferred ones, as in `{"score": pa.float64()}`. The `json_columns`
    keep what the line says there, of any shape, as JSON text; in a schema, their type is `pa.json_()`. `schema="scan"` reads all files
    once, in threads, before the first row, and finds the columns and types that fit every line; `explain` prints them as a `schema` to
    paste. `unknown="ignore"` leaves out keys that are not columns, at any depth, instead of stopping at them. Blank lines are skipped.
    Remote files are named by an address, as in `s3://bucket/a.jsonl` or `https://...`, with the extra `remote` (fsspec).

    Memory holds about one block, of at most 4 MB, whatever the size of a file, and resuming starts at a block. Reading raises `DataError`
    naming file and line for a line that is not a JSON object or has more than 64 levels, a value that does not fit its column, a key that
    is not a column, or text that is not UTF-8; `SchemaError` naming both lines where a scan finds values that no type holds; and
    `MissingFileError` where a path matches no file.

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
    check_choice(("raise", "ignore"), unknown=unknown)
    types = dict(as_types(schema)) | dict.fromkeys(as_strings("json_columns", json_columns), TEXT_OF_JSON)
    return Dataset(_ReadJsonl(path, unknown, types=tuple(types.items()), scan=schema == SCAN))


@frozen(repr=False)
class _ReadJsonl(LineSource):
    unknown: Unknown = "raise"
    suffixes = with_compressions(".jsonl", ".ndjson")

    def filled_ends(self, data: bytes) -> NDArray[np.int64] | None:
        return object_ends(data)

    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        try:
            return self._parse_lines(data, schema)
        except pa.ArrowInvalid as error:
            return self._fault(data, schema, error)

    def finished(self, schema: Schema, path: str) -> Schema:
        if not schema.names:
            raise DataError(f"The columns cannot be inferred: got no key in {path}, nor in the files after it. Declare them with schema=.")
        return super().finished(schema, path)

    def conflicts_at(self, data: bytes, name: str, kind: pa.DataType) -> int:
        for line in re.finditer(rb"[^\n]+", data):
            value = as_object(line[0]).get(name)
            found = None if value is None else _infer_type(name, value)
            if found is not None and joined_type(found, kind) is None:
                return line.start()
        return 0

    def _parse_lines(self, data: bytes, schema: Schema | None) -> RecordBatch:
        count, infers = count_objects(data), schema is None
        kinds = pa.schema(self.types) if schema is None else schema
        texts = [each.name for each in kinds if each.type == TEXT_OF_JSON]
        other_keys = "infer" if infers else "error" if self.unknown == "raise" else "ignore"
        lines = with_texts(data, texts) if texts else data
        chunk = _parse_json(lines, shown(kinds), other_keys)
        if chunk.num_rows != count or (infers and any(levels_of(kind) > DEEPEST for kind in chunk.schema.types)):
            raise pa.ArrowInvalid("a line is not one object, or it is nested too deep")
        rounded = rounding_columns(chunk, self.types)
        if rounded and (long := long_keys(data, rounded)):
            if not infers or any(pa.types.is_nested(chunk.schema.field(name).type) for name in long):
                raise pa.ArrowInvalid(_TOO_LONG)
            as_text = attrs.evolve(self, types=(*self.types, *((name, TEXT_OF_JSON) for name in sorted(long))))
            return as_text._parse_lines(data, None)  # noqa: SLF001  # its own method
        return chunk if schema is not None else _as_declared(_in_order_of_keys(chunk, lines), texts)

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
        found = _explain(line, known, reason, more_keys=schema is None)
        return found(start) if found else Fault(start, f"A line cannot be read ({reason}): got {shorten(line)}", "Correct it.")


def _parse_json(data: bytes, schema: Schema, other_keys: str) -> RecordBatch:
    guarded = guard(data)
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other_keys)
    if len(guarded) > BLOCK and other_keys != "infer":  # types are inferred from all lines together
        with suppress(pa.ArrowInvalid):  # a line that is longer than a piece, or wrong: rows have their numbers in the whole then
            reading = arrow_json.ReadOptions(block_size=BLOCK)
            return one_chunk(arrow_json.read_json(pa.BufferReader(guarded), read_options=reading, parse_options=options))
    reading = arrow_json.ReadOptions(block_size=len(guarded) + 1, use_threads=False)
    return one_chunk(arrow_json.read_json(pa.BufferReader(guarded), read_options=reading, parse_options=options))


def _in_order_of_keys(chunk: RecordBatch, data: bytes) -> RecordBatch:
    """Order columns as in the first line; Arrow puts declared ones first."""
    first = _parse_json(data.lstrip().partition(b"\n")[0], pa.schema([]), "infer")
    return chunk.select(list(dict.fromkeys([*first.schema.names, *chunk.schema.names])))


def _as_declared(chunk: RecordBatch, texts: Sequence[str]) -> RecordBatch:
    """Mark the columns that keep JSON as text, so that a schema that is inferred from the chunk has them."""
    for name in texts:
        chunk = set_column(chunk, name, pa.ExtensionArray.from_storage(TEXT_OF_JSON, chunk.column(name)))
    return chunk


def _explain(line: str, known: Schema, reason: str, *, more_keys: bool) -> Callable[[int], Fault] | None:  # noqa: PLR0911  # a case each
    """Say what is wrong with a line and what to do; None if that is not known."""
    got = f"got {shorten(line)}"
    try:
        found = json.loads(line)
    except ValueError as error:
        return partial(Fault, problem=f"A line is not JSON ({error}): {got}", remedy="Write one JSON object per line.")
    if not isinstance(found, dict):
        return partial(Fault, problem=f"A line is not a JSON object: {got}", remedy='Write one object per line, as in {"text": ...}.')
    types = {each.name: each.type for each in known}
    for key, value in found.items():
        kind, expected = _infer_type(key, value), types.get(key)
        if expected == TEXT_OF_JSON:
            continue
        if reason == _TOO_LONG and holds_long(value) and (expected is None or not pa.types.is_int64(expected)):
            problem = f"An integer is too long for float64, which would round it: got {shorten(value)} in the column {key!r}"
            return partial(Fault, problem=problem, remedy=_remedy(key, value, expected, kind), column=key, kinds=(expected, kind))
        if kind is None and "changed from" in reason:
            problem = f"A value has parts of several types ({reason}): got {shorten(value)} in the column {key!r}"
            return partial(Fault, problem=problem, remedy=_KEEP_AS_TEXT.format(declared=schema_code([(key, TEXT_OF_JSON)])), column=key)
        if kind is None or (more_keys and expected is None):
            continue
        if expected is None:
            problem, remedy = (
                f"A key is not a column: got {key!r}, not one of {shorten(known.names)}",
                f"Declare it, as in {schema_code([(key, kind)])}",
            )
            return partial(Fault, problem=problem, remedy=f'{remedy}, or leave out such keys with unknown="ignore".')
        if not _fits(key, value, expected):
            problem = f"A value does not fit the column {key!r} of {expected}: got {shorten(value)}"
            return partial(Fault, problem=problem, remedy=_remedy(key, value, expected, kind), column=key, kinds=(expected, kind))
    return None


def _infer_type(key: str, value: Any) -> pa.DataType | None:
    try:
        return settled(_parse_json(json.dumps({key: value}).encode(), pa.schema([]), "infer").schema.field(0).type, pa.null())
    except pa.ArrowInvalid:
        return None


def _fits(key: str, value: Any, kind: pa.DataType) -> bool:
    return not fails(lambda: _parse_json(json.dumps({key: value}).encode(), pa.schema([(key, kind)]), "error"))


def _remedy(key: str, value: Any, expected: pa.DataType | None, found: pa.DataType | None) -> str:
    declared = schema_code([(key, TEXT_OF_JSON)])
    if holds_long(value) or expected is None or found is None:
        return f"Keep the column as JSON text, as in {declared}."
    both, was_null = joined_type(expected, found), settled(pa.null()) in (expected, getattr(expected, "value_type", None))
    if both is None and was_null:
        wanted = schema_code([(key, settled(found))])
        return f'Declare the type, as in {wanted}, if all earlier values are null, or find it with schema="scan".'
    if both is None or both == expected:
        return _KEEP_AS_TEXT.format(declared=declared)
    return f'Declare the type, as in {schema_code([(key, settled(both))])}, or find those that fit all lines with schema="scan".'
