"""Losses and metrics for the target of a task, and predictions of trained models."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from attrs import field, frozen
from mlx import nn

from mlxfp import Dataset, TrainState, batch, collate, pipe, predict
from mlxfp.app.kaggle.specs.kinds import Answer
from mlxfp.app.kaggle.validation.scoring import METRICS, Numbers
from mlxfp.app.tasks.recipes import AnyRecipe
from mlxfp.losses import binary_cross_entropy, cross_entropy, huber, mse
from mlxfp.metrics import accuracy
from mlxfp.models import CATEGORIES, NUMBERS
from mlxfp.optimizers import ema_weights

Batch = Mapping[str, Any]
Loss = Callable[[mx.array, mx.array], tuple[mx.array, mx.array]]  # function (outputs, labels) -> (sum of losses, sum of weights)


class Goal(Protocol):
    """Training goal: a loss for `train_step` and metrics for `evaluate`."""

    def loss(self, model: Any, batch: Any) -> Any:
        """Return (sum, weight)."""

    def measure(self, model: Any, batch: Any) -> dict[str, Any]:
        """Return metrics by name."""


@frozen
class Objective:
    """Loss, metrics and predictions of a task, as functions of a model and a batch. Returned by `objective`.

    - `loss` returns (sum of losses, sum of weights). For an ensemble with a method `members`, the loss is the mean over the networks.
    - `measure` returns metrics by name.
    - `answers` returns predictions, float32[B] or float32[B, outputs]: probabilities, or numerical targets in the scale of the labels.

    A batch for text models has `input_ids` and `attention_mask`, int32[B, L]. The array `numbers`, float32[B, N], is optional. A batch for
    table networks has only `numbers` and `categories`. `loss` and `measure` also need `labels`.

    Three options change the loss:

    - `absolute=True` selects the Huber loss for numerical targets, instead of the squared error.
    - `smoothing` is the label smoothing of classes in training.
    - `own_loss` is a function of (outputs, labels) that computes the loss instead.

    >>> import mlxfp as fp
    >>> model = fp.models.create("encoder", size="tiny", labels=2, vocab_size=10).eval()
    >>> ids = mx.array([[2, 5, 3], [2, 6, 3]])
    >>> batch = {"input_ids": ids, "attention_mask": mx.ones_like(ids), "labels": mx.array([0, 1])}
    >>> goal = fp.kaggle.Objective("class", absolute=False)
    >>> goal.answers(model, batch).shape, sorted(goal.measure(model, batch)), goal.loss(model, batch)[1].item()
    ((2, 2), ['accuracy', 'loss'], 2.0)
    """

    answer: Answer
    absolute: bool = field(kw_only=True)
    smoothing: float = field(kw_only=True, default=0.0)
    own_loss: Loss | None = field(kw_only=True, default=None)

    def outputs(self, model: Any, batch: Batch) -> mx.array:
        """Call the model with the tokens, images or spectrograms of a batch. Return logits or scaled values."""
        if "images" in batch or "features" in batch:
            logits: mx.array = model(batch["images"] if "images" in batch else batch["features"][..., None])
            return logits
        if "input_ids" not in batch:
            answers: mx.array = model(**_table_inputs(batch))
            return answers
        numbers = {"numbers": batch["numbers"]} if "numbers" in batch else {}
        scores: mx.array = model(batch["input_ids"], batch["attention_mask"], **numbers)
        return scores

    def loss(self, model: Any, batch: Batch) -> tuple[mx.array, mx.array]:
        """Return the loss of the task: cross entropy for classes and for multiple labels, squared or Huber error for numbers."""
        members = getattr(model, "members", None)
        if members is None:
            return self._loss(self.outputs(model, batch), batch["labels"], self.smoothing)
        outputs, labels = members(**_table_inputs(batch)), batch["labels"]
        count = outputs.shape[1]
        total, weight = self._loss(outputs.flatten(0, 1), mx.repeat(labels, count, axis=0), self.smoothing)
        return total / count, weight / count

    def measure(self, model: Any, batch: Batch) -> dict[str, Any]:
        """Return the loss. For classes, also return the accuracy."""
        outputs = self.outputs(model, batch)
        right = {"accuracy": accuracy(outputs, batch["labels"])} if self.answer == "class" else {}
        return {"loss": self._loss(outputs, batch["labels"]), **right}

    def answers(self, model: Any, batch: Batch) -> mx.array:
        """Return the outputs of the model as float32: probabilities of classes or labels, and scaled values for regressions."""
        return _READ[self.answer](self.outputs(model, batch).astype(mx.float32))

    def _loss(self, outputs: mx.array, labels: mx.array, smoothing: float = 0.0) -> tuple[mx.array, mx.array]:
        return _LOSSES[self.answer](self, smoothing)(outputs, labels) if self.own_loss is None else self.own_loss(outputs, labels)


# For each target type, a function that creates the loss. The arguments are the objective and the label smoothing.
_LOSSES: Mapping[Answer, Callable[[Objective, float], Loss]] = {
    "class": lambda _, smoothing: partial(cross_entropy, label_smoothing=smoothing),
    "labels": lambda *_: binary_cross_entropy,
    "value": lambda goal, _: huber if goal.absolute else mse,
}
# For each target type, a function that converts the outputs of a model to probabilities or scaled values.
_READ: Mapping[Answer, Callable[[mx.array], mx.array]] = {
    "class": partial(mx.softmax, axis=-1),
    "labels": mx.sigmoid,
    "value": lambda outputs: outputs,
}


def _table_inputs(batch: Batch) -> dict[str, mx.array]:
    return {name: batch[name] for name in (NUMBERS, CATEGORIES) if name in batch}


def objective(recipe: AnyRecipe) -> Objective:
    """Return the training objective for a recipe. Numeric targets use the squared error or, for the metric mae, the Huber loss.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "mae"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> objective(fp.kaggle.fit_recipe(spec, fp.from_examples([{"Rooms": 3, "price": 10.0}])))
    Objective(answer='value', absolute=True, smoothing=0.0, own_loss=None)
    """
    return Objective(recipe.target.answer, absolute=METRICS[recipe.spec.metric].errors == "absolute", smoothing=recipe.smoothing)


def evaluation_state(state: TrainState) -> TrainState:
    """Return the state for evaluation and prediction, with averaged weights if the state has any."""
    return ema_weights(state) if "average" in state.extra else state


@frozen(eq=False)
class Predictor:
    """Trained model that predicts rows. A call with a dataset of rows returns predictions, float64[N] or [N, C] (see `Target.read`).

    The recipe converts rows to inputs of the model. If `views` is above 1, each row is predicted with several column orders, and the
    predictions are averaged. Targets of the rows are ignored. Averaged weights are used if the state has any.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="binary", columns=[fp.kaggle.ColumnSpec(name="Age", type="numerical")], **about)
    >>> recipe = fp.kaggle.fit_recipe(spec, fp.from_examples([{"Age": 22, "Survived": 1}, {"Age": 35, "Survived": 0}]))
    >>> model = fp.kaggle.make_model(recipe, "encoder", size="tiny", seed=0)
    >>> state = fp.train_state(model, fp.optimizers.adamw(1e-3), seed=0)
    >>> Predictor(recipe, model, state)(fp.from_examples([{"Age": 30}, {"Age": None}])).shape
    (2,)
    """

    recipe: AnyRecipe
    model: nn.Module
    state: TrainState
    views: int = 1

    def __call__(self, rows: Dataset[Any]) -> Numbers:
        recipe, state = self.recipe, evaluation_state(self.state)
        answers, views = predict(self.model, objective(recipe).answers), []
        for number in range(self.views):
            batches = pipe(recipe.view(rows, number), batch(recipe.size_to_predict), collate(recipe.unlabelled))
            parts = [np.asarray(part, np.float64) for part in answers(state, batches)]
            views.append(recipe.target.read(np.concatenate(parts or [np.empty((0, recipe.target.outputs))])))
        mean: Numbers = np.mean(views, axis=0)
        return mean
