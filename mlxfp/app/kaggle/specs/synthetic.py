"""Synthetic data files with the columns of a spec, for testing code before the real files are available."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray
from pyarrow import parquet

from mlxfp.app.kaggle.specs.column_kinds import Cells, SyntheticColumn, standardize
from mlxfp.app.kaggle.specs.reading import PARTS, Part, part_file, typed_reader
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec
from mlxfp.support.atomic_files import write_whole
from mlxfp.support.checks import check_integer, check_positive, check_types
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in, generator

_MISSING, _ABSENT = 0.1, 0.25  # fractions of cells in a column: empty cells, and cells with a value from `ColumnSpec.absent`
_GROUP = 5  # rows per group
_NOISE = 0.3  # scale of the noise; the signal has standard deviation 1, so a linear model predicts most rows correctly
_FIRST_DAY = np.datetime64("2020-01-01")
_NEEDS_QUOTES = re.compile(r'[",\r\n]|^[\s\ufeff]|\s$')  # some CSV readers strip unquoted spaces at the start and end of a cell
_CODECS = {".gz": "gzip", ".zst": "zstd"}


def write_synthetic(spec: DatasetSpec, folder: str | Path, *, rows: int = 600, test_rows: int = 200, seed: int = 0) -> DatasetSpec:
    """Write synthetic files for a spec. Return the spec with the hashes and row counts of these files.

    The function writes every file named in the spec. The suffix selects the format: CSV, Parquet or JSON lines. The columns hold:

    - numerical: numbers above zero;
    - categorical: the named values of the column, or 4 random words;
    - text: 2 to 5 random words;
    - id, group and time: unless the spec names the values, consecutive ids, groups of 5 rows, and a different day per row. No group
      is in both files. All days of the test file are later than all days of the train file;
    - target: classes of equal size, drawn with a logistic model, or numbers above zero. Targets depend on the other columns, mostly
      on the first columns, and are therefore learnable.

    One tenth of the cells is missing. A quarter of the cells holds the first absent value of the column, if the spec declares
    absent values. Ids, groups, times and targets are never missing. The sample file holds the ids of the test rows.

    The same seed always writes the same bytes. Existing files with identical bytes stay untouched. Raises `ArgumentError` for an
    existing file with different contents, for duplicate file names, for file names outside `folder`, and for fewer rows than
    classes.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     spec = write_synthetic(fp.kaggle.SPECS["titanic"], folder)
    ...     fp.kaggle.check_spec(spec, folder)
    ...     row = next(iter(fp.kaggle.read_part(spec, folder)))
    >>> spec.train.rows, row["PassengerId"], row["Pclass"] in "123", row["Survived"] in "01"
    (600, '1', True, True)

    See also: `check_spec`; `read_part`.
    """
    check_types(DatasetSpec, spec=spec)
    check_types((str, Path), folder=folder)
    check_positive(rows=rows, test_rows=test_rows)
    check_integer(seed=seed)
    if rows < len(spec.classes):
        raise ArgumentError(f"rows must be at least {len(spec.classes)}, one for each class of {spec.name!r}, got rows={rows}.")
    files = {part: file for part in PARTS if (file := part_file(spec, part)) is not None}
    paths = _paths([file.name for file in files.values()], Path(folder))
    synthetic = _SyntheticRows(spec, rows, test_rows, seed)
    numbers = [column.name for column in spec.columns if column.kind.is_number]
    numbers += () if spec.task.has_classes else spec.target
    written = {part: _to_bytes(synthetic.table(part), file.name, numbers if part != "sample" else ()) for part, file in files.items()}
    new = [(path, data) for path, data in zip(paths, written.values(), strict=True) if not _exists(path, data)]
    for path, data in new:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    counts = {"train": rows, "test": test_rows, "sample": test_rows}
    file_specs = {
        part: FileSpec(name=files[part].name, sha256=sha256(data).hexdigest(), rows=counts[part]) for part, data in written.items()
    }
    return evolve(spec, train=file_specs["train"], test=file_specs.get("test"), sample=file_specs.get("sample"), encoding="utf-8")


@frozen
class _SyntheticRows:
    """Rows of the train file, followed by the rows of the test file."""

    spec: DatasetSpec
    rows: int
    test_rows: int
    seed: int

    def table(self, part: Part) -> dict[str, Cells]:
        spec = self.spec
        rows = slice(self.rows) if part == "train" else slice(self.rows, None)
        inputs = {column.name: self.column(column) for column in spec.columns}
        ids = [] if spec.id is None else [spec.id]
        keys = {name: cells[rows] for name, cells in self.keys()}
        if part == "sample":
            return self.sample({name: keys[name] for name in ids})
        cells = {name: column.cells[rows] for name, column in inputs.items()} | keys
        if part == "train":
            signals = [column.signal[rows] for column in inputs.values()]
            # The first signal has the largest effect on a target. Each target gets the signals of the columns in a different order.
            for index, name in enumerate(spec.target):
                if name != spec.id:
                    cells[name] = self.target(name, (*signals[index:], *signals[:index]))
        return {name: cells[name] for name in dict.fromkeys([*ids, *cells])}

    def keys(self) -> Iterator[tuple[str, Cells]]:
        """Yield the time, group and id columns. Columns with values in the spec (`ColumnSpec.values`) come from the method `column`."""
        spec = self.spec
        named = {column.name for column in spec.columns if column.values}
        numeric = {column.name for column in spec.columns if column.kind.is_number}
        numbers = np.arange(self.rows + self.test_rows)
        groups = np.concatenate([np.arange(self.rows) // _GROUP, -(-self.rows // _GROUP) + np.arange(self.test_rows) // _GROUP])
        days = numbers if spec.time in numeric else _FIRST_DAY + numbers
        for name, values in ((spec.time, days), (spec.group, groups + 1), (spec.id, numbers + 1)):
            if name is not None and name not in named:
                yield name, np.array([str(value) for value in values], object)

    def column(self, column: ColumnSpec) -> SyntheticColumn:
        """Return an input column with random values."""
        random, count = generator(fold_in(self.seed, "column", column.name)), self.rows + self.test_rows
        if column.name == self.spec.time and not column.values:
            return SyntheticColumn(np.full(count, ""), standardize(np.arange(count)))  # `keys` creates the cells
        cells = column.kind.synthesize([code for code, _ in column.values], count, random)
        if column.name in (self.spec.group, self.spec.time):
            return cells
        if column.absent and not column.values:
            cells = _replace(cells, random.random(count) < _ABSENT, column.absent[0])
        return _replace(cells, random.random(count) < _MISSING, "")

    def target(self, name: str, signals: Sequence[NDArray[np.float64]]) -> Cells:
        weighted = sum((signal / rank for rank, signal in enumerate(signals, 1)), start=np.zeros(self.rows))
        score = standardize(weighted) + _NOISE * generator(fold_in(self.seed, "target", name)).logistic(size=self.rows)
        if not self.spec.task.has_classes:
            return np.array([f"{value:.2f}" for value in 100 * np.exp(score / 2)], object)
        ranks = score.argsort().argsort()
        return np.array(self.spec.classes, object)[ranks * len(self.spec.classes) // self.rows]

    def sample(self, ids: Mapping[str, Cells]) -> dict[str, Cells]:
        """Return the columns of the sample file, with the same placeholder prediction in every row."""
        spec, submission = self.spec, self.spec.submission
        names = (*ids, *spec.target) if submission is None else submission.columns
        spelling = "text" if submission is None else submission.spelling
        plain = spec.classes[0] if spec.classes else "0.5"
        guess = {"integer": "0", "number": "0.5", "boolean": "False", "text": plain}[spelling]
        return {name: ids.get(name, np.full(self.test_rows, guess, object)) for name in names}


def _replace(column: SyntheticColumn, selected: NDArray[np.bool_], cell: str) -> SyntheticColumn:
    return SyntheticColumn(np.where(selected, cell, column.cells), np.where(selected, 0, column.signal))


def _paths(names: Sequence[str], folder: Path) -> list[Path]:
    paths = [folder / name for name in names]
    for index, (name, path) in enumerate(zip(names, paths, strict=True)):
        if ".." in path.parts[len(folder.parts) :] or Path(name).is_absolute():
            raise ArgumentError(f"The spec names a file outside the folder: {name!r}. Use a relative name without '..' in the spec.")
        if path in paths[:index]:
            raise ArgumentError(f"The spec uses the file name {name!r} twice. Give train, test and sample different file names.")
    return paths


def _exists(path: Path, data: bytes) -> bool:
    """Return True if the file exists with the given content. Raise `ArgumentError` if the existing content differs."""
    if path.exists() and (not path.is_file() or path.read_bytes() != data):
        raise ArgumentError(
            f"{str(path)!r} exists with different content, and synthetic files never replace files. Choose an empty folder."
        )
    return path.exists()


def _to_bytes(columns: Mapping[str, Cells], name: str, numbers: Collection[str]) -> bytes:
    """Encode a file in the format of its suffix. `numbers` holds the names of columns that become floats, except in CSV."""
    if typed_reader(Path(name)) is None:
        return _compressed(_csv(columns), name)
    values = {key: [(float(cell) if key in numbers else cell) if cell else None for cell in cells] for key, cells in columns.items()}
    if name.endswith(".parquet"):
        out = BytesIO()
        kinds = {key: pa.float64() if key in numbers else pa.string() for key in values}
        parquet.write_table(pa.table(values, pa.schema(kinds)), out)
        return out.getvalue()
    rows = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    return _compressed("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), name)


def _csv(columns: Mapping[str, Cells]) -> str:
    lines = [",".join(map(_quoted, row)) or '""' for row in (columns, *zip(*columns.values(), strict=True))]
    return "".join(f"{line}\n" for line in lines)


def _compressed(text: str, name: str) -> bytes:
    data = text.encode()
    codec = _CODECS.get(Path(name).suffix)
    return data if codec is None else bytes(pa.compress(data, codec, asbytes=True))


def _quoted(cell: str) -> str:
    return '"{}"'.format(cell.replace('"', '""')) if _NEEDS_QUOTES.search(cell) else cell
