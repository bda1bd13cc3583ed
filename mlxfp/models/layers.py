"""Shared layers of the architectures, weight initialization, and the base class of configs."""

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from types import MethodType
from typing import Any, ClassVar

import mlx.core as mx
from attrs import fields
from mlx import nn
from mlx.optimizers import Optimizer
from mlx.utils import tree_flatten

from mlxfp.models.activations import ACTIVATIONS, Activation
from mlxfp.models.bounds import Bound, checked
from mlxfp.support.checks import check_choice, check_positive
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.randomness import fold_in
from mlxfp.support.registries import Registry

Input = mx.array | None  # type of an optional input of a model

PRETRAINED = "pretrained"  # module attribute that stores the hub name of a pretrained model; config.json has the same key
_EMBEDDING_SCALE = 0.02  # standard deviation of initial embeddings, as in BERT


def random_key(seed: int, *names: int | str) -> mx.array:
    """Return a key for random functions of MLX, uint32[2]. Equal seeds and equal `names` give equal keys."""
    value = fold_in(seed, *names)
    return mx.array([value >> 32, value & 0xFFFFFFFF], mx.uint32)


def derived_key(key: mx.array, name: str) -> mx.array:
    """Derive a random key, uint32[2], from another key and a name: `key ^ random_key(0, name)`.

    >>> derived_key(random_key(7), "layer").tolist() == (random_key(7) ^ random_key(0, "layer")).tolist()
    True
    """
    return key ^ random_key(0, name)


def check_module(model: object, usage: str = "") -> None:
    """Raise `ArgumentTypeError` unless `model` is a module of MLX. `usage` is a call with the arguments in the right order."""
    if isinstance(model, nn.Module):
        return
    kind, advice = type(model), f" Write {usage}." if usage else ""
    if isinstance(model, type):
        advice = f" Create the module: {model.__name__}(...)."
    elif "torch" in kind.__module__:
        advice = " Write it as a module of mlx.nn."
    elif isinstance(model, Optimizer) and not usage:
        advice = " The model comes before the optimizer."
    elif kind.__name__ == "TrainState" and "state" not in usage:  # models must not import mlxfp.training
        advice = " Pass the module of the training: model.update(state.params) returns the module with the trained weights."
    raise ArgumentTypeError(f"model must be an mlx.nn.Module, got {kind.__name__}: {model!r:.60}.{advice}")


class Dropout(nn.Module):
    """Dropout layer: sets a fraction of the values to zero in training and scales the other values to keep the mean.

    Inside a training step, the mask is a pure function of the seed, the step number and the name of the layer. Compiled and eager steps
    draw the same mask, and a recomputation under `mx.checkpoint` repeats the mask. Two calls of one layer in the same pass draw equal
    masks, so use a separate layer for each call. Outside a step, the mask comes from MLX's global generator, as in `nn.Dropout`.

    Values along the axes in `shared_axes` are dropped together: (-2, -3) drops whole channels of images [B, H, W, C]. Raises
    `ArgumentError` unless the rate is in [0, 1).

    >>> layer = Dropout(0.5).keyed(random_key(0))
    >>> layer(mx.ones(8)).tolist()
    [0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]
    """

    def __init__(self, rate: float, *, shared_axes: tuple[int, ...] = ()) -> None:
        """Create the dropout layer, after a check of the rate."""
        super().__init__()
        _check_rates(rate=rate)
        self.rate = rate
        self._shared_axes = frozenset(shared_axes)
        self._key: mx.array | None = None

    def keyed(self, key: mx.array) -> "Dropout":
        """Set the random key, uint32[2], for the masks of all later calls. Return the layer itself."""
        self._key = key
        return self

    def _extra_repr(self) -> str:
        return f"rate={self.rate}"

    def __call__(self, x: mx.array) -> mx.array:
        """Drop values of an array of any shape. In evaluation mode, return the array unchanged."""
        if not self.training or self.rate == 0:
            return x
        shape = [1 if axis - x.ndim in self._shared_axes else size for axis, size in enumerate(x.shape)]
        kept = mx.random.bernoulli(1 - self.rate, shape, key=self._key)
        return mx.where(kept, x * (1 / (1 - self.rate)), mx.zeros((), x.dtype))


class Embedding(nn.Embedding):
    """`mlx.nn.Embedding` that raises `BoundError`, a `DataError`, for invalid ids. Valid ids are 0 to `count` - 1.

    The argument `table` says in the error message what the ids stand for, such as "tokens". Ids computed inside a compiled function cannot
    be checked: the vectors of invalid ids are then NaN.

    >>> Embedding(5, 2, table="tokens")(mx.array([5]))
    Traceback (most recent call last):
    mlxfp.models.bounds.BoundError: The array of ids holds 5 at row 0, and the model has 5 tokens: 0 to 4. Use ...
    """

    _table = "rows"

    def __init__(self, count: int, size: int, *, table: str) -> None:
        """Create the table of vectors. The containing model initializes the vectors."""
        super().__init__(count, size)
        self._table = table

    def __call__(self, ids: mx.array) -> mx.array:
        """Return one vector per id. Ids of shape [...] give vectors of shape [..., size]."""
        return look_up(super().__call__, ids, Bound(self._table, len(self["weight"])))


class QuantizedEmbedding(nn.QuantizedEmbedding):
    """`mlx.nn.QuantizedEmbedding` with the checks of `Embedding`."""

    def __call__(self, ids: mx.array) -> mx.array:
        """Return one vector per id. Ids of shape [...] give vectors of shape [..., size]."""
        return look_up(super().__call__, ids, Bound("rows", len(self["weight"])))


def look_up(rows: Callable[[mx.array], mx.array], ids: mx.array, bound: Bound) -> mx.array:
    """Return the vectors of ids. If the ids cannot be checked, vectors of invalid ids are NaN."""
    if not mx.issubdtype(ids.dtype, mx.integer) or checked(ids, bound):
        return rows(ids)
    inside = (ids >= 0) & (ids < bound.size)  # type: ignore[operator]  # the size of a table
    return mx.where(inside[..., None], rows(mx.where(inside, ids, 0)), mx.nan)


class Transform(nn.Module):
    """First layers of the output heads of BERT and ModernBERT: linear layer, activation, norm."""

    def __init__(self, hidden_size: int, activation: Activation, *, eps: float, bias: bool = True) -> None:
        """Create the layers. The output head then draws the initial weights."""
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(hidden_size, eps, bias=bias)

    def __call__(self, hidden: mx.array) -> mx.array:
        """Transform hidden states, float[..., hidden_size]. The shape stays the same."""
        transformed: mx.array = self.norm(self.activation(self.linear(hidden)))
        return transformed


class Body(nn.Module):
    """Base class of backbones. A backbone has a config, a token embedding, and the function `make_transform` for output heads."""

    def __init__(self, config: Any, activation: Activation, *, eps: float, bias: bool = True) -> None:
        """Create the token embedding. `activation`, `eps` and `bias` are settings of the layers that `make_transform` creates."""
        super().__init__()
        self.config = config
        self.hidden_size = config.hidden_size
        self.make_transform = partial(Transform, config.hidden_size, activation, eps=eps, bias=bias)
        self.tokens = Embedding(config.vocab_size, config.hidden_size, table="tokens")


def named_arrays(module: nn.Module) -> dict[str, mx.array]:
    """Return all arrays of a module by name, for example `blocks.0.norm.weight`."""
    return tree_flatten(module.parameters(), destination={})  # type: ignore[return-value]  # the destination


def pretrained_in(module: nn.Module) -> tuple[str, ...]:
    """Return the hub names, `org/name@commit`, of the pretrained models that provided the initial weights of a module."""
    names = (getattr(part, PRETRAINED, None) for part in module.modules())
    return tuple(sorted({name for name in names if isinstance(name, str)}))


class Config:
    """Base class of configs. Fields are checked by type and name.

    Integers must be at least 1, dropout rates in [0, 1), other numbers above 0, and activations must be known. `hidden_size` must be a
    multiple of the number of heads. With rotary positions, the head size must be even, because rotary positions rotate pairs.
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
            raise ArgumentError(f"hidden_size must be a multiple of num_attention_heads, {given}. Change one of these sizes.")
        if self.rotary and self.head_dim % 2:
            raise ArgumentError(
                f"hidden_size / num_attention_heads must be even, {given}, so the quotient is {self.head_dim}. Choose an even quotient."
            )

    @property
    def head_dim(self: Any) -> int:
        """Size of each attention head."""
        return int(self.hidden_size // self.num_attention_heads)


def size_table(fields: tuple[str, ...], **sizes: tuple[int, ...]) -> Registry[dict[str, int]]:
    """Return a registry of model sizes. `sizes` maps the name of a size to a tuple with a value for each config field in `fields`."""
    return Registry("size", {name: dict(zip(fields, values, strict=True)) for name, values in sizes.items()})


def _check_numbers(rule: str, holds: Callable[[Any], bool], **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not (isinstance(value, int | float) and holds(value)):
            raise ArgumentError(f"{name} must be {rule}, got {name}={value!r}.")


_check_rates = partial(_check_numbers, "at least 0 and less than 1", lambda rate: 0 <= rate < 1)


def draw_weights(module: nn.Module, seed: int, *, narrowed: tuple[str, ...] = (), narrowing: float = 1.0) -> None:
    """Initialize all linear and embedding layers of a module from (seed, name), in place. Biases become zero.

    Weights have a normal distribution. The standard deviation is 0.02 for embeddings and 1/sqrt(fan-in) for linear layers (LeCun et al.,
    "Efficient BackProp", 1998). For linear layers with a name ending in one of `narrowed`, the standard deviation is multiplied by
    `narrowing`, so that each block of a deep model adds less (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
    section 2.3). Only constructors of modules call `draw_weights`.
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
    """Copy a module and all submodules. The copy uses the arrays, functions and other values of the original.

    A submodule with several names is copied once. `instead(module)` returns a replacement for a module, or None to copy the module.
    `classes` maps classes of modules to the classes of the copies. `copy.deepcopy` would copy the weights and fail on compiled functions,
    such as the activations of `mlx.nn`.
    """
    return _copy(model, instead, classes, {})


def _copy(value: Any, instead: Callable[[Any], Any], classes: Mapping[type, type], done: dict[int, Any]) -> Any:
    if id(value) in done:
        return done[id(value)]
    copy_item = partial(_copy, instead=instead, classes=classes, done=done)
    kind: Any = type(value)
    new: Any = instead(value) if isinstance(value, nn.Module) else None
    if new is not None:
        done[id(value)] = new
    elif isinstance(value, nn.Module) or kind is dict:
        new_class: Any = classes.get(kind, kind)
        new = done[id(value)] = new_class.__new__(new_class)
        dict.update(new, {key: copy_item(item) for key, item in value.items()})
        if kind is not dict:
            vars(new).update({key: copy_item(item) for key, item in vars(value).items()})
    elif kind is list:
        new = done[id(value)] = []
        new.extend(map(copy_item, value))
    elif kind is tuple:
        new = tuple(map(copy_item, value))
    elif kind is set or kind is mx.array:
        new = copy(value)
    elif isinstance(value, MethodType) and id(value.__self__) in done:
        # A bound method, such as self.activation = self.gelu, must use the copied module instead of the original module.
        new = MethodType(value.__func__, done[id(value.__self__)])
    else:
        new = value
    return new
