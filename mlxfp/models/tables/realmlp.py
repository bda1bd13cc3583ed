"""RealMLP: a multilayer perceptron for tables."""

from collections.abc import Mapping
from itertools import pairwise
from math import pi
from typing import Any

import mlx.core as mx
from attrs import field, frozen
from mlx import nn

from mlxfp.models.activations import mish, selu
from mlxfp.models.layers import Dropout, Embedding, Input, random_key
from mlxfp.models.tables.columns import TableColumns
from mlxfp.models.tables.embeddings import PeriodicEmbedding
from mlxfp.models.tables.inputs import check_inputs, check_width, one_hot, one_hot_scales, scaled
from mlxfp.models.tables.targets import TableTarget
from mlxfp.support.checks import check_positive, check_types, explain_class

_MIXED = 5  # number of random training rows that determine the initial bias of a neuron
_ROUNDING = 1e-5  # outputs are constant if their standard deviation is at most 1e-5 times the largest absolute output


@explain_class
@frozen(kw_only=True)
class RealMLPConfig:
    """Columns, target and sizes of a `RealMLP`. The defaults are the published sizes.

    Category columns with more than `one_hot` categories are embedded with `embedding_size` numbers. `steps` is the total number of training
    steps: dropout fades to zero in the second half of the steps. With `steps=None`, the dropout rate is constant.

    >>> import mlxfp as fp
    >>> columns = fp.models.TableColumns((fp.models.NumberColumn("age", median=40.0, factor=0.1),))
    >>> fp.models.RealMLPConfig(columns=columns, target=fp.models.TableTarget("class", 2)).hidden_sizes
    (256, 256, 256)
    """

    columns: TableColumns
    target: TableTarget
    hidden_sizes: tuple[int, ...] = field(default=(256, 256, 256), converter=tuple[int, ...])
    dropout: float = 0.15
    steps: int | None = None
    one_hot: int = 8
    embedding_size: int = 8
    frequencies: int = 16
    number_size: int = 4
    sigma: float = 0.1

    def __attrs_post_init__(self) -> None:
        check_types(TableColumns, columns=self.columns)
        check_types(TableTarget, target=self.target)
        check_positive(**{f"hidden_sizes[{index}]": size for index, size in enumerate(self.hidden_sizes)})
        check_positive(one_hot=self.one_hot, embedding_size=self.embedding_size)
        if self.steps is not None:
            check_positive(steps=self.steps)


class RealMLP(nn.Module):
    """RealMLP network for tables: maps numbers and categories to logits float[B, outputs], or scaled values float[B] or [B, outputs].

    Numbers get periodic embeddings, and a learned factor scales each input. The linear layers use the neural tangent parametrization. The
    dropout rate falls during the training. The activations are learned mixtures of the identity and SELU (for classes) or Mish (for
    values). Source: Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular Data",
    2024 (RealMLP-TD).

    A column of two categories becomes a number, -1 or 1. A column of a few more categories is one-hot encoded, and a column of many
    categories is embedded. A missing or unseen category becomes zeros. If `columns` comes from `fit_columns`, one-hot numbers are scaled
    and clipped like numeric columns. In evaluation mode, values are clipped to `low` and `high` of the target.

    `examples`, a batch of `numbers` and `categories` of training rows, enables the published initialization: the outputs of each layer have
    a standard deviation of 1 over these rows. Without `examples`, biases start at 0.

    >>> import mlxfp as fp
    >>> columns = fp.models.TableColumns((fp.models.NumberColumn("age", median=40.0, factor=0.1),))
    >>> model = fp.models.RealMLP(fp.models.RealMLPConfig(columns=columns, target=fp.models.TableTarget("class", 3)), seed=0)
    >>> model(mx.zeros((2, 1))).shape
    (2, 3)

    See also: `fit_columns` for the columns; `optimizers.fading_adam` and `schedules.coslog` for training; `predict_table`.
    """

    def __init__(self, config: RealMLPConfig, *, seed: int = 0, examples: Mapping[str, Any] | None = None) -> None:
        """Initialize the weights."""
        super().__init__()
        check_types(RealMLPConfig, config=config)
        self.config = config
        numbers, kinds = len(config.columns.numbers), config.columns.kinds
        self._few = tuple(index for index, count in enumerate(kinds) if count <= config.one_hot)
        self._many = tuple(index for index, count in enumerate(kinds) if count > config.one_hot)
        # MLX does not train arrays in attributes whose names begin with an underscore, such as `_scales`.
        scales = [one_hot_scales(config.columns.counts[index]) for index in self._few]
        self._scales = [tuple(map(mx.array, zip(*pairs, strict=True))) for pairs in scales]
        width = sum(1 if kinds[index] == 2 else kinds[index] for index in self._few) + len(self._many) * config.embedding_size
        if numbers:
            self.periodic = PeriodicEmbedding(
                numbers, frequencies=config.frequencies, size=config.number_size, sigma=config.sigma, seed=seed
            )
        self.categories = [_category_embedding(kinds[index], config.embedding_size, seed, index) for index in self._many]
        sizes = [width + numbers * config.number_size, *config.hidden_sizes, config.target.outputs]
        check_width(sizes[0], "RealMLP")
        self.scale = mx.ones(sizes[0])
        self.layers = [
            NTKLinear(inputs, outputs, seed=seed, name=f"layers.{index}") for index, (inputs, outputs) in enumerate(pairwise(sizes))
        ]
        activation = mish if config.target.kind == "value" else selu
        self.activations = [MixedActivation(size, activation) for size in config.hidden_sizes]
        self.dropouts = [FadingDropout(config.dropout) for _ in config.hidden_sizes]
        self.steps_done = mx.array(0, mx.int32)  # number of completed steps; an integer array, because float arrays would be trained
        if examples is not None:
            self._adapt(examples, seed)

    def __call__(self, numbers: Input = None, categories: Input = None) -> mx.array:
        """Return the outputs for `numbers`, float[B, number columns], and `categories`, int[B, category columns].

        Pass None if the table has no numeric columns or no category columns.
        """
        config = self.config
        share = 1.0 if config.steps is None else _fading(self.steps_done / config.steps)
        if self.training:
            self.steps_done = self.steps_done + 1
        hidden = self._inputs(numbers, categories) * self.scale
        for layer, activation, dropout in zip(self.layers[:-1], self.activations, self.dropouts, strict=True):
            hidden = dropout(activation(layer(hidden)), share)
        answers = self.layers[-1](hidden)
        target = config.target
        if target.low and target.high and not self.training:
            answers = mx.clip(answers, mx.array(target.low), mx.array(target.high))
        return answers[:, 0] if target.kind == "value" and target.outputs == 1 else answers

    def _inputs(self, numbers: Input, categories: Input) -> mx.array:
        check_inputs(self.config.columns, numbers, categories)
        kinds, parts = self.config.columns.kinds, list[mx.array]()
        if numbers is not None and "periodic" in self:
            parts.append(self.periodic(numbers).reshape(len(numbers), -1))
        if categories is not None:
            few = zip(self._few, self._scales, strict=True)
            parts += [scaled(one_hot(categories[:, column], kinds[column]), scales) for column, scales in few]
            embedded = zip(self.categories, self._many, strict=True)
            parts += [embed(mx.clip(categories[:, column], 0, kinds[column])) for embed, column in embedded]
        return mx.concatenate(parts, axis=-1)

    def _adapt(self, examples: Mapping[str, Any], seed: int) -> None:
        """Scale the initial weights and biases of each layer, so that the outputs for the example rows have a standard deviation of 1."""
        hidden = self._inputs(examples.get("numbers"), examples.get("categories"))
        for index, layer in enumerate(self.layers):
            hidden = layer.adapted(hidden, random_key(seed, "bias", index), random_key(seed, "mixing", index))
            if index < len(self.activations):
                hidden = self.activations[index](hidden)


class NTKLinear(nn.Module):
    """Linear layer in the neural tangent parametrization: W x / sqrt(inputs) + b, with standard normal weights.

    >>> NTKLinear(4, 3)(mx.ones((2, 4))).shape
    (2, 3)
    """

    def __init__(self, inputs: int, outputs: int, *, seed: int = 0, name: str = "layer") -> None:
        """Initialize the weights at random from the seed and the name of the layer."""
        super().__init__()
        check_positive(inputs=inputs, outputs=outputs)
        self.weight = mx.random.normal((outputs, inputs), key=random_key(seed, name))
        self.bias = mx.zeros(outputs)

    def __call__(self, x: mx.array) -> mx.array:
        """Apply the layer to float[B, inputs]. Return float[B, outputs]."""
        mapped: mx.array = (x @ self.weight.T) * self.weight.shape[1] ** -0.5 + self.bias
        return mapped

    def adapted(self, x: mx.array, *keys: mx.array) -> mx.array:
        """Scale the weights: each output that varies gets a standard deviation of 1 over the rows `x`. Return the outputs for `x`.

        For each output, five rows are drawn at random, with five random weights (uniformly distributed, with sum 1). The bias makes the
        weighted mean of the five outputs 0. Source: Steinwart, "A Sober Look at Neural Network Initializations", 2019, method "he+5".
        """
        products = (x @ self.weight.T) * self.weight.shape[1] ** -0.5
        deviation = mx.sqrt(mx.var(products, axis=0))
        varies = deviation > _ROUNDING * mx.abs(products).max(axis=0)  # False for outputs that differ only by rounding errors
        factor = mx.where(varies, 1 / mx.maximum(deviation, 1e-30), 1.0)
        self.weight, products = self.weight * factor[:, None], products * factor
        rows = mx.random.randint(0, len(x), (_MIXED, len(self.bias)), key=keys[0])
        parts = -mx.log(mx.random.uniform(1e-6, 1, rows.shape, key=keys[1]))
        self.bias = -(mx.take_along_axis(products, rows, axis=0) * parts).sum(axis=0) / parts.sum(axis=0)
        mx.eval(self.weight, self.bias)
        adapted: mx.array = products + self.bias
        return adapted


class MixedActivation(nn.Module):
    """Activation with a learned share for each neuron: x + (f(x) - x) * share. The shares start at 1.

    >>> MixedActivation(3, nn.relu)(mx.array([[-1.0, 0.0, 2.0]])).tolist()
    [[0.0, 0.0, 2.0]]
    """

    def __init__(self, size: int, function: Any) -> None:
        """Create the shares."""
        super().__init__()
        self.share = mx.ones(size)
        self._function = function

    def __call__(self, x: mx.array) -> mx.array:
        """Apply the activation to float[B, size]."""
        mixed: mx.array = x + (self._function(x) - x) * self.share
        return mixed


class FadingDropout(Dropout):
    """Dropout with a rate that can change at each call.

    >>> FadingDropout(0.5).keyed(random_key(0))(mx.ones(4), 0.0).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __call__(self, x: mx.array, share: float | mx.array = 1.0) -> mx.array:
        """Set random values to zero. The factor `share` changes the dropout rate to `rate` * `share`. Evaluation mode changes nothing."""
        if not self.training or self.rate == 0:
            return x
        kept = 1 - self.rate * share
        return mx.where(mx.random.uniform(shape=x.shape, key=self._key) < kept, x / kept, 0.0)


def _fading(done: mx.array) -> mx.array:
    """Return 1 during the first half of training, then a cosine decay to 0. `done` is the completed fraction.

    >>> [round(_fading(mx.array(share)).item(), 3) for share in (0.0, 0.5, 0.75, 1.0)]
    [1.0, 1.0, 0.5, 0.0]
    """
    return 0.5 + 0.5 * mx.cos(pi * mx.clip(2 * done - 1, 0, 1))


def _category_embedding(count: int, size: int, seed: int, column: int) -> Embedding:
    """Return the embedding of a category column. Category 0 stands for missing and unseen values.

    The initial vector of category 0 is zero. The other initial vectors are drawn from a standard normal distribution.
    """
    embedding = Embedding(count + 1, size, table="categories")
    embedding.weight = mx.random.normal((count + 1, size), key=random_key(seed, "categories", column)) * (mx.arange(count + 1) > 0)[:, None]
    return embedding
