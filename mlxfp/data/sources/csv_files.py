"""CSV files and other text tables with a delimiter."""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.exact_casts import hexadecimal, rounds_texts
from mlxfp.core.chunks import Example, RecordBatch, Schema, one_chunk
from mlxfp.core.datasets import Dataset
from mlxfp.core.sources import SourceTraits
from mlxfp.data.file_contents import as_encoding, other_reader
from mlxfp.data.sources.columns import SCAN, Declared, as_columns, as_types, check_names, joined_type, rounding_columns
from mlxfp.data.sources.files import BLOCK, Paths, blocks
from mlxfp.data.sources.line_files import LineSource
from mlxfp.data.sources.records.csv_headers import DELIMITERS, check_comment, next_records, other_delimiter
from mlxfp.data.sources.records.csv_quotes import filled_record_ends, last_record_end, open_quote, record_ends, split_fields
from mlxfp.data.sources.records.csv_types import (
    TIMES,
    date_notes,
    has_hexadecimal,
    is_early,
    missing_hint,
    short_columns,
    suggested_type,
    with_digits,
)
from mlxfp.data.sources.records.json_lines import as_object
from mlxfp.data.sources.records.line_blocks import Block, Fault, Opening, count_lines, fails, first_failure, guard, shorten
from mlxfp.data.sources.records.parsing import data_error, find_fault
from mlxfp.support.arrow_types import type_code
from mlxfp.support.checks import as_strings, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, MlxfpError, unknown_name
from mlxfp.support.file_formats import NULL_VALUES, with_compressions
from mlxfp.support.formatted_numbers import first_leading_zero, gap_notes, have_leading_zeros, have_only_commas, number_notes

_LOSSY = "a number is hexadecimal, or too long or too large for floats, or a date is before the year 1"
_EXCEL = re.compile(rb"(?i:sep)=(.)\r?\n")  # first line `sep=;`, by which Excel names the delimiter
_HEADER_BLOCK = 1 << 16  # bytes read to find the header of a file


@explain_call
def read_csv(  # noqa: PLR0913  # all but the path have defaults and are keyword-only
    path: Paths,
    *,
    delimiter: str = ",",
    quote: str | None = '"',
    columns: Sequence[str] | None = None,
    schema: Declared = None,
    null_values: Sequence[str] = NULL_VALUES,
    decimal: str = ".",
    encoding: str = "utf-8",
) -> Dataset[Example]:
    r"""Read CSV files lazily.

    `path` is a path, several paths, a pattern such as `"data/*.csv"`, or a folder. Compression (gzip, zstd, zip) is detected by suffix.
    Remote files need the extra `remote` (fsspec) and an address such as `s3://bucket/a.csv` or `https://...`. Several files need the same
    columns, in any order.

    The first record is the header with the column names. An empty name becomes `column_<n>`. For files without a header, give the names
    with `columns`.

    Types are inferred from the first block, about 1 MB of the first file: int64, float64, bool, date32 (2024-03-05), timestamp
    (2024-03-05 12:30, with or without seconds and a fraction) or string. Other dates, dates with a time zone, integers too long for
    int64, and hexadecimal numbers such as 0xFF stay text. If the first block has integers with leading zeros, such as the ZIP code
    01234, the column stays text as well. If all integers of the first block have the same number of digits, leading zeros in a later
    block raise `DataError`. Other columns of integers lose leading zeros of later blocks. `schema` declares the types of some columns,
    for example `{"month": pa.int64()}` for the months 01 to 12.
    `schema="scan"` reads all files once, in threads, before the first row, and finds types that fit every record.

    Values in `null_values` are null, quoted or not, also in text columns. The list replaces the default values. Add "" to keep empty cells
    null: `null_values=["", "k.A.", "-"]`. Blank lines are skipped. `quote=None` reads quotes as text,
    `delimiter="\t"` reads tab-separated files, `delimiter=";", decimal=","` reads numbers such as 12,5, and `encoding="cp1252"` reads
    Windows files. `fp.explain` names text columns of formatted numbers, such as €1,234.50 or 4.9 kg, and shows the conversion. If a few
    words, such as "-" or "unknown", make a column of numbers a text column, `fp.explain` shows the argument `null_values`.

    Files of any size need about one block of at most 4 MB in memory. A resumed run starts reading at the beginning of a block. Raises
    `ArgumentError` for a delimiter, quote or decimal mark other than one ASCII character. Reading raises

    - `DataError` with file and line for a value that does not fit its column, a wrong number of fields, a header with another delimiter, a
      comment line above the header, an unclosed quote, text in another encoding, or a file without a header,
    - `SchemaError` for files with different columns,
    - `UnknownNameError` for an unknown column in `schema`,
    - `MissingFileError` if no file matches a path.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("name,age\n\"Braund, Mr. Owen\",22\nMr. Moran,\n")
    ...     for row in read_csv(Path(folder, "a.csv")):
    ...         print(row)
    {'name': 'Braund, Mr. Owen', 'age': 22}
    {'name': 'Mr. Moran', 'age': None}

    See also: `read_jsonl`, `read_parquet`.
    """
    check_text(delimiter=delimiter, decimal=decimal, encoding=encoding)
    check_types((str, type(None)), quote=quote)
    for name, mark in (("delimiter", delimiter), ("quote", quote), ("decimal", decimal)):
        if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in "\r\n"):
            raise ArgumentError(f"{name} must be one ASCII character other than a newline, got {name}={mark!r}.")
    if delimiter == quote:
        raise ArgumentError(f"delimiter and quote must differ, got {delimiter!r} for both.")
    if decimal in (delimiter, quote):
        raise ArgumentError(
            f"decimal must differ from delimiter and quote, got decimal={decimal!r} and delimiter={delimiter!r}. "
            'Files with decimal commas usually have delimiter=";".'
        )
    names = as_columns(columns)
    if names is not None:
        check_names(names, "columns=")
    nulls = as_strings("null_values", null_values, unique=False)
    read = partial(_ReadCsv, types=as_types(schema), scan=schema == SCAN, encoding=as_encoding(encoding))
    return Dataset(read(path, delimiter, quote, names, nulls, decimal))


@frozen(repr=False)
class _ReadCsv(LineSource):
    delimiter: str = ","
    quote: str | None = '"'
    columns: tuple[str, ...] | None = None
    null_values: tuple[str, ...] = NULL_VALUES
    decimal: str = "."
    suffixes = with_compressions(".csv", ".tsv")
    transcoding = (
        "Give the encoding, for example encoding='cp1252' (in a spec: encoding: 'cp1252'; for mlxfp data infer: --encoding 'cp1252'), or "
        f"{LineSource.transcoding[0].lower()}{LineSource.transcoding[1:]}"
    )

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, restricted=lambda columns, conditions: attrs.evolve(self, kept=tuple(columns)))

    def cut(self, data: bytes) -> int:
        return last_record_end(data, self.delimiter, self.quote)

    def record_ends(self, data: bytes) -> NDArray[np.int64]:
        return record_ends(data, self.delimiter, self.quote)

    def filled_ends(self, data: bytes) -> NDArray[np.int64]:
        return filled_record_ends(data, self.delimiter, self.quote)

    def opening(self, path: str) -> Opening:
        start = super().opening(path)
        return self._header(path, start) if self.columns is None else attrs.evolve(start, names=self.columns)

    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        kinds = dict(self.types) if schema is None else dict(zip(schema.names, schema.types, strict=True))
        try:
            chunk = self._table(data, opening.names, kinds, () if schema is None else schema.names)
            lossy = self._lossy(chunk, data, opening.names)
            if not kinds.keys().isdisjoint(lossy):
                return self._fault(data, opening.names, kinds)
            if schema is not None:
                short = short_columns(chunk, schema)
                return (self._lost_zeros(short, data, opening.names) if short else None) or chunk
            integers = [column.name for column in chunk.schema if pa.types.is_integer(column.type) and column.name not in kinds]
            codes = self._codes(integers, data, opening.names)
            retyped = dict.fromkeys([*lossy, *codes], pa.string()) | self._fractions(chunk, data, opening.names)
            chunk = self._table(data, opening.names, kinds | retyped) if retyped else chunk
            return with_digits(chunk, [name for name in integers if name not in retyped])
        except pa.ArrowInvalid:
            return self._fault(data, opening.names, kinds)

    def settled(self, kind: pa.DataType, null: pa.DataType | None = None) -> pa.DataType:
        return kind if pa.types.is_date32(kind) or kind in TIMES else super().settled(kind, null)

    def joined(self, first: pa.DataType, second: pa.DataType) -> pa.DataType:
        common = joined_type(first, second)
        return pa.string() if common is None else common  # Values without a common type stay text.

    def notes(self) -> tuple[str, ...]:
        """Return notes for `explain`. The notes name text columns of the first block that look like dates or numbers."""
        texts = [*super().notes()]
        if self.kept is not None:  # The planner calls `notes` on a source with selected columns. Such a call must not read the file.
            return tuple(texts)
        with suppress(MlxfpError):
            chunk = next((chunk for chunk, _ in self.read(0, None)), None)
            declared = dict(self.types)
            columns = {} if chunk is None else dict(zip(chunk.schema.names, chunk.columns, strict=True))
            columns = {name: values for name, values in columns.items() if name not in declared and pa.types.is_string(values.type)}
            texts += gap_notes(columns, self.null_values)
            for name, values in columns.items():
                texts += [*date_notes(name, values), *number_notes(name, values, ",." if self.delimiter == ";" else ".,")]
        return tuple(texts)

    def finished(self, schema: Schema, path: str) -> Schema:
        names = dict.fromkeys(schema.names)  # A dict is faster than a list for look-ups among thousands of names.
        for name, _ in self.types:
            if name not in names:
                raise unknown_name(f"column of {path}", name, names)
        return super().finished(schema, path)

    def unended(self, data: bytes) -> Fault | None:
        if (offset := open_quote(data, self.delimiter, self.quote)) is None:
            return None
        return Fault(
            offset,
            f"A quote is never closed: got {shorten(data[offset:].decode())}",
            "Close the quote, or read quotes as text with quote=None.",
        )

    def _header(self, path: str, start: Opening) -> Opening:
        """Read the header: the first record that is not blank."""
        offset, line = start.offset, start.line
        for data, end in blocks(path, offset, self.cut, _HEADER_BLOCK):
            records = data.lstrip(b"\r\n")
            if line_of_excel := _EXCEL.match(records):
                self._check_delimiter(line_of_excel[1].decode(), path)
                records = records[line_of_excel.end() :].lstrip(b"\r\n")
            blank = data[: len(data) - len(records)]
            offset, line = offset + len(blank), line + count_lines(blank)
            if records:
                if as_object(records.partition(b"\n")[0]):
                    raise other_reader("JSON", "read_jsonl", records, path)
                header = records[: next(iter(record_ends(records, self.delimiter, self.quote)), len(records))]
                text = self.as_utf8(header)
                block = Block(text, start, path, line, line, end if header == records else len(header))
                if (fault := find_fault(self, block)) is not None:
                    raise data_error(fault, block)
                if b"\x00" in header:
                    raise DataError(
                        f"The header has NUL characters: got {shorten(text.decode())}, in line {line} of {path}. Remove these characters: "
                        f"tr -d '\\000' < {quote(path)} > {quote(str(Path(path).with_stem('converted')))}"
                    )
                fields = split_fields(text.decode(), self.delimiter, self.quote)
                names = tuple(name or f"column_{number}" for number, name in enumerate(fields, 1))
                check_names(names, path)
                if len(names) == 1 and (other := other_delimiter(records, self.quote)):
                    raise DataError(
                        f"A file has one column, but its header looks like several: got {shorten(names[0])}, in line {line} of {path}. "
                        f"Give delimiter={other!r}, or rename the column."
                    )
                if names[0].startswith("#"):
                    below = Block(self.as_utf8(records[len(header) :]), start, path, line + count_lines(header), 0, end)
                    check_comment(text.decode(), below, (self.delimiter, self.quote, self.decimal), self.null_values)
                return Opening(offset + len(header), line + count_lines(header), names)
        raise DataError(
            f"A file has no header: got {offset:,} bytes without a record, in {path}. Name the columns with columns=, or delete the file."
        )

    def _check_delimiter(self, named: str, path: str) -> None:
        if named != self.delimiter:
            raise DataError(
                f"The first line names another delimiter: got 'sep={named}', in line 1 of {path}. Give delimiter={named!r}, or remove "
                "the line."
            )

    def _fault(self, data: bytes, names: Sequence[str], kinds: dict[str, pa.DataType]) -> Fault:
        """Return the first invalid record with the reason.

        The search is slower than parsing and is therefore only used after parsing has failed.
        """
        ends = [*record_ends(data, self.delimiter, self.quote).tolist(), len(data)]
        start, end = first_failure(ends, lambda stop: self._checked(data[:stop], names, kinds))
        record = data[start:end]
        fields = split_fields(record.decode(), self.delimiter, self.quote)
        if len(fields) != len(names):
            if self.columns is None and self._count_alike(data[end:], len(fields)):
                header_fault = self._header_fault(names, fields, record.decode())
                if header_fault is not None:
                    return Fault(start, *header_fault)
            problem = f"A record has {len(fields)} fields, but there are {len(names)} columns: got {shorten(record.decode())}"
            other = next((mark for mark in DELIMITERS if len(split_fields(record.decode(), mark, self.quote)) == len(names) > 1), None)
            remedy = (
                f"Quote fields that hold {self.delimiter!r}"
                if other is None
                else f"Give delimiter={other!r}, which makes {len(names)} fields"
            )
            return Fault(start, problem, f"{remedy}, or correct the record.")
        typed = [(name, text) for name, text in zip(names, fields, strict=True) if name in kinds]
        parsers = {name: partial(self._checked, record, names, {name: kinds[name]}, [name]) for name, _ in typed}
        name, text = next((name, text) for name, text in typed if fails(parsers[name]))
        problem = f"A value does not fit the column {name!r} of {kinds[name]}: got {shorten(text)}"
        if self.decimal == "." and pa.types.is_floating(kinds[name]) and "," in text and have_only_commas(pa.array([text])):
            return Fault(start, problem, f"Read decimal commas with decimal=',', or write {text.replace(',', '.')} in the file.")
        times = (*TIMES, pa.timestamp("ns")) if pa.types.is_date(kinds[name]) or kinds[name] in TIMES else ()
        fitting = self._first_fitting(times, record, names, name) if times else suggested_type(text.replace(self.decimal, "."))
        spec = " (in a spec: type: categorical)" if fitting == pa.string() else ""
        missing = missing_hint(text, kinds[name], self.null_values)
        return Fault(
            start, problem, f"{missing}Declare another type with schema={{{name!r}: {type_code(fitting)}}}{spec}, or correct the value."
        )

    def _count_alike(self, data: bytes, count: int) -> bool:
        """Return True if each of the next 20 records has `count` fields. Returns False if no record follows."""
        return {len(fields) for fields in next_records(data, self.delimiter, self.quote)} == {count}

    def _header_fault(self, names: Sequence[str], fields: Sequence[str], record: str) -> tuple[str, str] | None:
        """Return the problem and the remedy if the header is probably the cause of an error. Return None if the cause is elsewhere."""
        counts = f"{len(fields)} fields where there are {len(names)} columns: got {shorten(record)}"
        other = next((mark for mark in DELIMITERS if len(split_fields(names[0], mark, self.quote)) == len(fields)), None)
        if len(names) == 1 and other is not None:
            return f"The header has {other!r} between names, and records have {counts}", f"Write the header with {self.delimiter!r}."
        if len(names) == 1 or names[0].startswith("#"):
            return f"A record below {shorten(names[0])} has {counts}", "If this line is the header, remove the lines above it."
        if len(fields) == len(names) + 1 and not fields[-1]:
            return f"Records end with {self.delimiter!r} and the header does not: {counts}", f"Write {self.delimiter!r} after the header."
        if len(fields) == len(names) + 1:
            return (
                f"Records have one field more than the header, as row names of R: {counts}",
                "Begin the header with a name for this column, or write the file with row.names = FALSE.",
            )
        return None

    def _checked(self, data: bytes, names: Sequence[str], kinds: dict[str, pa.DataType], wanted: Sequence[str] = ()) -> None:
        """Raise `ArrowInvalid` if a value does not fit the type of its column. `kinds` maps column names to types."""
        if not kinds.keys().isdisjoint(self._lossy(self._table(data, names, kinds, wanted), data, names)):
            raise pa.ArrowInvalid(_LOSSY)

    def _lossy(self, chunk: RecordBatch, data: bytes, names: Sequence[str]) -> list[str]:
        """Return the columns whose inferred type cannot hold all values in `data`.

        Three cases exist: a float column with a long integer (usually an identifier), a column with a date before the year 1, and a
        column of integers with a hexadecimal number.
        """
        rounding = rounding_columns(chunk)
        integers = [column.name for column in chunk.schema if pa.types.is_integer(column.type)] if has_hexadecimal(data) else []
        wanted = [*rounding, *integers]
        texts = self._table(data, names, dict.fromkeys(wanted, pa.string()), wanted) if wanted else chunk
        early = [column.name for column, values in zip(chunk.schema, chunk.columns, strict=True) if is_early(values)]
        codes = [name for name in integers if pc.any(hexadecimal(texts.column(name))).as_py()]
        return [*early, *codes, *(name for name in rounding if rounds_texts(texts.column(name), chunk.column(name)))]

    def _codes(self, integers: Sequence[str], data: bytes, names: Sequence[str]) -> list[str]:
        """Return the columns in `integers` with leading zeros in the file, such as ZIP codes."""
        if not integers:
            return []
        texts = self._table(data, names, dict.fromkeys(integers, pa.string()), integers)
        return [name for name in integers if have_leading_zeros(texts.column(name))]

    def _lost_zeros(self, integers: Sequence[str], data: bytes, names: Sequence[str]) -> Fault | None:
        """Return a fault for the first integer with leading zeros in one of the columns `integers`, or None."""
        texts = self._table(data, names, dict.fromkeys(integers, pa.string()), integers)
        for name, column in zip(integers, texts.columns, strict=True):
            row = first_leading_zero(column)
            if row >= 0:
                end = int(self.filled_ends(data)[row - 1]) if row else 0
                start = len(data) - len(data[end:].lstrip(b"\r\n"))  # skips blank lines
                return Fault(
                    start,
                    f"A column of integers would lose leading zeros: got {shorten(column[row].as_py())} in the column {name!r} of int64",
                    f"Declare text with schema={{{name!r}: pa.string()}} (in a spec: type: categorical), or declare numbers with "
                    f'schema={{{name!r}: pa.int64()}}. schema="scan" finds codes in all files.',
                )
        return None

    def _fractions(self, chunk: RecordBatch, data: bytes, names: Sequence[str]) -> dict[str, pa.DataType]:
        """Return new types, by column name, for the columns that Arrow inferred as timestamps in nanoseconds.

        Each new type is a timestamp with the coarsest unit that represents all values exactly, or string if no unit does.
        """
        declared = dict(self.types)
        nanoseconds = [column.name for column in chunk.schema if column.type == pa.timestamp("ns") and column.name not in declared]
        return {name: self._first_fitting(TIMES, data, names, name) for name in nanoseconds}

    def _first_fitting(self, kinds: Sequence[pa.DataType], data: bytes, names: Sequence[str], name: str) -> pa.DataType:
        """Return the first type in `kinds` that can hold all values of the column `name`. Returns string if no type fits."""
        return next((kind for kind in kinds if not fails(partial(self._checked, data, names, {name: kind}, [name]))), pa.string())

    def _table(self, data: bytes, names: Sequence[str], kinds: dict[str, pa.DataType], wanted: Sequence[str] = ()) -> RecordBatch:
        """Parse records with the columns `names`. Return the columns `wanted`, or all columns if `wanted` is empty."""
        guarded = guard(data)
        table = arrow_csv.read_csv(
            pa.BufferReader(guarded),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=len(guarded) + 1, use_threads=len(guarded) > BLOCK),
            parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote or False, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                check_utf8=False,  # `find_fault` has already checked the encoding
                column_types=kinds,
                include_columns=wanted,
                null_values=self.null_values,
                strings_can_be_null=True,
                decimal_point=self.decimal,
            ),
        )
        return one_chunk(table)
