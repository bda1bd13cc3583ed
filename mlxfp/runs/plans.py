"""A configuration made into values: the data, the folds, the metric. Nothing has been trained yet."""

from pathlib import Path
from typing import Any

from attrs import field, frozen

from mlxfp.config.classes import RunConfig
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ConfigError
from mlxfp.core.randomness import fold_in
from mlxfp.kaggle.folds import Fold, Folds
from mlxfp.kaggle.scoring import Metric
from mlxfp.kaggle.specs import CLASSED
from mlxfp.tasks.problems import Problem, deal, problem

_SEEDS = 2**31


@frozen
class Plan:
    """What a run will do, as values; made by `plan`.

    `fit` and `cross_validate` see nothing else of a configuration's data: `problem.rows` are the training rows, with numbers as targets.

    >>> from attrs import fields
    >>> [field.name for field in fields(Plan)]
    ['config', 'problem', 'folds', 'metric']
    """

    config: RunConfig = field(repr=False)
    problem: Problem
    folds: Folds
    metric: Metric = field(repr=False)

    @property
    def folder(self) -> Path:
        """Where the run puts its files."""
        return Path(self.config.output) / self.config.name

    @property
    def rows(self) -> Dataset[Any]:
        """The training rows."""
        return self.problem.rows

    def seed_of(self, fold: Fold) -> int:
        """Return the seed of a fold: each has weights and dropout of its own."""
        return fold_in(0, "run", self.config.training.seed, fold.repeat, fold.number) % _SEEDS


def plan(config: RunConfig) -> Plan:
    """Make values of a configuration: read the data, deal the folds, find the metric; nothing is trained.

    Without `data.path`, rows are made up in the folder `data` of the run. Raises `MissingFileError`, `ConfigError` and `DataError` for
    what cannot be run.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made = plan(fp.config.load_config(preset="titanic", overrides=[f"output={folder}"]).config)
    >>> made.folds, made.metric.name
    (stratified: 600 rows in 5 folds, 'accuracy')
    """
    folder = Path(config.output) / config.name
    found = problem(config.data, made_up=folder / "data", seed=config.training.seed)
    metric = found.metric(config.competition.metric)
    problems = _problems(config, found, metric)
    if problems:
        raise ConfigError("The configuration does not fit the data:" + "".join(f"\n  {problem}" for problem in problems))
    return Plan(config, found, deal(found, config.validation), metric)


def _problems(config: RunConfig, found: Problem, metric: Metric) -> list[str]:
    """Say what would give numbers that mean nothing, before anything is trained."""
    kind, competition = found.spec.kind, config.competition
    single = kind in CLASSED and kind != "multilabel"
    ordered = metric.name in ("roc_auc", "spearman")
    checks = (
        (metric.needs == "values" and single, f"competition.metric: {metric.name} compares values, and {found.spec.name} has classes"),
        (
            metric.needs != "values" and kind not in CLASSED,
            f"competition.metric: {metric.name} compares classes, and the target is no class",
        ),
        (competition.ensemble == "vote" and not single, "competition.ensemble: a vote is on classes; take mean"),
        (
            competition.ensemble == "rank" and not (ordered and (kind == "binary" or kind not in CLASSED)),
            f"competition.ensemble: ranks are for metrics of order, roc_auc and spearman, and this is {metric.name}; take mean",
        ),
        (
            competition.threshold and not (kind == "binary" and metric.needs == "labels" and competition.ensemble == "mean"),
            "competition.threshold: it is for the mean of binary decisions, with a metric of labels",
        ),
    )
    return [message for wrong, message in checks if wrong]
