"""What a model of a task answers, and what it is to learn: model, loss and measures from a recipe and its configuration."""

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import evolve, field, fields, frozen
from mlx import nn, optimizers

from mlxfp.collators.collating import collate
from mlxfp.config.classes import ModelConfig, OptimizerConfig, ScheduleConfig, TrainingConfig
from mlxfp.core.checks import check_positive
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentError
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.kaggle.validation.scoring import METRICS, Numbers, errors_of
from mlxfp.models.catalogue import create
from mlxfp.models.heads import Classifier, Regressor
from mlxfp.models.layers import Dropout
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.models.weights import load_body
from mlxfp.tasks.recipes import Recipe
from mlxfp.tasks.targets import Answer
from mlxfp.training.loop.fitting import predict
from mlxfp.training.losses import binary_cross_entropy, cross_entropy, huber, mse
from mlxfp.training.optimization.optimizers import adamw, grouped, vectors
from mlxfp.training.optimization.schedules import constant, cosine_decay, linear_decay
from mlxfp.training.steps.averaging import averaged
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import TrainStep, train_step

Batch = Mapping[str, Any]
_ROWS_TO_PREDICT = 64  # a batch: shapes matter, their number of rows does not


def make_model(recipe: Recipe, config: ModelConfig, *, seed: int) -> nn.Module:
    """Make the model that a configuration names, with the head that the target needs, its weights drawn from `seed`.

    With `config.path`, the body comes from a folder of pretrained weights, and only the head is new; it averages the tokens' vectors.
    With scaled numbers in the recipe, the head is in `models.WithNumbers`. Raises `ArgumentError` for pretrained weights that know fewer
    tokens than the tokenizer, or shorter rows than the recipe makes, and what `models.create` and `models.load_body` raise.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec
    >>> from mlxfp.tasks.recipes import fit_recipe
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["mood"], "classes": ["sad", "fine", "glad"], "metric": "accuracy"}
    >>> spec = DatasetSpec(name="x", kind="multiclass", columns=[ColumnSpec(name="said", type="text")], **about)
    >>> recipe = fit_recipe(spec, from_examples([{"said": "oh"}, {"said": "hooray"}]))
    >>> make_model(recipe, ModelConfig(name="encoder", size="tiny"), seed=0)(mx.array([[2, 5, 3]])).shape
    (1, 3)
    """
    target, heads = recipe.target, {"class": "classifier", "labels": "multi_label", "value": "regressor"}
    numbers = 0 if recipe.scales is None else recipe.scales.count
    if config.path is None:
        return create(
            config.name,
            size=config.size,
            head=heads[target.answer],
            labels=target.outputs,
            vocabulary=recipe.tokenizer.vocab_size,
            max_length=recipe.config.max_length,
            dropout=config.dropout,
            numbers=numbers,
            seed=seed,
        )
    body = _body(recipe, config.path, config.dropout)
    settings: dict[str, Any] = {} if config.dropout is None else {"dropout": config.dropout}
    model: nn.Module
    if target.answer == "value":
        model = Regressor(body, outputs=target.outputs, seed=seed, **settings)
    else:
        model = Classifier(body, target.outputs, multi_label=target.answer == "labels", seed=seed, **settings)
    return WithNumbers(model, numbers, outputs=target.outputs, seed=seed, **settings) if numbers else model


def _body(recipe: Recipe, path: str, dropout: float | None) -> nn.Module:
    """Read a pretrained body that fits the recipe; with `dropout`, the share that all its dropouts take, as in `models.create`."""
    body = load_body(path)
    tokenizer, longest, config = recipe.tokenizer, recipe.config.max_length, body.config
    if tokenizer.vocab_size > config.vocabulary:  # MLX reads whatever lies beyond the last embedding
        raise ArgumentError(
            f"The model knows {config.vocabulary} tokens, and {tokenizer!r} makes others too, got model.path={path!r}. "
            "Give text.tokenizer the one that it was trained with, or leave it out where it is in the same folder."
        )
    if longest > config.max_length:
        raise ArgumentError(
            f"The model reads rows of {config.max_length} tokens, got text.max_length={longest} with model.path={path!r}. Lower it."
        )
    if dropout is not None:
        body.config = evolve(config, **{each.name: dropout for each in fields(type(config)) if each.name.endswith("dropout")})
        for layer in body.modules():
            if isinstance(layer, Dropout):
                layer.rate = dropout
    return body


@frozen
class Objective:
    """What is asked of a model: functions of a model and a batch; made by `objective`.

    `loss` gives (sum, weight), `measure` metrics by name, `answers` probabilities or scaled values, float32[B] or [B, outputs]. A batch
    has `input_ids` and `attention_mask`, int32[B, L], `labels` but for `answers`, and `numbers`, float32[B, N], for a model with such.
    With `absolute`, values are learned by Huber's loss and not by squares.

    >>> from mlxfp.models.catalogue import create
    >>> model = create("encoder", size="tiny", labels=2, vocabulary=10).eval()
    >>> ids = mx.array([[2, 5, 3], [2, 6, 3]])
    >>> batch = {"input_ids": ids, "attention_mask": mx.ones_like(ids), "labels": mx.array([0, 1])}
    >>> goal = Objective("class", absolute=False)
    >>> goal.answers(model, batch).shape, sorted(goal.measure(model, batch)), goal.loss(model, batch)[1].item()
    ((2, 2), ['accuracy', 'loss'], 2.0)
    """

    answer: Answer
    absolute: bool = field(kw_only=True)

    def outputs(self, model: Any, batch: Batch) -> mx.array:
        """Call the model with what the batch has: logits, or scaled values."""
        beside = {"numbers": batch["numbers"]} if "numbers" in batch else {}
        made: mx.array = model(batch["input_ids"], batch["attention_mask"], **beside)
        return made

    def loss(self, model: Any, batch: Batch) -> tuple[mx.array, mx.array]:
        """Cross entropy of classes, of each label, or a distance between values: squared, or Huber's for metrics of absolute errors."""
        return self._loss(self.outputs(model, batch), batch["labels"])

    def measure(self, model: Any, batch: Batch) -> dict[str, Any]:
        """Measure the loss, and of classes the accuracy."""
        made = self.outputs(model, batch)
        right = {"accuracy": METRICS["accuracy"].measure(made, batch["labels"])} if self.answer == "class" else {}
        return {"loss": self._loss(made, batch["labels"]), **right}

    def answers(self, model: Any, batch: Batch) -> mx.array:
        """Answer: probabilities of classes or of labels, or scaled values; float32."""
        made = self.outputs(model, batch).astype(mx.float32)
        return {"class": lambda: mx.softmax(made, axis=-1), "labels": lambda: mx.sigmoid(made), "value": lambda: made}[self.answer]()

    def _loss(self, made: mx.array, labels: mx.array) -> tuple[mx.array, mx.array]:
        if self.answer == "class":
            return cross_entropy(made, labels)
        if self.answer == "labels":
            return binary_cross_entropy(made, labels)
        return huber(made, labels) if self.absolute else mse(made, labels)


def objective(recipe: Recipe) -> Objective:
    """Say what a model is to learn, from the target and the metric: values by Huber's loss where errors count as they are (mae).

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec
    >>> from mlxfp.tasks.recipes import fit_recipe
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["price"], "metric": "mae"}
    >>> spec = DatasetSpec(name="x", kind="regression", columns=[ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> objective(fit_recipe(spec, from_examples([{"Rooms": 3, "price": 10.0}])))
    Objective(answer='value', absolute=True)
    """
    return Objective(recipe.target.answer, absolute=errors_of(recipe.spec.metric) == "absolute")


class _Adam(optimizers.Adam):
    """Adam whose gradients include those of decay * |w|^2 / 2, as they do in PyTorch: MLX's has no decay."""

    def __init__(self, learning_rate: Any, decay: float) -> None:
        super().__init__(learning_rate, bias_correction=True)
        self.decay = decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        updated: mx.array = super().apply_single(gradient + self.decay * parameter, parameter, state)
        return updated


def make_optimizer(config: OptimizerConfig, schedule: ScheduleConfig, *, updates: int) -> optimizers.Optimizer:
    """Make the optimizer of a run of so many updates, at least 1; weight decay is for matrices only.

    Decay is what each method takes it for: adamw, lion and adafactor shrink the weights themselves (decoupled: Loshchilov and Hutter,
    2019), adam and sgd add it to the gradients (an L2 penalty), so adam is another method than adamw. The rate rises over the share
    `schedule.warmup` of the updates, and falls to 0 at the last one, or stays.

    >>> make_optimizer(OptimizerConfig(weight_decay=0.0), ScheduleConfig(), updates=10).bias_correction
    True
    >>> optimizer = make_optimizer(OptimizerConfig(name="sgd"), ScheduleConfig(name="constant"), updates=10)
    >>> [each.weight_decay for each in optimizer.optimizers]
    [0.0, 0.01]
    """
    check_positive(updates=updates)
    warmup = round(schedule.warmup * updates)
    decays: Mapping[str, Callable[..., Any]] = {"linear": linear_decay, "cosine": cosine_decay}
    rate: Any = (
        constant(config.learning_rate, warmup=warmup)
        if schedule.name == "constant"
        else decays[schedule.name](config.learning_rate, steps=updates, warmup=min(warmup, updates - 1))
    )
    makers: Mapping[str, Callable[[float], optimizers.Optimizer]] = {
        "adamw": lambda decay: adamw(rate, weight_decay=decay),
        "adam": lambda decay: _Adam(rate, decay),
        "sgd": lambda decay: optimizers.SGD(rate, momentum=0.9, weight_decay=decay),
        "lion": lambda decay: optimizers.Lion(rate, weight_decay=decay),
        "adafactor": lambda decay: optimizers.Adafactor(rate, relative_step=False, scale_parameter=False, weight_decay=decay),
    }
    make = makers[config.name]
    if not config.weight_decay:
        return make(0.0)
    return grouped((vectors, make(0.0)), rest=make(config.weight_decay))


def make_step(
    model: nn.Module, goal: Objective, optimizer: optimizers.Optimizer, config: OptimizerConfig, training: TrainingConfig
) -> TrainStep:
    """Make the step of training that a configuration describes: `train_step` with its options.

    >>> from mlxfp.models.catalogue import create
    >>> from mlxfp.training.steps.state import train_state
    >>> model = create("encoder", size="tiny", labels=2, vocabulary=10)
    >>> optimizer = make_optimizer(OptimizerConfig(), ScheduleConfig(), updates=4)
    >>> step = make_step(model, Objective("class", absolute=False), optimizer, OptimizerConfig(), TrainingConfig())
    >>> ids = mx.array([[2, 5, 3], [2, 6, 3]])
    >>> batch = {"input_ids": ids, "attention_mask": mx.ones_like(ids), "labels": mx.array([0, 1])}
    >>> state, metrics = step(step.start(train_state(model, optimizer, seed=0)), batch)
    >>> state.step, sorted(metrics)
    (1, ['grad_norm', 'loss', 'weight'])
    """
    dtypes = {"float32": None, "bfloat16": mx.bfloat16, "float16": mx.float16}
    return train_step(
        model,
        goal.loss,
        optimizer,
        clip_norm=config.clip_norm,
        accumulate=training.accumulate,
        compute_dtype=dtypes[training.compute_dtype],
        checkpoint_blocks=training.checkpoint_blocks,
        skip_nonfinite=training.skip_nonfinite,
        ema=training.ema,
    )


def shown(state: TrainState) -> TrainState:
    """Return the state that evaluates and predicts: the averaged weights where there are such."""
    return averaged(state) if "average" in state.extra else state


@frozen(eq=False)
class Trained:
    """A model with its recipe and weights: a function from rows to predictions, float64[N] or [N, C], as `Target.read` makes them.

    With several `views`, predictions are averaged over as many orders of the columns. The targets of rows, if they have such, are not
    looked at. Where the state has averaged weights, they predict.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec
    >>> from mlxfp.tasks.recipes import fit_recipe
    >>> from mlxfp.training.steps.state import train_state
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = DatasetSpec(name="x", kind="binary", columns=[ColumnSpec(name="Age", type="numerical")], **about)
    >>> recipe = fit_recipe(spec, from_examples([{"Age": 22, "Survived": 1}, {"Age": 35, "Survived": 0}]))
    >>> model = make_model(recipe, ModelConfig(name="encoder"), seed=0)
    >>> Trained(recipe, model, train_state(model, optimizers.SGD(0.1), seed=0))(from_examples([{"Age": 30}, {"Age": None}])).shape
    (2,)
    """

    recipe: Recipe
    model: nn.Module
    state: TrainState
    views: int = 1

    def __call__(self, rows: Dataset[Any]) -> Numbers:
        """Predict rows."""
        answers = predict(self.model, objective(self.recipe).answers)
        each = [self._predicted(answers, self.recipe.view(rows, number)) for number in range(self.views)]
        made: Numbers = np.mean(each, axis=0)
        return made

    def _predicted(self, answers: Callable[..., Any], rows: Dataset[Any]) -> Numbers:
        batches = pipe(rows, batch(_ROWS_TO_PREDICT), collate(self.recipe.unlabelled))
        parts = [np.asarray(part, np.float64) for part in answers(shown(self.state), batches)]
        return self.recipe.target.read(np.concatenate(parts or [np.empty((0, self.recipe.target.outputs))]))
