"""Layers that several architectures share, and how their weights are drawn."""

from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.core.checks import check_positive
from mlxfp.core.errors import ArgumentError
from mlxfp.core.randomness import fold_in

_EMBEDDING_SCALE = 0.02  # the standard deviation of BERT's embeddings


def random_key(seed: int, *names: int | str) -> mx.array:
    """Make the key, uint32[2], that MLX's random functions take, from a seed and names.

    >>> random_key(0, "a").tolist() == random_key(0, "a").tolist() != random_key(0, "b").tolist()
    True
    """
    value = fold_in(seed, *names)
    return mx.array([value >> 32, value & 0xFFFFFFFF], mx.uint32)


class Dropout(nn.Module):
    """Set a share of the values to zero while training, and scale the rest so that the mean stays.

    In a step the mask is a pure function of (seed, step, name of this layer in the model), so compiled and eager, and a first pass and
    its recomputation under `mx.checkpoint`, draw the same one. A layer that is called twice in one pass draws one mask twice: give
    each place a layer of its own. Outside a step the mask comes from MLX's global generator, like that of `nn.Dropout`.

    The axes in `shared_axes` share one mask: (-2, -3) drops whole channels of images [B, H, W, C]. Raises `ArgumentError` unless the
    rate is in [0, 1).

    >>> layer = Dropout(0.5).keyed(random_key(0))
    >>> layer(mx.ones(8)).tolist()
    [0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]
    """

    def __init__(self, rate: float, *, shared_axes: tuple[int, ...] = ()) -> None:
        """Check the rate."""
        super().__init__()
        check_rates(rate=rate)
        self.rate = rate
        self._shared_axes = frozenset(shared_axes)
        self._key: mx.array | None = None

    def keyed(self, key: mx.array) -> "Dropout":
        """Make this layer draw its mask from a key, uint32[2], at every call from now on; return it."""
        self._key = key
        return self

    def _extra_repr(self) -> str:
        return f"rate={self.rate}"

    def __call__(self, x: mx.array) -> mx.array:
        """Drop values of an array of any shape; the identity in evaluation mode."""
        if not self.training or self.rate == 0:
            return x
        shape = [1 if axis - x.ndim in self._shared_axes else size for axis, size in enumerate(x.shape)]
        kept = mx.random.bernoulli(1 - self.rate, shape, key=self._key)
        return mx.where(kept, x * (1 / (1 - self.rate)), mx.zeros((), x.dtype))


def named_arrays(module: nn.Module) -> dict[str, mx.array]:
    """Return all arrays of a module by their names, as in `blocks.0.norm.weight`.

    >>> list(named_arrays(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    arrays: Any = tree_flatten(module.parameters())
    return dict(arrays)


def check_rates(**rates: object) -> None:
    """Raise unless every rate of dropout is a number from 0 to below 1."""
    for name, rate in rates.items():
        if isinstance(rate, bool) or not (isinstance(rate, int | float) and 0 <= rate < 1):
            raise ArgumentError(f"{name} must be at least 0 and less than 1, got {name}={rate!r}.")


def check_above_zero(**values: object) -> None:
    """Raise unless every value is a number above 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < float("inf")):
            raise ArgumentError(f"{name} must be a number above 0, got {name}={value!r}.")


def check_sizes(*, width: int, heads: int, **sizes: int) -> None:
    """Raise unless all sizes of a model are at least 1 and the width is a multiple of the number of heads."""
    check_positive(width=width, heads=heads, **sizes)
    if width % heads:
        raise ArgumentError(f"width must be a multiple of heads, got width={width} and heads={heads}.")


def check_rotary(*, width: int, heads: int) -> None:
    """Raise unless heads have an even size: rotary positions turn pairs of numbers."""
    if width // heads % 2:
        raise ArgumentError(f"width / heads must be even, got width={width} and heads={heads}, which makes {width // heads}.")


def draw_weights(module: nn.Module, seed: int, *, narrowed: tuple[str, ...] = (), narrowing: float = 1.0) -> None:
    """Draw every weight of the module's linear and embedding layers anew, each from (seed, name); biases become zero.

    Linear weights are normal with a standard deviation of 1/sqrt(fan-in) (LeCun et al., "Efficient BackProp", 1998), embeddings with
    one of 0.02. Linear layers whose names end in one of `narrowed` get `narrowing` times that: what blocks add to their input must be
    small where there are many (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3). The module is
    a new one that its constructor is still making: this edits it.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            scale = layer.weight.shape[1] ** -0.5 * (narrowing if narrowed and name.endswith(narrowed) else 1)
            layer.weight = mx.random.normal(layer.weight.shape, scale=scale, key=random_key(seed, name))
            if "bias" in layer:
                layer.bias = mx.zeros_like(layer.bias)
        elif isinstance(layer, nn.Embedding):
            layer.weight = mx.random.normal(layer.weight.shape, scale=_EMBEDDING_SCALE, key=random_key(seed, name))
