"""Reader of JSON lines files, which hold one JSON object per line."""

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

from mlxfp.core.arrow.exact_casts import cast_exactly
from mlxfp.core.arrow.exact_values import loses
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
    lossy_keys,
    object_ends,
    with_texts,
)
from mlxfp.data.sources.records.line_blocks import Fault, Opening, fails, first_failure, guard, shorten
from mlxfp.support.arrow_types import TEXT_OF_JSON, has_times, is_list, schema_code
from mlxfp.support.checks import as_strings, check_choice, explain_call
from mlxfp.support.errors import DataError
from mlxfp.support.file_formats import with_compressions

Unknown = Literal["raise", "ignore"]

_LOSSY = "a number is too long or too large for floats"
_WHOLE_FILE = re.compile(r"\[\s*[{\]]|\{[\"}]$")  # matches the start of a file that is a single JSON array or a single JSON object
# Pattern of an escaped surrogate without the other surrogate of its pair.
_HALF = re.compile(r"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})")
_KEEP_AS_TEXT = "Convert the values to one type, or keep the column as JSON text with {declared}."


@explain_call
def read_jsonl(path: Paths, *, schema: Declared = None, json_columns: Sequence[str] = (), unknown: Unknown = "raise") -> Dataset[Example]:
    r"""Read JSON lines files lazily.

    `path` is a path, several paths, a pattern such as `"data/*.jsonl"`, or a folder. Compression (gzip, zstd, zip) is detected by
    suffix. Remote files need the extra `remote` (fsspec) and an address such as `s3://bucket/a.jsonl` or `https://...`.

    Each line holds an object. The columns are the keys in the first block, about 1 MB of the first file. Nested objects become struct
    columns, arrays become list columns, and missing keys become null. Dates stay text, and so do integers too long for int64. Blank
    lines are skipped.

    `schema` declares columns missing from the first block, and types that replace the inferred types, for example `{"score":
    pa.float64()}`. Declared dates and timestamps are read from text, such as "2024-03-05". `schema="scan"` reads all files once, in
    threads, before the first row, and finds columns and types that fit every line. `explain` then prints these types as code for the
    argument `schema`.

    Columns named in `json_columns` keep values of any shape as JSON text, with the Arrow type `pa.json_()`. `unknown="ignore"` drops keys
    without a column, at any depth, instead of raising an error.

    Files of any size need about one block of at most 4 MB in memory. A resumed run starts reading at the beginning of a block. Reading
    raises

    - `DataError` with file and line for a line that is not a JSON object or has more than 64 levels, a value that does not fit its
      column, a key without a column, or text that is not UTF-8,
    - `SchemaError` with both lines if a scan finds values without a common type,
    - `MissingFileError` if no file matches a path.

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
            raise DataError(
                f"Columns cannot be inferred, because no JSON object in {path} or a later file has a key. Declare the columns, "
                "as in schema={'x': pa.int64()}."
            )
        return super().finished(schema, path)

    def conflicts_at(self, data: bytes, name: str, kind: pa.DataType) -> int:
        for line in re.finditer(rb"[^\n]+", data):
            value = as_object(line[0]).get(name)
            kind_of_value = None if value is None else _infer_type(name, value)
            if kind_of_value is not None and joined_type(kind_of_value, kind) is None:
                return line.start()
        return 0

    def _parse_lines(self, data: bytes, schema: Schema | None) -> RecordBatch:
        count, infers = count_objects(data), schema is None
        kinds = pa.schema(self.types) if schema is None else schema
        texts = [column.name for column in kinds if column.type == TEXT_OF_JSON]
        other_keys = "infer" if infers else "error" if self.unknown == "raise" else "ignore"
        lines = "\n".join(with_texts(line, texts) for line in data.decode().split("\n")).encode() if texts else data
        chunk = _parse_exactly(lines, shown(kinds), other_keys)
        if chunk.num_rows != count or (infers and any(levels_of(kind) > DEEPEST for kind in chunk.schema.types)):
            raise pa.ArrowInvalid("a line is not a single JSON object, or is nested too deeply")
        rounding = rounding_columns(chunk)
        if rounding and (long := lossy_keys(data, rounding)):
            if not long.isdisjoint(kinds.names) or any(pa.types.is_nested(rounding[name]) for name in long):
                raise pa.ArrowInvalid(_LOSSY)
            as_text = attrs.evolve(self, types=(*self.types, *((name, TEXT_OF_JSON) for name in sorted(long))))
            return as_text._parse_lines(data, None)  # noqa: SLF001  # private method of this class
        if schema is not None:
            return chunk
        for name in texts:  # the inferred schema has the type of JSON for these columns
            chunk = set_column(chunk, name, pa.ExtensionArray.from_storage(TEXT_OF_JSON, chunk.column(name)))
        # Arrow puts declared columns first. The order of the keys in the first line is the order of the columns.
        first = _parse_json(lines.lstrip().partition(b"\n")[0], pa.schema([]), "infer")
        return chunk.select(list(dict.fromkeys([*first.schema.names, *chunk.schema.names])))

    def _fault(self, data: bytes, schema: Schema | None, error: Exception) -> Fault:
        """Return the first invalid line with the reason.

        The search is slower than parsing and is therefore only used after parsing has failed.
        """
        ends = [*(newline.end() for newline in re.finditer(rb"\n", data)), len(data)]
        start, end = first_failure(ends, lambda stop: self._parse_lines(data[:stop], schema))
        levels = depth(data[start:end])
        if levels > DEEPEST:
            return Fault(start, f"A line is nested too deeply: got {levels:,} levels, more than {DEEPEST}", "Flatten or remove the line.")
        line = data[start:end].decode().strip()
        if not data[:start].strip() and _WHOLE_FILE.match(line + data[end:].decode().lstrip()[:1]):
            kind, call = ("array", "-c '.[]'") if line.startswith("[") else ("object over several lines", "-c .")
            return Fault(
                start,
                f"The file is a JSON {kind}, instead of one object per line: got {shorten(line)}",
                f"Convert the file with jq {call} a.json > a.jsonl, or read the file whole: from_examples(json.load(file)).",
            )
        known = self._parse_lines(data[:start], None).schema if schema is None else schema
        reason = str(error).partition(" in row ")[0]  # Remove the row number: Arrow counts from the start of the block, not of the file.
        if "surrogate pair" in reason and (half := _HALF.search(line)):
            return Fault(start, f"A text has half of a surrogate pair: got {half[0]!r} in {shorten(line)}", "Write \\ufffd in its place.")
        make_fault = _explain(line, known, reason, more_keys=schema is None)
        return (
            make_fault(start) if make_fault else Fault(start, f"A line cannot be read ({reason}): got {shorten(line)}", "Correct the line.")
        )


def _parse_json(data: bytes, schema: Schema, other_keys: str) -> RecordBatch:
    guarded = guard(data)
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=other_keys)
    if len(guarded) > BLOCK and other_keys != "infer":  # To infer types, Arrow must parse all lines in one call.
        # First parse pieces of the block in parallel. After an error, parse the whole block again, for correct row numbers in the error.
        with suppress(pa.ArrowInvalid):
            reading = arrow_json.ReadOptions(block_size=BLOCK)
            return one_chunk(arrow_json.read_json(pa.BufferReader(guarded), read_options=reading, parse_options=options))
    reading = arrow_json.ReadOptions(block_size=len(guarded) + 1, use_threads=False)
    return one_chunk(arrow_json.read_json(pa.BufferReader(guarded), read_options=reading, parse_options=options))


def _parse_exactly(data: bytes, schema: Schema, other_keys: str) -> RecordBatch:
    """Parse lines. Dates and timestamps are parsed as text and then cast. Raises `ArrowInvalid` for a value that the cast would change.

    Arrow itself would drop the zone of a timestamp, read a timestamp without a zone as UTC, and read the date 20240305 as a count of days.
    """
    texts = {column.name: _with_text(column.type) for column in schema if has_times(column.type)}
    chunk = _parse_json(data, pa.schema([column.with_type(texts.get(column.name, column.type)) for column in schema]), other_keys)
    for column in schema:
        if column.name in texts and chunk.column(column.name).type == texts[column.name]:
            chunk = set_column(chunk, column.name, cast_exactly(chunk.column(column.name), column.type))
    return chunk


def _with_text(kind: pa.DataType) -> pa.DataType:
    """Replace the types of dates and timestamps in a type by text, also in nested types."""
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_with_text(member.type)) for member in kind])
    if is_list(kind):
        return pa.list_(_with_text(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind


def _explain(line: str, known: Schema, reason: str, *, more_keys: bool) -> Callable[[int], Fault] | None:  # noqa: C901, PLR0911  # a case each
    """Return a function that makes the `Fault` of an invalid line from the offset of the line. Return None if no problem is found."""
    received = f"got {shorten(line)}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        if "\x00" in line:
            return partial(Fault, problem=f"A line has a NUL character: {received}", remedy="Remove the character, or write \\u0000.")
        remedy = (
            "Write one JSON object per line." if line[:1] in ("{", "[") else "Write one JSON object per line, or read CSV with fp.read_csv."
        )
        return partial(Fault, problem=f"A line is not JSON ({error}): {received}", remedy=remedy)
    if not isinstance(record, dict):
        form = "a JSON array" if isinstance(record, list) else "not a JSON object"
        return partial(Fault, problem=f"A line is {form}: {received}", remedy='Write one object per line, for example {"text": ...}.')
    types = {column.name: column.type for column in known}
    for key, value in record.items():
        kind, expected = _infer_type(key, value), types.get(key)
        if expected == TEXT_OF_JSON:
            continue
        lossy = reason == _LOSSY and (expected is None or loses(value, expected))
        if lossy and holds_long(value):
            problem = f"An integer is too long for float64: got {shorten(value)} in the column {key!r}"
            return partial(Fault, problem=problem, remedy=_remedy(key, value, expected, kind), column=key, kinds=(expected, kind))
        if kind is None and "changed from" in reason:
            problem = f"A value has parts of several types ({reason}): got {shorten(value)} in the column {key!r}"
            return partial(Fault, problem=problem, remedy=_KEEP_AS_TEXT.format(declared=schema_code([(key, TEXT_OF_JSON)])), column=key)
        if kind is None or (more_keys and expected is None):
            continue
        if expected is None:
            problem, remedy = (
                f"A key is not a column: got {key!r}, not one of {shorten(known.names)}",
                f"Declare the column with {schema_code([(key, kind)])}",
            )
            return partial(Fault, problem=problem, remedy=f'{remedy}, or drop unknown keys with unknown="ignore".')
        if lossy or not _fits(key, value, expected):
            problem = f"A value does not fit the column {key!r} of {expected}: got {shorten(value)}"
            return partial(Fault, problem=problem, remedy=_remedy(key, value, expected, kind), column=key, kinds=(expected, kind))
    return None


def _infer_type(key: str, value: Any) -> pa.DataType | None:
    try:
        return settled(_parse_json(json.dumps({key: value}).encode(), pa.schema([]), "infer").schema.field(0).type, pa.null())
    except pa.ArrowInvalid:
        return None


def _fits(key: str, value: Any, kind: pa.DataType) -> bool:
    return not fails(lambda: _parse_exactly(json.dumps({key: value}).encode(), pa.schema([(key, kind)]), "error"))


def _remedy(key: str, value: Any, expected: pa.DataType | None, inferred: pa.DataType | None) -> str:
    declared = schema_code([(key, TEXT_OF_JSON)])
    if holds_long(value) or expected is None or inferred is None:
        return f"Keep the column as JSON text with {declared}."
    if has_times(expected) and _fits(key, value, text := _with_text(expected)):
        return f"Declare another type with {schema_code([(key, text)])}, or correct the value."
    common, was_null = joined_type(expected, inferred), settled(pa.null()) in (expected, getattr(expected, "value_type", None))
    if common is None and was_null:
        wanted = schema_code([(key, settled(inferred))])
        return f'Declare the type with {wanted} if all earlier values are null, or find the type with schema="scan".'
    if common is None or common == expected:
        return _KEEP_AS_TEXT.format(declared=declared)
    return f'Declare the type with {schema_code([(key, settled(common))])}, or find types that fit all lines with schema="scan".'
