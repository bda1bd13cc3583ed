"""Files of made-up rows with the columns of a spec: what runs on them will run on the real ones."""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.atomic_files import write_whole
from mlxfp.core.checks import check_integer, check_positive, check_types
from mlxfp.core.errors import ArgumentError
from mlxfp.core.randomness import fold_in, generator
from mlxfp.kaggle.specs.reading import PARTS, Part, part_file
from mlxfp.kaggle.specs.specs import CLASSED, ColumnSpec, DatasetSpec, FileSpec

Cells = NDArray[Any]  # of strings, as a file has them; "" is a missing value

_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fern", "grove", "harbor", "island", "juniper", "kettle", "lantern"),
    *("meadow", "north", "orchard", "pebble", "quartz", "river", "south", "timber", "upland", "valley", "willow", "yellow"),
)
_CATEGORIES = 4  # of a column whose values have no names
_MISSING, _ABSENT = 0.1, 0.25  # shares of the cells of a column
_GROUP = 5  # rows of a group
_NOISE = 0.3  # beside a spread of 1 of what can be learned: a linear model is right far more often than not, and not always
_FIRST_DAY = np.datetime64("2020-01-01")
_APART = re.compile(r'[",\r\n]|^[\s\ufeff]|\s$')  # unquoted, a reader may cut it off
_CODECS = {".gz": "gzip", ".zst": "zstd"}


def make_up(spec: DatasetSpec, folder: str | Path, *, rows: int = 600, test_rows: int = 200, seed: int = 0) -> DatasetSpec:
    """Write the files that a spec names with made-up rows, and return the spec of these files, with their hashes and numbers of rows.

    The rows have the columns of the spec and values of their types: the values that it names, else a few words; numbers above zero, and
    those that it calls absent in a quarter of the rows; texts of a few words; groups of 5 rows, none of them in both files, and a day for
    each row, later in the test file, where such a column has no values that it names. A tenth of the cells is missing, none of them ids,
    groups, times or targets. Targets depend on what the other columns show, most on the first ones, so that a model can learn them: a
    logistic model with classes of equal size, or a number above zero. The sample has the ids of the test rows. A file that the spec does
    not name is not written.

    The same seed writes the same bytes, and a file that is there already stays untouched. Nothing is replaced: raises `ArgumentError`
    for a file that is there and has other contents, for names that lie outside `folder` or are there twice, and for fewer rows than
    classes.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.kaggle.specs.catalogue import SPECS
    >>> from mlxfp.kaggle.specs.checking import check_spec
    >>> from mlxfp.kaggle.specs.reading import read_part
    >>> with TemporaryDirectory() as folder:
    ...     spec = make_up(SPECS["titanic"], folder)
    ...     check_spec(spec, folder)
    ...     row = next(iter(read_part(spec, folder)))
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
    made = _MadeUp(spec, rows, test_rows, seed)
    written = {part: _packed(made.table(part), file.name) for part, file in files.items()}
    absent = [(path, data) for path, data in zip(paths, written.values(), strict=True) if not _is_there(path, data)]
    for path, data in absent:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    counts = {"train": rows, "test": test_rows, "sample": test_rows}
    found = {part: FileSpec(name=files[part].name, sha256=sha256(data).hexdigest(), rows=counts[part]) for part, data in written.items()}
    return evolve(spec, train=found["train"], test=found.get("test"), sample=found.get("sample"))


@frozen
class _Column:
    """The cells of a column, and what they tell about the target: a number for each row, 0 where the cell says nothing."""

    cells: Cells
    signal: NDArray[np.float64]


@frozen
class _MadeUp:
    """The rows of the train file, and after them those of the test file."""

    spec: DatasetSpec
    rows: int
    test_rows: int
    seed: int

    def table(self, part: Part) -> dict[str, Cells]:
        """Return the columns of a file."""
        spec = self.spec
        here = slice(self.rows) if part == "train" else slice(self.rows, None)
        shown = {column.name: self.column(column) for column in spec.columns}
        ids = [] if spec.id is None else [spec.id]
        beside = {name: cells[here] for name, cells in self.beside()}
        if part == "sample":
            return self.sample({name: beside[name] for name in ids})
        cells = {name: column.cells[here] for name, column in shown.items()} | beside
        if part == "train":
            targets = self.targets([column.signal[here] for column in shown.values()])
            cells |= {name: target for name, target in targets.items() if name != spec.id}
        return {name: cells[name] for name in dict.fromkeys([*ids, *cells])}

    def beside(self) -> Iterator[tuple[str, Cells]]:
        """Yield the columns that say when a row was, what it belongs to and which it is, but for those whose values have names."""
        spec = self.spec
        kinds = {column.name: "named" if column.values else column.type for column in spec.columns}
        numbers = np.arange(self.rows + self.test_rows)
        groups = np.concatenate([np.arange(self.rows) // _GROUP, -(-self.rows // _GROUP) + np.arange(self.test_rows) // _GROUP])
        days = numbers if kinds.get(str(spec.time)) == "numerical" else _FIRST_DAY + numbers
        for name, values in ((spec.time, days), (spec.group, groups + 1), (spec.id, numbers + 1)):
            if name is not None and kinds.get(name) != "named":
                yield name, np.array([str(value) for value in values], object)

    def column(self, column: ColumnSpec) -> _Column:
        """Make up a column that a model may see."""
        random, count = generator(fold_in(self.seed, "column", column.name)), self.rows + self.test_rows
        if column.name == self.spec.time and not column.values:
            return _Column(np.full(count, ""), _spread(np.arange(count)))  # its cells are those of `beside`: what it tells is a trend
        made = _MAKERS[column.type](column, count, random)
        if column.name in (self.spec.group, self.spec.time):
            return made
        if column.absent and not column.values:
            made = _over(made, random.random(count) < _ABSENT, column.absent[0])
        return _over(made, random.random(count) < _MISSING, "")

    def targets(self, signals: Sequence[NDArray[np.float64]]) -> dict[str, Cells]:
        """Make up the targets of rows: each has a column of its own that it depends on most."""
        return {name: self.target(name, (*signals[place:], *signals[:place])) for place, name in enumerate(self.spec.target)}

    def target(self, name: str, signals: Sequence[NDArray[np.float64]]) -> Cells:
        shown = sum((signal / place for place, signal in enumerate(signals, 1)), start=np.zeros(self.rows))
        score = _spread(shown) + _NOISE * generator(fold_in(self.seed, "target", name)).logistic(size=self.rows)
        if self.spec.kind not in CLASSED:
            return np.array([f"{value:.2f}" for value in 100 * np.exp(score / 2)], object)
        ranks = score.argsort().argsort()
        return np.array(self.spec.classes, object)[ranks * len(self.spec.classes) // self.rows]

    def sample(self, ids: Mapping[str, Cells]) -> dict[str, Cells]:
        """Make up the sample: a prediction as it is spelled, in every row."""
        spec, submission = self.spec, self.spec.submission
        names = (*ids, *spec.target) if submission is None else submission.columns
        spelling = "text" if submission is None else submission.spelling
        plain = spec.classes[0] if spec.classes else "0.5"
        guess = {"integer": "0", "number": "0.5", "boolean": "False", "text": plain}[spelling]
        return {name: ids.get(name, np.full(self.test_rows, guess, object)) for name in names}


def _number(column: ColumnSpec, count: int, random: np.random.Generator) -> _Column:
    values = random.standard_normal(count)
    size = int(random.integers(4))  # about 3, 30, 300 or 3000
    return _Column(np.array([f"{value:.{0 if size else 2}f}" for value in 3 * 10**size * np.exp(values / 2)], object), values)


def _category(column: ColumnSpec, count: int, random: np.random.Generator) -> _Column:
    codes = [code for code, _ in column.values] or random.choice(_WORDS, _CATEGORIES, replace=False).tolist()
    chosen = random.integers(len(codes), size=count)
    return _Column(np.array(codes, object)[chosen], random.permutation(_spread(np.arange(len(codes))))[chosen])


def _text(column: ColumnSpec, count: int, random: np.random.Generator) -> _Column:
    told = random.permutation(_spread(np.arange(len(_WORDS))))
    rows = [random.integers(len(_WORDS), size=size) for size in random.integers(2, 6, size=count)]
    return _Column(
        np.array([" ".join(_WORDS[word] for word in row) for row in rows], object), np.array([told[row].sum() / 2 for row in rows])
    )


_MAKERS = {"numerical": _number, "categorical": _category, "text": _text}


def _over(column: _Column, places: NDArray[np.bool_], cell: str) -> _Column:
    return _Column(np.where(places, cell, column.cells), np.where(places, 0, column.signal))


def _spread(values: NDArray[Any]) -> NDArray[np.float64]:
    """Move numbers to a mean of 0 and a standard deviation of 1."""
    apart = np.asarray(values - values.mean(), np.float64)
    return apart / (apart.std() or 1)


def _paths(names: Sequence[str], folder: Path) -> list[Path]:
    paths = [folder / name for name in names]
    for place, (name, path) in enumerate(zip(names, paths, strict=True)):
        if ".." in path.parts[len(folder.parts) :] or Path(name).is_absolute():
            raise ArgumentError(f"Made-up rows stay in their folder, and the spec names a file {name!r} outside. Rename it in the spec.")
        if path in paths[:place]:
            raise ArgumentError(f"Each part needs a file of its own, and the spec names {name!r} twice. Rename one of them.")
    return paths


def _is_there(path: Path, data: bytes) -> bool:
    """Tell whether a file is there; raises `ArgumentError` if it has other contents."""
    if path.exists() and (not path.is_file() or path.read_bytes() != data):
        raise ArgumentError(f"Made-up rows replace no file, and there is one at {str(path)!r}. Give an empty folder.")
    return path.exists()


def _packed(columns: Mapping[str, Cells], name: str) -> bytes:
    lines = [",".join(map(_quoted, row)) or '""' for row in (columns, *zip(*columns.values(), strict=True))]
    data = "".join(f"{line}\n" for line in lines).encode()
    codec = _CODECS.get(Path(name).suffix)
    return data if codec is None else bytes(pa.compress(data, codec, asbytes=True))


def _quoted(cell: str) -> str:
    return '"{}"'.format(cell.replace('"', '""')) if _APART.search(cell) else cell
