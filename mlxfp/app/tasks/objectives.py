"""What a model is trained for, and how a trained model predicts: loss, metrics and answers of a recipe's target."""

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
from mlxfp.models import CATEGORIES, NUMBERS
from mlxfp.optimizers import ema_weights

Batch = Mapping[str, Any]
Loss = Callable[[mx.array, mx.array], tuple[mx.array, mx.array]]  # of outputs and labels: a sum and a weight


class Goal(Protocol):
    """What a model learns: a loss for `train_step`, and metrics for `evaluate`."""

    def loss(self, model: Any, batch: Any) -> Any:
        """Return (sum, weight)."""

    def measure(self, model: Any, batch: Any) -> dict[str, Any]:
        """Return metrics by name."""


@frozen
class Objective:
    """The loss, metrics and answers of a model: functions of a model and a batch; made by `objective`.

    `loss` returns (sum, weight), `measure` metrics by name, `answers` probabilities or scaled values, float32[B] or [B, outputs]. A batch
    has `input_ids` and `attention_mask`, int32[B, L], `labels` except for `answers`, and `numbers`, float32[B, N], for models that take
    them; for networks for tables `numbers` and `categories` alone. A model with a method `members` learns the mean
    of the losses of its members. With `absolute`, the loss of values is Huber's instead of the squared error; `smoothing` is that of labels
    of classes in training; `own` is another loss, of (outputs, labels).

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
    own: Loss | None = field(kw_only=True, default=None)

    def outputs(self, model: Any, batch: Batch) -> mx.array:
        """Call the model with the tokens, pictures or spectrograms of a batch: logits, or scaled values."""
        if "images" in batch or "features" in batch:
            seen: mx.array = model(batch["images"] if "images" in batch else batch["features"][..., None])
            return seen
        if "input_ids" not in batch:
            answers: mx.array = model(**_table_inputs(batch))
            return answers
        numbers = {"numbers": batch["numbers"]} if "numbers" in batch else {}
        made: mx.array = model(batch["input_ids"], batch["attention_mask"], **numbers)
        return made

    def loss(self, model: Any, batch: Batch) -> tuple[mx.array, mx.array]:
        """Return the cross entropy of classes or of each label, or the squared or Huber error of values."""
        members = getattr(model, "members", None)
        if members is None:
            return self._loss(self.outputs(model, batch), batch["labels"], self.smoothing)
        made, labels = members(**_table_inputs(batch)), batch["labels"]
        count = made.shape[1]
        total, weight = self._loss(made.flatten(0, 1), mx.repeat(labels, count, axis=0), self.smoothing)
        return total / count, weight / count

    def measure(self, model: Any, batch: Batch) -> dict[str, Any]:
        """Return the loss, and the accuracy of classes."""
        made = self.outputs(model, batch)
        right = {"accuracy": METRICS["accuracy"].measure(made, batch["labels"])} if self.answer == "class" else {}
        return {"loss": self._loss(made, batch["labels"]), **right}

    def answers(self, model: Any, batch: Batch) -> mx.array:
        """Return probabilities of classes or of labels, or scaled values; float32."""
        return _READ[self.answer](self.outputs(model, batch).astype(mx.float32))

    def _loss(self, made: mx.array, labels: mx.array, smoothing: float = 0.0) -> tuple[mx.array, mx.array]:
        return _LOSSES[self.answer](self, smoothing)(made, labels) if self.own is None else self.own(made, labels)


# By the answer of a kind: the loss for an objective and a smoothing of labels, and how outputs become probabilities or scaled values.
_LOSSES: Mapping[Answer, Callable[[Objective, float], Loss]] = {
    "class": lambda _, smoothing: partial(cross_entropy, label_smoothing=smoothing),
    "labels": lambda *_: binary_cross_entropy,
    "value": lambda goal, _: huber if goal.absolute else mse,
}
_READ: Mapping[Answer, Callable[[mx.array], mx.array]] = {
    "class": partial(mx.softmax, axis=-1),
    "labels": mx.sigmoid,
    "value": lambda outputs: outputs,
}


def _table_inputs(batch: Batch) -> dict[str, mx.array]:
    return {name: batch[name] for name in (NUMBERS, CATEGORIES) if name in batch}


def objective(recipe: AnyRecipe) -> Objective:
    """Choose the objective by the target and the metric of a recipe: values have Huber's loss if the metric is mae.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["price"], "metric": "mae"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> objective(fp.kaggle.fit_recipe(spec, fp.from_examples([{"Rooms": 3, "price": 10.0}])))
    Objective(answer='value', absolute=True, smoothing=0.0, own=None)
    """
    return Objective(recipe.target.answer, absolute=METRICS[recipe.spec.metric].errors == "absolute", smoothing=recipe.smoothing)


def evaluation_state(state: TrainState) -> TrainState:
    """Return the state to evaluate and predict with: that of the averaged weights if there are any."""
    return ema_weights(state) if "average" in state.extra else state


@frozen(eq=False)
class Predictor:
    """A trained model with its recipe: a function from rows to predictions, float64[N] or [N, C], as `Target.read` makes them.

    With several `views`, predictions are averaged over that many orders of the columns. The targets of rows, if they have any, are not
    read. If the state has averaged weights, these predict.

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
        """Predict rows."""
        recipe, state = self.recipe, evaluation_state(self.state)
        answers, views = predict(self.model, objective(recipe).answers), []
        for number in range(self.views):
            batches = pipe(recipe.view(rows, number), batch(recipe.size_to_predict), collate(recipe.unlabelled))
            parts = [np.asarray(part, np.float64) for part in answers(state, batches)]
            views.append(recipe.target.read(np.concatenate(parts or [np.empty((0, recipe.target.outputs))])))
        made: Numbers = np.mean(views, axis=0)
        return made
