"""TabM: an ensemble of multilayer perceptrons with shared layers, for tables."""

from itertools import pairwise

import mlx.core as mx
from attrs import frozen
from mlx import nn

from mlxfp.models.layers import Dropout, Input, random_key
from mlxfp.models.tables.columns import TableColumns
from mlxfp.models.tables.embeddings import PiecewiseLinearEmbedding
from mlxfp.models.tables.inputs import check_inputs, check_width
from mlxfp.models.tables.targets import TableTarget
from mlxfp.support.checks import check_positive, check_types, explain_class


@explain_class
@frozen(kw_only=True)
class TabMConfig:
    """Columns, target and sizes of a `TabM`. The defaults are the published sizes.

    All numeric columns must have bins, as from `fit_columns(..., bins=48)`.

    >>> import mlxfp as fp
    >>> columns = fp.models.TableColumns((fp.models.NumberColumn("age", median=40.0, factor=0.1, bins=(-1.0, 0.0, 2.0)),))
    >>> fp.models.TabMConfig(columns=columns, target=fp.models.TableTarget("class", 2)).members
    32
    """

    columns: TableColumns
    target: TableTarget
    members: int = 32
    hidden_size: int = 512
    num_hidden_layers: int = 2
    number_size: int = 16
    dropout: float = 0.1

    def __attrs_post_init__(self) -> None:
        check_types(TableColumns, columns=self.columns)
        check_types(TableTarget, target=self.target)
        check_positive(members=self.members, hidden_size=self.hidden_size, num_hidden_layers=self.num_hidden_layers)


class TabM(nn.Module):
    """TabM ensemble for tables: maps numbers and categories of rows to the outputs of many members and to a combined output.

    Gorishniy, Kotelnikov and Babenko, "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling", 2025: TabM-mini with
    piecewise linear embeddings. All members share the layers. Each member has a scale for every input, [members, inputs], and an output
    layer. Categories are one-hot. Missing and unseen categories are zeros.

    The method `members` returns the output of each member: train on the mean of the member losses. A call of the model returns the combined
    output: the mean of values, or the logits of the mean probabilities.

    >>> import mlxfp as fp
    >>> columns = fp.models.TableColumns((fp.models.NumberColumn("age", median=40.0, factor=0.1, bins=(-1.0, 0.0, 2.0)),))
    >>> model = fp.models.TabM(fp.models.TabMConfig(columns=columns, target=fp.models.TableTarget("class", 3), hidden_size=8), seed=0)
    >>> model.members(mx.zeros((5, 1))).shape, model(mx.zeros((5, 1))).shape
    ((5, 32, 3), (5, 3))

    See also: `fit_columns` with `bins` for the columns; `predict_table`.
    """

    def __init__(self, config: TabMConfig, *, seed: int = 0) -> None:
        """Initialize the weights."""
        super().__init__()
        check_types(TabMConfig, config=config)
        self.config = config
        columns, members = config.columns, config.members
        sections = [config.number_size] * len(columns.numbers) + list(columns.kinds)
        inputs = sum(sections)
        check_width(inputs, "TabM")
        if columns.numbers:
            bins = [column.bins for column in columns.numbers]
            self.piecewise = PiecewiseLinearEmbedding(bins, size=config.number_size, seed=seed)
        # All inputs from the same column start with the same scale, as in the published code of TabM.
        drawn = mx.random.normal((members, len(sections)), key=random_key(seed, "scale"))
        self.scale = mx.take(drawn, mx.array([index for index, size in enumerate(sections) for _ in range(size)]), axis=1)
        sizes = [inputs, *[config.hidden_size] * config.num_hidden_layers]
        self.layers = [_linear(*pair, seed, index) for index, pair in enumerate(pairwise(sizes))]
        self.dropouts = [Dropout(config.dropout) for _ in self.layers]
        bound = config.hidden_size**-0.5
        shape = (members, config.hidden_size, config.target.outputs)
        self.output_weight = mx.random.uniform(-bound, bound, shape, key=random_key(seed, "output_weight"))
        self.output_bias = mx.random.uniform(-bound, bound, (members, shape[2]), key=random_key(seed, "output_bias"))

    def members(self, numbers: Input = None, categories: Input = None) -> mx.array:
        """Return the output of each member: float[B, members, outputs], or float[B, members] for a single value.

        `numbers` is float[B, number columns] and `categories` int[B, category columns]. Pass None if the table has no numeric columns or no
        category columns.
        """
        check_inputs(self.config.columns, numbers, categories)
        parts = list[mx.array]()
        if numbers is not None and "piecewise" in self:
            parts.append(self.piecewise(numbers).reshape(len(numbers), -1))
        if categories is not None:
            known = [categories[:, index, None] == mx.arange(1, count + 1) for index, count in enumerate(self.config.columns.kinds)]
            parts += [one_hot.astype(self.scale.dtype) for one_hot in known]
        hidden = mx.concatenate(parts, axis=-1)[:, None] * self.scale
        for layer, dropout in zip(self.layers, self.dropouts, strict=True):
            hidden = dropout(nn.relu(layer(hidden)))
        answers = (hidden.swapaxes(0, 1) @ self.output_weight).swapaxes(0, 1) + self.output_bias
        return answers[..., 0] if self._single else answers

    def __call__(self, numbers: Input = None, categories: Input = None) -> mx.array:
        """Return the mean prediction of all members: logits, float[B, outputs], or scaled values, float[B] or [B, outputs]."""
        answers, kind = self.members(numbers, categories), self.config.target.kind
        if kind == "value":
            return answers.mean(axis=1)
        # Each member of the ensemble predicts a probability. The result is the logit of the mean probability p.
        # The logit is log p for the target kind "class", and log p - log(1 - p) for the target kind "labels", with the mean probability p.
        count = answers.shape[1]
        if kind == "class":
            return mx.logsumexp(answers - mx.logsumexp(answers, axis=-1, keepdims=True), axis=1) - mx.log(mx.array(count))
        yes, no = (mx.logsumexp(-mx.logaddexp(0.0, signed), axis=1) for signed in (-answers, answers))
        return yes - no

    @property
    def _single(self) -> bool:
        return self.config.target.kind == "value" and self.config.target.outputs == 1


def _linear(inputs: int, outputs: int, seed: int, index: int) -> nn.Linear:
    """Return a linear layer initialized as in PyTorch: weights and biases uniform within 1 / sqrt(inputs)."""
    layer, bound = nn.Linear(inputs, outputs), inputs**-0.5
    layer.weight = mx.random.uniform(-bound, bound, (outputs, inputs), key=random_key(seed, "layers", index, "weight"))
    layer.bias = mx.random.uniform(-bound, bound, (outputs,), key=random_key(seed, "layers", index, "bias"))
    return layer
