"""Comparison of data files with a spec. A single error lists every mismatch."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.app.kaggle.specs.cells import not_numbers, rounded_integers
from mlxfp.app.kaggle.specs.reading import PARTS, Part, folder_of, hash_file, part_file, read_strings, typed_reader
from mlxfp.app.kaggle.specs.rewriting import rewriting_code
from mlxfp.app.kaggle.specs.specs import DatasetSpec, FileSpec
from mlxfp.app.kaggle.specs.spellings import find_spelling
from mlxfp.support.checks import check_types
from mlxfp.support.errors import DataError, MlxfpError, listed

Cells = Mapping[str | None, pa.ChunkedArray]  # columns of a file, as strings

_SHOWN = 5  # maximum number of values in a message


def check_spec(spec: DatasetSpec, path: str | Path) -> None:
    r"""Check the files of a competition folder against a spec. Raise a single `DataError` with all mismatches.

    The function reports:

    - missing files, different hashes, different numbers of rows;
    - missing columns;
    - missing and duplicate ids;
    - missing targets, targets outside the classes, and non-numeric or infinite targets if the target is a number;
    - non-numeric cells in numerical columns;
    - values without a name in categorical columns with named values;
    - different columns or spelling in the sample file;
    - ids present in only one of the test and sample files.

    Columns without an entry in the spec are ignored. Each file is read into memory, one file at a time.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> about = {"id": "id", "target": ["y"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> columns = [fp.kaggle.ColumnSpec(name="size", type="numerical"), fp.kaggle.ColumnSpec(name="age", type="numerical")]
    >>> spec = DatasetSpec(name="x", kind="binary", train=FileSpec(name="train.csv"), columns=columns, **about)
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.csv").write_text("id,size,y\n1,5,0\n1,big,2\n")
    ...     check_spec(spec, folder)
    Traceback (most recent call last):
    mlxfp.support.errors.DataError: Found 4 problems in the files in ...
      train.csv: the column 'age' is missing; the file has 'id', 'size', 'y'
      train.csv: 1 duplicate id in 'id': '1' (2 rows)
      train.csv: the target 'y' has 1 value not among the classes '0', '1': '2'
      train.csv: the numerical column 'size' has 1 value not written as numbers: 'big'
    Fix the files, or correct the spec of 'x'. To keep the first training row of each id, run in Python:
    import os, pandas
    frame = pandas.read_csv(...)
    frame = frame.drop_duplicates('id')
    ...

    See also: `infer_spec`.
    """
    check_types(DatasetSpec, spec=spec)
    folder = folder_of(path)
    (train, train_ids), (test, ids), (sample, sampled) = (_check_part(spec, folder, part) for part in PARTS)
    problems = [*train, *test, *sample, *_sample_problems(spec, ids, sampled)]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        raise DataError(
            f"Found {count} in the files in {str(folder)!r}:{lines}\n"
            f"Fix the files, or correct the spec of {spec.name!r}.{_duplicates_code(spec, folder, train_ids)}"
        )


def _check_part(spec: DatasetSpec, folder: Path, part: Part) -> tuple[list[str], pa.ChunkedArray | None]:
    """Return the mismatches between a file and the spec, and the values of the id column (None without an id column)."""
    file = part_file(spec, part)
    if file is None:
        return [], None
    path = folder / file.name
    if not path.is_file():
        return [f"{file.name}: the file is missing"], None
    try:
        table = read_strings(path, spec)
    except MlxfpError as error:
        return [f"{file.name}: {error}"], None
    cells = dict(zip(table.column_names, table.columns, strict=True))
    mismatches = _check_sample(spec, cells) if part == "sample" else _check_rows(spec, cells, spec.target if part == "train" else ())
    return [f"{file.name}: {problem}" for problem in (*_file_problems(file, path, table.num_rows), *mismatches)], cells.get(spec.id)


def _duplicates_code(spec: DatasetSpec, folder: Path, ids: pa.ChunkedArray | None) -> str:
    """Return a sentence with Python code that removes training rows with duplicate ids from a CSV file, or an empty string."""
    path = folder / spec.train.name
    if ids is None or ids.null_count or typed_reader(path) is not None or len(ids) == len(ids.unique()):
        return ""
    code = rewriting_code([path], f"frame = frame.drop_duplicates({spec.id!r})", encoding=spec.encoding)
    return f" To keep the first training row of each id, run in Python:{code}"


def _file_problems(file: FileSpec, path: Path, rows: int) -> Iterator[str]:
    if file.rows is not None and file.rows != rows:
        yield f"the file has {rows:,} rows, but the spec has {file.rows:,}"
    if file.sha256 is not None and (digest := hash_file(path)) != file.sha256:
        yield f"sha256 is {digest}, but the spec has {file.sha256}"


def _sample_problems(spec: DatasetSpec, ids: pa.ChunkedArray | None, sampled: pa.ChunkedArray | None) -> list[str]:
    if ids is None or sampled is None or spec.sample is None:
        return []
    pairs = ((ids, sampled, "of the test file not in the sample"), (sampled, ids, "of the sample not in the test file"))
    return [
        f"{spec.sample.name}: {_count(only, 'id')} {relation}: {_shown(only.to_pylist())}"
        for some, others, relation in pairs
        if len(only := some.filter(pc.invert(pc.is_in(some, others))))
    ]


def _check_rows(spec: DatasetSpec, cells: Cells, targets: Sequence[str]) -> Iterator[str]:
    required = (spec.id, *targets, spec.group, spec.time, *(column.name for column in spec.columns))
    missing = [name for name in dict.fromkeys(required) if name is not None and name not in cells]
    if missing:
        verb = "column {} is" if len(missing) == 1 else "columns {} are"
        yield f"the {verb.format(', '.join(map(repr, missing)))} missing; the file has {', '.join(map(repr, cells))}"
    yield from _check_ids(spec, cells)
    for name in targets:
        if name in cells:
            yield from _check_target(spec, name, cells[name])
    for column in spec.columns:
        subject = f"the {column.type} column {column.name!r}"
        if column.name not in cells:
            continue
        if column.values:
            yield from _unknown(cells[column.name], [value for value, _ in column.values], subject, "not named in the spec")
        else:
            unfit = column.kind.unfit(cells[column.name])
            yield from _list(unfit, subject, f"not written as {column.kind.holds}")
            if column.kind.is_number and not len(unfit):
                yield from _rounded(cells[column.name], subject)


def _check_sample(spec: DatasetSpec, cells: Cells) -> Iterator[str]:
    yield from _check_ids(spec, cells)
    if spec.submission is None:
        return
    columns, spelled = spec.submission.columns, spec.submission.spelling
    if tuple(cells) != columns:
        yield f"the columns are {', '.join(map(repr, cells))}, but the spec has {', '.join(map(repr, columns))}"
    for name in columns:
        if name != spec.id and name in cells:
            values = cells[name].drop_null().to_pylist()
            spelling = find_spelling(set(values), spelled)
            odd = [value for value in values if not spelling.fits(value)]
            if odd:
                yield f"the column {name!r} has {_count(odd, 'value')} not spelled as {spelled}: {_shown(odd)}"


def _check_ids(spec: DatasetSpec, cells: Cells) -> Iterator[str]:
    if spec.id is None or spec.id not in cells:
        return
    if missing := cells[spec.id].null_count:
        yield f"{missing} of the ids in {spec.id!r} are missing"
    counts = Counter(cells[spec.id].drop_null().to_pylist())
    duplicates = [f"{value!r} ({count:,} rows)" for value, count in counts.items() if count > 1]
    if duplicates:
        yield f"{_count(duplicates, 'duplicate id')} in {spec.id!r}: {listed(duplicates, most=_SHOWN)}"


def _check_target(spec: DatasetSpec, name: str, texts: pa.ChunkedArray) -> Iterator[str]:
    if missing := texts.null_count:
        yield f"the target {name!r} is missing in {missing} row{'s' if missing > 1 else ''}"
    if spec.task.has_classes:
        yield from _unknown(texts, spec.classes, f"the target {name!r}", f"not among the classes {_shown(spec.classes)}")
    else:
        wrong = not_numbers(texts)
        yield from _list(wrong, f"the target {name!r}", "not written as numbers")
        numbers = pc.utf8_trim_whitespace(pc.if_else(pc.is_in(texts, wrong), pa.scalar(None, pa.string()), texts)).cast(pa.float64())
        if (row := pc.index(pc.is_inf(numbers), pa.scalar(True)).as_py()) >= 0:  # noqa: FBT003  # a value to search
            yield f"the target {name!r} must be finite, got {texts[row].as_py()!r} in row {row}"


def _rounded(texts: pa.ChunkedArray, subject: str) -> Iterator[str]:
    if rounded := sorted(set(rounded_integers(texts))):
        yield f"{subject} has {_count(rounded, 'integer')} above 2**53, which floats round; use the type categorical: {_shown(rounded)}"


def _unknown(texts: pa.ChunkedArray, known: Sequence[str], subject: str, problem: str) -> Iterator[str]:
    values = texts.drop_null().unique()
    return _list(values.filter(pc.invert(pc.is_in(values, pa.array(known)))), subject, problem)


def _list(values: pa.Array, subject: str, problem: str) -> Iterator[str]:
    if len(values):
        yield f"{subject} has {_count(values, 'value')} {problem}: {_shown(values.to_pylist())}"


def _count(values: Sized, noun: str) -> str:
    return f"{len(values):,} {noun}{'s' if len(values) > 1 else ''}"


def _shown(values: Sequence[str]) -> str:
    return ", ".join(map(repr, values[:_SHOWN])) + (", ..." if len(values) > _SHOWN else "")
