"""Optimizers for training: `start` and `update` use any optimizer of `mlx.optimizers`, and never change the optimizer object.

The optimizer object is only a configuration. All values that change, such as moments, are in `TrainState.opt`. Other functions build
optimizers for groups of parameters. To offer another optimizer by name in configurations, add an entry to the table `OPTIMIZERS`.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from io import StringIO
from math import inf
from operator import mul
from typing import Any

import attrs
import mlx.core as mx
from mlx import optimizers
from mlx.utils import tree_flatten
from toolz import compose, juxt

from mlxfp.core.nodes import Part, brief
from mlxfp.support.checks import check_callable, check_positive, check_text, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.registries import Registry
from mlxfp.support.trees import difference, flatten, unflatten
from mlxfp.training.optimization.learning_rates import learning_rates
from mlxfp.training.optimization.schedules import Schedule, check_rate, flat_cosine

__all__ = ["OPTIMIZERS", "adamw", "by_name", "fading_adam", "frozen", "grouped", "layerwise", "matching", "start", "update", "vectors"]


def __dir__() -> list[str]:
    return __all__


Where = Callable[[str, mx.array], bool]
_BLOCK = re.compile(r"\bblocks\.(\d+)\.")
_EMBEDDINGS = ("tokens", "positions", "types")  # names of the layers for token, position and token type embeddings in models of mlxfp


@explain_call
def adamw(
    learning_rate: float | Schedule, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01
) -> optimizers.Optimizer:
    """Return AdamW with bias correction, which is off by default in MLX's AdamW.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019. The learning rate is a number of at least 0 or a schedule.
    Raises `ArgumentError` for other numbers.

    >>> adamw(1e-3).bias_correction
    True
    """
    _check_rates(learning_rate, weight_decay)
    return optimizers.AdamW(learning_rate, betas=list(betas), eps=eps, weight_decay=weight_decay, bias_correction=True)


def by_name(name: str, learning_rate: float | Schedule, *, weight_decay: float = 0.0) -> optimizers.Optimizer:
    """Return an optimizer of the table `OPTIMIZERS`. Weight decay applies to matrices, but not to vectors, such as biases.

    The kind of decay depends on the method. adamw, lion and adafactor shrink the weights directly (decoupled decay: Loshchilov and Hutter,
    2019). adam and sgd add the decay to the gradients (L2 penalty). Therefore adam with decay differs from adamw.

    >>> [part.weight_decay for part in by_name("sgd", 0.1, weight_decay=0.01).optimizers]
    [0.0, 0.01]
    """
    make = OPTIMIZERS[name]
    _check_rates(learning_rate, weight_decay)
    if not weight_decay:
        return make(learning_rate, 0.0)
    return grouped((vectors, make(learning_rate, 0.0)), rest=make(learning_rate, weight_decay))


def grouped(*groups: tuple[Where, optimizers.Optimizer], rest: optimizers.Optimizer) -> optimizers.Optimizer:
    """Update groups of parameters with separate optimizers, and all other parameters with `rest`.

    A group is a pair (where, optimizer). `where(path, array)` returns True for a parameter of the group; examples are `vectors` and
    `matching("body.*")`. Paths are paths of `Module.parameters()`, such as "layers.0.weight". A parameter belongs to the first matching
    group. A group without parameters is probably a misspelled name, and raises `ArgumentError` when a state is created.

    >>> no_decay, decay = adamw(1e-3, weight_decay=0.0), adamw(1e-3, weight_decay=0.1)
    >>> optimizer = grouped((matching("body.*"), frozen()), (vectors, no_decay), rest=decay)
    >>> params = {"body": {"weight": mx.zeros((2, 2))}, "weight": mx.zeros((2, 2)), "bias": mx.zeros(2)}
    >>> [sorted(state) for state in start(optimizer, params)["states"]]
    [['body', 'step'], ['bias', 'learning_rate', 'step'], ['learning_rate', 'step', 'weight']]
    """
    for where, optimizer in groups:
        check_callable(where=where)
        _check(optimizer)
    _check(rest)
    # Each group needs its own optimizer object, even if the caller passes the same object for several groups.
    copies = [copy.deepcopy(optimizer) for optimizer in (*(optimizer for _, optimizer in groups), rest)]
    return optimizers.MultiOptimizer(copies, [where for where, _ in groups])


def frozen() -> optimizers.Optimizer:
    """Return an optimizer that leaves parameters unchanged, for use as an argument of `grouped`.

    The optimizer keeps no moments. With `clip_norm`, the gradients of the group are still computed, because the norm covers all gradients.
    To avoid this work, freeze the parameters with `model.body.freeze()` instead.

    >>> params = {"w": mx.ones(2)}
    >>> state = start(frozen(), params)
    >>> print(update(frozen(), {"w": mx.ones(2)}, state, params)[0], state)
    {'w': array([1, 1], dtype=float32)} {'step': array(0, dtype=uint64), 'w': {}}
    """
    return _Frozen()  # type: ignore[no-untyped-call]  # untyped in MLX


def matching(*patterns: str) -> Where:
    """Return a function to select parameters whose path matches any of the patterns. `*` matches any text, including dots.

    >>> where = matching("body.layers.1.*", "*.norm.*")
    >>> [where(path, mx.zeros(1)) for path in ("body.layers.1.weight", "body.layers.10.weight", "body.layers.10.norm.weight")]
    [True, False, True]
    """
    check_text(**{f"pattern {index}": pattern for index, pattern in enumerate(patterns)})
    if not patterns:
        raise ArgumentError("matching needs at least one pattern, as in matching('body.*').")
    return _Matching(patterns)


def vectors(path: str, array: mx.array) -> bool:
    """Return True for parameters with fewer than two axes: biases and weights of norms, which should not decay.

    >>> vectors("norm.weight", mx.zeros(4)), vectors("linear.weight", mx.zeros((4, 4)))
    (True, False)
    """
    return array.ndim < 2


@explain_call
def layerwise(name: str, learning_rate: float | Schedule, params: Any, *, decay: float, weight_decay: float = 0.0) -> optimizers.Optimizer:
    """Return an optimizer of `OPTIMIZERS` for pretrained weights: each block has `decay` times the learning rate of the next block.

    The head and all parameters outside blocks have the full learning rate. Embeddings have `decay` times the rate of the lowest block.
    Weight decay applies only to matrices, as in `by_name`.

    `params` are the parameters of the model, such as `model.trainable_parameters()`. The backbone needs a list `blocks`, as in all
    `models`. Raises `ArgumentError` if no parameter is in a block, or if `decay` is not above 0 and at most 1.

    Lower layers need smaller updates. Source: Howard and Ruder, "Universal Language Model Fine-tuning for Text Classification", 2018.

    >>> blocks = [{"weight": mx.zeros((2, 2))}, {"weight": mx.zeros((2, 2))}]
    >>> params = {"body": {"tokens": {"weight": mx.zeros((9, 2))}, "blocks": blocks}, "output": mx.zeros((2, 2))}
    >>> optimizer = layerwise("adamw", 1.0, params, decay=0.5)
    >>> [round(part.learning_rate.item(), 3) for part in optimizer.optimizers]
    [0.5, 0.25, 0.125, 1.0]
    """
    if not 0 < decay <= 1:
        raise ArgumentError(f"decay must be above 0 and at most 1, got decay={decay!r}. A typical value is 0.9.")
    flat: Any = tree_flatten(params)
    count = 1 + max((int(match[1]) for name, _ in flat if (match := _BLOCK.search(name))), default=-1)
    if not count:
        raise ArgumentError("layerwise needs the parameters of a model with blocks, but no path contains 'blocks.0'. Use by_name.")
    scaled_groups = [(matching(f"*blocks.{count - 1 - depth}.*"), decay ** (depth + 1)) for depth in range(count)]
    scaled_groups.append((matching(*(f"*{part}.weight" for part in _EMBEDDINGS)), decay ** (count + 1)))
    groups, remaining = list[tuple[Where, optimizers.Optimizer]](), flat
    for where, factor in (*scaled_groups, (matching("*"), 1.0)):
        rate, members = _times(learning_rate, factor), [named for named in remaining if where(*named)]
        remaining = [named for named in remaining if not where(*named)]
        if weight_decay and any(vectors(*named) for named in members):
            groups.append((compose(all, juxt(where, vectors)), OPTIMIZERS[name](rate, 0.0)))
            members = [named for named in members if not vectors(*named)]
        if members:
            groups.append((where, OPTIMIZERS[name](rate, weight_decay)))
    return grouped(*groups[:-1], rest=groups[-1][1])


@explain_call
def fading_adam(
    learning_rate: float | Schedule, *groups: tuple[Sequence[str], float, float], steps: int, weight_decay: float = 0.02
) -> optimizers.Optimizer:
    """Return Adam with betas 0.9 and 0.95. The decoupled weight decay falls to 0 in the second half of the updates.

    `groups` are tuples (patterns, factor of the learning rate, factor of the weight decay). The factors apply to the parameters of
    `matching(*patterns)`. All other parameters have the factors 1. `models.TABLE_MODELS` has suitable groups and peak learning rates.

    Source: Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular Data", 2024.

    >>> [where.patterns for where in fading_adam(0.04, (["*.bias"], 0.1, 0.0), steps=100).filters[:-1]]
    [('*.bias',)]
    """
    check_positive(steps=steps)
    _check_rates(learning_rate, weight_decay)

    def part(factor: float, decay_factor: float) -> optimizers.Optimizer:
        return _FadingAdam(_times(learning_rate, factor), flat_cosine(weight_decay * decay_factor, steps=steps))

    return grouped(*((matching(*patterns), part(*factors)) for patterns, *factors in groups), rest=part(1.0, 1.0))


def start(optimizer: optimizers.Optimizer, params: Any) -> Any:
    """Return the state of the optimizer before the first update of `params`: a tree of arrays.

    Raises `ArgumentTypeError` for an object that is not an optimizer, and `ArgumentError` for a used optimizer.

    >>> sorted(start(adamw(0.5), {"w": mx.zeros(2)}))
    ['learning_rate', 'step', 'w']
    """
    _check(optimizer)
    clone = copy.deepcopy(optimizer)
    _check_groups(clone, params)
    clone.init(params)
    for leaf in flatten(clone.state)[1]:
        if not isinstance(leaf, mx.array):
            raise ArgumentTypeError(f"The state of an optimizer must be MLX arrays, got {type(leaf).__name__}: {leaf!r:.80}.")
    if wrong := [rate for rate in learning_rates(clone.state) if not 0 <= rate < inf]:
        raise ArgumentError(
            f"The learning rate must be a finite number of at least 0, got {wrong[0]:g} from {type(optimizer).__name__}. "
            "Build the optimizer with another rate or schedule."
        )
    return clone.state


def update(optimizer: optimizers.Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    """Return the parameters and the state after one update. Neither the optimizer nor the arguments change.

    >>> sgd = optimizers.SGD(0.5)
    >>> params, state = update(sgd, {"w": mx.ones(2)}, start(sgd, {"w": mx.zeros(2)}), {"w": mx.zeros(2)})
    >>> params["w"].tolist(), state["step"].item()
    ([-0.5, -0.5], 1)
    """
    clone = copy.deepcopy(optimizer)  # a shallow copy would share the inner optimizers of MultiOptimizer
    structure, olds = flatten([params, state])
    copies = [copy.copy(old) for old in olds]  # the optimizer edits dicts and arrays in place
    param_copies, clone.state = unflatten(structure, copies)
    updated = _arranged_like(params, clone.apply_gradients(gradients, param_copies))
    changed = difference(flatten(state)[0], flatten(clone.state)[0])
    if changed:
        raise ArgumentError(
            f"{type(optimizer).__name__} changed the structure of its state in an update. {changed} "
            "Create all arrays of the state in the optimizer's method init."
        )
    _check_attributes(optimizer, clone)
    news = flatten([updated, clone.state])[1]
    leaves = [old if new is copied and _is_same(new, old) else new for new, copied, old in zip(news, copies, olds, strict=True)]
    new_params, new_state = unflatten(structure, leaves)  # unchanged leaves stay the same objects and need no computation
    return new_params, new_state


def _check_attributes(before: optimizers.Optimizer, after: optimizers.Optimizer) -> None:
    """Raise `ArgumentError` if an update changed a Python attribute of the optimizer.

    The change would have no effect, because every update works on a new copy of the original optimizer.
    """
    values = {name: value for name, value in vars(before).items() if not name.startswith("_") and isinstance(value, int | float | str)}
    changed = next((name for name, value in values.items() if getattr(after, name) != value), None)
    if changed is not None:
        raise ArgumentError(
            f"{type(before).__name__} changes its attribute {changed!r} in an update, from {values[changed]!r} to "
            f"{getattr(after, changed)!r}. A compiled step cannot store the new value, so every step would start from the old value. "
            f"Keep the number as an array in the state: self.state[{changed!r}] = mx.array({values[changed]!r}) in init."
        )


class _Adam(optimizers.Adam):
    """Adam with an L2 penalty: gradients include the gradient of decay * |w|^2 / 2, as in PyTorch. MLX's Adam has no decay."""

    def __init__(self, learning_rate: Any, decay: float) -> None:
        super().__init__(learning_rate, bias_correction=True)
        self.decay = decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        updated: mx.array = super().apply_single(gradient + self.decay * parameter, parameter, state)
        return updated


class _FadingAdam(optimizers.Adam):
    """Adam with betas 0.9 and 0.95, and a decoupled weight decay with its own schedule."""

    def __init__(self, learning_rate: Any, decay: Schedule) -> None:
        super().__init__(learning_rate, betas=[0.9, 0.95], bias_correction=True)
        self._maybe_schedule("weight_decay", decay)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        kept = parameter * (1 - self.learning_rate * self.state["weight_decay"]).astype(parameter.dtype)
        updated: mx.array = super().apply_single(gradient, kept, state)
        return updated


def _times(rate: float | Schedule, factor: float) -> float | Schedule:
    return compose(partial(mul, factor), rate) if callable(rate) else rate * factor


# Optimizers for configurations. Each function creates an optimizer from two arguments: a learning rate or schedule, and the weight decay.
OPTIMIZERS: Registry[Callable[[Any, float], optimizers.Optimizer]] = Registry(
    "optimizer",
    {
        "adamw": lambda rate, decay: adamw(rate, weight_decay=decay),
        "adam": _Adam,
        "sgd": lambda rate, decay: optimizers.SGD(rate, momentum=0.9, weight_decay=decay),
        "lion": lambda rate, decay: optimizers.Lion(rate, weight_decay=decay),
        "adafactor": lambda rate, decay: optimizers.Adafactor(rate, relative_step=False, scale_parameter=False, weight_decay=decay),
    },
)


class _Frozen(optimizers.Optimizer):
    def init_single(self, parameter: mx.array, state: dict[str, Any]) -> None:
        """Do nothing, because frozen parameters need no moments."""

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        """Return the parameter unchanged."""
        return parameter


@attrs.frozen(repr=False)
class _Matching(Part):
    patterns: tuple[str, ...]

    def __call__(self, path: str, array: mx.array) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.patterns)


def _is_same(new: mx.array, old: mx.array) -> bool:
    """Return True if two array objects are the same array for MLX, such as an array and its unmodified copy.

    MLX has no function for this test, but a drawing of the computation graph shows such arrays as a single node.
    """
    return _drawn(old, new) == _drawn(old)


def _drawn(*arrays: mx.array) -> str:
    text = StringIO()
    mx.export_to_dot(text, *arrays)
    return text.getvalue()


def _arranged_like(tree: Any, other: Any) -> Any:
    """Replace the arrays of `tree` by the arrays of `other` with the same keys. The keys stay in the order of `tree`.

    `other` can have another order, because MultiOptimizer merges its groups in any order.
    """
    if isinstance(tree, dict):
        return {key: _arranged_like(value, other[key]) if key in other else value for key, value in tree.items()}
    if isinstance(tree, list):
        return [_arranged_like(value, other[index]) if index < len(other) else value for index, value in enumerate(tree)]
    return other


def _check_rates(learning_rate: object, weight_decay: object) -> None:
    check_rate(weight_decay=weight_decay, **({} if callable(learning_rate) else {"learning_rate": learning_rate}))


def _check(optimizer: optimizers.Optimizer) -> None:
    if not isinstance(optimizer, optimizers.Optimizer):
        raise ArgumentTypeError(
            f"optimizer must be an mlx.optimizers.Optimizer, got {type(optimizer).__name__}: {optimizer!r:.80}. "
            "Write fp.optimizers.adamw(1e-3)."
        )
    states = optimizer.state["states"] if isinstance(optimizer, optimizers.MultiOptimizer) else [optimizer.state]
    used = [state for state in states if isinstance(state, Mapping) and int(state["step"]) > 0]
    if used:
        raise ArgumentError(
            f"{type(optimizer).__name__} has made {int(used[0]['step'])} updates already, but mlxfp keeps the optimizer state in "
            "TrainState. Pass a new optimizer."
        )


def _check_groups(optimizer: optimizers.Optimizer, params: Any) -> None:
    if not isinstance(optimizer, optimizers.MultiOptimizer):
        return
    parts = optimizer._split_dictionary(params)  # noqa: SLF001  # called in every update
    for where, part in zip(optimizer.filters[:-1], parts, strict=False):  # the last optimizer takes all other parameters, possibly none
        if not part:
            flat: Any = tree_flatten(params)
            names = ", ".join(name for name, _ in flat)
            raise ArgumentError(
                f"No parameter is in the group {brief(where)}, or earlier groups have all of its parameters. Correct the pattern or the "
                f"order. Parameters: {names:.500}."
            )
