"""The function `prepare`, which returns a fold with its model and batches for custom training loops."""

from typing import Any

from attrs import evolve, field, frozen
from mlx import nn

from mlxfp import Dataset, Splits, TrainState, select
from mlxfp.app.config.classes import RunConfig, check_config
from mlxfp.app.kaggle.rows.token_budgets import TokenBudget
from mlxfp.app.kaggle.validation.cross_validation import parts_of
from mlxfp.app.kaggle.validation.folds import Fold
from mlxfp.app.runs.from_config.parts import AUTO
from mlxfp.app.runs.from_config.planning import plan
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import Plan
from mlxfp.app.tasks.objectives import Objective, Predictor, objective
from mlxfp.app.tasks.recipes import Ahead, AnyRecipe, labelled_batches, training_batches
from mlxfp.support.errors import ConfigError, DataError

SHARE = 0.1  # in each fold, a tenth of the training rows is held out for early stopping


@frozen
class PreparedFold:
    """Rows, recipe and model for the training of one fold, returned by `prepare`. Only training rows are used for fitting.

    - `splits.train` holds the training rows, and `splits.valid` the rows for evaluation. Targets are numeric.
    - `splits.valid` usually holds the validation rows of the fold. With `observers.patience` or `schedule.name=plateau`, `splits.valid`
      holds a tenth of the training rows instead.
    - `recipe` is the fitted conversion of rows to model inputs.
    - `batches` holds the training batches. `held_out` holds the batches of `splits.valid`.

    A batch of a text model has `input_ids` and `attention_mask`, int32[B, L], and `labels`. If the model reads numbers, the batch also has
    `numbers`. A batch of a table network has `numbers`, `categories` and `labels`.

    >>> from attrs import fields
    >>> [field.name for field in fields(PreparedFold)]
    ['plan', 'fold', 'splits', 'recipe', 'model']
    """

    plan: Plan = field(repr=False)
    fold: Fold
    splits: Splits[Dataset[Any], Dataset[Any] | None] = field(repr=False)
    recipe: AnyRecipe
    model: nn.Module = field(repr=False)

    @property
    def objective(self) -> Objective:
        """The training objective: `objective.loss` for `train_step`, `objective.measure` for `evaluate`."""
        return evolve(objective(self.recipe), own_loss=self.plan.user_parts.loss)

    @property
    def batches(self) -> Dataset[Any]:
        """Training batches, reshuffled each epoch."""
        return self.training_batches(ahead=self.plan.training.ahead)

    @property
    def held_out(self) -> Dataset[Any]:
        """Evaluation batches with the rows of `splits.valid`."""
        return labelled_batches(self.recipe, self.splits.valid)

    def training_batches(self, *, ahead: Ahead | None) -> Dataset[Any]:
        """Return the training batches. The stage `ahead`, for example `prefetch`, prepares batches in advance."""
        training = self.plan.training
        return training_batches(self.recipe, self.splits.train, size=training.size, seed=training.seed, ahead=ahead)

    def predictor(self, state: TrainState) -> Predictor:
        """Return the prediction function for a training state of the model."""
        return Predictor(self.recipe, self.model, state, self.plan.models.views)


def prepare(config: RunConfig, *, code: Code = None) -> PreparedFold:
    """Prepare the first fold of a configuration for training, exactly as `runs.run` does.

    Vocabulary, quantiles and scales are fitted on the training rows. The argument `code` has the same meaning as in `plan`. Raises the
    errors of `plan`, and `DataError` for rows that are too long. To train all folds and write a submission, use `runs.run`.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder, rows=60)
    ...     made = fp.runs.prepare(fp.runs.load_config(overrides=[f"data.path={folder}"]).config)
    >>> batch = next(iter(made.batches))
    >>> sorted(batch), made.plan.metric.name, made.recipe.target
    (['attention_mask', 'input_ids', 'labels'], 'accuracy', Target(columns=('Survived',), answer='class', outputs=2, ...))
    >>> state = fp.train_state(made.model, fp.optimizers.adamw(1e-3), seed=0)  # or the state after the training
    >>> made.predictor(state)(made.splits.valid).shape
    (12,)
    """
    check_config(config)
    if config.model.name == AUTO:
        raise ConfigError(
            "model.name=auto trains several models, and each model has different inputs. Choose one of the models, as in "
            "model.name=modernbert."
        )
    run_plan = plan(config, code=code)
    if run_plan.models.estimator is not None:
        raise ConfigError(f"model.name={run_plan.models.name} is an estimator and has no batches. Use fp.kaggle.estimator or fp.runs.run.")
    prepared = prepare_fold(run_plan, next(iter(run_plan.folds)))
    for rows in (prepared.splits.train, prepared.splits.valid, prepared.splits.test):
        if rows is not None:
            budget(prepared.recipe, rows)
    return prepared


def prepare_fold(plan: Plan, fold: Fold) -> PreparedFold:
    """Prepare a fold of a run for training."""
    seed = plan.seed_of(fold)
    parts = parts_of(fold, plan.rows, "inner" if plan.training.decided else "none", SHARE)
    recipe = plan.models.recipe(plan.data.spec, parts.train, seed=seed)
    valid = select(fold.valid)(plan.rows) if parts.valid is None else parts.valid
    splits = Splits(parts.train, valid=valid, test=plan.data.test)
    return PreparedFold(plan, fold, splits, recipe, plan.models.network(recipe, seed=seed, rows=parts.train))


def budget(recipe: AnyRecipe, rows: Dataset[Any]) -> TokenBudget | None:
    """Count the tokens of text rows. If a row exceeds the token limit, raise a `DataError` that names the options to change."""
    try:
        return recipe.budget(rows)
    except DataError as error:
        error.add_note("The options in a configuration are text.max_length, text.form=key_value and text.overflow=cut.")
        raise
