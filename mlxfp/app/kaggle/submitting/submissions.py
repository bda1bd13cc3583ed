"""Creation and checks of submission files."""

import csv
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from mlxfp.app.kaggle.specs.reading import read_rows, split_sample
from mlxfp.app.kaggle.specs.spellings import CellSpelling, Spelling, find_spelling
from mlxfp.support.atomic_files import write_whole
from mlxfp.support.checks import check_choice, check_types
from mlxfp.support.errors import DataError, MissingFileError

PathLike = str | os.PathLike[str]

_SHOWN = 3


@frozen(repr=False)
class Submission:
    r"""Submission as a value: CSV header and rows of texts. Returned by `submission`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Submission(("id", "y"), (("007", "1"),)).write(f"{folder}/mine.csv")
    ...     Path(folder, "mine.csv").read_text()
    'id,y\n007,1\n'
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def write(self, path: PathLike) -> None:
        """Write a CSV file. An existing file is replaced only after the new file is complete."""
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        write_whole(Path(path), text.getvalue().encode())

    def column(self, name: str) -> tuple[str, ...]:
        """Return the cells of one column."""
        index = self.header.index(name)
        return tuple(row[index] for row in self.rows)

    def __repr__(self) -> str:
        return f"Submission({', '.join(self.header)}: {len(self.rows):,} rows)"


def submission(
    predictions: Mapping[str, ArrayLike],
    *,
    test: PathLike,
    sample: PathLike,
    spelling: Mapping[str, Spelling] | None = None,
    encoding: str = "utf-8",
) -> Submission:
    r"""Create a submission from predictions: one array [N] per column except the id, in row order of the test file.

    Ids are copied from the test file as text. The sample file determines the columns, their order and the text format of the values: whole
    numbers ("1", not "1.0"), truth values, other numbers, or text.

    Predictions may be class names. A class name in the text format of the column stays unchanged, for example "007" in a text column. Other
    class names are converted to the format if possible: "yes" becomes "1" in a column of whole numbers.

    `spelling` sets the text format of a column. For example, use {"Survived": "number"} to submit probabilities although the sample
    contains only 0. `encoding` is the encoding of both files, as in `read_csv`.

    Raises a single `DataError` with all problems: see `check_submission`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     test, sample = Path(folder, "test.csv"), Path(folder, "sample.csv")
    ...     _ = test.write_text("id,x\n007,5\n008,6\n"), sample.write_text("id,label\n007,0\n008,1\n")
    ...     made = submission({"label": np.array([1.0, 0.0])}, test=test, sample=sample)
    ...     made.write(Path(folder, "submission.csv"))
    ...     check_submission(Path(folder, "submission.csv"), sample=sample)
    ()
    >>> made.rows
    (('007', '1'), ('008', '0'))

    See also: `submit`, for uploading the file.
    """
    check_types(Mapping, predictions=predictions)
    model, rows = _read(sample, encoding), _read(test, encoding)
    shared, columns = split_sample(rows.header, model.header)
    name = _id_of(model, shared, sample)
    if name not in rows.header:
        raise DataError(
            f"The test file {os.fspath(test)!r} has no column {name!r}, the id column of the sample submission {os.fspath(sample)!r}. "
            f"The columns of the test file are: {', '.join(rows.header)}. Choose two files of the same competition."
        )
    ids = rows.column(name)
    problems = [f"no predictions for the column {column!r}" for column in columns if column not in predictions]
    problems += [f"predictions for {column!r}, which is not in the sample" for column in predictions if column not in columns]
    arrays = {column: _as_array(predictions[column]) for column in columns if column in predictions}
    problems += [
        f"{column!r}: predictions of shape {list(array.shape)} for {len(ids)} rows of the test file"
        for column, array in arrays.items()
        if array.shape != (len(ids),)
    ]
    _raise_problems(problems, sample)
    spellings = _spellings(model, columns, spelling)
    written = {column: map(spellings[column].write, arrays[column].tolist()) for column in columns}
    cells = [written[column] if column in written else rows.column(column) for column in model.header]
    result = Submission(model.header, tuple(zip(*cells, strict=True)))
    _raise_problems([*_problems(result, model, name, spellings), *_copy_problems(result, model, name, shared)], sample)
    return result


def check_submission(
    path: PathLike, *, sample: PathLike, spelling: Mapping[str, Spelling] | None = None, encoding: str = "utf-8"
) -> tuple[str, ...]:
    r"""Compare a file with the sample. Return all differences that would prevent a submission. The result is empty for a valid file.

    The function compares the header, the ids (missing, unknown, duplicate, without leading zeros, with added decimals), the number
    of rows, the values (empty, infinite, NaN), whole numbers written as 1.0, and the spelling of truth values. The order of rows
    does not matter. The id is the first sample column whose values are all distinct. `encoding` is the encoding of the sample.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     mine, sample = Path(folder, "mine.csv"), Path(folder, "sample.csv")
    ...     _ = mine.write_text("id,label\n7,1.0\n"), sample.write_text("id,label\n007,0\n008,1\n")
    ...     for problem in check_submission(mine, sample=sample):
    ...         print(problem)
    number of rows: 1, but 2 in the sample
    missing ids of the sample (2): 007, 008
    ids that are not in the sample (1): 7 (leading zeros are lost: read ids as text)
    'label': values that are not whole numbers as in the sample (1): 1.0 in row 1
    """
    model, checked = _read(sample, encoding), _read(path)
    name = next((name for name in model.header if len({*model.column(name)}) == len(model.rows)), model.header[0])
    columns = [column for column in model.header if column != name]
    return tuple(_problems(checked, model, name, _spellings(model, columns, spelling)))


def _as_array(values: Any) -> NDArray[Any]:
    """Convert predictions to an array with missing values. NumPy would drop the mask of a masked array, and write NaN as "nan"."""
    array = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        array = array.astype(object)
        array[np.ma.getmaskarray(values)] = None
        return array
    return np.asarray(values, object) if array.dtype.kind in "US" and not isinstance(values, np.ndarray) else array


def _id_of(model: Submission, shared: Sequence[str], sample: PathLike) -> str:
    """Return the id column: the first column in `shared` with distinct values. Kaggle identifies rows by one id column."""
    name = next((name for name in shared if len({*model.column(name)}) == len(model.rows)), None)
    if name is None and len(shared) > 1:
        raise DataError(
            f"A submission needs one id column with distinct values, got the columns {', '.join(shared)} in "
            f"{os.fspath(sample)!r}, each with repeated values. Add one id column to the test and the sample file, for example the "
            f"values of {' and '.join(shared)} joined by '_'."
        )
    return shared[0] if name is None else name


def _copy_problems(checked: Submission, model: Submission, name: str, shared: Sequence[str]) -> Iterator[str]:
    """Compare the columns `shared`, copied from the test file, with the sample. Yield a message for each column with different values."""
    for column in shared:
        expected = dict(zip(model.column(name), model.column(column), strict=True))
        pairs = zip(checked.column(name), checked.column(column), strict=True)
        wrong = [(key, value) for key, value in pairs if expected.get(key, value) != value]
        if wrong:
            key, value = wrong[0]
            yield f"{column!r}: values of the test file that differ from the sample ({len(wrong)}): {value} for the id {key}"


def _read(path: PathLike, encoding: str = "utf-8") -> Submission:
    if not Path(path).is_file():
        raise MissingFileError(f"There is no file at {os.fspath(path)!r}. Give the path of a CSV file with a header.")
    header, *rows = read_rows(Path(path), encoding=encoding) or [()]
    if not rows:
        raise DataError(f"{os.fspath(path)!r} is empty or has only a header. Give a CSV file with a header and at least one row.")
    return Submission(header, tuple(rows))


def _spellings(model: Submission, columns: Sequence[str], given: Mapping[str, Spelling] | None) -> dict[str, CellSpelling]:
    """Return the text format of each column: the format in `given`, otherwise the format of the column in the sample submission."""
    given = given or {}
    for column, name in given.items():
        check_choice(model.header, **{"column of the sample": column})
        check_choice(get_args(Spelling), spelling=name)
    return {column: find_spelling(set(model.column(column)), given.get(column)) for column in columns}


def _problems(checked: Submission, model: Submission, name: str, spellings: Mapping[str, CellSpelling]) -> Iterator[str]:
    if checked.header != model.header:
        yield f"the header is {','.join(checked.header)}, but the sample has {','.join(model.header)}"
    if len(checked.rows) != len(model.rows):
        yield f"number of rows: {len(checked.rows)}, but {len(model.rows)} in the sample"
    if name in checked.header:
        yield from _id_problems(checked.column(name), model.column(name))
    for column, spelling in spellings.items():
        if column in checked.header:
            yield from _value_problems(column, checked.column(column), spelling)


def _value_problems(name: str, cells: tuple[str, ...], spelling: CellSpelling) -> Iterator[str]:
    missing = [index for index, cell in enumerate(cells) if spelling.is_missing(cell)]
    misspelled = [index for index, cell in enumerate(cells) if not spelling.is_missing(cell) and not spelling.fits(cell)]
    for indices, problem in ((missing, "missing or infinite values"), (misspelled, f"values that are not {spelling} as in the sample")):
        if indices:
            yield f"{name!r}: {problem} ({len(indices)}): {cells[indices[0]] or 'an empty cell'} in row {indices[0] + 1}"


def _id_problems(ids: tuple[str, ...], expected: tuple[str, ...]) -> Iterator[str]:
    duplicates = [value for value, count in Counter(ids).items() if count > 1]
    if duplicates:
        yield f"duplicate ids ({len(duplicates)}): {_listed(duplicates)}"
    known, given = set(expected), set(ids)
    missing, extra = [value for value in expected if value not in given], [value for value in ids if value not in known]
    if missing:
        yield f"missing ids of the sample ({len(missing)}): {_listed(missing)}"
    if extra:
        stripped = {value.lstrip("0") for value in missing}
        hint = ""
        if any(value.removesuffix(".0") in known for value in extra):
            hint = " (ids became decimals: read ids as text)"
        elif any(value in stripped for value in extra):
            hint = " (leading zeros are lost: read ids as text)"
        yield f"ids that are not in the sample ({len(extra)}): {_listed(extra)}{hint}"


def _listed(values: list[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")


def _raise_problems(problems: list[str], sample: PathLike) -> None:
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise DataError(f"The submission does not fit the sample {os.fspath(sample)!r}:{listed}")
