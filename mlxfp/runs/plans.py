"""A configuration made into values: the data, the folds, the metric. Nothing has been trained yet."""

from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.config.classes import RunConfig
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.errors import ConfigError, DataError
from mlxfp.core.randomness import fold_in
from mlxfp.kaggle.specs.specs import CLASSED
from mlxfp.kaggle.validation.folds import Fold, Folds
from mlxfp.kaggle.validation.scoring import Metric
from mlxfp.runs.folders import FOLDS, MADE_UP, OOF, TEST
from mlxfp.runs.submission import hand_in
from mlxfp.tasks.problems import Problem, deal, problem
from mlxfp.tasks.recipes import TRAINED

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
    found = problem(config.data, made_up=folder / MADE_UP, seed=config.training.seed, metric=config.competition.metric)
    metric = found.metric()
    problems = _problems(config, found, metric)
    if problems:
        raise ConfigError("The configuration does not fit the data:" + "".join(f"\n  {problem}" for problem in problems))
    _check_sample(found, metric, decided=config.competition.threshold or config.competition.ensemble == "vote")
    return Plan(config, found, deal(found, config.validation), metric)


def _check_sample(found: Problem, metric: Metric, *, decided: bool) -> None:
    """Make a submission of predictions that say nothing: what is wrong with the files is said now, and not after all folds are trained."""
    test, sample = found.path_of("test"), found.path_of("sample")
    if test is None or sample is None or found.test is None:
        return
    spec, count = found.spec, length(found.test) or 0
    single = spec.kind in CLASSED and spec.kind != "multilabel"
    width = len(spec.classes) if single else len(spec.target)
    flat = width == 1 or (single and (width == 2 or decided))
    try:
        hand_in(metric, spec, np.full(count if flat else (count, width), 0.0 if decided else 0.4), test=test, sample=sample)
    except DataError as error:
        error.add_note(
            "No submission could be made of any predictions, so nothing was trained. Mend the files, or leave sample out of a spec."
        )
        raise


def _problems(config: RunConfig, found: Problem, metric: Metric) -> list[str]:
    """Say what would give numbers that mean nothing, before anything is trained."""
    kind, competition = found.spec.kind, config.competition
    single = kind in CLASSED and kind != "multilabel"
    ordered = metric.ranks == "rows"
    template, tokenizer, weights, name = config.text.template, config.text.tokenizer, config.model.path, competition.submission
    checks = (
        (not found.spec.columns, f"data.spec: {found.spec.name} has no columns to predict from; those without any value do not count"),
        (found.test is not None and not length(found.test), "the test file has no rows"),
        (weights is not None and not Path(weights).is_dir(), f"model.path: there is no folder {weights!r} of pretrained weights"),
        (
            tokenizer not in TRAINED and not Path(tokenizer).exists(),
            f"text.tokenizer: {tokenizer!r} is no kind to train ({', '.join(TRAINED)}), and nothing is at such a path",
        ),
        (template is not None and "{" not in template, f"text.template: {template!r} has no {{column}}"),
        (_replaces(name), f"competition.submission: {name!r} is no name of a CSV file that the run does not write anyway"),
        (metric.needs == "values" and single, f"competition.metric: {metric.name} compares values, and {found.spec.name} has classes"),
        (
            metric.needs != "values" and kind not in CLASSED,
            f"competition.metric: {metric.name} compares classes, and the target is no class",
        ),
        (
            metric.ranks == "classes" and kind not in ("multiclass", "ordinal"),
            f"competition.metric: {metric.name} ranks the classes of a row, and {found.spec.name} is {kind}",
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


def _replaces(submission: str) -> bool:
    """Whether a file of this name would lie outside the folder of the run, or in place of another one there."""
    return Path(submission).name != submission or submission in (FOLDS, OOF, TEST) or not submission.endswith(".csv")
