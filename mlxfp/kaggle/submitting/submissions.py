"""Submissions: a file that a competition accepts, or a list of everything that is wrong with it."""

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from mlxfp.core.atomic_files import write_whole
from mlxfp.core.checks import check_choice, check_types
from mlxfp.core.errors import DataError, MissingFileError
from mlxfp.kaggle.specs.reading import open_text

PathLike = str | os.PathLike[str]
Spelling = Literal["integer", "boolean", "number", "text"]

_TRUTHS = (("True", "False"), ("true", "false"), ("TRUE", "FALSE"))
_SHOWN = 3


@frozen(repr=False)
class Submission:
    r"""A file to hand in, as a value: the header, and the rows as they are written; made by `submission`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Submission(("id", "y"), (("007", "1"),)).write(f"{folder}/mine.csv")
    ...     Path(folder, "mine.csv").read_text()
    'id,y\n007,1\n'
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def write(self, path: PathLike) -> None:
        """Write it as CSV. The file is complete before it takes the place of an older one."""
        target = Path(path)
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        write_whole(target, text.getvalue().encode())

    def __repr__(self) -> str:
        """Say what it holds."""
        return f"Submission({', '.join(self.header)}: {len(self.rows):,} rows)"


def submission(
    predictions: Mapping[str, ArrayLike], *, test: PathLike, sample: PathLike, spelling: Mapping[str, Spelling] | None = None
) -> Submission:
    r"""Make a submission of predictions: one array [N] for each column but the id, in the order of the rows of the test file.

    The ids are read from the test file as text, so nothing about them changes. Columns, their order and how values are spelled come from
    the sample: whole numbers where it has whole numbers ("1", never "1.0"), its spelling of true and false, any number where it has such,
    text otherwise. Predictions that are text, such as names of classes, stay as they are ("007") wherever that fits the sample, else the
    number or the truth that they name is written. `spelling` says otherwise by column, such as {"Survived": "number"} where the sample has
    0 and probabilities are wanted.

    Raises `DataError` with every problem in its message: see `check_submission`.

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

    See also: `submit`, which uploads the file.
    """
    check_types(Mapping, predictions=predictions)
    model, own = _read(sample), _read(test)
    name, *columns = model.header
    if name not in own.header:
        raise DataError(
            f"The test file {os.fspath(test)!r} has no column {name!r}, the id of the sample. Columns: {', '.join(own.header)}."
        )
    ids = own.column(name)
    problems = [f"no predictions for the column {column!r}" for column in columns if column not in predictions]
    problems += [f"predictions for {column!r}, which is not in the sample" for column in predictions if column not in columns]
    arrays = {column: np.asarray(predictions[column]) for column in columns if column in predictions}
    problems += [
        f"{column!r}: predictions of shape {list(array.shape)} for {len(ids)} rows of the test file"
        for column, array in arrays.items()
        if array.shape != (len(ids),)
    ]
    if problems:
        raise _refused(problems, sample)
    wanted = _wanted(model, spelling)
    written = [wanted[column].write(arrays[column]) for column in columns]
    made = Submission(model.header, tuple(zip(ids, *written, strict=True)))
    problems = [*_problems(_Table(made.header, made.rows), model, wanted)]
    if problems:
        raise _refused(problems, sample)
    return made


def check_submission(path: PathLike, *, sample: PathLike, spelling: Mapping[str, Spelling] | None = None) -> tuple[str, ...]:
    r"""List everything that is wrong with a file, compared with the sample; nothing if it can be handed in.

    Compared are the header; ids that are missing, unknown or double, and lost leading zeros or decimals in them; the number of rows;
    empty, infinite and NaN values; whole numbers written as 1.0; and the spelling of true and false. The order of rows does not matter.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     mine, sample = Path(folder, "mine.csv"), Path(folder, "sample.csv")
    ...     _ = mine.write_text("id,label\n7,1.0\n"), sample.write_text("id,label\n007,0\n008,1\n")
    ...     for problem in check_submission(mine, sample=sample):
    ...         print(problem)
    1 rows where the sample has 2
    2 ids of the sample are missing: 007, 008
    1 ids are not in the sample: 7 (leading zeros are lost: read ids as text)
    'label': 1 values are not whole numbers as in the sample: 1.0 in row 1
    """
    model, own = _read(sample), _read(path)
    return tuple(_problems(own, model, _wanted(model, spelling)))


@frozen
class _Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> tuple[str, ...]:
        place = self.header.index(name)
        return tuple(row[place] for row in self.rows)


def _read(path: PathLike) -> _Table:
    if not Path(path).is_file():
        raise MissingFileError(f"No file is at {os.fspath(path)!r}. Give the path of a CSV file with a header.")
    with open_text(Path(path)) as file:
        header, *rows = [tuple(row) for row in csv.reader(file) if row] or [()]
    for place, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise DataError(f"Row {place} of {os.fspath(path)!r} has {len(row)} values, and the header {len(header)}. Is it a CSV file?")
    if not rows:
        raise DataError(f"{os.fspath(path)!r} has no rows. Give a CSV file with a header.")
    return _Table(header, tuple(rows))


@frozen
class _Column:
    """How a column of values is spelled."""

    kind: Spelling
    truths: tuple[str, str] = ("True", "False")

    def write(self, array: NDArray[Any]) -> list[str]:
        """Write values as text; what cannot be written as wanted is written as it is, and found by the check."""
        return [self._written(value) for value in array.tolist()]

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return self._respelled(value)
        if self.kind == "boolean" and value in (0, 1):
            return self.truths[0] if value else self.truths[1]
        if self.kind in ("integer", "number") and isinstance(value, bool):
            return str(int(value))
        if self.kind == "integer" and isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value)

    def _respelled(self, name: str) -> str:
        """Write the name of a class as the sample writes such, if it has a spelling there."""
        if self._fits(name):
            return name
        truth = _NAMES.get(name.lower())
        if self.kind == "boolean":
            return name if truth is None else self.truths[0] if truth else self.truths[1]
        if _is_number(name):
            return str(int(float(name))) if float(name).is_integer() else name
        return name if truth is None else str(int(truth))

    def problems(self, name: str, values: tuple[str, ...]) -> Iterator[str]:
        """Yield what is wrong with the values of a column."""
        absent = [place for place, value in enumerate(values) if value.strip().lower() in _ABSENT[self.kind == "text"]]
        odd = [place for place in sorted(set(range(len(values))) - set(absent)) if not self._fits(values[place])]
        wanted = f"spelled {' or '.join(self.truths)}" if self.kind == "boolean" else _WANTED[self.kind]
        for places, what in ((absent, "missing or infinite"), (odd, f"not {wanted} as in the sample")):
            if places:
                yield f"{name!r}: {len(places)} values are {what}: {values[places[0]] or 'nothing'} in row {places[0] + 1}"

    def _fits(self, value: str) -> bool:
        if self.kind == "boolean":
            return value in self.truths
        return self.kind == "text" or (_is_whole(value) if self.kind == "integer" else _is_number(value))


_ABSENT = (("", "nan", "none", "null", "na", "inf", "-inf", "infinity", "-infinity"), ("",))  # of values that are numbers, and of text
_NAMES = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}  # of truths
_WANTED = {"integer": "whole numbers", "number": "numbers", "text": "text"}


def _wanted(model: _Table, spelling: Mapping[str, Spelling] | None) -> dict[str, _Column]:
    """Say how each column of values is spelled in the sample, or as the user says."""
    given = dict(spelling or {})
    for column, kind in given.items():
        check_choice(model.header[1:], **{"column of the sample": column})
        check_choice(get_args(Spelling), spelling=kind)
    found = {}
    for column in model.header[1:]:
        values = set(model.column(column))
        truths = next((pair for pair in _TRUTHS if values <= set(pair)), None)
        guess: Spelling = "integer" if all(map(_is_whole, values)) else "number" if all(map(_is_number, values)) else "text"
        kind = given.get(column, "boolean" if truths else guess)
        found[column] = _Column(kind, truths or _TRUTHS[0])
    return found


def _problems(own: _Table, model: _Table, wanted: Mapping[str, _Column]) -> Iterator[str]:
    if own.header != model.header:
        yield f"the header is {','.join(own.header)} where the sample has {','.join(model.header)}"
    if len(own.rows) != len(model.rows):
        yield f"{len(own.rows)} rows where the sample has {len(model.rows)}"
    name = model.header[0]
    if name in own.header:
        yield from _id_problems(own.column(name), model.column(name))
    for column, kind in wanted.items():
        if column in own.header:
            yield from kind.problems(column, own.column(column))


def _id_problems(own: tuple[str, ...], model: tuple[str, ...]) -> Iterator[str]:
    double = [each for each, count in Counter(own).items() if count > 1]
    if double:
        yield f"{len(double)} ids come more than once: {_some(double)}"
    known, given = set(model), set(own)
    missing, extra = [each for each in model if each not in given], [each for each in own if each not in known]
    if missing:
        yield f"{len(missing)} ids of the sample are missing: {_some(missing)}"
    if extra:
        bare = {each.lstrip("0") for each in missing}
        hint = ""
        if any(each.removesuffix(".0") in known for each in extra):
            hint = " (ids became decimals: read ids as text)"
        elif any(each in bare for each in extra):
            hint = " (leading zeros are lost: read ids as text)"
        yield f"{len(extra)} ids are not in the sample: {_some(extra)}{hint}"


def _is_whole(value: str) -> bool:
    return value.removeprefix("-").isdecimal()


def _is_number(value: str) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except ValueError:
        return False


def _some(values: Iterable[str]) -> str:
    shown = list(values)
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")


def _refused(problems: list[str], sample: PathLike) -> DataError:
    listed = "".join(f"\n- {problem}" for problem in problems)
    return DataError(f"The submission does not fit the sample {os.fspath(sample)!r}:{listed}")
