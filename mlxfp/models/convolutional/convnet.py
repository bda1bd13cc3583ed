"""Convolutional network for images and spectrograms: residual blocks with group normalization."""

import mlx.core as mx
from attrs import field, frozen
from mlx import nn

from mlxfp.models.heads import mean_over_tokens
from mlxfp.models.layers import Dropout, draw_weights, random_key
from mlxfp.support.checks import check_positive, check_types, explain_class
from mlxfp.support.errors import ArgumentError

_GROUP = 16  # channels per normalization group


@explain_class
@frozen(kw_only=True)
class ConvNetConfig:
    """Sizes of a `ConvNet`: for each stage the number of channels, a multiple of 16, and the number of blocks.

    >>> ConvNetConfig(outputs=10).hidden_sizes
    (32, 64, 128)
    """

    outputs: int
    num_channels: int = 3
    hidden_sizes: tuple[int, ...] = field(default=(32, 64, 128), converter=tuple[int, ...])
    depths: tuple[int, ...] = field(default=(1, 1, 1), converter=tuple[int, ...])
    dropout: float = 0.1

    def __attrs_post_init__(self) -> None:
        check_positive(outputs=self.outputs, num_channels=self.num_channels)
        check_positive(**{f"hidden_sizes[{index}]": size for index, size in enumerate(self.hidden_sizes)})
        check_positive(**{f"depths[{index}]": depth for index, depth in enumerate(self.depths)})
        given = f"got hidden_sizes={self.hidden_sizes} and depths={self.depths}"
        if not self.depths or len(self.depths) != len(self.hidden_sizes):
            raise ArgumentError(f"hidden_sizes and depths need one entry per stage, {given}. Give two tuples of the same length.")
        if any(size % _GROUP for size in self.hidden_sizes):
            raise ArgumentError(
                f"hidden_sizes must be multiples of {_GROUP}, the size of a normalization group, {given}. Change hidden_sizes."
            )


# Size "small" has the depths of ResNet-18.
CONVNET_SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "tiny": {"hidden_sizes": (16, 32, 64), "depths": (1, 1, 1)},
    "mini": {"hidden_sizes": (32, 64, 128), "depths": (1, 1, 1)},
    "small": {"hidden_sizes": (64, 128, 256, 512), "depths": (2, 2, 2, 2)},
}


class ConvNet(nn.Module):
    """Convolutional network: maps images, float[B, H, W, C], to outputs, float[B, outputs]. Height and width may vary between batches.

    The network has pre-activation residual blocks (He et al., "Identity Mappings in Deep Residual Networks", 2016). Group normalization
    (Wu and He, "Group Normalization", 2018) makes an output depend only on its own image. Each stage halves height and width. A linear
    layer maps the mean over all positions to the outputs.

    `seed` initializes the weights. A spectrogram, float[B, T, mels], is an image with one channel: `model(features[..., None])`.

    >>> model = ConvNet(ConvNetConfig(outputs=10, num_channels=1, hidden_sizes=(16, 32), depths=(1, 1)), seed=0)
    >>> model(mx.zeros((2, 28, 28, 1))).shape
    (2, 10)
    """

    def __init__(self, config: ConvNetConfig, *, seed: int = 0) -> None:
        """Create and initialize the layers."""
        super().__init__()
        check_types(ConvNetConfig, config=config)
        self.config = config
        first = config.hidden_sizes[0]
        self.stem = nn.Conv2d(config.num_channels, first, 3, padding=1, bias=False)
        before = [first, *config.hidden_sizes[:-1]]
        self.stages = [
            [_Block(channels if block else entering, channels, stride=1 if block else 2) for block in range(depth)]
            for entering, channels, depth in zip(before, config.hidden_sizes, config.depths, strict=True)
        ]
        self.norm = _norm(config.hidden_sizes[-1])
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.hidden_sizes[-1], config.outputs)
        draw_weights(self, seed)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Conv2d):  # initialization of He et al., "Delving Deep into Rectifiers", 2015
                _, height, width, channels = layer.weight.shape
                scale = (2 / (height * width * channels)) ** 0.5
                layer.weight = mx.random.normal(layer.weight.shape, scale=scale, key=random_key(seed, name))

    def __call__(self, images: mx.array) -> mx.array:
        """Return the outputs for images, float[B, outputs]."""
        hidden = self.stem(images)
        for stage in self.stages:
            for block in stage:
                hidden = block(hidden)
        answers: mx.array = self.output(self.dropout(mean_over_tokens(nn.relu(self.norm(hidden)).flatten(1, 2), None)))
        return answers


class _Block(nn.Module):
    def __init__(self, entering: int, channels: int, *, stride: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = _norm(entering), _norm(channels)
        self.conv_in = nn.Conv2d(entering, channels, 3, stride=stride, padding=1, bias=False)
        self.conv_out = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        if stride > 1 or entering != channels:
            self.shortcut = nn.Conv2d(entering, channels, 1, stride=stride, bias=False)

    def __call__(self, hidden: mx.array) -> mx.array:
        active = nn.relu(self.norm_in(hidden))
        passed = self.shortcut(active) if "shortcut" in self else hidden
        changed: mx.array = passed + self.conv_out(nn.relu(self.norm_out(self.conv_in(active))))
        return changed


def _norm(channels: int) -> nn.Module:
    return nn.GroupNorm(channels // _GROUP, channels, pytorch_compatible=True)
