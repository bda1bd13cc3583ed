"""Numeric features of a row in addition to text.

Text encoders represent quantities poorly: 3.9 and 4.1 become different tokens, although the numbers are almost equal.
"""

from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.models.heads import CausalLM, MaskedLM, TokenClassifier, encode
from mlxfp.models.layers import Dropout, Input, draw_weights
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import ArgumentError, ArgumentTypeError


class WithNumbers(nn.Module):
    """Wrapper of a row head, such as `Classifier` or `Regressor`. Adds scores of `count` numeric features to the outputs of the head.

    A linear layer computes the scores from the numbers (wide) and from the output of two hidden layers of `width` units (deep). The linear
    layer starts at zero, so an untrained wrapper returns the outputs of the head. `outputs` is the number of outputs of the head. `dropout`
    is the dropout rate of the hidden layers. Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016.

    The numbers should be finite. Center and scale the numbers, and replace missing values. Compute means, scales and replacements from the
    training rows only. If the column `numbers` holds lists of `count` numbers, create batches with `text(carry=["numbers"])`.

    Raises `ArgumentError` for a head that predicts tokens.

    >>> import mlxfp as fp
    >>> body = fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16))
    >>> model = fp.models.WithNumbers(fp.models.Regressor(body), 3, outputs=1)
    >>> model(mx.array([[5, 6], [7, 8]]), numbers=mx.array([[0.1, -1.0, 0.5], [0.3, 0.0, -0.2]])).shape
    (2,)

    See also: `create(..., numbers=3)` for a complete model by name.
    """

    def __init__(  # noqa: PLR0913
        self, head: nn.Module, count: int, *, outputs: int, width: int = 64, dropout: float = 0.1, seed: int = 0
    ) -> None:
        """Create and initialize the layers for the numbers. The weights of the head are unchanged."""
        super().__init__()
        check_positive(count=count, outputs=outputs, width=width)
        if isinstance(head, TokenClassifier | MaskedLM | CausalLM):
            raise ArgumentError(
                f"Numeric features need a head for whole rows, got {type(head).__name__}. "
                'Use a Classifier or a Regressor: "classifier", "multi_label" or "regressor" by name.'
            )
        self.count = count
        self.outputs = outputs
        self.deep_in = nn.Linear(count, width)
        self.deep_out = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(count + width, outputs)
        draw_weights(self, seed)
        self.output.weight = mx.zeros_like(self.output.weight)
        self.head = head  # `head` is assigned after `draw_weights`, so that the weights of the head stay unchanged

    def __call__(self, ids: mx.array, mask: Input = None, *, numbers: Input = None, token_type_ids: Input = None) -> mx.array:
        """Add the outputs of the numeric layers to the outputs of the head. `numbers`, [B, count], has `count` numbers per text.

        The result has the shape and dtype of the head's outputs. Other arguments are passed to the head. Raises `ArgumentTypeError` if
        `numbers` is missing, and `ArgumentError` if an array has a wrong shape.
        """
        wanted = [len(ids), self.count]
        if not isinstance(numbers, mx.array):
            raise ArgumentTypeError(
                f"The model needs the argument numbers, an array of shape {wanted}, got {type(numbers).__name__}. "
                'Call model(ids, mask, numbers=batch["numbers"]).'
            )
        if list(numbers.shape) != wanted:
            raise ArgumentError(
                f"numbers must have the shape {wanted}, with count={self.count} numbers for each row of ids, got {list(numbers.shape)}. "
                "Pass the columns used in training, or create the model with another count."
            )
        answers = encode(self.head, ids, mask, token_type_ids=token_type_ids)
        if answers.ndim > 2 or (*answers.shape, 1)[:2] != (len(ids), self.outputs):
            raise ArgumentError(
                f"The head must return the shape [{len(ids)}, {self.outputs}], one row of {self.outputs} outputs per text, got "
                f"{list(answers.shape)}. Use a head with one result per text, not per token, and pass outputs=N for a head with N outputs."
            )
        wide = numbers.astype(self.deep_in.weight.dtype)  # collators keep integer columns as integers
        deep = self.dropout(nn.relu(self.deep_out(nn.relu(self.deep_in(wide)))))
        scores: mx.array = self.output(mx.concatenate([wide, deep], axis=-1))
        return answers + scores.reshape(answers.shape).astype(answers.dtype)

    @property
    def body(self) -> nn.Module:
        """Backbone of the model, without the head."""
        body: nn.Module = self.head.body
        return body

    @property
    def settings(self) -> dict[str, Any]:
        """Constructor arguments of the head, without `body` and `seed`."""
        settings: dict[str, Any] = self.head.settings
        return settings

    @property
    def number_settings(self) -> dict[str, Any]:
        """Constructor arguments of the wrapper, without `head` and `seed`."""
        return {"count": self.count, "outputs": self.outputs, "width": len(self.deep_out.weight), "dropout": self.dropout.rate}

    @property
    def probabilities(self) -> Any:
        """Function that converts the logits of the head to probabilities. A head for numbers, such as `Regressor`, has no such function."""
        return self.head.probabilities
