"""The state of a training run, as a value."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from attrs import cmp_using, field, frozen
from mlx import nn, optimizers

from mlxfp.support.checks import check_not_negative, explain_call
from mlxfp.support.html import element, fragment, table
from mlxfp.support.trees import TreeDef, flatten, unflatten
from mlxfp.training.optimization.optimizers import start
from mlxfp.training.steps.sharding import Shards, shards_of
from mlxfp.training.steps.transforms import functional


def same_arrays(a: Any, b: Any) -> bool:
    """Tell whether two trees have one structure and bit for bit the same arrays: NaN is NaN, and -0.0 is not 0.0."""
    (structure, left), (other, right) = flatten(a), flatten(b)
    return structure == other and all(map(_same_bits, left, right))


def _same_bits(a: mx.array, b: mx.array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a is b or a.size == 0 or bool(mx.array_equal(a.reshape(-1).view(mx.uint8), b.reshape(-1).view(mx.uint8)))


# A tree of arrays as attrs compares it. Arrays have no hash, so neither has a state.
_ARRAYS = cmp_using(eq=same_arrays, class_name="Arrays")


_TREES = ("params", "buffers", "opt", "extra")
Leaves = tuple[TreeDef, list[mx.array]]  # of the trees of a state


def _brief(tree: Any) -> str:
    leaves = flatten(tree)[1]
    return f"<{sum(leaf.size for leaf in leaves):,} numbers in {len(leaves)} arrays>"


@frozen
class TrainState:
    """Everything that a step changes, and the seed. States are equal if their arrays are, bit for bit.

    `params` and `buffers` are trees of dicts and lists (see `functional`), `opt` is the state of the optimizer. `step` counts the steps
    made, one for each batch. `extra` holds what options of the step keep (see `train_step`); without them it is empty. `shards` says which
    arrays are parts of larger ones, where the model is divided between ranks.

    >>> TrainState({"w": mx.zeros(2)}, {}, {}, step=3, seed=0)
    TrainState(params=<2 numbers in 1 arrays>, buffers=<0 numbers in 0 arrays>, opt=<0 numbers in 0 arrays>, step=3, seed=0)
    """

    params: Any = field(eq=_ARRAYS, repr=_brief)
    buffers: Any = field(eq=_ARRAYS, repr=_brief)
    opt: Any = field(eq=_ARRAYS, repr=_brief)
    step: int
    seed: int
    extra: Any = field(factory=dict, eq=_ARRAYS, repr=False)
    shards: Shards | None = field(default=None, repr=False)
    _leaves: Leaves | Callable[[], Leaves] | None = field(default=None, init=False, eq=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        """Put the trees of a state together that `state_of_leaves` made, when the first one is asked for."""
        if name not in _TREES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if self._leaves is not None:
            for each, tree in unflatten(*leaves_of(self)).items():
                object.__setattr__(self, each, tree)
            object.__setattr__(self, "_leaves", None)  # a caller may put other arrays into the trees
        return object.__getattribute__(self, name)

    def _repr_html_(self) -> str:
        """Show in a notebook how much each tree holds; nothing is computed for it."""
        trees = [(name, flatten(tree)[1]) for name, tree in trees_of(self).items()]
        rows = [(name, len(leaves), sum(leaf.size for leaf in leaves), sum(leaf.nbytes for leaf in leaves)) for name, leaves in trees]
        said = element("p", f"TrainState: step {self.step:,}, seed {self.seed}")
        return fragment(said, table(["tree", "arrays", "numbers", "bytes"], rows))


def evaluate_state(state: TrainState) -> None:
    """Compute the arrays of a state: those that are not computed yet cannot be read in another thread."""
    mx.eval(leaves_of(state)[1])  # not the state itself: MLX does nothing with a value whose type it does not know


def trees_of(state: TrainState) -> dict[str, Any]:
    """Return the trees of arrays of a state by name: what a step computes, and what a checkpoint holds."""
    return {name: getattr(state, name) for name in _TREES}


def leaves_of(state: TrainState) -> Leaves:
    """Return `flatten(trees_of(state))`. A state that a step has made has it."""
    held = state._leaves  # noqa: SLF001  # of this file
    return held() if callable(held) else held or flatten(trees_of(state))


def promise_of(state: TrainState) -> Callable[[], Leaves] | None:
    """Return the function that the state was made of by `state_of_leaves`; None if it was not, or if its trees have been made."""
    held = state._leaves  # noqa: SLF001  # of this file
    return held if callable(held) else None


def state_of_leaves(made: Leaves | Callable[[], Leaves], step: int, seed: int, *, shards: Shards | None = None) -> TrainState:
    """Make the state whose `leaves_of` these are. Its trees, with a dict for each layer, are made when one is asked for.

    A function that returns the leaves stands for those that are not computed yet: it is called when they are asked for.

    >>> leaves = flatten({"params": [0], "buffers": {}, "opt": {}, "extra": {}})[0], [mx.zeros(2)]
    >>> state_of_leaves(leaves, 3, 0) == state_of_leaves(lambda: leaves, 3, 0)
    True
    """
    state = TrainState.__new__(TrainState)
    put = object.__setattr__  # it is frozen
    put(state, "step", step)
    put(state, "seed", seed)
    put(state, "shards", shards)
    put(state, "_leaves", made)
    return state


@explain_call
def train_state(model: nn.Module, optimizer: optimizers.Optimizer, *, seed: int = 0) -> TrainState:
    """Make the state before the first step: the model's weights, the optimizer's start; `seed` is for dropout.

    Neither the model nor the optimizer is changed, by this or by training: `functional(model).bind(state.params, state.buffers)`
    makes a module of trained weights, and `model.update(state.params)` puts them into the old one.

    >>> train_state(nn.Linear(2, 3), optimizers.SGD(0.1))
    TrainState(params=<9 numbers in 2 arrays>, buffers=<0 numbers in 0 arrays>, opt=<11 numbers in 4 arrays>, step=0, seed=0)
    """
    check_not_negative(seed=seed)
    module = functional(model)
    shards = shards_of(model, module.params, module.buffers)
    state = TrainState(module.params, module.buffers, start(optimizer, module.params), 0, seed, shards=shards)
    evaluate_state(state)
    return state
