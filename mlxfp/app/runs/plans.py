"""A configuration made into values: the data, the folds, the metric. Nothing has been trained yet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp import Dataset, length, select_columns, to_table
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.kaggle.specs.specs import CLASSED
from mlxfp.app.kaggle.validation.folds import Fold, Folds, missing_classes
from mlxfp.app.kaggle.validation.scoring import Metric
from mlxfp.app.kaggle.validation.suspicious_columns import column_warnings, text_warnings
from mlxfp.app.runs.folders import run_folder
from mlxfp.app.runs.from_config import CHOICES, competition_data
from mlxfp.app.runs.own_parts import Code, OwnParts, own_parts
from mlxfp.app.runs.problems import config_problems, data_problems
from mlxfp.app.runs.submission import make_submission
from mlxfp.app.tasks.competition_data import CompetitionData, make_folds
from mlxfp.support.errors import ConfigError, DataError
from mlxfp.support.randomness import fold_in
from mlxfp.support.structuring import structure, unstructure

_FOLD, _ROW = "__fold__", "__place__"  # names that no column of data has


@frozen
class Plan:
    """What a run will do, as values; made by `plan`.

    >>> from attrs import fields
    >>> [field.name for field in fields(Plan)]
    ['config', 'data', 'folds', 'own']
    """

    config: RunConfig = field(repr=False)
    data: CompetitionData
    folds: Folds
    own: OwnParts = field(factory=OwnParts, repr=False)

    @property
    def folder(self) -> Path:
        """The folder of the run's files."""
        return run_folder(self.config)

    @property
    def rows(self) -> Dataset[Any]:
        """The training rows."""
        return self.data.rows

    @property
    def metric(self) -> Metric:
        """The metric of the run."""
        return self.data.metric

    def seed_of(self, fold: Fold) -> int:
        """Return the seed of a fold: each has its own weights and dropout."""
        return fold_in(0, "run", self.config.training.seed, fold.repeat, fold.number) % 2**31


def plan(config: RunConfig, *, code: Code = None) -> Plan:
    """Make values of a configuration: read the data, assign the folds, find the metric; nothing is trained.

    Without `data.path`, synthetic rows are made in the folder `data` of the run. `code` is the folder of the modules that the section `own`
    may name; a configuration that names some is refused without it, since it would run code. Raises `MissingFileError`, `ConfigError` and
    `DataError` for a configuration that cannot be run.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made = plan(fp.runs.load_config(preset="titanic", overrides=[f"output={folder}"]).config)
    >>> made.folds, made.metric.name
    (stratified: 600 rows in 5 folds, 'accuracy')
    """
    config = structure(unstructure(config), RunConfig, choices=CHOICES)
    if config.task != "competition":
        raise ConfigError(f"task: a run of {config.task} has no folds to plan. Run it: mlxfp run CONFIG, or fp.runs.run(config).")
    own = own_parts(config, code)
    data = competition_data(config, run_folder(config), own)
    if problems := (*config_problems(config), *data_problems(config, data)):
        raise ConfigError("The configuration does not fit the data:" + "".join(f"\n  {path}: {problem}" for path, problem in problems))
    _check_sample(data, decided=config.competition.threshold or config.competition.ensemble == "vote")
    chosen = config.validation
    folds = make_folds(data, method=chosen.method, count=chosen.folds, repeats=chosen.repeats, seed=chosen.seed)
    return Plan(config, data, folds, own)


def run_warnings(made: Plan) -> Iterator[str]:
    """Return what may make a score misleading, though it need not be a mistake."""
    if made.data.mismatches:
        yield made.data.mismatches
    yield from _missing_classes(made)
    first = made.folds.assignments[0]
    if made.folds.forward:
        yield (
            f"Folds go forward in time, by {made.data.spec.time!r}: the first {int((first < 0).sum()):,} rows are only trained on. "
            "For random folds: validation.method=kfold."
        )
        yield from _apart(made)
    yield from column_warnings(made.data.spec, made.rows)
    if made.config.data.spec is None and made.config.own.spec is None:  # inferred: nobody has said that these are texts
        yield from text_warnings(made.data.spec, *([made.rows] if made.data.test is None else [made.rows, made.data.test]))
    if count := int(duplicated(made).sum()):
        yield (
            f"{count:,} rows are equal to a row in another fold, in all columns that a model sees: the score is too good "
            "if these are duplicates. A group column in the spec keeps such rows together."
        )


def _apart(made: Plan) -> Iterator[str]:
    """Say how many earlier rows folds in time do not train on, as their groups validate."""
    folds, first = made.folds, made.folds.assignments[0]
    earlier, kept = (sum(counts) for counts in zip(*((int((first < fold.number).sum()), len(fold.train)) for fold in folds), strict=True))
    if folds.groups is not None:
        yield (
            f"Groups, by {made.data.spec.group!r}, that a fold validates are not trained on: that leaves out {earlier - kept:,} of "
            f"{earlier:,} earlier rows of all folds. If rows to predict have groups of the train file, leave the group out of the spec."
        )


def duplicated(made: Plan) -> NDArray[np.bool_]:
    """Return which training rows are equal to a row in another fold, in all columns that a model sees: bool[N]."""
    names = [column.name for column in made.data.spec.columns]
    first = made.folds.assignments[0]
    table = (
        to_table(select_columns(names)(made.rows))
        .append_column(_FOLD, pa.array(first))
        .append_column(_ROW, pa.array(np.arange(len(first))))
    )
    kinds = table.group_by(names).aggregate([(_FOLD, "count_distinct"), (_ROW, "list")])
    several = kinds.filter(pc.greater(kinds.column(f"{_FOLD}_count_distinct"), 1)).column(f"{_ROW}_list")
    found = np.zeros(len(first), bool)
    found[pc.list_flatten(several).to_numpy()] = True
    return found


def _missing_classes(made: Plan) -> Iterator[str]:
    """Say which classes some folds lack; of several labels, each by its name."""
    spec, targets = made.data.spec, made.data.targets
    if spec.kind in CLASSED:
        for place, column in enumerate(targets.reshape(len(targets), -1).T):
            said = missing_classes(made.folds, column, spec.classes)
            if said is not None:
                yield f"{spec.target[place]}: {said} The number of folds is validation.folds."


def _check_sample(data: CompetitionData, *, decided: bool) -> None:
    """Make a submission of arbitrary predictions: mistakes in the files are found now, and not after all folds are trained."""
    spec, count = data.spec, 0 if data.test is None else length(data.test) or 0
    single = spec.kind in CLASSED and spec.kind != "multilabel"
    width = len(spec.classes) if single else len(spec.target)
    flat = width == 1 or (single and (width == 2 or decided))
    try:
        predictions = np.full(count if flat else (count, width), 0.0 if decided else 0.4)
        make_submission(data, predictions)
    except DataError as error:
        error.add_note("No predictions could make a submission, so nothing was trained. Fix the files, or leave sample out of the spec.")
        raise
