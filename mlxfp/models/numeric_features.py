"""Numeric features: a model that reads the numbers of a row in addition to its text.

Text encoders are good at words and poor at quantities: 3.9 and 4.1 become different tokens, although they are almost equal.
"""

from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.models.heads import CausalLM, MaskedLM, TokenClassifier, encode
from mlxfp.models.layers import Dropout, Input, draw_weights
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import ArgumentError, ArgumentTypeError


class WithNumbers(nn.Module):
    """Add the scores of `count` numbers to those of a head that answers for whole rows, such as `Classifier` and `Regressor`.

    Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016: a linear layer gets the numbers themselves (wide) and the output
    of two more layers of `width` (deep). It starts at zero, so an untrained model gives the same answers as its head. `outputs` is the
    number of outputs of the head, and `dropout` is the rate in the deep part.

    The numbers should be finite and near 0: centred and scaled, with missing values filled, both learned from the training rows only.
    They can be a column of lists of equal length, which a collator puts into the batch: `text(carry=["numbers"])`.

    Raises `ArgumentError` for a head that answers for tokens.

    >>> import mlxfp as fp
    >>> body = fp.models.Encoder(fp.models.EncoderConfig(vocab_size=100, hidden_size=16))
    >>> model = fp.models.WithNumbers(fp.models.Regressor(body), 3, outputs=1)
    >>> model(mx.array([[5, 6], [7, 8]]), numbers=mx.array([[0.1, -1.0, 0.5], [0.3, 0.0, -0.2]])).shape
    (2,)

    See also: `create(..., numbers=3)`, which makes all of it from names.
    """

    def __init__(  # noqa: PLR0913
        self, head: nn.Module, count: int, *, outputs: int, width: int = 64, dropout: float = 0.1, seed: int = 0
    ) -> None:
        """Make the layers of the numbers and draw their weights; the head keeps its own."""
        super().__init__()
        check_positive(count=count, outputs=outputs, width=width)
        if isinstance(head, TokenClassifier | MaskedLM | CausalLM):
            raise ArgumentError(
                f"Numbers of a row need a head that answers for whole rows, got {type(head).__name__}. "
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
        self.head = head  # set last: its weights are not drawn here

    def __call__(self, ids: mx.array, mask: Input = None, *, numbers: Input = None, token_type_ids: Input = None) -> mx.array:
        """Return the answers of the head plus the scores of `numbers`, [B, count], in the shape and dtype of the former.

        The other arguments are the head's. Raises `ArgumentTypeError` without numbers, and `ArgumentError` for another shape.
        """
        wanted = [len(ids), self.count]
        if not isinstance(numbers, mx.array):
            raise ArgumentTypeError(
                f"The model needs the numbers of its rows, an array {wanted}, got {type(numbers).__name__}. "
                'Call model(ids, mask, numbers=batch["numbers"]).'
            )
        if list(numbers.shape) != wanted:
            raise ArgumentError(
                f"numbers must be {wanted}, count={self.count} for each row of ids, got {list(numbers.shape)}. "
                "Pass the columns that the model was made for, or make it with another count."
            )
        answers = encode(self.head, ids, mask, token_type_ids=token_type_ids)
        if answers.ndim > 2 or (*answers.shape, 1)[:2] != (len(ids), self.outputs):
            raise ArgumentError(
                f"The head must answer [{len(ids)}, {self.outputs}], which is outputs={self.outputs} for each row of ids, got "
                f"{list(answers.shape)}. Pass the number of outputs of the head to WithNumbers, and a head that answers for whole rows."
            )
        wide = numbers.astype(self.deep_in.weight.dtype)  # collators give whole numbers as integers
        deep = self.dropout(nn.relu(self.deep_out(nn.relu(self.deep_in(wide)))))
        scores: mx.array = self.output(mx.concatenate([wide, deep], axis=-1))
        return answers + scores.reshape(answers.shape).astype(answers.dtype)

    @property
    def body(self) -> nn.Module:
        """The body of the head."""
        body: nn.Module = self.head.body
        return body

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that the head was made with, except the body and the seed."""
        settings: dict[str, Any] = self.head.settings
        return settings

    @property
    def number_settings(self) -> dict[str, Any]:
        """The arguments that this was made with, except the head and the seed."""
        return {"count": self.count, "outputs": self.outputs, "width": len(self.deep_out.weight), "dropout": self.dropout.rate}

    @property
    def probabilities(self) -> Any:
        """The head's function that turns logits into probabilities, for heads that have one."""
        return self.head.probabilities
