"""Small convolutional network for text: linear filters over windows of a few tokens."""

import mlx.core as mx
from attrs import field, frozen
from mlx import nn

from mlxfp.models.attention import check_length
from mlxfp.models.formats import Architecture, Format
from mlxfp.models.layers import Body, Config, draw_weights, random_key, size_table
from mlxfp.support.checks import check_positive, explain_class
from mlxfp.support.errors import ArgumentError

_SPREAD = 0.25  # embeddings are uniform in [-0.25, 0.25], as in the paper


@explain_class
@frozen(kw_only=True)
class TextCNNConfig(Config):
    """Sizes of a `TextCNN`.

    Each entry of `kernel_sizes` is the width of a window in tokens. The `hidden_size` outputs are divided equally among the windows.

    >>> TextCNNConfig(vocab_size=1000).kernel_sizes
    (3, 4, 5)
    """

    vocab_size: int
    hidden_size: int = 300
    kernel_sizes: tuple[int, ...] = field(default=(3, 4, 5), converter=tuple[int, ...])
    max_position_embeddings: int = 512

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_positive(**{f"kernel_sizes[{index}]": size for index, size in enumerate(self.kernel_sizes)})
        if not self.kernel_sizes or self.hidden_size % len(self.kernel_sizes):
            raise ArgumentError(
                f"hidden_size must be a multiple of the number of kernel_sizes, got hidden_size={self.hidden_size} and "
                f"kernel_sizes={self.kernel_sizes}. Change hidden_size or kernel_sizes."
            )

    @property
    def num_hidden_layers(self) -> int:
        """Number of linear layers."""
        return len(self.kernel_sizes)


TEXT_CNN_SIZES = size_table(("hidden_size",), tiny=(96,), mini=(192,), small=(300,))


class TextCNN(Body):
    """Convolutional backbone: maps token ids to one vector per token, computed from windows of tokens around the token.

    Each window size, by default 3, 4 and 5, has a linear layer with ReLU (Kim, "Convolutional Neural Networks for Sentence
    Classification", 2014). The head then takes the maximum over the tokens. At the ends of a row, missing tokens of a window are zeros.
    `seed` initializes the weights.

    >>> body = TextCNN(TextCNNConfig(vocab_size=100, hidden_size=12), seed=0)
    >>> body(mx.array([[5, 6, 7]])).shape
    (1, 3, 12)
    """

    def __init__(self, config: TextCNNConfig, *, seed: int = 0) -> None:
        """Create and initialize the layers."""
        super().__init__(config, "relu", eps=1e-5)
        size = config.hidden_size
        self.windows = [nn.Linear(width * size, size // len(config.kernel_sizes)) for width in config.kernel_sizes]
        draw_weights(self, seed)
        self.tokens.weight = mx.random.uniform(-_SPREAD, _SPREAD, self.tokens.weight.shape, key=random_key(seed, "tokens"))

    def __call__(self, ids: mx.array, mask: mx.array | None = None) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, hidden_size]. `mask`, [B, L], is 1 on real tokens; None means no padding.

        Raises `ArgumentError` for rows longer than `max_position_embeddings`, and `DataError` for ids outside the vocabulary. The vectors
        of padding tokens are undefined.
        """
        check_length("text_cnn", ids.shape[1], self.config.max_position_embeddings)
        hidden = self.tokens(ids)
        if mask is not None:
            hidden = mx.where(mask[..., None] != 0, hidden, 0)
        looked = [nn.relu(layer(_windows(hidden, width))) for layer, width in zip(self.windows, self.config.kernel_sizes, strict=True)]
        return mx.concatenate(looked, axis=-1)


def _windows(hidden: mx.array, width: int) -> mx.array:
    """Concatenate the vectors around each token, float[B, L, D] to float[B, L, width * D]. Positions outside the row are zeros."""
    before, length = (width - 1) // 2, hidden.shape[1]
    padded = mx.pad(hidden, [(0, 0), (before, width - 1 - before), (0, 0)])
    return mx.concatenate([padded[:, offset : offset + length] for offset in range(width)], axis=-1)


_FORMAT = Format(model_type="mlxfp_text_cnn", classes="MlxfpTextCNN", prefix="body.", config=TextCNNConfig)

TEXT_CNN = Architecture(TextCNN, TextCNNConfig, TEXT_CNN_SIZES, 30522, rows={"pooling": "max", "dropout": 0.5}, formats=(_FORMAT,))
