"""Competition data: the spec, the rows of the files, and the folds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mlxfp import Dataset, from_table, length, schema, select, to_table
from mlxfp.app.kaggle.specs.checking import check_spec
from mlxfp.app.kaggle.specs.dates import sortable_times
from mlxfp.app.kaggle.specs.inferring import infer_spec
from mlxfp.app.kaggle.specs.reading import Part, folder_of, location, part_file, read_cells, read_part, typed_reader, with_types
from mlxfp.app.kaggle.specs.rewriting import rewriting_code
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.specs.tables import column_values
from mlxfp.app.kaggle.validation import folds
from mlxfp.app.kaggle.validation.cross_validation import target_numbers
from mlxfp.app.kaggle.validation.folds import Folds
from mlxfp.app.kaggle.validation.scoring import METRICS, Metric, Numbers
from mlxfp.app.tasks.targets import numbered
from mlxfp.support.checks import check_types
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, UnknownNameError, suggest_path
from mlxfp.support.randomness import fold_in, generator
from mlxfp.support.registries import Registry

ReadRows = Callable[[Path, Part], Dataset[Any] | None]


@frozen
class CompetitionData:
    """Spec and rows of a competition. Targets of training rows are numbers.

    `test` is None without a test file, and never contains the targets. `mismatches` is the report of `check_spec`, empty if the
    files match the spec.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="size", type="numerical")], **about)
    >>> data = CompetitionData(spec, Path("x"), fp.from_table({"size": [1.0, 2.0], "y": [5.0, 7.0]}))
    >>> data.targets.tolist(), data.metric.name, data.path_of("train")
    ([5.0, 7.0], 'rmse', None)

    See also: `read_competition`, which makes it.
    """

    spec: DatasetSpec = field(repr=lambda spec: repr(spec.name))
    folder: Path
    rows: Dataset[Any] = field(repr=False)
    test: Dataset[Any] | None = field(default=None, repr=False)
    mismatches: str = field(default="", repr=False)

    @property
    def targets(self) -> Numbers:
        """Targets of the training rows, float64[N], or [N, T] for several columns. Raises `DataError` for missing targets."""
        return target_numbers(self.rows, self.spec.target)

    @property
    def metric(self) -> Metric:
        """Metric of the competition."""
        return METRICS[self.spec.metric]

    def path_of(self, part: Part) -> Path | None:
        """Return the path of the train, test or sample file that the spec names, or None if the file does not exist."""
        file = part_file(self.spec, part)
        return self.folder / file.name if file is not None and (self.folder / file.name).is_file() else None


def read_competition(  # noqa: PLR0913  # keyword-only arguments with defaults
    path: str | Path,
    *,
    spec: DatasetSpec | None = None,
    rows: ReadRows | None = None,
    limit: int | None = None,
    metric: str | None = None,
    seed: int = 0,
) -> CompetitionData:
    """Read the files of a competition into memory.

    - `path` is the folder of the competition, or any file in this folder.
    - `spec` describes the files. By default, the spec is inferred from the files.
    - `rows` is a function that replaces the files. `rows(path, "train")` returns a dataset, and `rows(path, "test")` a dataset or None.
    - `limit` is the maximum number of training rows. The rows are drawn with `seed` and stay in file order.
    - `metric` is used instead of the metric in the spec. For regressions, the metric also determines the loss of the training.

    Raises `MissingFileError` for missing files, `DataError` for a train file without rows, `ArgumentError` if the target cannot be
    inferred or the metric does not suit the target, and `UnknownNameError` for an unknown metric.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder)
    ...     data = read_competition(folder, spec=spec, limit=50)
    >>> length(data.rows), length(data.test), set(data.targets.tolist()) == {0.0, 1.0}, data.mismatches
    (50, 200, True, '')
    """
    folder = folder_of(path)
    if rows is None and not folder.is_dir():
        raise MissingFileError(
            f"There is no folder {str(folder)!r}.{suggest_path(folder)} Give the folder with the competition's files: data.path=FOLDER."
        )
    given, spec = spec, infer_spec(path) if spec is None else spec
    if metric is not None and (unfit := spec.task.unfit_metric(METRICS[metric].name)):
        raise ArgumentError(f"The metric does not fit the target of {spec.name!r}: {unfit}.")
    spec = evolve(spec, metric=metric or spec.metric)
    try:
        table = _table(spec, Path(path), "train", rows)
    except UnknownNameError as error:
        if given is not None:
            error.add_note(f"The columns come from the spec of {spec.name!r}. With data.spec=null, columns are inferred from the files.")
        raise
    train = from_table(table)
    if not length(train):
        name = str(folder / spec.train.name) if rows is None else "rows(path, 'train')"
        raise DataError(f"{name!r} has column names but no rows. Give a file with training rows.")
    for name in spec.target:
        _check_gaps(table[name], name, folder / spec.train.name if rows is None else None, spec.encoding)
    if limit is not None and limit < (count := length(train) or 0):
        train = select(np.sort(generator(fold_in(0, "limit", seed)).permutation(count)[:limit]))(train)
    data = CompetitionData(spec, folder, numbered(spec, train), mismatches="" if rows else _mismatches(spec, folder))
    test = _table(spec, Path(path), "test", rows) if rows or data.path_of("test") is not None else None
    return data if test is None else evolve(data, test=from_table(test.drop_columns(sorted({*spec.target} & {*test.column_names}))))


def make_folds(data: CompetitionData, *, method: str = "auto", count: int = 5, repeats: int = 1, seed: int = 0) -> Folds:
    """Assign the training rows to folds with a method of `FOLD_METHODS`.

    The method "auto" depends on the columns that the spec names:

    - With a time column, the folds are consecutive periods of time (method "time"). If the spec also names a group column, a fold
      does not train on the groups of its validation rows.
    - With only a group column, all rows of a group are in the same fold.
    - With neither column, the folds are stratified.

    Stratified folds have similar shares of each class. For regressions, deciles of the target replace the classes. For several labels per
    row, the number of labels replaces the classes. Times are sorted as in `folds.time`.

    Raises `ArgumentError` if the spec does not name the column of the method, if times cannot be sorted, or for too many folds.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse", "time": "week"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="time_series", columns=[fp.kaggle.ColumnSpec(name="size", type="numerical")], **about)
    >>> rows = fp.from_table({"week": ["9", "10", "11"], "size": [1.0, 2.0, 3.0], "y": [5.0, 7.0, 9.0]})
    >>> [(fold.train.tolist(), fold.valid.tolist()) for fold in make_folds(CompetitionData(spec, Path("x"), rows), count=2)]
    [([0], [1]), ([0, 1], [2])]
    """
    spec: DatasetSpec = data.spec
    if method == "auto":
        method = "time" if spec.time is not None else spec.task.grouped_folds if spec.group is not None else "stratified"
    result: Folds = FOLD_METHODS[method](data, count=count, repeats=repeats, seed=seed)
    return result


def _time(data: CompetitionData, *, count: int, repeats: int, seed: int) -> Folds:
    if repeats > 1:
        raise ArgumentError(f"Folds by time are equal in every repeat, so repeats must be 1, got repeats={repeats}. Remove repeats.")
    groups = None if data.spec.group is None else _column(data, data.spec.group, "group")
    times = sortable_times(f"the column {data.spec.time!r}", _column(data, data.spec.time, "time"))
    return folds.time(times, count=count, groups=groups)


FOLD_METHODS: Registry[Callable[..., Folds]] = Registry(
    "fold method",
    {
        "kfold": lambda data, **options: folds.kfold(length(data.rows) or 0, **options),
        "stratified": lambda data, **options: folds.assign("stratified", data.spec.task.strata(data.targets), None, **options),
        "grouped": lambda data, **options: folds.grouped(_column(data, data.spec.group, "group"), **options),
        "stratified_grouped": lambda data, **options: folds.assign(
            "stratified_grouped", data.spec.task.strata(data.targets), _column(data, data.spec.group, "group"), **options
        ),
        "time": _time,
    },
)


def _table(spec: DatasetSpec, path: Path, part: Part, read: ReadRows | None) -> Any:
    """Read the train or test rows into memory. Return None if there are no test rows."""
    if read is None:
        return to_table(read_part(spec, path, part=part))
    rows = read(path, part)
    if rows is None and part == "test":
        return None
    check_types(Dataset, **{f"what rows(path, {part!r}) returns": rows})
    assert rows is not None
    return to_table(with_types(spec, rows, part=part))


def _check_gaps(targets: pa.ChunkedArray, name: str, path: Path | None, encoding: str) -> None:
    """Raise `DataError` if rows have no target. The error shows the code that removes these rows. `path=None`: no file was read."""
    if not targets.null_count:
        return
    index = pc.index(targets.is_null(), pa.scalar(True)).as_py()  # noqa: FBT003  # a value to search
    problem = f"{targets.null_count:,} of {len(targets):,} training rows have no value in the target {name!r}"
    if path is None or typed_reader(path) is not None:
        raise DataError(f"{problem}, first in row {index}{'' if path is None else f' of {str(path)!r}'}. Remove these rows.")
    cells = read_cells(path, encoding=encoding)
    texts = cells[name].filter(targets.is_null()).unique().to_pylist()
    code = rewriting_code([path], f"frame = frame[~frame[{name!r}].isin({texts!r})]", encoding=encoding)
    raise DataError(
        f"{problem}: got {texts[0]!r}, first in {location(path, cells, index)}. Remove these rows, for example with this Python code:{code}"
    )


def _mismatches(spec: DatasetSpec, folder: Path) -> str:
    try:
        check_spec(spec, folder)
    except DataError as error:
        return str(error)
    return ""


def _column(data: CompetitionData, name: str | None, role: str) -> NDArray[Any]:
    if name is None or name not in schema(data.rows).names:
        raise ArgumentError(
            f"Folds by {role} need a column, but the spec of {data.spec.name!r} has {role}={name!r}. "
            f"Set {role} to a column of the train file."
        )
    return column_values(data.rows, name)
