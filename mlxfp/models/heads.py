"""Heads: layers that turn the hidden states of a backbone (`body`) into predictions.

A body is a module with an attribute `hidden_size`. A body called with (ids, mask) returns float[B, L, hidden_size]. Heads of language
models use two more attributes of the body: the token embedding `tokens`, and the method `make_transform`. This method creates a
`Transform`: a linear layer, an activation and a norm.

Optional inputs of a body are `token_type_ids`, `segment_ids` and `positions`, int[B, L] each, and the number `longest`: the maximum number
of tokens in a packed document. A body raises `TypeError` for unsupported inputs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import mlx.core as mx
from mlx import nn

from mlxfp.models.layers import Dropout, Input, Transform, draw_weights
from mlxfp.support.checks import as_class_names, check_choice, check_positive
from mlxfp.support.errors import ArgumentError
from mlxfp.support.registries import Registry

Pooling = Literal["mean", "max", "first", "last", "pooler"]


class Classifier(nn.Module):
    """Classifier of whole rows: pooling over the real tokens, followed by a linear layer.

    `pooling` is the mean or the maximum of the vectors, the vector of the first real token ([CLS]) or of the last real token (for causal
    models), or "pooler": the first vector after BERT's pooler. `transform=True` inserts a linear layer, an activation and a norm before the
    output, as in ModernBERT.

    With `multi_label=True`, each output is an independent yes-or-no question. The logits are the same, but `probabilities` and `save` treat
    the outputs differently. `classes` are the names of the outputs. `save` writes the names, and `load` restores them as `model.classes`.

    >>> import mlxfp as fp
    >>> model = fp.models.Classifier(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16)), outputs=3)
    >>> model(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3)
    >>> fp.models.Classifier(model.body, outputs=2, classes=["calm", "sad"]).classes[1]
    'sad'

    See also: `Regressor` for numbers, `TokenClassifier` for predictions per token.
    """

    def __init__(  # noqa: PLR0913
        self,
        body: nn.Module,
        outputs: int,
        *,
        pooling: Pooling = "mean",
        dropout: float = 0.1,
        transform: bool = False,
        bias: bool = True,
        multi_label: bool = False,
        classes: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        """Create and initialize the output layer. The weights of `body` are unchanged."""
        super().__init__()
        check_positive(outputs=outputs)
        check_choice(("mean", "max", "first", "last", "pooler"), pooling=pooling)
        self.outputs = outputs
        self.classes = class_names(classes, outputs)
        self.pooling = pooling
        self.multi_label = multi_label
        self.transform = body.make_transform() if transform else nn.Identity()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(body.hidden_size, outputs, bias=bias)
        draw_weights(self, seed)
        self.body = body  # `body` is assigned after `draw_weights`, so that the weights of the backbone stay unchanged

    def __call__(self, ids: mx.array, mask: Input = None, *, token_type_ids: Input = None) -> mx.array:
        """Return one row of logits per text. Token ids of shape [B, L] give logits of shape [B, outputs].

        `mask`, [B, L], is 1 on real tokens; None means no padding. `token_type_ids`, int[B, L], require a body with token types (`Bert`).
        """
        pooled = _pool(self.body, encode(self.body, ids, mask, token_type_ids=token_type_ids), mask, self.pooling)
        logits: mx.array = self.output(self.dropout(self.transform(pooled)))
        return logits

    @property
    def settings(self) -> dict[str, Any]:
        """Constructor arguments, without `body` and `seed`."""
        more = {"pooling": self.pooling, "bias": "bias" in self.output, "multi_label": self.multi_label, "classes": self.classes}
        return {"outputs": self.outputs, "dropout": self.dropout.rate, "transform": isinstance(self.transform, Transform), **more}

    def probabilities(self, logits: mx.array) -> mx.array:
        """Return probabilities in float32 with the shape of the logits: softmax over the classes, or sigmoid of each label."""
        logits = logits.astype(mx.float32)
        return mx.sigmoid(logits) if self.multi_label else mx.softmax(logits, axis=-1)


class Regressor(nn.Module):
    """Regression head: predicts one or several numbers per row.

    >>> import mlxfp as fp
    >>> model = fp.models.Regressor(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16)))
    >>> model(mx.array([[5, 6, 7], [8, 9, 10]])).shape
    (2,)

    See also: `Classifier` for the meaning of pooling, dropout and transform.
    """

    def __init__(  # noqa: PLR0913
        self,
        body: nn.Module,
        *,
        outputs: int = 1,
        pooling: Pooling = "mean",
        dropout: float = 0.1,
        transform: bool = False,
        bias: bool = True,
        seed: int = 0,
    ) -> None:
        """Create and initialize the output layer. The weights of `body` are unchanged."""
        super().__init__()
        self.scores = Classifier(body, outputs, pooling=pooling, dropout=dropout, transform=transform, bias=bias, seed=seed)

    def __call__(self, ids: mx.array, mask: Input = None, *, token_type_ids: Input = None) -> mx.array:
        """Return the predicted numbers: float[B] for one output, float[B, outputs] for several. See `Classifier` for the arguments."""
        scores: mx.array = self.scores(ids, mask, token_type_ids=token_type_ids)
        return scores[:, 0] if self.scores.outputs == 1 else scores

    @property
    def body(self) -> nn.Module:
        """Backbone of the model, without the head."""
        return self.scores.body

    @property
    def settings(self) -> dict[str, Any]:
        """Constructor arguments, without `body` and `seed`."""
        return {name: value for name, value in self.scores.settings.items() if name not in ("multi_label", "classes")}


class TokenClassifier(nn.Module):
    """Classifier of tokens: a linear layer on the vector of each token.

    >>> import mlxfp as fp
    >>> model = fp.models.TokenClassifier(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16)), outputs=3)
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 3, 3)
    """

    def __init__(  # noqa: PLR0913
        self,
        body: nn.Module,
        outputs: int,
        *,
        dropout: float = 0.1,
        transform: bool = False,
        classes: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        """Create and initialize the output layer. The weights of `body` are unchanged. See `Classifier` for the arguments."""
        super().__init__()
        check_positive(outputs=outputs)
        self.outputs = outputs
        self.classes = class_names(classes, outputs)
        self.transform = body.make_transform() if transform else nn.Identity()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(body.hidden_size, outputs)
        draw_weights(self, seed)
        self.body = body

    def __call__(self, ids: mx.array, mask: Input = None, **inputs: Input | int) -> mx.array:
        """Return logits per token. Ids of shape [B, L] give logits of shape [B, L, outputs]. Other arguments are passed to `body`."""
        logits: mx.array = self.output(self.dropout(self.transform(encode(self.body, ids, mask, **inputs))))
        return logits

    @property
    def settings(self) -> dict[str, Any]:
        """Constructor arguments, without `body` and `seed`."""
        more = {"transform": isinstance(self.transform, Transform), "classes": self.classes}
        return {"outputs": self.outputs, "dropout": self.dropout.rate, **more}


class MaskedLM(nn.Module):
    """Head for masked language modeling. Predicts a token at each position.

    The layers are a `Transform` and the transposed token embedding of `body` (tied weights), with a bias.

    >>> import mlxfp as fp
    >>> config = fp.models.BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    >>> model = fp.models.MaskedLM(fp.models.Bert(config))
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 3, 100)
    """

    settings: ClassVar[dict[str, Any]] = {}  # constructor arguments, without `body` and `seed`

    def __init__(self, body: nn.Module, *, seed: int = 0) -> None:
        """Create the `Transform` and the bias of the logits. The weights of `body` are unchanged."""
        super().__init__()
        self.transform = body.make_transform()
        self.bias = mx.zeros(body.tokens.weight.shape[0])
        draw_weights(self, seed)
        self.body = body

    def __call__(self, ids: mx.array, mask: Input = None, **inputs: Input | int) -> mx.array:
        """Return logits per token. Ids of shape [B, L] give logits of shape [B, L, vocab_size]. Other arguments are passed to `body`."""
        return self.logits(encode(self.body, ids, mask, **inputs))

    def logits(self, hidden: mx.array) -> mx.array:
        """Convert hidden states of the backbone to logits. The shape [..., hidden_size] becomes [..., vocab_size]."""
        logits: mx.array = self.body.tokens.as_linear(self.transform(hidden)) + self.bias
        return logits


class CausalLM(nn.Module):
    """Causal language model: next-token logits from the transposed token embedding or from a separate output matrix.

    >>> import mlxfp as fp
    >>> model = fp.models.CausalLM(fp.models.Decoder(fp.models.DecoderConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1)))
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 3, 100)

    See also: `generate`.
    """

    def __init__(self, body: nn.Module, *, tie_word_embeddings: bool = True, seed: int = 0) -> None:
        """Create and initialize an output matrix for `tie_word_embeddings=False`. The weights of `body` are unchanged."""
        super().__init__()
        self.tie_word_embeddings = tie_word_embeddings
        if not tie_word_embeddings:
            self.output = nn.Linear(body.hidden_size, body.tokens.weight.shape[0], bias=False)
        draw_weights(self, seed)
        self.body = body

    def __call__(self, ids: mx.array, mask: Input = None, **inputs: Input | int) -> mx.array:
        """Return next-token logits. Ids of shape [B, L] give logits of shape [B, L, vocab_size]. Other arguments are passed to `body`."""
        return self.logits(encode(self.body, ids, mask, **inputs))

    def logits(self, hidden: mx.array) -> mx.array:
        """Convert hidden states of the backbone to logits. The shape [..., hidden_size] becomes [..., vocab_size]."""
        logits: mx.array = self.body.tokens.as_linear(hidden) if self.tie_word_embeddings else self.output(hidden)
        return logits

    @property
    def settings(self) -> dict[str, Any]:
        """Constructor arguments, without `body` and `seed`."""
        return {"tie_word_embeddings": self.tie_word_embeddings}


HEADS: Registry[Any] = Registry(
    "head",
    {
        "classifier": Classifier,
        "multi_label": partial(Classifier, multi_label=True),
        "regressor": Regressor,
        "token_classifier": TokenClassifier,
        "masked_lm": MaskedLM,
        "causal_lm": CausalLM,
    },
)


def encode(body: nn.Module, ids: mx.array, mask: Input, **inputs: Input | int) -> mx.array:
    """Call a backbone with the inputs that are not None. The backbone need not accept other inputs."""
    hidden: mx.array = body(ids, mask, **{name: value for name, value in inputs.items() if value is not None})
    return hidden


def class_names(classes: Sequence[str], outputs: int) -> tuple[str, ...]:
    """Return the names of the outputs as a tuple. Raises `ArgumentError` if names are missing."""
    names = as_class_names(classes)
    if names and len(names) != outputs:
        raise ArgumentError(f"classes must name each output, got {len(names)} names and outputs={outputs}. Pass outputs={len(names)}.")
    return names


def mean_over_tokens(hidden: mx.array, mask: Input) -> mx.array:
    """Average float[B, L, D] over the real tokens of each row: float[B, D]. Rows without real tokens become zeros.

    The sums are float32, because a float16 sum of many tokens overflows.
    """
    values = hidden.astype(mx.float32)
    if mask is None:
        return values.mean(axis=1).astype(hidden.dtype)
    real = (mask != 0).astype(mx.float32)[..., None]
    return ((values * real).sum(axis=1) / mx.maximum(real.sum(axis=1), 1)).astype(hidden.dtype)


def _pool(body: nn.Module, hidden: mx.array, mask: Input, pooling: Pooling) -> mx.array:
    """Combine the vectors of the real tokens of each row to one vector: float[B, L, D] becomes float[B, D].

    With pooling "max" or "mean", the vector of a row without real tokens is zero.
    """
    if pooling == "mean":
        return mean_over_tokens(hidden, mask)
    real = mx.ones(hidden.shape[:2], mx.bool_) if mask is None else mask != 0
    if pooling == "max":
        return mx.where(real.any(axis=1)[:, None], mx.where(real[..., None], hidden, -mx.inf).max(axis=1), 0)
    index = hidden.shape[1] - 1 - mx.argmax(real[:, ::-1], axis=1) if pooling == "last" else mx.argmax(real, axis=1)
    pooled = mx.take_along_axis(hidden, index[:, None, None], axis=1)[:, 0]
    return body.pool(pooled) if pooling == "pooler" else pooled
