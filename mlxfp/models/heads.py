"""Heads: what turns the vectors of a model's body into answers."""

from typing import Literal

import mlx.core as mx
from mlx import nn

from mlxfp.core.checks import check_choice, check_positive
from mlxfp.models.layers import Dropout, draw_weights

Pooling = Literal["mean", "first"]


class Classifier(nn.Module):
    """Classify whole rows: pool the body's vectors over the real tokens, then one linear layer.

    The body is any module with a `width` that maps (ids, mask) to float[B, L, width]. `pooling="first"` takes the vector of the
    first token, as BERT does with [CLS]. One output fits regression too.

    >>> from mlxfp.models.encoder import Encoder, EncoderConfig
    >>> model = Classifier(Encoder(EncoderConfig(vocabulary=100, width=16)), outputs=3)
    >>> model(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3)
    """

    def __init__(self, body: nn.Module, outputs: int, *, pooling: Pooling = "mean", dropout: float = 0.1, seed: int = 0) -> None:
        """Make the output layer and draw its weights; the body keeps its own."""
        super().__init__()
        check_positive(outputs=outputs)
        check_choice(("mean", "first"), pooling=pooling)
        self.pooling = pooling
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(body.width, outputs)
        draw_weights(self, seed)
        self.body = body  # after the drawing

    def __call__(self, ids: mx.array, mask: mx.array | None = None) -> mx.array:
        """Give the logits, float[B, outputs], of `ids`, int[B, L]; `mask`, [B, L], is 1 on real tokens, None where all are."""
        hidden = self.body(ids, mask)
        pooled = hidden[:, 0] if self.pooling == "first" else mean_over_tokens(hidden, mask)
        logits: mx.array = self.output(self.dropout(pooled))
        return logits


def mean_over_tokens(hidden: mx.array, mask: mx.array | None) -> mx.array:
    """Average float[B, L, D] over the real tokens of each row: float[B, D]; zeros where a row has none.

    >>> mean_over_tokens(mx.array([[[2.0], [4.0], [9.0]]]), mx.array([[1, 1, 0]])).tolist()
    [[3.0]]
    """
    if mask is None:
        return hidden.mean(axis=1)
    real = (mask != 0).astype(hidden.dtype)[..., None]
    return (hidden * real).sum(axis=1) / mx.maximum(real.sum(axis=1), 1)
