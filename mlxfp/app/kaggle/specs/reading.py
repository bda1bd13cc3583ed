"""Reading the files of a competition with the column types of a spec."""

import csv
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyarrow import RecordBatch, Schema

from mlxfp import Dataset, RowWise, pipe, read_csv, read_jsonl, read_parquet, schema, take, to_table
from mlxfp.app.kaggle.specs.cells import are_numbers, as_floats, rounded_integers, spell, with_points
from mlxfp.app.kaggle.specs.specs import DatasetSpec, FileSpec
from mlxfp.parts import Example, set_column, set_field, source_rows
from mlxfp.support.arrow_types import is_number_like
from mlxfp.support.checks import check_choice, check_types
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, unknown_name
from mlxfp.support.file_formats import NULL_VALUES, with_compressions

Part = Literal["train", "test", "sample"]
PARTS: tuple[Part, ...] = ("train", "test", "sample")

# Readers of file formats with column types, by suffix. Files with any other suffix are read as CSV, with any delimiter.
TYPED: Mapping[str, Callable[..., Dataset[Example]]] = {
    ".parquet": read_parquet,
    **dict.fromkeys(with_compressions(".jsonl", ".ndjson"), read_jsonl),
}
SUFFIXES = (*with_compressions(".csv", ".tsv"), *TYPED)
_OTHERS = (".json", ".xlsx", ".xls", ".pkl", ".pickle", ".feather", ".h5", ".db", ".sqlite")
_EXCEL = re.compile("(?i:sep)=.$")  # first line by which Excel names the delimiter
_LINES = 20  # number of lines searched for the delimiter
DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "bars"}


def read_part(spec: DatasetSpec, path: str | Path, *, part: Part = "train") -> Dataset[Example]:
    r"""Read the train, test or sample file of a competition lazily, with the types of the spec.

    Numerical columns are float64. Text and categorical columns are strings, exactly as in the file: class 3 is "3", and ids keep
    leading zeros. Targets are strings if the targets are classes, otherwise float64. All columns of the sample file are strings.
    Columns without an entry in the spec have inferred types.

    Missing values in CSV files are the texts in `null_values` of the spec. The default is the null texts of pandas: an empty cell, NA,
    None, null, nan and others. To keep such a text as a value, list the text in `classes` of the target, or in `values` or
    `absent` of the column.

    The suffix selects the format: CSV, Parquet or JSON lines. Numbers and truth values in Parquet and JSON lines become the texts
    that CSV would contain (3, 0.5, True), and only null and NaN are missing.

    The first lines of a CSV file show the delimiter: a comma, a tab, a semicolon or a bar. In a file with semicolons, commas are decimal
    marks: cells such as 12,5 become 12.5 in all columns.

    Raises `MissingFileError` if the file is missing, and `DataError` for other file formats.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> columns = [fp.kaggle.ColumnSpec(name="code", type="categorical"), fp.kaggle.ColumnSpec(name="size", type="numerical")]
    >>> spec = DatasetSpec(name="x", kind="regression", train=FileSpec(name="a.csv"), target=["y"], id="id", columns=columns, metric="mae")
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("id,code,size,y\n007,1,2,3\n")
    ...     next(iter(read_part(spec, folder)))
    {'id': '007', 'code': '1', 'size': 2.0, 'y': 3.0}

    See also: `read_csv`.
    """
    check_types(DatasetSpec, spec=spec)
    check_choice(PARTS, part=part)
    file = part_file(spec, part)
    if file is None:
        raise ArgumentError(f"The spec of {spec.name!r} names no {part} file. Add {part}=FileSpec(name=...), or pass another part=.")
    source = folder_of(path) / file.name
    if not source.is_file():
        raise MissingFileError(f"There is no {part} file at {str(source)!r}. Give the folder that holds the files of {spec.name!r}.")
    if part == "sample":
        typed = typed_reader(source)
        return read_texts(source, null_values=[""], encoding=spec.encoding) if typed is None else _as_texts(typed(source))
    types, typed = _types(spec, part), typed_reader(source)
    if typed is not None:
        return with_types(spec, typed(source), part=part)
    mark, nulls = delimiter_of(source), _null_values(spec, types)
    read = partial(read_csv, source, delimiter=mark, encoding=spec.encoding)
    common = tuple(value for value in spec.null_values if all(value in values for values in nulls.values()))
    if common == spec.null_values and mark != ";":
        return read(schema=types, null_values=common)
    texts = read(schema=dict.fromkeys(types, pa.string()), null_values=common)
    rows: Dataset[Example] = _Typed(tuple(types.items()), tuple(nulls.items()), commas=mark == ";")(texts)
    return rows


def with_types(spec: DatasetSpec, rows: Dataset[Example], *, part: Part) -> Dataset[Example]:
    """Cast rows of any types to the column types of a spec, as if the rows came from a CSV file.

    Null, NaN and the texts that a spec adds to the default `null_values` are missing values.
    """
    types, names = _types(spec, part), schema(rows).names
    unknown = next((name for name in types if name not in names), None)
    if unknown is not None:
        raise unknown_name(f"column of {rows.parts[0]!r}", unknown, names)
    added = {name: tuple(value for value in values if value not in NULL_VALUES) for name, values in _null_values(spec, types).items()}
    result: Dataset[Example] = _Typed(tuple(types.items()), tuple(added.items()))(rows)
    return result


def _types(spec: DatasetSpec, part: Part) -> dict[str, pa.DataType]:
    """Return the Arrow types of all columns in the spec."""
    types = {name: pa.string() for name in (spec.id, spec.group, spec.time) if name is not None}
    types |= dict.fromkeys(spec.target if part == "train" else (), spec.task.arrow_type)
    return types | {column.name: column.kind.arrow_type for column in spec.columns}


def _null_values(spec: DatasetSpec, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return, by column, the null values of the spec without the texts (such as "None") that the spec declares as values of the column."""
    declared = dict.fromkeys(spec.target, spec.classes) | {
        column.name: (*(value for value, _ in column.values), *column.absent) for column in spec.columns if not column.kind.is_number
    }
    return {name: tuple(value for value in spec.null_values if value not in declared.get(name, ())) for name in names}


def part_file(spec: DatasetSpec, part: Part) -> FileSpec | None:
    """Return the train, test or sample file of a spec. Return None if the spec names no such file."""
    return {"train": spec.train, "test": spec.test, "sample": spec.sample}[part]


def folder_of(path: str | Path) -> Path:
    """Return the path of a folder unchanged. For a file, return the parent folder."""
    return Path(path).parent if Path(path).is_file() else Path(path)


def read_strings(path: Path, spec: DatasetSpec) -> pa.Table:
    """Read a complete file of a spec. All columns become strings, and missing values become null."""
    table = read_cells(path, encoding=spec.encoding)
    return as_strings(path, table, _null_values(spec, table.column_names))


def as_strings(path: Path, table: pa.Table, nulls: Mapping[str, tuple[str, ...]] | None = None) -> pa.Table:
    """Replace texts that mean a missing value, such as "NA", by null in CSV files. Tables from other formats stay unchanged."""
    if typed_reader(path) is not None:
        return table
    nulls = dict.fromkeys(table.column_names, NULL_VALUES) if nulls is None else nulls
    return pa.table({name: without_missing(table[name], nulls[name]) for name in table.column_names}, table.schema)


def delimiter_of(path: Path) -> str:
    """Return the delimiter of a CSV file: a comma or a key of `DELIMITERS`.

    The delimiter must split the header and more than half of the first records into equal numbers of fields, at least two. The result is
    the delimiter with the most fields. If no delimiter fits, or if a comma gives as many fields, the result is a comma.
    """
    try:
        # Latin-1 decodes all bytes, and a delimiter has the same byte in all encodings that `read_csv` reads.
        records = read_csv(
            path, delimiter="\x1f", quote=None, columns=["text"], schema={"text": pa.string()}, null_values=(), encoding="latin-1"
        )
        lines = [row["text"].removeprefix("\xef\xbb\xbf") for row in pipe(records, take(_LINES))]  # without a byte order mark
        lines = lines[1:] if lines and _EXCEL.match(lines[0]) else lines
        counts = {mark: _field_count(lines, mark) for mark in (",", *DELIMITERS)}
    except (DataError, MissingFileError, csv.Error):  # the later reading of the rows raises an error with a remedy
        return ","
    return max(counts, key=counts.__getitem__)


def _field_count(lines: Sequence[str], mark: str) -> int:
    """Return the number of fields of the header if more than half of the records have as many fields, and 1 otherwise."""
    records = [record for record in csv.reader(lines, delimiter=mark) if record]
    complete = records[:-1] if len(lines) == _LINES else records  # the last record can be incomplete after `_LINES` lines
    count = len(complete[0]) if complete else 1
    return count if 2 * sum(len(record) == count for record in complete) > len(complete) else 1


def read_texts(path: Path, *, null_values: Sequence[str] = NULL_VALUES, encoding: str = "utf-8") -> Dataset[Example]:
    """Read a CSV file lazily with every column as strings. In a file with semicolons, cells such as 12,5 become 12.5."""
    mark, types = delimiter_of(path), dict.fromkeys(column_names(path, encoding=encoding), pa.string())
    rows = read_csv(path, delimiter=mark, schema=types, null_values=null_values, encoding=encoding)
    return _as_texts(rows, commas=True) if mark == ";" else rows


def read_cells(path: Path, *, encoding: str = "utf-8") -> pa.Table:
    """Read a complete file with every column as strings. Empty cells of a CSV file become empty strings."""
    typed = typed_reader(path)
    return to_table(read_texts(path, null_values=(), encoding=encoding) if typed is None else _as_texts(typed(path)))


def location(path: Path, table: pa.Table, index: int) -> str:
    """Return the position of a row for messages: the line in a CSV file, the row number in other files. `table` holds all cells as text."""
    if typed_reader(path) is not None:
        return f"row {index} of {str(path)!r}"
    breaks = sum(pc.sum(pc.count_substring(column.slice(0, index), "\n")).as_py() or 0 for column in table.columns)
    return f"line {index + 2 + breaks} of {str(path)!r}"


def without_missing(texts: pa.Array | pa.ChunkedArray, null_values: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """Replace the texts in `null_values`, such as NA, by null."""
    return pc.if_else(pc.is_in(texts, pa.array(null_values, pa.string())), pa.scalar(None, pa.string()), texts)


def read_rows(path: Path, *, encoding: str = "utf-8") -> list[tuple[str, ...]]:
    """Read a file as text tuples: first the column names, then the rows. Missing values are empty strings."""
    table = read_cells(path, encoding=encoding)
    columns = [["" if cell is None else cell for cell in column.to_pylist()] for column in table.columns]
    return [tuple(table.column_names), *zip(*columns, strict=True)]


def column_names(path: Path, *, encoding: str = "utf-8") -> list[str]:
    """Return the column names of a file."""
    read = typed_reader(path) or partial(read_csv, delimiter=delimiter_of(path), encoding=encoding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # ignore the warning about a file without rows
        return list(schema(read(path)).names)


def split_sample(test: Sequence[str], sample: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the id columns and of the prediction columns in a sample submission. The test file also has the id columns.

    If the test file has all columns of the sample submission, or none of them, the first column is the id.

    >>> split_sample(["x", "id"], ["y", "id"]), split_sample([], ["id", "y"])
    ((('id',), ('y',)), (('id',), ('y',)))
    """
    ids, predicted = (tuple(name for name in sample if (name in test) == shared) for shared in (True, False))
    return (ids, predicted) if ids and predicted else (tuple(sample[:1]), tuple(sample[1:]))


def typed_reader(path: Path) -> Callable[..., Dataset[Example]] | None:
    """Return the reader for Parquet or JSON lines, None for CSV. Raise `DataError` for other table formats."""
    name = path.name.lower()
    if name.endswith(_OTHERS):
        raise DataError(
            f"The files of a competition are CSV, Parquet or JSON lines, got {str(path)!r}. Convert the file with pandas, for example to "
            f"{path.stem}.parquet, and name the new file in the spec."
        )
    return next((read for suffix, read in TYPED.items() if name.endswith(suffix)), None)


def hash_file(path: Path) -> str:
    """Return the SHA-256 hash of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@frozen(repr=False)
class _Typed(RowWise):
    """Cast columns to strings or floats. Texts in `nulls` for the column, such as NA, become null."""

    types: tuple[tuple[str, pa.DataType], ...]
    nulls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    commas: bool = False  # True: commas are decimal marks

    def schema(self, schema: Schema) -> Schema:
        for name, kind in self.types:
            schema = set_field(schema, name, kind)
        return schema

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        nulls = dict(self.nulls)
        for name, kind in self.types:
            if not pa.types.is_string(kind) and is_number_like(chunk.column(name).type):
                if _is_large(chunk.column(name)):
                    _check_exact(chunk, name, spell(chunk, name))
                chunk = set_column(chunk, name, pa.array(as_floats(chunk.column(name)), from_pandas=True))
                continue
            texts = with_points(spell(chunk, name)) if self.commas else spell(chunk, name)
            texts = without_missing(texts, nulls[name]) if nulls else texts
            chunk = set_column(chunk, name, texts if pa.types.is_string(kind) else _to_floats(chunk, name, texts))
        return chunk


def _as_texts(rows: Dataset[Example], *, commas: bool = False) -> Dataset[Example]:
    texts: Dataset[Example] = _Typed(tuple((name, pa.string()) for name in schema(rows).names), commas=commas)(rows)
    return texts


def _to_floats(chunk: RecordBatch, name: str, texts: pa.StringArray) -> pa.DoubleArray:
    trimmed = pc.utf8_trim_whitespace(texts)
    try:
        numbers: pa.DoubleArray = trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        index = next(index for index in range(len(trimmed)) if not are_numbers(trimmed.slice(index, 1)))
        raise DataError(
            f"The numerical column {name!r} contains {texts[index].as_py()!r} in source row "
            f"{int(source_rows(chunk)[index])}. Correct the value, add a text for missing values to null_values in the spec, or change the "
            "type of the column in the spec."
        ) from None
    _check_exact(chunk, name, trimmed)
    return numbers


def _is_large(column: pa.Array) -> bool:
    """Return True for a column of integers with an integer of 2**53 or more."""
    ends = pc.min_max(column).as_py() if pa.types.is_integer(column.type) else {}
    return any(end is not None and abs(end) >= 2**53 for end in ends.values())


def _check_exact(chunk: RecordBatch, name: str, texts: pa.StringArray) -> None:
    """Raise `DataError` for an integer above 2**53 in a numerical column, because different hashes or ids would become equal floats."""
    if rounded := rounded_integers(texts):
        row = int(source_rows(chunk)[pc.index(texts, rounded[0]).as_py()])
        raise DataError(
            f"The numerical column {name!r} contains {rounded[0]} in source row {row}, and floats round integers above 2**53. Change the "
            "type of the column to categorical in the spec."
        )
