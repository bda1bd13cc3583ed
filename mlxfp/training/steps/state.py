"""The state of a training run, as a value."""

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from attrs import field, frozen
from mlx import nn, optimizers

from mlxfp.core.checks import check_not_negative
from mlxfp.core.trees import TreeDef, flatten, unflatten
from mlxfp.training.loop.running_metrics import Tally
from mlxfp.training.optimization.optimizers import start
from mlxfp.training.steps.transforms import functional


def same_arrays(a: Any, b: Any) -> bool:
    """Tell whether two trees have one structure and bit for bit the same arrays: NaN is NaN, and -0.0 is not 0.0.

    >>> same_arrays({"w": mx.array([mx.nan])}, {"w": mx.array([mx.nan])}), same_arrays([mx.array(0.0)], [mx.array(-0.0)])
    (True, False)
    """
    (structure, left), (other, right) = flatten(a), flatten(b)
    return structure == other and all(map(_same_bits, left, right))


def _same_bits(a: mx.array, b: mx.array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a is b or a.size == 0 or bool(mx.array_equal(a.reshape(-1).view(mx.uint8), b.reshape(-1).view(mx.uint8)))


class _Arrays:
    """A tree of arrays as attrs compares it."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arrays) and same_arrays(self.tree, other.tree)

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash, so neither has a state


def _brief(tree: Any) -> str:
    leaves = flatten(tree)[1]
    return f"<{sum(leaf.size for leaf in leaves):,} numbers in {len(leaves)} arrays>"


_TREES = ("params", "buffers", "opt", "extra")


class _Flat:
    """A state may hold its leaves alone, until one of its trees is asked for: see `flat_state`."""

    __slots__ = ("_flat",)

    if not TYPE_CHECKING:  # a type checker would take any attribute for granted

        def __getattr__(self, name: str) -> Any:
            """Put the trees together; Python comes here only while they are not there."""
            flat = object.__getattribute__(self, "_flat") if name in _TREES and hasattr(self, "_flat") else None
            if flat is None:
                return object.__getattribute__(self, name)  # another thread did it meanwhile, or there is no such attribute
            for tree, value in unflatten(*flat).items():
                object.__setattr__(self, tree, value)
            object.__setattr__(self, "_flat", None)  # the dicts can be edited: from now on they are the state
            return object.__getattribute__(self, name)


@frozen
class TrainState(_Flat):
    """Everything that a step changes, and the seed. States are equal if their arrays are, bit for bit.

    `params` and `buffers` are trees of dicts and lists (see `functional`), `opt` is the optimizer's. `step` counts the steps made, one
    a batch. `extra` holds what options of the step carry along (see `train_step`); without them it is empty. `tally` is what `fit` has
    measured in the epoch so far, so that a run that continues tells the same means; it trains nothing, and is not compared.

    >>> TrainState({"w": mx.zeros(2)}, {}, {}, step=3, seed=0)
    TrainState(params=<2 numbers in 1 arrays>, buffers=<0 numbers in 0 arrays>, opt=<0 numbers in 0 arrays>, step=3, seed=0)
    """

    params: Any = field(eq=_Arrays, repr=_brief)
    buffers: Any = field(eq=_Arrays, repr=_brief)
    opt: Any = field(eq=_Arrays, repr=_brief)
    step: int
    seed: int
    extra: Any = field(factory=dict, eq=_Arrays, repr=False)
    tally: Tally = field(factory=Tally, eq=False, repr=False)


def flat_state(structure: TreeDef, leaves: list[mx.array], step: int, seed: int, tally: Tally) -> TrainState:
    """Make a state of leaves, in the order of `leaves_of`; its trees are put together when one of them is first asked for.

    A step goes from leaves to leaves: with 200 parameters, building the dicts of every state, which nobody may look at, takes as long
    as 5 % of a step of 10 ms.
    """
    state = object.__new__(TrainState)
    for name, value in (("_flat", (structure, leaves)), ("step", step), ("seed", seed), ("tally", tally)):
        object.__setattr__(state, name, value)
    return state


def with_tally(state: TrainState, tally: Tally) -> TrainState:
    """Return the state with another tally; unlike `attrs.evolve` it leaves flat what is."""
    return flat_state(*leaves_of(state), state.step, state.seed, tally)


def settle(state: TrainState) -> None:
    """Compute a state: what is not computed yet cannot go to another thread."""
    mx.eval(leaves_of(state)[1], state.tally.unread)


def leaves_of(state: TrainState) -> tuple[TreeDef, list[mx.array]]:
    """Return the structure of `trees_of(state)` and its leaves."""
    return getattr(state, "_flat", None) or flatten(trees_of(state))


def trees_of(state: TrainState) -> dict[str, Any]:
    """Return the trees of arrays of a state, by name, in order: what is checked and saved."""
    return {name: getattr(state, name) for name in _TREES}


def train_state(model: nn.Module, optimizer: optimizers.Optimizer, *, seed: int = 0) -> TrainState:
    """Make the state before the first step: the model's weights, the optimizer's start; `seed` is for dropout.

    Neither the model nor the optimizer is changed, by this or by training: `functional(model).bind(state.params, state.buffers)`
    makes a module of trained weights, and `model.update(state.params)` puts them into the old one.

    >>> train_state(nn.Linear(2, 3), optimizers.SGD(0.1))
    TrainState(params=<9 numbers in 2 arrays>, buffers=<0 numbers in 0 arrays>, opt=<11 numbers in 4 arrays>, step=0, seed=0)
    """
    check_not_negative(seed=seed)
    module = functional(model)
    state = TrainState(module.params, module.buffers, start(optimizer, module.params), 0, seed)
    mx.eval(state.params, state.buffers, state.opt)  # not the state itself: MLX does nothing with a value that it does not know
    return state
