"""Layers that several architectures share, how their weights are drawn, and what every config must satisfy."""

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from types import MethodType
from typing import Any, ClassVar

import mlx.core as mx
from attrs import fields
from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.models.activations import ACTIVATIONS, Activation
from mlxfp.models.bounds import Bound, checked
from mlxfp.support.checks import check_choice, check_positive
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in
from mlxfp.support.registries import Registry

Input = mx.array | None  # of a model; None where it is not given

_EMBEDDING_SCALE = 0.02  # the standard deviation of BERT's embeddings


def random_key(seed: int, *names: int | str) -> mx.array:
    """Make the key, uint32[2], that MLX's random functions take, from a seed and names."""
    value = fold_in(seed, *names)
    return mx.array([value >> 32, value & 0xFFFFFFFF], mx.uint32)


def derived_key(key: mx.array, name: str) -> mx.array:
    """Make another key of a key, uint32[2], by a name: `key ^ random_key(0, name)`.

    >>> derived_key(random_key(7), "layer").tolist() == (random_key(7) ^ random_key(0, "layer")).tolist()
    True
    """
    return key ^ random_key(0, name)


class Dropout(nn.Module):
    """Set a share of the values to zero while training, and scale the rest so that the mean is kept.

    In a step the mask is a pure function of (seed, step, name of this layer in the model). So compiled and eager steps draw the same
    mask, and so do a forward pass and its recomputation under `mx.checkpoint`. A layer that is called twice in one pass draws the same
    mask twice: use one layer for each place. Outside a step the mask comes from MLX's global generator, as in `nn.Dropout`.

    The axes in `shared_axes` share one mask: (-2, -3) drops whole channels of images [B, H, W, C]. Raises `ArgumentError` unless the
    rate is in [0, 1).

    >>> layer = Dropout(0.5).keyed(random_key(0))
    >>> layer(mx.ones(8)).tolist()
    [0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]
    """

    def __init__(self, rate: float, *, shared_axes: tuple[int, ...] = ()) -> None:
        """Check the rate."""
        super().__init__()
        _check_rates(rate=rate)
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


class Embedding(nn.Embedding):
    """The embedding of `mlx.nn`, for ids from 0 to below its `count` of rows only; `table` says what it has rows for.

    Raises `BoundError`, a `DataError`, for other ids; the rows of ids that a compiled function computes itself are NaN where it cannot.

    >>> Embedding(5, 2, table="tokens")(mx.array([5]))
    Traceback (most recent call last):
    mlxfp.models.bounds.BoundError: The array of ids holds 5 at row 0, and the model has 5 tokens: 0 to 4. Use ...
    """

    _table = "rows"

    def __init__(self, count: int, size: int, *, table: str) -> None:
        """Make the rows; the model that they belong to draws them."""
        super().__init__(count, size)
        self._table = table

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up ids, int[...]: float[..., size]."""
        return look_up(super().__call__, ids, Bound(self._table, len(self["weight"])))


class QuantizedEmbedding(nn.QuantizedEmbedding):
    """The quantized embedding of `mlx.nn`, with the same bounds as `Embedding`."""

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up ids, int[...]: float[..., size]."""
        return look_up(super().__call__, ids, Bound("rows", len(self["weight"])))


def look_up(rows: Callable[[mx.array], mx.array], ids: mx.array, bound: Bound) -> mx.array:
    """Return the rows of ids: NaN for those outside of the bound, where it cannot be checked."""
    if not mx.issubdtype(ids.dtype, mx.integer) or checked(ids, bound):
        return rows(ids)
    inside = (ids >= 0) & (ids < bound.size)  # type: ignore[operator]  # the size of a table
    return mx.where(inside[..., None], rows(mx.where(inside, ids, 0)), mx.nan)


class Transform(nn.Module):
    """The layers that the heads of BERT and ModernBERT apply first: a linear layer, an activation, a norm."""

    def __init__(self, hidden_size: int, activation: Activation, *, eps: float, bias: bool = True) -> None:
        """Make the layers; the head that gets them draws their weights."""
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(hidden_size, eps, bias=bias)

    def __call__(self, hidden: mx.array) -> mx.array:
        """Transform float[..., hidden_size]."""
        transformed: mx.array = self.norm(self.activation(self.linear(hidden)))
        return transformed


class Body(nn.Module):
    """What all bodies have: a config, the embedding of tokens, and a function that makes the transform of a head."""

    def __init__(self, config: Any, activation: Activation, *, eps: float, bias: bool = True) -> None:
        """Make the embedding; `activation`, `eps` and `bias` are those of the transform."""
        super().__init__()
        self.config = config
        self.hidden_size = config.hidden_size
        self.make_transform = partial(Transform, config.hidden_size, activation, eps=eps, bias=bias)
        self.tokens = Embedding(config.vocab_size, config.hidden_size, table="tokens")


def named_arrays(module: nn.Module) -> dict[str, mx.array]:
    """Return all arrays of a module by their names, as in `blocks.0.norm.weight`."""
    return tree_flatten(module.parameters(), destination={})  # type: ignore[return-value]  # the destination


class Config:
    """A config that checks itself. What is checked of a field follows from its type and name.

    Whole numbers must be at least 1, rates of dropout from 0 to below 1, and other numbers above 0; an activation must be known. All
    heads have the same size: `hidden_size` divided by their number. With `rotary` positions, which rotate pairs, that size is even.
    """

    rotary: ClassVar[bool] = False

    def __attrs_post_init__(self: Any) -> None:
        types = {field.name: field.type for field in fields(type(self))}
        values = {name: getattr(self, name) for name in types}
        rates = {name: value for name, value in values.items() if "dropout" in name}
        check_positive(**{name: value for name, value in values.items() if types[name] is int})
        check_choice(ACTIVATIONS, **{name: value for name, value in values.items() if types[name] == Activation})
        above_zero = {name: value for name, value in values.items() if types[name] is float and name not in rates}
        _check_numbers("a number above 0", lambda number: 0 < number < float("inf"), **above_zero)
        _check_rates(**rates)
        if "num_attention_heads" not in values:
            return
        given = f"got hidden_size={self.hidden_size} and num_attention_heads={self.num_attention_heads}"
        if self.hidden_size % self.num_attention_heads:
            raise ArgumentError(f"hidden_size must be a multiple of num_attention_heads, {given}.")
        if self.rotary and self.head_dim % 2:
            raise ArgumentError(f"hidden_size / num_attention_heads must be even, {given}, which makes {self.head_dim}.")

    @property
    def head_dim(self: Any) -> int:
        """The size of each head."""
        return int(self.hidden_size // self.num_attention_heads)


def size_table(fields: tuple[str, ...], **sizes: tuple[int, ...]) -> Registry[dict[str, int]]:
    """Make the table of an architecture's sizes, each with a value for the same fields of the config."""
    return Registry("size", {name: dict(zip(fields, values, strict=True)) for name, values in sizes.items()})


def _check_numbers(rule: str, holds: Callable[[Any], bool], **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not (isinstance(value, int | float) and holds(value)):
            raise ArgumentError(f"{name} must be {rule}, got {name}={value!r}.")


_check_rates = partial(_check_numbers, "at least 0 and less than 1", lambda rate: 0 <= rate < 1)


def draw_weights(module: nn.Module, seed: int, *, narrowed: tuple[str, ...] = (), narrowing: float = 1.0) -> None:
    """Draw every weight of the module's linear and embedding layers, each from (seed, name); biases become zero.

    Linear weights are normal with a standard deviation of 1/sqrt(fan-in) (LeCun et al., "Efficient BackProp", 1998), embeddings with
    0.02. For linear layers whose names end in one of `narrowed` the standard deviation is multiplied by `narrowing`: the more blocks
    there are, the less each should add to its input (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
    section 2.3). This edits the module, so it is called by the constructor of the module only.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            scale = layer.weight.shape[1] ** -0.5 * (narrowing if narrowed and name.endswith(narrowed) else 1)
            layer.weight = mx.random.normal(layer.weight.shape, scale=scale, key=random_key(seed, name))
            if "bias" in layer:
                layer.bias = mx.zeros_like(layer.bias)
        elif isinstance(layer, nn.Embedding):
            layer.weight = mx.random.normal(layer.weight.shape, scale=_EMBEDDING_SCALE, key=random_key(seed, name))


def copy_modules(model: nn.Module, instead: Callable[[Any], Any], *, classes: Mapping[type, type] = {}) -> Any:
    """Copy a module and the modules in it; arrays and everything else (functions, numbers) are shared, and shared modules stay shared.

    Not by `copy.deepcopy`, which copies the weights, and fails on compiled functions such as the activations of `mlx.nn`. `instead` is
    asked what replaces a value, and returns None for those to copy; modules of the `classes` that are keys become those that are values.
    """
    return _copy(model, instead, classes, {})


def _copy(value: Any, instead: Callable[[Any], Any], classes: Mapping[type, type], done: dict[int, Any]) -> Any:
    if id(value) in done:
        return done[id(value)]
    again = partial(_copy, instead=instead, classes=classes, done=done)
    kind: Any = type(value)
    new: Any = instead(value) if isinstance(value, nn.Module) else None
    if new is not None:
        done[id(value)] = new
    elif isinstance(value, nn.Module) or kind is dict:
        own: Any = classes.get(kind, kind)
        new = done[id(value)] = own.__new__(own)
        dict.update(new, {key: again(item) for key, item in value.items()})
        if kind is not dict:
            vars(new).update({key: again(item) for key, item in vars(value).items()})
    elif kind is list:
        new = done[id(value)] = []
        new.extend(map(again, value))
    elif kind is tuple:
        new = tuple(map(again, value))
    elif kind is set or kind is mx.array:
        new = copy(value)
    elif isinstance(value, MethodType) and id(value.__self__) in done:  # self.activation = self.gelu
        new = MethodType(value.__func__, done[id(value.__self__)])
    else:
        new = value
    return new
