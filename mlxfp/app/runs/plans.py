"""A run as values and functions: the data, the folds, the metric, how models are made. Nothing has been trained yet."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from mlx import nn
from mlx.optimizers import Optimizer

from mlxfp import Dataset, Splits
from mlxfp.app.kaggle.estimators.fitting import Estimator
from mlxfp.app.kaggle.validation.folds import Fold, Folds
from mlxfp.app.kaggle.validation.scoring import Metric, Numbers
from mlxfp.app.run_folders.folders import Settings
from mlxfp.app.runs.own_parts import Code, OwnParts
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.app.tasks.recipes import AnyRecipe
from mlxfp.observers import Observer
from mlxfp.support.randomness import fold_in
from mlxfp.training.steps.steps import TrainStep


@frozen
class Models:
    """The models of a run: how each is made, and how their predictions are combined.

    `estimator(spec, rows=, seed=)` makes one for so many training rows; it is None for a network, which `network(recipe, seed=, rows=)`
    makes after `recipe(spec, rows, seed=)` was fitted. A network averages its predictions over `views`.
    """

    name: str | None
    pretrained: bool
    estimator: Callable[..., Estimator] | None
    recipe: Callable[..., AnyRecipe]
    recipe_class: type[AnyRecipe]
    network: Callable[..., nn.Module]
    views: int
    combine: Callable[[Sequence[Numbers]], Numbers]


@frozen
class Training:
    """How the networks of a run are trained.

    `optimizer(goal, updates=, params=)`, `step(model, goal, optimizer, ranks)` and `observers(metric, best, control, ranks)` make the parts
    of a training. `patient`: it stops early, with its best state. `decided`: evaluations change it. `every`, `evaluate_every` and
    `checkpoint_every` count steps.
    """

    seed: int
    epochs: int
    size: int
    prefetched: int
    accumulate: int
    optimizer: Callable[..., Optimizer]
    step: Callable[..., TrainStep]
    observers: Callable[..., tuple[Observer, ...]]
    patient: bool
    decided: bool
    every: int
    evaluate_every: int | None
    checkpoint_every: int
    keep: int
    progress: bool


@frozen
class Trackers:
    """The trackers that follow a run under its `name`, each None or where it keeps runs; `params` are the options that they show."""

    name: str
    params: Mapping[str, str]
    mlflow: str | None
    mlflow_model: str | None
    trackio: str | None
    tensorboard: str | None


@frozen
class Plan:
    """What a run will do, as values and functions; made by `plan`. `settings` are its options as plain data, for the record.

    Functions follow from the options, so plans with equal options, rows and folds are equal.

    >>> from attrs import fields
    >>> [field.name for field in fields(Plan) if field.repr]
    ['folder', 'data', 'folds']
    """

    folder: Path
    data: CompetitionData
    folds: Folds
    settings: Settings = field(repr=False)
    own: OwnParts = field(repr=False)
    models: Models = field(repr=False, eq=False)
    training: Training = field(repr=False, eq=False)
    trackers: Trackers = field(repr=False)
    make_folds: Callable[[CompetitionData], Folds] = field(repr=False, eq=False)
    submission: str = field(repr=False)  # the name of its file
    threshold: bool = field(repr=False)  # a threshold is tuned
    plots: bool = field(repr=False)
    auto: bool = field(repr=False)  # several models, which the data choose, within so many minutes
    minutes: float | None = field(repr=False)
    seeds: int = field(repr=False)
    teacher: Path | None = field(repr=False)  # the run that labels rows of the test file
    synthetic: bool = field(repr=False)  # rows were made, in the folder of the run
    inferred: bool = field(repr=False)  # nobody has said what the columns are
    inputs: tuple[Path, ...] = field(repr=False)  # weights and a tokenizer: files or folders

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
        return fold_in(0, "run", self.training.seed, fold.repeat, fold.number) % 2**31


@frozen
class FileModel:
    """A task over files, and the function of a seed that makes its model."""

    task: Any
    own: OwnParts
    make: Callable[[int], nn.Module]

    @property
    def goal(self) -> Any:
        """What the model learns, with the loss of the user's own if there is one."""
        return evolve(self.task.goal, own=self.own.loss)


@frozen
class FilePlan:
    """What a run over files will do: `kind` names its task, and `source` its files, or the rows of a user's own in their place."""

    folder: Path
    kind: str
    parts: Splits
    model: FileModel
    path: str | None
    source: str
    settings: Settings = field(repr=False)
    training: Training = field(repr=False)
    trackers: Trackers = field(repr=False)
    plots: bool = field(repr=False)


@frozen
class Start:
    """A run whose inputs have not been read: its folder, its options as plain data, and the function that reads the inputs.

    `code` is the folder of the user's own modules.
    """

    folder: Path
    settings: Settings
    code: Code
    plan: Callable[[], Plan | FilePlan]
