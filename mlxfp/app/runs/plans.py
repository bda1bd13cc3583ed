"""Plans of runs before any training: data, folds, metric, and functions that create models."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from mlx import nn
from mlx.optimizers import Optimizer

from mlxfp import Dataset, Splits
from mlxfp.app.kaggle.estimators.fitting import Estimator
from mlxfp.app.kaggle.validation.folds import Fold, Folds
from mlxfp.app.kaggle.validation.scoring import Metric
from mlxfp.app.run_folders.folders import FoldFolder, Settings
from mlxfp.app.runs.own_parts import Code, OwnParts
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.app.tasks.recipes import Ahead, AnyRecipe
from mlxfp.observers import Observer
from mlxfp.support.randomness import fold_in

Step = Any  # the result of `train_step`


@frozen
class Models:
    """Functions that create the models of a run, and the number of predictions per row.

    - `estimator(spec, rows=, seed=)` creates an estimator. `rows` is the number of training rows. For networks, `estimator` is None.
    - `recipe(spec, rows, seed=)` fits the recipe (conversion of rows to inputs of a network). `rows` is a dataset of training rows.
    - `network(recipe, seed=, rows=)` creates the network.
    - `views` is the number of predictions per row, each with a different column order. The final prediction is the mean.
    """

    name: str | None
    pretrained: bool
    estimator: Callable[..., Estimator] | None
    recipe: Callable[..., AnyRecipe]
    recipe_class: type[AnyRecipe]
    network: Callable[..., nn.Module]
    views: int


@frozen
class Training:
    """Settings for the training of networks, and functions that create the optimizer, the training step and the observers.

    - `optimizer(goal, updates=, params=)` creates the optimizer. `goal` holds the loss and the metrics. `updates` is the number of updates,
      and `params` holds the parameters of the model.
    - `step(model, goal, optimizer, ranks)` creates the training step.
    - `observers(metric, best, control, ranks)` creates the observers.
    - `patient=True` enables early stopping. The run then keeps the weights with the best score.
    - `decided=True`: evaluation scores influence the training, as in early stopping. The evaluation rows are then held-out training rows.
    - `every` is the number of steps between log entries, `evaluate_every` between evaluations, `checkpoint_every` between checkpoints.
    """

    seed: int
    epochs: int
    size: int
    ahead: Ahead | None
    cache: str | None
    accumulate: int
    optimizer: Callable[..., Optimizer]
    step: Callable[..., Step]
    observers: Callable[..., tuple[Observer, ...]]
    patient: bool
    decided: bool
    every: int
    evaluate_every: int | None
    checkpoint_every: int
    keep: int
    progress: bool
    seconds: float | None  # time limit of a fold, for networks and boosted trees


def training_time(limit: float) -> float:
    """Return the seconds for training within a time limit in seconds. The rest is for the blend and the report.

    >>> training_time(600.0), training_time(60.0), training_time(10.0)
    (528.0, 50.0, 7.0)
    """
    return limit - min(max(0.12 * limit, 10.0), 0.3 * limit)


@frozen
class Trackers:
    """Folders and addresses of experiment trackers, or None for unused trackers. `params` holds the run options that trackers show."""

    name: str
    params: Mapping[str, str]
    mlflow: str | None
    mlflow_model: str | None
    tensorboard: str | None


@frozen
class Plan:
    """Data, folds, options and model functions of a run, returned by `plan`. `settings` holds the options as plain data.

    Two plans are equal if their data, folds and options are equal. Functions are not compared, because they follow from the options.

    >>> import mlxfp as fp
    >>> from attrs import fields
    >>> [field.name for field in fields(fp.runs.Plan) if field.repr]
    ['folder', 'data', 'folds']
    """

    folder: Path
    data: CompetitionData
    folds: Folds
    settings: Settings = field(repr=False)
    user_parts: OwnParts = field(repr=False)
    models: Models = field(repr=False, eq=False)
    training: Training = field(repr=False, eq=False)
    trackers: Trackers = field(repr=False)
    submission: str = field(repr=False)  # file name
    threshold: bool = field(repr=False)  # True if a threshold is tuned
    plots: bool = field(repr=False)
    auto: bool = field(repr=False)  # True for model.name=auto: several models, chosen from the data
    minutes: float | None = field(repr=False)
    synthetic: bool = field(repr=False)  # True if the run writes synthetic rows into its folder
    inferred: bool = field(repr=False)  # True if the spec was inferred from the data
    inputs: tuple[Path, ...] = field(repr=False)  # paths of the weights and of the tokenizer, each a file or a folder

    @property
    def rows(self) -> Dataset[Any]:
        """The training rows."""
        return self.data.rows

    @property
    def metric(self) -> Metric:
        """The metric of the run."""
        return self.data.metric

    @property
    def fold_folders(self) -> tuple[FoldFolder, ...]:
        """The folder of each fold, in fold order."""
        return tuple(FoldFolder(self.folder, number) for number, _ in enumerate(self.folds, 1))

    def seed_of(self, fold: Fold) -> int:
        """Return the seed for weights and dropout of a fold."""
        return fold_in(0, "run", self.training.seed, fold.repeat, fold.number) % 2**31


@frozen
class FileModel:
    """A task on images, sounds or texts, together with the function `make(seed)` that creates the model."""

    task: Any
    user_parts: OwnParts
    make: Callable[[int], nn.Module]

    @property
    def goal(self) -> Any:
        """The loss and the metrics of the task. A loss function in the option `own.loss` replaces the loss."""
        return evolve(self.task.goal, own_loss=self.user_parts.loss)


@frozen
class FilePlan:
    """Plan of a run on images, sounds or texts.

    `kind` is the name of the task. Error messages use `source` to describe the input: files or user-defined rows.
    """

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
    """Start of a run: folder and options. `settings` holds the options as plain data. Calling `plan()` reads the inputs.

    `code` is the folder of the user's modules.
    """

    folder: Path
    settings: Settings
    code: Code
    plan: Callable[[], Plan | FilePlan]
