"""The data of a competition, as a configuration names it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mlxfp.config.classes import DataConfig, ValidationConfig
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length, schema
from mlxfp.core.errors import ArgumentError, DataError, MissingFileError, UnknownNameError
from mlxfp.core.randomness import fold_in, generator
from mlxfp.data.rows.selecting import select
from mlxfp.data.sources.in_memory import from_table
from mlxfp.kaggle.specs.catalogue import named_spec
from mlxfp.kaggle.specs.checking import check_spec
from mlxfp.kaggle.specs.inferring import infer_spec
from mlxfp.kaggle.specs.reading import Part, folder_of, part_file, read_part
from mlxfp.kaggle.specs.specs import CLASSED, DatasetSpec
from mlxfp.kaggle.specs.synthetic import write_synthetic
from mlxfp.kaggle.specs.tables import column_values, to_table
from mlxfp.kaggle.validation import folds as dealing
from mlxfp.kaggle.validation.cross_validation import target_numbers
from mlxfp.kaggle.validation.folds import Folds
from mlxfp.kaggle.validation.scoring import METRICS, Metric, Numbers
from mlxfp.tasks.targets import numbered

_YEAR = re.compile(r"\d{4}(?!\d)")
_BINS = 10  # of a number to predict, by which folds are stratified


@frozen
class Problem:
    """What is to be predicted from what: the spec, and the rows of its files, those of training with numbers as targets.

    `test` is None where there is no test file, and never has the targets. `mismatches` is what `check_spec` says of the files, empty if
    all is as the spec says.

    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse"}
    >>> spec = DatasetSpec(name="x", kind="regression", columns=[ColumnSpec(name="size", type="numerical")], **about)
    >>> found = Problem(spec, Path("x"), from_table({"size": [1.0, 2.0], "y": [5.0, 7.0]}))
    >>> found.targets.tolist(), found.metric().name, found.path_of("train")
    ([5.0, 7.0], 'rmse', None)

    See also: `problem`, which makes it.
    """

    spec: DatasetSpec = field(repr=lambda spec: repr(spec.name))
    folder: Path
    rows: Dataset[Any] = field(repr=False)
    test: Dataset[Any] | None = field(default=None, repr=False)
    mismatches: str = field(default="", repr=False)

    @property
    def targets(self) -> Numbers:
        """The numbers to predict, float64[N], of several columns [N, T]; raises `DataError` for such that are missing."""
        return target_numbers(self.rows, self.spec.target)

    def metric(self, name: str | None = None) -> Metric:
        """Return the metric that counts: of this name, or that of the spec."""
        return METRICS[name or self.spec.metric]

    def path_of(self, part: Part) -> Path | None:
        """Return the path of a file that is there, or None."""
        file = part_file(self.spec, part)
        return self.folder / file.name if file is not None and (self.folder / file.name).is_file() else None


def problem(config: DataConfig, *, made_up: Path | None = None, metric: str | None = None, seed: int = 0) -> Problem:
    """Read the data that a configuration names: a folder with files, and a spec that is known, in a file, or found by looking.

    Without a path, rows are made up for the spec, in the folder `made_up`. The rows are held in memory, so the pipelines made of them are
    known by what they hold, wherever the files are. With `config.limit`, so many of the training rows, drawn by `seed`, in their order.
    `metric` takes the place of that of the spec, which also decides how values are learned.

    Raises `MissingFileError` where there are no files, `ArgumentError` where the target cannot be told or no data set is named to make up
    rows for, `UnknownNameError` for a data set or a metric that is not known, and `ConfigError` for a spec file with mistakes.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     found = problem(DataConfig(spec="titanic", limit=50), made_up=Path(folder))
    >>> length(found.rows), length(found.test), set(found.targets.tolist()) == {0.0, 1.0}, found.mismatches
    (50, 200, True, '')
    """
    named = None if config.spec is None else named_spec(config.spec)
    if config.path is None:
        if made_up is None:
            raise MissingFileError("There is no data: data.path says nothing. Give the folder of the competition, data.path=FOLDER.")
        if named is None:
            raise ArgumentError("Rows can be made up for a known data set only: give data.spec, such as data.spec=titanic, or data.path.")
        spec, folder = write_synthetic(named, made_up, seed=seed), made_up
    else:
        folder = folder_of(config.path)
        if not folder.is_dir():
            raise MissingFileError(
                f"There is no folder {str(folder)!r}. Give the one that holds the competition's files: data.path=FOLDER."
            )
        spec = named if named is not None else infer_spec(config.path)
    spec = evolve(spec, metric=METRICS[metric or spec.metric].name)
    try:
        rows = from_table(to_table(read_part(spec, folder)))
    except UnknownNameError as error:
        error.add_note(f"The columns are those of data.spec={config.spec!r}; with data.spec=null they are what the files look like.")
        raise
    if config.limit is not None and config.limit < (count := length(rows) or 0):
        rows = select(np.sort(generator(fold_in(0, "limit", seed)).permutation(count)[: config.limit]))(rows)
    found = Problem(spec, folder, numbered(spec, rows), mismatches=_mismatches(spec, folder))
    if found.path_of("test") is None:
        return found
    test = to_table(read_part(spec, folder, part="test"))
    return evolve(found, test=from_table(test.drop_columns([name for name in spec.target if name in test.column_names])))


def deal(found: Problem, config: ValidationConfig) -> Folds:
    """Deal the training rows to folds as a configuration says, or as the spec asks for: by time or by groups if it names such a column.

    Of a number to predict, what is stratified are its tenths, and of several labels how many are there. Times that are all numbers are in
    the order of numbers, others in that of their texts, as dates from the year to the day. Raises `ArgumentError` for a method that the
    spec has no column for, for times in no order that is known, and for numbers of folds that the rows do not allow.

    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, FileSpec
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse", "time": "week"}
    >>> spec = DatasetSpec(name="x", kind="time_series", columns=[ColumnSpec(name="size", type="numerical")], **about)
    >>> found = Problem(spec, Path("x"), from_table({"week": ["9", "10", "11"], "size": [1.0, 2.0, 3.0], "y": [5.0, 7.0, 9.0]}))
    >>> [(fold.train.tolist(), fold.valid.tolist()) for fold in deal(found, ValidationConfig(folds=2))]
    [([0], [1]), ([0, 1], [2])]
    """
    spec: DatasetSpec = found.spec
    method: str = config.method
    if method == "auto":
        grouped = "grouped" if spec.kind not in CLASSED else "stratified_grouped"
        method = "time" if spec.time is not None else grouped if spec.group is not None else "stratified"
    if method == "time":
        if config.repeats > 1:
            raise ArgumentError(f"Folds in time are dealt once, got validation.repeats={config.repeats}. Leave it out.")
        return dealing.time(_in_order(_column(found, spec.time, "time")), count=config.folds)
    dealt: dict[str, Any] = {"count": config.folds, "seed": config.seed, "repeats": config.repeats}
    if method == "kfold":
        return dealing.kfold(length(found.rows) or 0, **dealt)
    if method == "stratified":
        return dealing.stratified(_strata(found), **dealt)
    groups = _column(found, spec.group, "group")
    if method == "grouped":
        return dealing.grouped(groups, **dealt)
    return dealing.stratified_grouped(_strata(found), groups, **dealt)


def _mismatches(spec: DatasetSpec, folder: Path) -> str:
    try:
        check_spec(spec, folder)
    except DataError as error:
        return str(error)
    return ""


def _strata(found: Problem) -> Any:
    """Return classes, one a row: of numbers their tenths, of several labels the number of those that are there."""
    values = found.targets
    if found.spec.kind in CLASSED:
        return values if values.ndim == 1 else values.sum(axis=1)
    values = values if values.ndim == 1 else values[:, 0]
    known = np.sort(values)
    return np.searchsorted(known[[place * len(known) // _BINS for place in range(1, _BINS)]], values, side="right")


def _in_order(times: NDArray[Any]) -> NDArray[Any]:
    """Make numbers of texts that all are such, as "10" comes before "9" in the order of texts; refuse others that begin with no year."""
    try:
        return times.astype(np.float64)
    except (TypeError, ValueError):
        wrong = next((text for text in times if text is not None and not _YEAR.match(text)), None)
    if wrong is not None:
        raise ArgumentError(
            f"Times must be numbers or begin with their year, as in 2026-11-21, got {wrong!r}: as texts, later ones would come before "
            "earlier. Write them so in the files, or deal otherwise: validation.method=kfold."
        )
    return times


def _column(found: Problem, name: str | None, what: str) -> NDArray[Any]:
    if name is None or name not in schema(found.rows).names:
        raise ArgumentError(
            f"Folds by {what} need a column, and the spec of {found.spec.name!r} has {what}={name!r}. Name one that is in the train file."
        )
    return column_values(found.rows, name)
