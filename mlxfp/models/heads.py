"""Heads: the layers that turn the vectors of a model's body into answers.

A body is any module with a `hidden_size` that maps (ids, mask) to float[B, L, hidden_size]. Heads of language models also need its
embedding, `tokens`, and heads with a transform its `make_transform`, a function that makes a `Transform`. A body that does not know one
of the inputs `token_type_ids`, `segment_ids` and `positions`, int[B, L] each, raises `TypeError` for it.
"""

from functools import partial
from typing import Any, ClassVar, Literal

import mlx.core as mx
from mlx import nn

from mlxfp.models.layers import Dropout, Input, Transform, draw_weights
from mlxfp.support.checks import check_choice, check_positive
from mlxfp.support.registries import Registry

Pooling = Literal["mean", "max", "first", "last", "pooler"]


class Classifier(nn.Module):
    """Classify whole rows: pool the body's vectors over the real tokens, then one linear layer.

    `pooling` takes their mean or maximum, the vector of the first real token ([CLS]) or of the last (for causal bodies), or, with
    "pooler", the first after BERT's own pooler. `transform=True` puts a linear layer, the body's activation and a norm before the
    output, as ModernBERT does. `multi_label=True` means that each output is a yes-or-no question, not one choice among all: the logits
    are the same, but `probabilities` and `save` treat them differently.

    >>> import mlxfp as fp
    >>> model = fp.models.Classifier(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16)), outputs=3)
    >>> model(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3)

    See also: `Regressor` for numbers, `TokenClassifier` for an answer at each token.
    """

    def __init__(  # noqa: PLR0913  # all that heads differ in, and all named
        self,
        body: nn.Module,
        outputs: int,
        *,
        pooling: Pooling = "mean",
        dropout: float = 0.1,
        transform: bool = False,
        bias: bool = True,
        multi_label: bool = False,
        seed: int = 0,
    ) -> None:
        """Make the output layer and draw its weights; the body keeps its own."""
        super().__init__()
        check_positive(outputs=outputs)
        check_choice(("mean", "max", "first", "last", "pooler"), pooling=pooling)
        self.outputs = outputs
        self.pooling = pooling
        self.multi_label = multi_label
        self.transform = body.make_transform() if transform else nn.Identity()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(body.hidden_size, outputs, bias=bias)
        draw_weights(self, seed)
        self.body = body  # set last: its weights are not drawn here

    def __call__(self, ids: mx.array, mask: Input = None, *, token_type_ids: Input = None) -> mx.array:
        """Return the logits, float[B, outputs], of `ids`, int[B, L]; `mask`, [B, L], is 1 on real tokens, None where all are.

        `token_type_ids`, int[B, L], are for bodies that know them, such as `Bert`.
        """
        pooled = _pool(self.body, encode(self.body, ids, mask, token_type_ids=token_type_ids), mask, self.pooling)
        logits: mx.array = self.output(self.dropout(self.transform(pooled)))
        return logits

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that this head was made with, except the body and the seed."""
        more = {"pooling": self.pooling, "bias": "bias" in self.output, "multi_label": self.multi_label}
        return {"outputs": self.outputs, "dropout": self.dropout.rate, "transform": isinstance(self.transform, Transform), **more}

    def probabilities(self, logits: mx.array) -> mx.array:
        """Turn logits into probabilities of the same shape, in float32: of all classes together, or of each label alone."""
        logits = logits.astype(mx.float32)
        return mx.sigmoid(logits) if self.multi_label else mx.softmax(logits, axis=-1)


class Regressor(nn.Module):
    """Predict one number for each row, or several.

    >>> import mlxfp as fp
    >>> model = fp.models.Regressor(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16)))
    >>> model(mx.array([[5, 6, 7], [8, 9, 10]])).shape
    (2,)

    See also: `Classifier`, which has the same pooling, dropout and transform.
    """

    def __init__(  # noqa: PLR0913  # as `Classifier`
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
        """Make the output layer and draw its weights; the body keeps its own."""
        super().__init__()
        self.scores = Classifier(body, outputs, pooling=pooling, dropout=dropout, transform=transform, bias=bias, seed=seed)

    def __call__(self, ids: mx.array, mask: Input = None, *, token_type_ids: Input = None) -> mx.array:
        """Return the numbers, float[B], or float[B, outputs] if there are several; the arguments are those of a `Classifier`."""
        scores: mx.array = self.scores(ids, mask, token_type_ids=token_type_ids)
        return scores[:, 0] if self.scores.outputs == 1 else scores

    @property
    def body(self) -> nn.Module:
        """The body."""
        return self.scores.body

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that this head was made with, except the body and the seed."""
        return {name: value for name, value in self.scores.settings.items() if name != "multi_label"}


class TokenClassifier(nn.Module):
    """Classify each token: one linear layer on its vector.

    >>> import mlxfp as fp
    >>> model = fp.models.TokenClassifier(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16)), outputs=3)
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 3, 3)
    """

    def __init__(self, body: nn.Module, outputs: int, *, dropout: float = 0.1, transform: bool = False, seed: int = 0) -> None:
        """Make the output layer and draw its weights; the body keeps its own. `transform` is as in `Classifier`."""
        super().__init__()
        check_positive(outputs=outputs)
        self.outputs = outputs
        self.transform = body.make_transform() if transform else nn.Identity()
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(body.hidden_size, outputs)
        draw_weights(self, seed)
        self.body = body

    def __call__(self, ids: mx.array, mask: Input = None, **inputs: Input) -> mx.array:
        """Return the logits, float[B, L, outputs], of `ids`, int[B, L]; the other arguments are the body's."""
        logits: mx.array = self.output(self.dropout(self.transform(encode(self.body, ids, mask, **inputs))))
        return logits

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that this head was made with, except the body and the seed."""
        return {"outputs": self.outputs, "dropout": self.dropout.rate, "transform": isinstance(self.transform, Transform)}


class MaskedLM(nn.Module):
    """Predict the tokens that were masked: a transform, then the transposed embedding of the body (tied weights), and a bias.

    >>> import mlxfp as fp
    >>> config = fp.models.BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    >>> model = fp.models.MaskedLM(fp.models.Bert(config))
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 3, 100)
    """

    settings: ClassVar[dict[str, Any]] = {}  # the arguments that this head was made with, except the body and the seed

    def __init__(self, body: nn.Module, *, seed: int = 0) -> None:
        """Make the transform and draw its weights; the body keeps its own."""
        super().__init__()
        self.transform = body.make_transform()
        self.bias = mx.zeros(body.tokens.weight.shape[0])
        draw_weights(self, seed)
        self.body = body

    def __call__(self, ids: mx.array, mask: Input = None, **inputs: Input) -> mx.array:
        """Return the logits, float[B, L, vocab_size], of `ids`, int[B, L]; the other arguments are the body's."""
        return self.logits(encode(self.body, ids, mask, **inputs))

    def logits(self, hidden: mx.array) -> mx.array:
        """Score the vocabulary for vectors of the body, float[..., hidden_size]: float[..., vocab_size]. A call does this last."""
        logits: mx.array = self.body.tokens.as_linear(self.transform(hidden)) + self.bias
        return logits


class CausalLM(nn.Module):
    """Predict the token after each token, with the transposed embedding of the body, or with an output matrix of its own.

    >>> import mlxfp as fp
    >>> model = fp.models.CausalLM(fp.models.Decoder(fp.models.DecoderConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1)))
    >>> model(mx.array([[5, 6, 7]])).shape
    (1, 3, 100)

    See also: `generate`.
    """

    def __init__(self, body: nn.Module, *, tie_word_embeddings: bool = True, seed: int = 0) -> None:
        """Make the output matrix, if there is one, and draw it; the body keeps its own weights."""
        super().__init__()
        self.tie_word_embeddings = tie_word_embeddings
        if not tie_word_embeddings:
            self.output = nn.Linear(body.hidden_size, body.tokens.weight.shape[0], bias=False)
        draw_weights(self, seed)
        self.body = body

    def __call__(self, ids: mx.array, mask: Input = None, **inputs: Input) -> mx.array:
        """Return the logits, float[B, L, vocab_size], of the tokens that follow `ids`, int[B, L]; the other arguments are the body's."""
        return self.logits(encode(self.body, ids, mask, **inputs))

    def logits(self, hidden: mx.array) -> mx.array:
        """Score the vocabulary for vectors of the body, float[..., hidden_size]: float[..., vocab_size]. A call does this last."""
        logits: mx.array = self.body.tokens.as_linear(hidden) if self.tie_word_embeddings else self.output(hidden)
        return logits

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that this head was made with, except the body and the seed."""
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


def encode(body: nn.Module, ids: mx.array, mask: Input, **inputs: Input) -> mx.array:
    """Call a body with those inputs that are not None: it need not know the others."""
    hidden: mx.array = body(ids, mask, **{name: value for name, value in inputs.items() if value is not None})
    return hidden


def mean_over_tokens(hidden: mx.array, mask: Input) -> mx.array:
    """Average float[B, L, D] over the real tokens of each row: float[B, D]; zeros where a row has none."""
    if mask is None:
        return hidden.mean(axis=1)
    real = (mask != 0).astype(hidden.dtype)[..., None]
    return (hidden * real).sum(axis=1) / mx.maximum(real.sum(axis=1), 1)


def _pool(body: nn.Module, hidden: mx.array, mask: Input, pooling: Pooling) -> mx.array:
    """Turn the vectors of the real tokens of each row, float[B, L, D], into one, float[B, D]; the maxima of no tokens are zeros."""
    if pooling == "mean":
        return mean_over_tokens(hidden, mask)
    real = mx.ones(hidden.shape[:2], mx.bool_) if mask is None else mask != 0
    if pooling == "max":
        return mx.where(real.any(axis=1)[:, None], mx.where(real[..., None], hidden, -mx.inf).max(axis=1), 0)
    place = hidden.shape[1] - 1 - mx.argmax(real[:, ::-1], axis=1) if pooling == "last" else mx.argmax(real, axis=1)
    pooled = mx.take_along_axis(hidden, place[:, None, None], axis=1)[:, 0]
    return body.pool(pooled) if pooling == "pooler" else pooled
