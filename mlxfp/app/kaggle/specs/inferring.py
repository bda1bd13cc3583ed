"""Inference of a spec from the files of a competition."""

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from shlex import quote
from zipfile import ZipFile, is_zipfile

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

from mlxfp.app.kaggle.specs.cells import are_numbers
from mlxfp.app.kaggle.specs.column_kinds import COLUMN_KINDS
from mlxfp.app.kaggle.specs.dates import date_numbers, date_order
from mlxfp.app.kaggle.specs.kinds import TASK_KINDS, TargetCells, TaskKind
from mlxfp.app.kaggle.specs.reading import (
    SUFFIXES,
    as_strings,
    hash_file,
    location,
    read_cells,
    split_sample,
    without_missing,
)
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec, SubmissionSpec
from mlxfp.app.kaggle.specs.spellings import find_spelling, have_fractions
from mlxfp.support.checks import check_text, check_types
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, listed, unknown_name
from mlxfp.support.file_formats import NULL_VALUES
from mlxfp.support.formatted_numbers import NUMBER
from mlxfp.support.progress import Progress

_SHOWN = 9  # maximum number of file names in a message
_CLASSES = 20  # a target column with at most 20 distinct values is never treated as free text
_DISTINCT = 0.8  # minimum ratio of distinct ids to train rows
_FEW_TEXTS = 0.1  # maximum fraction of non-numeric cells in a target of numbers
_WHOLE = r"^\s*(\d+)\.0+\s*$"  # pattern of a whole number with a fraction of zeros
_TRUTH = "(?i)^(true|false)$"
Files = tuple[Path, Path | None, Path | None]  # train, test and sample file


def infer_spec(path: str | Path, *, target: str | Sequence[str] | None = None, encoding: str = "utf-8") -> DatasetSpec:
    r"""Propose a spec for the folder of a competition, or for a single labelled file (CSV, Parquet or JSON lines, by suffix).

    A folder holds a train file and optionally a test file and a sample file: `train.csv`, `test.csv`, `sample_submission.csv`. A
    sample file may have any name containing "submission". If several files match, a name containing "sample" takes precedence. The
    function infers:

    - the id: the column of the sample that the test file also has. At most a fifth of the train rows may repeat an id or lack an id.
      Without a sample file: a column named id with distinct values in the train file;
    - the target, unless `target` is given: the columns of the sample that the test file lacks. Without a sample file, the only column of
      the train file missing from the test file;
    - the kind, from the target values:
      - binary: two distinct values;
      - multiclass: texts, or at most 20 consecutive integers starting at 0 or 1, unless the sample has fractions such as 2.5, or more
        than 10 integers look like counts: the frequencies rise to one peak and fall to few rows. In a
        text target, None, NA and similar texts are classes, and only an empty cell is missing;
      - multilabel: several targets with values 0 and 1;
      - time series: other numbers, if all dates of the test file are later than the dates of the train file;
      - regression: all other numbers. A warning names whole numbers with two spellings, such as 1 and 1.0, that would be classes;
    - the metric: the usual metric of the kind. A sample with fractions such as 0.5, or with a column per class, asks for probabilities:
      the metric is then roc_auc for two classes and log_loss for more classes;
    - the columns and their types, from the cells. Columns with integers above 2**53, such as hashes, are categorical, because floats would
      round such integers. Columns with few values and leading zeros, such as 00123, are categorical. Columns without any value are omitted;
    - the group: without later dates in the test file, a column with values that repeat in the train file and never occur in the test
      file. Categories of this column are no input, because no model can learn from such values;
    - the hash and the number of rows of each file.

    Ordinal targets, rankings, groups without evidence, names of values and other metrics cannot be inferred: set them with
    `attrs.evolve`. `encoding` is the encoding of all CSV files, as in `read_csv`. All files are read into memory. Raises
    `MissingFileError` without a train file, `DataError` for a train file without rows, and `ArgumentError` if the target cannot be
    inferred.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.csv").write_text("id,age,purrs\n1,3,True\n2,,False\n3,9,True\n")
    ...     _ = Path(folder, "test.csv").write_text("id,age\n4,8\n")
    ...     spec = infer_spec(folder)
    >>> spec.kind, spec.id, spec.target, spec.classes, [(column.name, column.type) for column in spec.columns]
    ('binary', 'id', ('purrs',), ('False', 'True'), [('age', 'numerical')])

    See also: `check_spec`; `save_spec`, to edit the proposal as a file.
    """
    files = find_files(path)
    cells = _without_index(read_cells(files[0], encoding=encoding))
    if not cells.num_rows:
        raise DataError(f"{str(files[0])!r} has column names but no rows. Give a file with training rows.")
    others = [None if file is None else as_strings(file, read_cells(file, encoding=encoding)) for file in files[1:]]
    test, sample = (None if table is None else _without_index(table) for table in others)
    return evolve(_spec_of(path, files, (cells, test, sample), target), encoding=encoding)


def _without_index(table: pa.Table) -> pa.Table:
    """Drop the index columns that pandas writes to Parquet files."""
    return table.select([name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)])


def _spec_of(path: str | Path, files: Files, tables: Sequence[pa.Table | None], target: str | Sequence[str] | None) -> DatasetSpec:
    cells, test, sample = tables
    assert cells is not None
    columns_of = [() if table is None else tuple(table.column_names) for table in tables]
    ids, answered = split_sample(*columns_of[1:])
    names = _targets(str(files[0]), columns_of[0], columns_of[1], answered, target)
    train = as_strings(files[0], cells)
    for name in names:
        _check_numbers(files[0], train, name)
    train = _with_classes(train, names, cells)
    id_column = _id(train, ids, names)
    if test is not None and id_column not in test.column_names:
        if id_column is not None and ids:
            raise DataError(
                f"The ids have two names: {id_column!r} in {str(files[0])!r} and {ids[0]!r} in {str(files[1])!r}. Rename the column "
                f"{id_column!r} of the train file to {ids[0]!r}."
            )
        id_column = None
    with Progress(f"look at {files[0].name}", unit="columns", total=lambda: train.num_columns) as progress:
        columns = tuple(progress.over(_columns(train, test, {*names, id_column})))
    texts = [column.name for column in columns if not column.kind.is_number]
    time = None if test is None else next((name for name in texts if _is_before(train[name], test[name])), None)
    answers = set[str]() if sample is None else _answers(sample, answered, names)
    kind = _kind(str(files[0]), train, names, time, fractions=have_fractions(answers))
    classes = _classes(str(files[0]), train, names) if kind.has_classes else ()
    group = None if test is None or time is not None else find_group(train, test, [column.name for column in columns])
    inputs = tuple(column for column in columns if column.name != group or column.type != "categorical")
    return DatasetSpec(
        name=files[0].parent.name if Path(path).is_dir() else files[0].name.partition(".")[0],
        kind=kind.name,
        train=_file(files[0], train),
        test=None if files[1] is None else _file(files[1], test),
        sample=None if files[2] is None else _file(files[2], sample),
        id=id_column,
        target=names,
        classes=classes,
        group=group,
        time=time,
        columns=inputs or columns,
        metric=_metric(kind, classes, answered, answers),
        submission=None if sample is None else SubmissionSpec(columns=sample.column_names, spelling=find_spelling(answers).name),
    )


def _check_numbers(path: Path, train: pa.Table, name: str) -> None:
    """Raise `DataError` if a target of numbers also contains a few other texts, or if the numbers have formats such as "$1,000"."""
    known = train[name].drop_null()
    plain = pc.match_substring_regex(known, f"^{NUMBER}$")
    others = len(known) - (pc.sum(plain).as_py() or 0)
    if not others or len(known.unique()) <= _CLASSES or (others > _FEW_TEXTS * len(known) and not _are_formatted(known)):
        return
    numbers = pc.match_substring_regex(train[name], f"^{NUMBER}$")
    index = pc.index(numbers, pa.scalar(False)).as_py()  # noqa: FBT003  # a value to search
    raise DataError(
        f"{others:,} of {len(known):,} cells of the target {name!r} are not plain numbers: {train[name][index].as_py()!r}, in "
        f"{location(path, train, index)}. Write numbers such as 1003.96, leave the cell empty, or declare the classes in a spec."
    )


def _are_formatted(texts: pa.ChunkedArray) -> bool:
    """Return True if all texts are numbers, possibly with currency signs, percent signs or commas, or question marks for missing values."""
    return bool(pc.all(pc.match_substring_regex(texts, r"^\s*([-+]?[$€£¥]?\s*[-+]?\d[\d.,\s]*\s*[%$€£¥]?|\?)\s*$")).as_py())


def is_train_file(path: Path) -> bool:
    """Return True if the file name is `train` followed by a supported suffix."""
    return path.name.lower() in {f"train{suffix}" for suffix in SUFFIXES}


def _check_archive(path: Path) -> None:
    """Raise `DataError` for an archive with several files, such as the download of a competition."""
    if not is_zipfile(path) or path.suffix.lower() != ".zip":
        return
    with ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) > 1:
        folder = str(path.with_suffix(""))
        raise DataError(
            f"The archive {str(path)!r} has several files: {listed(map(repr, names))}. Unpack the archive: unzip {quote(str(path))} "
            f"-d {quote(folder)}, then give the folder {folder!r}."
        )


def find_files(path: str | Path) -> Files:
    """Return the paths of the train, test and sample files. Raise `MissingFileError` without a train file."""
    check_types((str, Path), path=path)
    if Path(path).is_file():
        _check_archive(Path(path))
        return Path(path), None, None
    if not Path(path).is_dir():
        raise MissingFileError(f"There is no file or folder at {str(path)!r}. Give the folder of a competition, or a file.")
    every = sorted(file for file in Path(path).glob("*") if not file.name.startswith("."))
    files = [file for file in every if file.name.lower().endswith(SUFFIXES)]
    train = next(filter(is_train_file, files), None)
    if train is None:
        shown = [*(repr(file.name) for file in (files or every)[:_SHOWN]), *(["..."] if len(every) > _SHOWN else [])]
        if archive := next((file for file in every if is_zipfile(file)), None):
            _check_archive(archive)
        present = ", ".join(shown if files else ["no CSV, Parquet or JSON lines file", *shown])
        raise MissingFileError(
            f"There is no train.csv in {str(path)!r}. The folder contains {present}. Give the unpacked folder with "
            "train.csv, train.parquet or train.jsonl, or the path of a file. For other file names, write a spec."
        )
    tests = [file for file in files if file.name.lower() in {f"test{suffix}" for suffix in SUFFIXES}]
    samples = [file for file in files if "submission" in file.name.lower()]
    if len(samples) > 1:
        samples = [file for file in samples if "sample" in file.name.lower()]
    # Prefer the shortest name: "sample_submission (1).csv" is a repeated download, and other longer names are variants.
    return train, next(iter(tests), None), min(samples, key=lambda file: len(file.name), default=None)


def _file(path: Path, table: pa.Table) -> FileSpec:
    return FileSpec(name=path.name, sha256=hash_file(path), rows=table.num_rows)


def _with_classes(train: pa.Table, targets: Sequence[str], cells: pa.Table) -> pa.Table:
    """Read the words None and NA as class names if the classes of a target are texts. Only empty cells are missing in such targets."""
    for name in targets:
        known = train[name].drop_null()
        if not len(known) or (not are_numbers(known) and not pc.all(pc.match_substring_regex(known, _TRUTH)).as_py()):
            texts = without_missing(cells[name], [value for value in NULL_VALUES if not value.strip()])
            train = train.set_column(train.column_names.index(name), name, texts)
    return train


def _id(train: pa.Table, first: Sequence[str], targets: Sequence[str]) -> str | None:
    """Return the id column. An id of the sample file may have a few duplicates, which `check_spec` reports."""
    fewest = {name: _DISTINCT if name in first else 1.0 for name in train.column_names if name in first or name.lower() == "id"}
    names = sorted((name for name in fewest if name not in targets), key=fewest.__getitem__)  # try the columns of the sample file first
    return next((name for name in names if len(train[name].drop_null().unique()) >= fewest[name] * train.num_rows), None)


def _columns(train: pa.Table, test: pa.Table | None, excluded: set[str | None]) -> Iterator[ColumnSpec]:
    titles: set[str] = set()
    other = train.slice(0, 0) if test is None else test
    tested = set(other.column_names)
    for name in train.column_names:
        if name in excluded or name not in tested or train[name].null_count == train.num_rows:
            continue
        known, others = (table[name].drop_null() for table in (train, other))
        kinds = [kind.name for kind in COLUMN_KINDS.values() if kind.recognizes(known, others)]
        column = ColumnSpec(name=name, type=kinds[-1])
        numbered = (f"{column.title} {number}" for number in count(2))
        title = next(title for title in chain([column.title], numbered) if title not in titles)
        titles |= {title}
        yield evolve(column, title=title)


def _targets(
    path: str, train: tuple[str, ...], test: tuple[str, ...], answered: tuple[str, ...], target: str | Sequence[str] | None
) -> tuple[str, ...]:
    if target is not None:
        names = (target,) if isinstance(target, str) else tuple(target)
        check_text(**{f"target {index}": name for index, name in enumerate(names)})
        if not names:
            raise ArgumentError("target is empty. Give the name of a column, or omit target to infer the target.")
        for name in names:
            if name not in train:
                raise unknown_name(f"column of {path}", name, train)
        return names
    if answered and set(answered) <= set(train):
        return answered
    only = tuple(name for name in train if name not in test)
    if test and len(only) == 1:
        return only
    why = f"the test file lacks {len(only)} columns of the train file" if test else "there is no test file for comparison"
    raise ArgumentError(
        f"The target in {path!r} cannot be inferred: {why}. Pass target=, or write a spec. Candidates: {', '.join(map(repr, only))}."
    )


def _kind(path: str, rows: pa.Table, names: tuple[str, ...], time: str | None, *, fractions: bool) -> TaskKind:
    frequencies = [rows[name].drop_null().value_counts() for name in names]
    kinds, counts = ([entry.field(field) for entry in frequencies] for field in ("values", "counts"))
    least = 2 if len(kinds) == 1 else 1
    constant = next(((name, len(distinct)) for name, distinct in zip(names, kinds, strict=True) if len(distinct) < least), None)
    if constant is not None:
        raise ArgumentError(
            f"The target {constant[0]!r} in {path!r} has {constant[1]} distinct values: there is nothing to learn. Choose another target."
        )
    cells = TargetCells(kinds, counts, numbers=all(map(are_numbers, kinds)), dated=time is not None, fractions=fractions)
    kind = next((candidate for candidate in TASK_KINDS.values() if candidate.recognizes(cells)), None)
    if kind is not None and not kind.has_classes:
        _warn_of_spellings(path, rows.select(names), cells)
    if kind is None:
        raise ArgumentError(
            f"Several targets must be columns of numbers, for example labels with the values 0 and 1. "
            f"The targets {', '.join(names)} in {path!r} contain other values. Choose one target."
        )
    return kind


def _warn_of_spellings(path: str, rows: pa.Table, cells: TargetCells) -> None:
    """Warn if targets are numbers only because whole numbers have two spellings, such as 1 and 1.0."""
    frequencies = [pc.replace_substring_regex(column, _WHOLE, r"\1").drop_null().value_counts() for column in rows.columns]
    kinds, counts = ([entry.field(field) for entry in frequencies] for field in ("values", "counts"))
    pairs = [(text, f"{text}.0") for values in kinds for text in values.to_pylist()]
    written = set(chain.from_iterable(values.to_pylist() for values in cells.distinct))
    pair = next((pair for pair in pairs if written.issuperset(pair)), None)
    plain = cells._replace(distinct=kinds, counts=counts)
    if pair is None or not next(kind for kind in TASK_KINDS.values() if kind.recognizes(plain)).has_classes:
        return
    change = "; ".join(f"frame[{name!r}] = frame[{name!r}].astype(float).map('{{:g}}'.format)" for name in rows.column_names)
    warnings.warn(
        f"The target {listed(map(repr, rows.column_names))} in {path!r} is read as numbers, not as classes, because whole numbers have two "
        f"spellings: {pair[0]!r} and {pair[1]!r}. For classes, write one spelling, in pandas with {change}.",
        RuntimeWarning,
        stacklevel=2,
    )


def _classes(path: str, train: pa.Table, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > 1:
        return ("0", "1")
    known = train[names[0]].drop_null()
    values = known.unique()
    if len(values) > _CLASSES and 2 * len(values) > len(known):
        raise ArgumentError(
            f"The target column {names[0]!r} has {len(values):,} distinct values in {len(known):,} rows of {path!r}; the values look like "
            f"free text, such as {values[0].as_py()!r:.60}. Choose a target of classes or numbers: --target NAME, or in Python "
            "target=NAME."
        )
    return tuple(sorted(values.to_pylist(), key=float if are_numbers(values) else str))


def _answers(sample: pa.Table, answered: tuple[str, ...], targets: tuple[str, ...]) -> set[str]:
    """Return the distinct target values in the sample submission.

    A single prediction column of the sample belongs to a single target, even if the names differ.
    """
    names = answered if len(targets) == len(answered) == 1 else {*targets} & {*sample.column_names}
    return {cell for name in names for cell in sample[name].drop_null().unique().to_pylist()}


def _metric(kind: TaskKind, classes: tuple[str, ...], columns: Sequence[str], answers: set[str]) -> str:
    """Return the usual metric for a kind of target. If the sample submission contains probabilities, return a metric of probabilities."""
    if kind.one_class and (len(columns) > 1 or (kind.two_classes and have_fractions(answers - {*classes}))):
        return "roc_auc" if len(classes) == 2 else "log_loss"
    return kind.metrics[0]


def _is_before(train: pa.ChunkedArray, test: pa.ChunkedArray) -> bool:
    """Return True if both columns hold only dates and all train dates precede all test dates."""
    if not len(test) or train.null_count or test.null_count:
        return False
    order = date_order(pa.chunked_array([*train.chunks, *test.chunks]))
    return order is not None and bool(date_numbers(train, order)[:, 0].max() < date_numbers(test, order)[:, 0].min())


_GROUPS = 10  # minimum number of groups in the train file
_ROWS = 3  # minimum number of train rows per group on average
_SHARED = 0.8  # minimum fraction of train rows in groups of at least two rows
_TESTED = (20, 2)  # minimum numbers of test rows and of test groups; a smaller test file may contain only new groups by chance


def find_group(train: pa.Table, test: pa.Table, names: list[str]) -> str | None:
    """Return the group column of a competition that was split by groups, or None. All cells of both tables must be strings.

    The argument `names` holds the candidate columns. In a split by groups, no group is in both files. A random split would put most groups
    in both files. If several columns are possible, the column with the fewest groups is returned.

    A column of numbers is accepted only if at least half of the test numbers lie between the smallest and largest train number. Larger
    numbers may be counters instead of groups, such as order numbers.

    >>> train = pa.table({"storm": [f"s{row // 4}" for row in range(60)]})
    >>> test = pa.table({"storm": [f"t{row // 4}" for row in range(20)]})
    >>> find_group(train, test, ["storm"]), find_group(train, train, ["storm"])
    ('storm', None)
    """
    groups = [name for name in names if _are_groups(train[name], test[name])]
    return min(groups, key=lambda name: len(train[name].unique()), default=None)


def _are_groups(known: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    others = others.drop_null()
    distinct, tested = known.unique(), others.unique()
    if known.null_count or len(distinct) < _GROUPS or len(known) < _ROWS * len(distinct) or (len(others), len(tested)) < _TESTED:
        return False
    if len(tested) < _TESTED[1] or pc.any(pc.is_in(tested, distinct)).as_py():
        return False
    counts = known.value_counts().field("counts")
    if pc.sum(counts.filter(pc.greater(counts, 1))).as_py() < _SHARED * len(known):
        return False
    if not (are_numbers(distinct) and are_numbers(tested)):
        return True
    numbers, new = (pc.utf8_trim_whitespace(values).cast(pa.float64()) for values in (distinct, tested))
    inside = pc.and_(pc.greater(new, pc.min(numbers)), pc.less(new, pc.max(numbers)))
    return bool(2 * pc.sum(inside).as_py() >= len(new))
