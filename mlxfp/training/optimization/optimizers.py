"""Optimizers: any `mlx.optimizers.Optimizer` as two pure functions, groups of parameters, and a table of optimizers by name.

An optimizer object is configuration here. Its state is in `TrainState.opt`; the object itself is never changed. To offer another
optimizer in configurations, add an entry to `OPTIMIZERS`.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from io import StringIO
from math import inf
from typing import Any

import attrs
import mlx.core as mx
from mlx import optimizers
from mlx.utils import tree_flatten

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
_EMBEDDINGS = ("tokens", "positions", "types")  # of the bodies in models


@explain_call
def adamw(
    learning_rate: float | Schedule, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01
) -> optimizers.Optimizer:
    """Make AdamW with bias correction, which MLX's own leaves out unless asked.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019. The learning rate is a number of at least 0 or a
    schedule; raises `ArgumentError` for others.

    >>> adamw(1e-3).bias_correction
    True
    """
    _check_rates(learning_rate, weight_decay)
    return optimizers.AdamW(learning_rate, betas=list(betas), eps=eps, weight_decay=weight_decay, bias_correction=True)


def by_name(name: str, learning_rate: float | Schedule, *, weight_decay: float = 0.0) -> optimizers.Optimizer:
    """Make an optimizer of the table `OPTIMIZERS`; the weights of matrices decay, and vectors do not (see `vectors`).

    What decay is depends on the method: adamw, lion and adafactor shrink the weights themselves (decoupled: Loshchilov and Hutter,
    2019), adam and sgd add it to the gradients (an L2 penalty), so adam with decay is another method than adamw.

    >>> [each.weight_decay for each in by_name("sgd", 0.1, weight_decay=0.01).optimizers]
    [0.0, 0.01]
    """
    make = OPTIMIZERS[name]
    _check_rates(learning_rate, weight_decay)
    if not weight_decay:
        return make(learning_rate, 0.0)
    return grouped((vectors, make(learning_rate, 0.0)), rest=make(learning_rate, weight_decay))


def grouped(*groups: tuple[Where, optimizers.Optimizer], rest: optimizers.Optimizer) -> optimizers.Optimizer:
    """Update groups of parameters, each with an optimizer of its own, and all other parameters with `rest`.

    A group is (where, optimizer): `where(path, array)` says whether a parameter is in it, such as `vectors` or `matching("body.*")`;
    paths are those of `Module.parameters()`, as "layers.0.weight". A parameter belongs to the first group that says so. A group without
    parameters must be a mistake in a name, and raises `ArgumentError` when a state is made.

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
    own = [copy.deepcopy(optimizer) for optimizer in (*(optimizer for _, optimizer in groups), rest)]  # one may be in two groups
    return optimizers.MultiOptimizer(own, [where for where, _ in groups])


def frozen() -> optimizers.Optimizer:
    """Leave parameters as they are: for a group of `grouped`.

    They have no moments, and no gradients are computed for them. Only `clip_norm`, which measures all gradients, still computes them:
    then freeze the module itself, with `model.body.freeze()`, so that they are not parameters at all.

    >>> params = {"w": mx.ones(2)}
    >>> state = start(frozen(), params)
    >>> print(update(frozen(), {"w": mx.ones(2)}, state, params)[0], state)
    {'w': array([1, 1], dtype=float32)} {'step': array(0, dtype=uint64), 'w': {}}
    """
    return _Frozen()  # type: ignore[no-untyped-call]  # MLX leaves its __init__ without types


def matching(*patterns: str) -> Where:
    """Choose parameters by their path: those that fit one of the patterns, where `*` matches any text, dots too.

    >>> where = matching("body.layers.1.*", "*.norm.*")
    >>> [where(path, mx.zeros(1)) for path in ("body.layers.1.weight", "body.layers.10.weight", "body.layers.10.norm.weight")]
    [True, False, True]
    """
    check_text(**{f"pattern {place}": pattern for place, pattern in enumerate(patterns)})
    if not patterns:
        raise ArgumentError("matching needs at least one pattern, as in matching('body.*').")
    return _Matching(patterns)


def vectors(path: str, array: mx.array) -> bool:
    """Choose parameters with fewer than two axes: biases, and the weights of norms, which should not decay.

    >>> vectors("norm.weight", mx.zeros(4)), vectors("linear.weight", mx.zeros((4, 4)))
    (True, False)
    """
    return array.ndim < 2


@explain_call
def layerwise(name: str, learning_rate: float | Schedule, params: Any, *, decay: float, weight_decay: float = 0.0) -> optimizers.Optimizer:
    """Make an optimizer of `OPTIMIZERS` for pretrained weights: each block of the body learns `decay` times as fast as the one above it.

    Howard and Ruder, "Universal Language Model Fine-tuning for Text Classification", 2018: lower layers hold what is general. The head and
    all that is in no block learn with the whole rate, and embeddings one step below the lowest block. `params` are those of the model,
    such as `model.trainable_parameters()`; its body has its blocks in a list `blocks`, as all of `models` do. As in `by_name`, matrices
    alone decay. Raises `ArgumentError` for parameters without blocks, and for a decay that is not above 0 and at most 1.

    >>> blocks = [{"weight": mx.zeros((2, 2))}, {"weight": mx.zeros((2, 2))}]
    >>> params = {"body": {"tokens": {"weight": mx.zeros((9, 2))}, "blocks": blocks}, "output": mx.zeros((2, 2))}
    >>> made = layerwise("adamw", 1.0, params, decay=0.5)
    >>> [round(each.learning_rate.item(), 3) for each in made.optimizers]
    [0.5, 0.25, 0.125, 1.0]
    """
    if not 0 < decay <= 1:
        raise ArgumentError(f"decay must be above 0 and at most 1, got decay={decay!r}. A usual one is 0.9.")
    flat: Any = tree_flatten(params)
    count = 1 + max((int(found[1]) for name, _ in flat if (found := _BLOCK.search(name))), default=-1)
    if not count:
        raise ArgumentError("layerwise needs the parameters of a model with blocks, and these have none. Use by_name.")
    below = [(matching(f"*blocks.{count - 1 - place}.*"), decay ** (place + 1)) for place in range(count)]
    below.append((matching(*(f"*{part}.weight" for part in _EMBEDDINGS)), decay ** (count + 1)))
    groups, left = list[tuple[Where, optimizers.Optimizer]](), flat
    for where, factor in (*below, (matching("*"), 1.0)):
        rate, own = _times(learning_rate, factor), [each for each in left if where(*each)]
        left = [each for each in left if not where(*each)]
        if weight_decay and any(vectors(*each) for each in own):
            groups.append((_Both(where, vectors), OPTIMIZERS[name](rate, 0.0)))
            own = [each for each in own if not vectors(*each)]
        if own:
            groups.append((where, OPTIMIZERS[name](rate, weight_decay)))
    return grouped(*groups[:-1], rest=groups[-1][1])


@explain_call
def fading_adam(
    learning_rate: float | Schedule, *groups: tuple[Sequence[str], float, float], steps: int, weight_decay: float = 0.02
) -> optimizers.Optimizer:
    """Make Adam with betas 0.9 and 0.95 and a decoupled weight decay that falls to 0 in the second half of the updates.

    A group is (patterns, factor of the rate, factor of the decay), for the parameters that fit `matching(*patterns)`. Parameters of no
    group have the factors 1. Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and Boosted Trees on Tabular
    Data", 2024, train a network for tables in this way: the entries of `models.TABLE_MODELS` have
    groups and peak rates.

    >>> [where.patterns for where in fading_adam(0.04, (["*.bias"], 0.1, 0.0), steps=100).filters[:-1]]
    [('*.bias',)]
    """
    check_positive(steps=steps)
    _check_rates(learning_rate, weight_decay)

    def part(factor: float, decay_factor: float) -> optimizers.Optimizer:
        return _FadingAdam(_times(learning_rate, factor), flat_cosine(weight_decay * decay_factor, steps=steps))

    return grouped(*((matching(*patterns), part(*factors)) for patterns, *factors in groups), rest=part(1.0, 1.0))


def start(optimizer: optimizers.Optimizer, params: Any) -> Any:
    """Give the optimizer's state before the first update of `params`: a tree of arrays.

    Raises `ArgumentTypeError` for what is not an optimizer and `ArgumentError` for one that has been used already.

    >>> sorted(start(adamw(0.5), {"w": mx.zeros(2)}))
    ['learning_rate', 'step', 'w']
    """
    _check(optimizer)
    own = copy.deepcopy(optimizer)
    _check_groups(own, params)
    own.init(params)
    for leaf in flatten(own.state)[1]:
        if not isinstance(leaf, mx.array):
            raise ArgumentTypeError(f"The state of an optimizer must be MLX arrays, got {type(leaf).__name__}: {leaf!r:.80}.")
    if wrong := [rate for rate in learning_rates(own.state) if not 0 <= rate < inf]:
        raise ArgumentError(
            f"The learning rate must be a finite number of at least 0, got {wrong[0]:g} from {type(optimizer).__name__}. "
            "Make the optimizer with another rate or schedule."
        )
    return own.state


def update(optimizer: optimizers.Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    """Make one update: (new params, new state). Pure: neither the optimizer nor a tree that was passed changes.

    >>> sgd = optimizers.SGD(0.5)
    >>> params, state = update(sgd, {"w": mx.ones(2)}, start(sgd, {"w": mx.zeros(2)}), {"w": mx.zeros(2)})
    >>> params["w"].tolist(), state["step"].item()
    ([-0.5, -0.5], 1)
    """
    own = copy.deepcopy(optimizer)  # a shallow copy would share the inner optimizers of MultiOptimizer
    structure, olds = flatten([params, state])
    copies = [copy.copy(old) for old in olds]  # the optimizer edits dicts and, with +=, arrays in place: these are its own
    own_params, own.state = unflatten(structure, copies)
    updated = _like(params, own.apply_gradients(gradients, own_params))
    changed = difference(flatten(state)[0], flatten(own.state)[0])
    if changed:
        raise ArgumentError(f"{type(optimizer).__name__} changed the structure of its state in an update. {changed} Create it in init.")
    news = flatten([updated, own.state])[1]
    kept = [old if new is copied and _is_same(new, old) else new for new, copied, old in zip(news, copies, olds, strict=True)]
    new_params, new_state = unflatten(structure, kept)  # what did not change are the same objects: nothing needs to be computed
    return new_params, new_state


class _Adam(optimizers.Adam):
    """Adam whose gradients include those of decay * |w|^2 / 2, as in PyTorch: MLX's has no decay."""

    def __init__(self, learning_rate: Any, decay: float) -> None:
        super().__init__(learning_rate, bias_correction=True)
        self.decay = decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        updated: mx.array = super().apply_single(gradient + self.decay * parameter, parameter, state)
        return updated


class _FadingAdam(optimizers.Adam):
    """Adam with betas of 0.9 and 0.95 and a decoupled decay of the weights, which has a schedule of its own."""

    def __init__(self, learning_rate: Any, decay: Schedule) -> None:
        super().__init__(learning_rate, betas=[0.9, 0.95], bias_correction=True)
        self._maybe_schedule("weight_decay", decay)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        kept = parameter * (1 - self.learning_rate * self.state["weight_decay"]).astype(parameter.dtype)
        updated: mx.array = super().apply_single(gradient, kept, state)
        return updated


@attrs.frozen
class _Times:
    """A schedule times a number."""

    schedule: Schedule
    factor: float

    def __call__(self, step: mx.array | int) -> mx.array:
        return self.schedule(step) * self.factor


def _times(rate: float | Schedule, factor: float) -> float | Schedule:
    return _Times(rate, factor) if callable(rate) else rate * factor


# The optimizers that configurations can name: functions of a learning rate, or schedule, and a weight decay.
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
        """Keep nothing."""

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
        """Change nothing."""
        return parameter


@attrs.frozen(repr=False)
class _Matching(Part):
    patterns: tuple[str, ...]

    def __call__(self, path: str, array: mx.array) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.patterns)


@attrs.frozen
class _Both:
    first: Where
    second: Where

    def __call__(self, path: str, array: mx.array) -> bool:
        return self.first(path, array) and self.second(path, array)


def _is_same(new: mx.array, old: mx.array) -> bool:
    """Tell whether two objects are one array of MLX, as a copy is until it is edited. MLX shows this only in its drawings."""
    return _drawn(old, new) == _drawn(old)


def _drawn(*arrays: mx.array) -> str:
    text = StringIO()
    mx.export_to_dot(text, *arrays)
    return text.getvalue()


def _like(tree: Any, other: Any) -> Any:
    """Arrange the arrays of `other` as in `tree`, and keep those that are only in `tree`: MultiOptimizer merges in any order."""
    if isinstance(tree, dict):
        return {key: _like(value, other[key]) if key in other else value for key, value in tree.items()}
    if isinstance(tree, list):
        return [_like(value, other[place]) if place < len(other) else value for place, value in enumerate(tree)]
    return other


def _check_rates(learning_rate: object, weight_decay: object) -> None:
    check_rate(weight_decay=weight_decay, **({} if callable(learning_rate) else {"learning_rate": learning_rate}))


def _check(optimizer: optimizers.Optimizer) -> None:
    if not isinstance(optimizer, optimizers.Optimizer):
        raise ArgumentTypeError(f"optimizer must be an mlx.optimizers.Optimizer, got {type(optimizer).__name__}: {optimizer!r:.80}.")
    states = optimizer.state["states"] if isinstance(optimizer, optimizers.MultiOptimizer) else [optimizer.state]
    used = [state for state in states if isinstance(state, Mapping) and int(state["step"]) > 0]
    if used:
        raise ArgumentError(
            f"{type(optimizer).__name__} has made {int(used[0]['step'])} updates already. Here its state is a part of TrainState. "
            "Pass a new optimizer."
        )


def _check_groups(optimizer: optimizers.Optimizer, params: Any) -> None:
    if not isinstance(optimizer, optimizers.MultiOptimizer):
        return
    parts = optimizer._split_dictionary(params)  # noqa: SLF001  # what it does in an update
    for where, part in zip(optimizer.filters[:-1], parts, strict=False):  # the last takes the rest, which may be nothing
        if not part:
            flat: Any = tree_flatten(params)
            names = ", ".join(name for name, _ in flat)
            raise ArgumentError(
                f"No parameter is in the group {brief(where)}, or all that would be are in earlier groups. Parameters: {names:.500}."
            )
