"""A competition's folder to everything that training needs, in one call."""

from os import PathLike
from typing import Any

from attrs import field, frozen
from mlx import nn

from mlxfp.collators.collating import collate
from mlxfp.collators.columns import Collator
from mlxfp.config.classes import DataConfig, RunConfig, TrainingConfig
from mlxfp.core.checks import check_types
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.dataset_splits import Splits
from mlxfp.data.rows.selecting import select
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import load
from mlxfp.data.running.prefetching import prefetch
from mlxfp.kaggle.validation.scoring import Metric
from mlxfp.tasks.objectives import Objective, Trained, make_model, objective
from mlxfp.tasks.problems import Problem, deal, problem
from mlxfp.tasks.recipes import Recipe, fit_recipe
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.training.steps.state import TrainState


@frozen
class Task:
    """All that training on a competition's data needs, fitted on its training rows alone; made by `task`.

    `splits` holds rows as the files have them, targets as numbers; `batches` trains and `held_out` evaluates. Batches are what
    `recipe.collator` makes: `input_ids` and `attention_mask` int32[B, L], `labels` and, if the model takes such, `numbers`.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder, rows=60)
    ...     made = task(folder)
    >>> state = fp.train_state(made.model, fp.optimizers.adamw(1e-3), seed=0)  # or that of the last step of a training
    >>> predict = made.trained(state)
    >>> made.recipe.target.answer, length(made.splits.train), predict(made.splits.valid).shape
    ('class', 48, (12,))
    """

    config: RunConfig = field(repr=False)
    problem: Problem
    splits: Splits = field(repr=False)
    recipe: Recipe
    model: nn.Module = field(repr=False)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, trained on the training rows or read."""
        return self.recipe.tokenizer

    @property
    def collator(self) -> Collator:
        """The collator of training batches."""
        return self.recipe.collator

    @property
    def objective(self) -> Objective:
        """What is learned: `objective.loss` for `train_step`, `objective.measure` for `evaluate`."""
        return objective(self.recipe)

    @property
    def metric(self) -> Metric:
        """The metric that counts."""
        return self.problem.metric()

    @property
    def batches(self) -> Dataset[Any]:
        """Batches to train on, in another order each epoch."""
        return training_batches(self.recipe, self.splits.train, self.config.training, prefetched=self.config.data.prefetch)

    @property
    def held_out(self) -> Dataset[Any] | None:
        """Batches to evaluate with; None without validation rows."""
        return None if self.splits.valid is None else labelled_batches(self.recipe, self.splits.valid)

    def trained(self, state: TrainState) -> Trained:
        """Return what predicts rows with a state of the model."""
        return Trained(self.recipe, self.model, state, self.config.competition.views)


def task(source: str | PathLike[str] | RunConfig) -> Task:
    """Make all that training needs of a competition's folder, or of a configuration that names one.

    The first fold validates; everything that is fitted (vocabulary, quantiles, scales) is fitted on the others. For all folds, out-of-fold
    predictions and a submission there is `runs.run`.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder, rows=60)
    ...     made = fp.tasks.task(folder)
    >>> batch = next(iter(made.batches))
    >>> sorted(batch), made.metric.name, made.problem.spec.target
    (['attention_mask', 'input_ids', 'labels'], 'accuracy', ('Survived',))
    """
    check_types((str, PathLike, RunConfig), source=source)
    config = source if isinstance(source, RunConfig) else RunConfig(data=DataConfig(path=str(source)))
    found = problem(config.data, metric=config.competition.metric, seed=config.training.seed)
    fold = next(iter(deal(found, config.validation)))
    train, valid = (select(rows)(found.rows) for rows in (fold.train, fold.valid))
    recipe = fit_recipe(found.spec, train, text=config.text, model=config.model, seed=config.training.seed)
    for rows in (train, valid, found.test):
        if rows is not None:
            recipe.budget(rows)
    model = make_model(recipe, config.model, seed=config.training.seed)
    return Task(config, found, Splits(train, valid=valid, test=found.test), recipe, model)


def training_batches(recipe: Recipe, rows: Dataset[Any], config: TrainingConfig, *, prefetched: int) -> Dataset[Any]:
    """Return the batches of training rows: in another order each epoch, all of one size if there are enough rows.

    What is the same in each epoch is tokenized once, and held in memory.
    """
    changing = recipe.config.permute or recipe.config.drop > 0
    encoded = recipe.training(rows) if changing else load()(recipe(rows))
    whole = (length(rows) or 0) >= config.size
    made = pipe(encoded, shuffle(config.seed), batch(config.size, drop_last=whole), collate(recipe.collator))
    return prefetch(prefetched)(made) if prefetched else made


def labelled_batches(recipe: Recipe, rows: Dataset[Any]) -> Dataset[Any]:
    """Return batches to evaluate with, in the order of the rows; tokenized once, and held in memory."""
    return pipe(recipe(rows), load(), batch(64), collate(recipe.collator))
