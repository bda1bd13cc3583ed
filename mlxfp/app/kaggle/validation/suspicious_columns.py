"""Warnings about suspicious columns: constants, identifiers, target leaks, and number columns spoiled by a few texts."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp import Dataset, read_csv, select_columns, to_table
from mlxfp.app.kaggle.specs.cells import as_floats, spell, with_points
from mlxfp.app.kaggle.specs.dates import column_order
from mlxfp.app.kaggle.specs.inferring import is_train_file
from mlxfp.app.kaggle.specs.reading import delimiter_of, typed_reader
from mlxfp.app.kaggle.specs.rewriting import rewriting_code
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.parts import one_chunk
from mlxfp.support.errors import listed
from mlxfp.support.formatted_numbers import NUMBER, conversion, decimal_mark, gap_words, units, without_words

_FEWEST = 50  # minimum number of rows; with fewer rows, random patterns would cause warnings
_MOST = 50_000  # maximum number of examined rows, evenly spaced
_CLASSES = 100  # maximum number of classes; with more classes, an array [rows, classes] would need gigabytes
_DISTINCT = 0.95  # minimum fraction of distinct texts in an identifier column, below 1 because of duplicate rows
_FEW_TEXTS = 0.1  # maximum fraction of texts in a column of otherwise numeric cells
_LEAK = 0.99  # a column leaks the target if predictions from the column alone have 99 % fewer errors than a constant prediction


def column_warnings(spec: DatasetSpec, rows: Dataset[Any], folder: Path | None = None) -> Iterator[str]:
    """Yield warnings about columns of the training rows, such as identifiers and columns that leak the target.

    The target columns must hold numbers. Fewer than 50 rows yield no warnings. `folder` is the folder of the files for an inferred spec,
    and None for a spec that the user wrote.

    A column leaks the target if the column alone predicts the target of almost every row. The prediction for a row uses the other rows with
    the same value in the column. For a unique value, the rows with the next lower and the next higher value are used. The prediction is the
    most frequent class of the used rows. Numeric targets are replaced by ranks, and the prediction is the mean rank.
    """
    columns = list(_columns(spec, rows))
    if not columns or columns[0].rows < _FEWEST:
        return
    if constant := [column.name for column in columns if column.groups == 1]:
        yield f"Columns with a single value in all training rows, without any information: {listed(constant)}."
    if ids := [column.name for column in columns if column.is_identifier and column.name != spec.time]:
        yield (
            f"Columns that look like identifiers, with a different value in almost every row: {listed(ids)}. Models may learn the order of "
            "the training rows, which is useless for new rows."
        )
    targets, leaks = list(_targets(spec, rows)), list[str]()
    for column in columns:
        for target, numbers in targets:
            if column.groups > 1 and (share := _explained(column, numbers, classed=spec.task.has_classes)) >= _LEAK:
                leaks.append(column.name)
                yield (
                    f"The column {column.name!r} alone avoids {100 * share:.1f} % of the errors in {target!r}. If the column is unknown at "
                    "prediction time, the score is far too optimistic."
                )
    if out := list(dict.fromkeys([*ids, *leaks])):
        new = "" if folder is None else f" write a spec: {infer_command(spec, folder)} --out spec.yaml. Then"
        again = "run again with another name, as in name=second." if folder is None else _run_again(folder)
        yield f"To leave out {listed(out)},{new} remove the columns from the spec, and {again}"


def _run_again(folder: Path) -> str:
    return f"run again: mlxfp run {quote(str(folder))} data.spec=spec.yaml name=second"


def text_warnings(spec: DatasetSpec, *parts: Dataset[Any], folder: Path = Path()) -> tuple[list[str], list[str]]:
    """Return warnings about text and categorical columns with mostly numeric cells in train and test rows, and the repairs.

    For numbers with another format, such as "1,000" or "4.9 kg", a repair contains code that rewrites the CSV files in `folder`. For a
    few words among numbers, such as "k.A.", a repair contains the lines of a spec that read the words as missing values.
    """
    columns = {column.name: column.type for column in spec.columns if not column.kind.is_number}
    problems, repairs, changes, gaps = list[str](), list[str](), list[str](), dict[str, list[str]]()
    files = [folder / file.name for file in (spec.train, spec.test)[: len(parts)] if file is not None]
    commas = any(map(_has_commas, files))
    if commas:  # In `parts`, some decimal commas are already points. The code below changes the files, which have commas.
        parts = tuple(_as_written(spec, file, [*columns]) for file in files)
    tables = [one_chunk(to_table(select_columns([*columns])(part))) for part in parts] if columns else []
    for name, kind in columns.items():
        cells = pa.chunked_array([spell(table, name) for table in tables]).drop_null()
        points = with_points(cells) if commas else cells
        words = gap_words(cells) or gap_words(points)
        numbers = without_words(cells, words)
        others = points.filter(pc.invert(pc.match_substring_regex(points, f"^{NUMBER}$")))
        mark = decimal_mark(numbers, ",." if commas else ".,") if len(without_words(others, words)) else None
        if mark is not None:
            example = without_words(others, words)[0].as_py()
            problems.append(f"The column {name!r} is {kind}, because its numbers are written as {example!r}.")
        count = len(others) if mark is None else len(cells) - len(numbers)
        if words or 0 < count <= _FEW_TEXTS * len(cells):
            texts = listed(f"{text!r:.40}" for text in words or others.unique().to_pylist())
            remedy = "" if words else " If these texts mean missing values, leave the cells empty."
            problems.append(f"The column {name!r} is {kind}, because {count:,} of {len(cells):,} cells are not numbers: {texts}.{remedy}")
        if words:
            gaps[name] = words
        if mark is not None:
            changes.append(_number_code(name, numbers, mark))
    if changes:
        repairs.append(f"To read numbers, rewrite all files{_rewriting(files, changes, spec.encoding)}")
    if gaps:
        nulls = list(dict.fromkeys([*spec.null_values, *chain.from_iterable(gaps.values())]))
        repairs.append(
            f"If the words mean missing values, {'first rewrite the files, then ' if changes else ''}write a spec: "
            f"{infer_command(spec, folder)} --out spec.yaml. In the spec, set null_values: {nulls!r}, and type: numerical for "
            f"{listed(map(repr, gaps))}. Then {_run_again(folder)}"
        )
    return problems, repairs


def number_code(table: pa.Table, file: Path, encoding: str) -> str:
    """Return words with code that converts the text columns of a file to numbers, or an empty string for an unknown format."""
    changes, marks = [], ",." if _has_commas(file) else ".,"
    for name in table.column_names:
        numbers = without_words(table[name], gap_words(table[name].drop_null()))
        if (mark := decimal_mark(numbers, marks)) is not None:
            changes.append(_number_code(name, numbers, mark))
    return _rewriting([file], changes, encoding) if changes and typed_reader(file) is None else ""


def _number_code(name: str, numbers: Any, mark: str) -> str:
    number = conversion("text", mark, units(numbers))
    converted = f"[{number} if re.search('[0-9]', text) else text for text in frame[{name!r}]]"
    # Code that is pasted twice must not read the point of a converted number, such as 1234.5, as a separator of thousands.
    done = "" if mark == "." else rf"frame[{name!r}] if frame[{name!r}].str.contains(r'\d[.](?!\d{{3}}(?!\d))').any() else "
    return f"frame[{name!r}] = {done}{converted}"


def _rewriting(files: Sequence[Path], changes: Sequence[str], encoding: str) -> str:
    factors = ", after setting the factors of the units" if any("}[" in change for change in changes) else ""
    code = rewriting_code(files, "\n".join(changes), modules="os, pandas, re", encoding=encoding)
    return f"{factors}, for example with this Python code:{code}"


def infer_command(spec: DatasetSpec, folder: Path) -> str:
    """Return the command that infers the spec of the files in `folder`."""
    path = quote(str(folder if is_train_file(Path(spec.train.name)) else folder / spec.train.name))
    targets = "".join(f" --target {quote(name)}" for name in spec.target)
    encoding = "" if spec.encoding == "utf-8" else f" --encoding {quote(spec.encoding)}"
    return f"mlxfp data infer {path}{targets}{encoding}"


def _has_commas(file: Path) -> bool:
    """Return True for a CSV file with semicolons between columns and decimal commas."""
    return typed_reader(file) is None and delimiter_of(file) == ";"


def _as_written(spec: DatasetSpec, file: Path, names: list[str]) -> Dataset[Any]:
    types = dict.fromkeys(names, pa.string())
    return read_csv(file, delimiter=delimiter_of(file), schema=types, null_values=spec.null_values, encoding=spec.encoding)


@frozen(eq=False)
class _Column:
    """Column with codes instead of values: the index of each row's value among the distinct values, int64[N]."""

    name: str
    codes: NDArray[np.int64]
    ordered: bool
    is_identifier: bool

    @property
    def rows(self) -> int:
        return len(self.codes)

    @property
    def groups(self) -> int:
        return int(self.codes.max(initial=-1)) + 1


def _sample(rows: Dataset[Any], names: list[str]) -> pa.RecordBatch:
    table = one_chunk(to_table(select_columns(names)(rows)))
    step = -(-table.num_rows // _MOST)
    return table if step <= 1 else table.take(pa.array(np.arange(0, table.num_rows, step)))


def _columns(spec: DatasetSpec, rows: Dataset[Any]) -> Iterator[_Column]:
    table = _sample(rows, [column.name for column in spec.columns])
    for column in spec.columns:
        if column.kind.is_number:
            values = as_floats(table.column(column.name))
            # NaN sorts last, as a single value.
            codes = np.unique(values, return_inverse=True, equal_nan=True)[1]
            yield _Column(column.name, codes, ordered=True, is_identifier=_is_row_number(values))
        else:
            texts = spell(table, column.name)
            codes = np.unique(pc.fill_null(texts, "").to_numpy(zero_copy_only=False), return_inverse=True)[1]
            distinct = len(pc.unique(texts)) >= _DISTINCT * len(texts) and not texts.null_count
            words = pc.any(pc.match_substring_regex(texts, r"\s")).as_py()
            identifier = distinct and not words and decimal_mark(texts) is None and column_order(texts) is None
            yield _Column(column.name, codes, ordered=False, is_identifier=identifier)


def _is_row_number(values: NDArray[np.float64]) -> bool:
    """Return True for whole numbers in strictly ascending or descending order, such as row numbers of a file."""
    if not np.isfinite(values).all() or (values % 1).any():
        return False
    steps = np.diff(values)
    return bool((steps > 0).all() or (steps < 0).all())


def _targets(spec: DatasetSpec, rows: Dataset[Any]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    table = _sample(rows, list(spec.target))
    yield from ((name, as_floats(table.column(name))) for name in spec.target)


def _explained(column: _Column, target: NDArray[np.float64], *, classed: bool) -> float:
    """Return 1 - (error of predictions from the column) / (error of a constant prediction).

    The target of each row is predicted from the other rows.
    """
    kinds, codes = np.unique(target, return_inverse=True)
    if len(kinds) == 1 or (classed and len(kinds) > _CLASSES):
        return 0.0
    targets = np.eye(len(kinds))[codes] if classed else (codes / len(kinds))[:, None]
    count = np.bincount(column.codes, minlength=column.groups).astype(float)
    sums = np.stack([np.bincount(column.codes, values, column.groups) for values in targets.T], axis=1)
    others, known = sums[column.codes] - targets, count[column.codes] - 1
    # If a value occurs only once in the column, the target is predicted from the rows with the two nearest values.
    if column.ordered:
        neighbours = np.zeros_like(sums)
        neighbours[1:] += sums[:-1] / count[:-1, None]
        neighbours[:-1] += sums[1:] / count[1:, None]
        sides = np.full(column.groups, 2.0)
        sides[[0, -1]] = 1.0
        single = known == 0
        others[single], known[single] = neighbours[column.codes][single], sides[column.codes][single]
    mean = targets.mean(axis=0)
    predicted = np.where(known[:, None] > 0, others / np.maximum(known, 1)[:, None], mean)
    if classed:
        wrong, usual = (predicted.argmax(axis=1) != codes).sum(), (codes != mean.argmax()).sum()
        return float(1 - wrong / usual)
    return float(1 - ((predicted - targets) ** 2).sum() / ((targets - mean) ** 2).sum())
