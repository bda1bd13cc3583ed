"""The state of a training run: parameters, buffers, optimizer state, step number and seed. A state never changes."""

from typing import Any

import mlx.core as mx
from attrs import cmp_using, field, frozen
from mlx import nn, optimizers

from mlxfp.support.checks import check_not_negative, explain_call
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.html import element, fragment, table
from mlxfp.support.trees import flatten, tree_map
from mlxfp.training.optimization.optimizers import start
from mlxfp.training.steps.sharding import Shards, shards_of
from mlxfp.training.steps.transforms import functional


def same_arrays(a: Any, b: Any) -> bool:
    """Return True if two trees have the same structure and bit-identical arrays. NaN equals NaN; -0.0 differs from 0.0."""
    (structure, leaves), (other, other_leaves) = flatten(a), flatten(b)
    return structure == other and all(map(_same_bits, leaves, other_leaves))


def _same_bits(a: mx.array, b: mx.array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a is b or a.size == 0 or bool(mx.array_equal(a.reshape(-1).view(mx.uint8), b.reshape(-1).view(mx.uint8)))


# The library attrs uses this object to compare the array trees of two states.
# Arrays are not hashable, so a state is not hashable.
_ARRAYS = cmp_using(eq=same_arrays, class_name="Arrays")


def _brief(tree: Any) -> str:
    leaves = flatten(tree)[1]
    return f"<{sum(leaf.size for leaf in leaves):,} numbers in {len(leaves)} arrays>"


@frozen
class TrainState:
    """The training state: everything that a step changes, and the seed. Two states are equal if their arrays are bit-identical.

    `params` and `buffers` are trees of dicts and lists (see `functional`). `opt` is the state of the optimizer. `step` is the number of
    completed steps, one per batch. `extra` has the values added by options of `train_step`, such as averages, and is empty without options.
    `shards` describes the divided arrays of a model divided between ranks.

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

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks, with the sizes of `params`, `buffers`, `opt` and `extra`. Lazy arrays are not computed."""
        trees = [(name, flatten(tree)[1]) for name, tree in trees_of(self).items()]
        rows = [(name, len(leaves), sum(leaf.size for leaf in leaves), sum(leaf.nbytes for leaf in leaves)) for name, leaves in trees]
        title = element("p", f"TrainState: step {self.step:,}, seed {self.seed}")
        return fragment(title, table(["tree", "arrays", "numbers", "bytes"], rows))


def with_plain_strides(array: mx.array) -> mx.array:
    """Return an array with standard strides, so that a loaded state gives bit-identical results to the saved state.

    In MLX, axes of length 1 can have any stride, and loading changes their strides. The strides determine the order of sums in matrix
    products. Without standard strides, the last digits of results would therefore change after loading.
    """
    return array.reshape(-1).reshape(array.shape) if array.ndim > 1 and 1 in array.shape else array


def evaluate_state(state: TrainState) -> None:
    """Compute the lazy arrays of a state. Another thread cannot read lazy arrays."""
    mx.eval(trees_of(state))  # `mx.eval(state)` would compute nothing, because MLX ignores values of unknown types


def check_state(state: object, argument: str = "state") -> None:
    """Raise `ArgumentTypeError` unless `state` is a `TrainState`."""
    if not isinstance(state, TrainState):
        raise ArgumentTypeError(
            f"{argument} must be a TrainState, got {type(state).__name__}. Make one with train_state(model, optimizer)."
        )


def trees_of(state: TrainState) -> dict[str, Any]:
    """Return the four trees of arrays in a state, as a dict from field name to tree."""
    return {"params": state.params, "buffers": state.buffers, "opt": state.opt, "extra": state.extra}


@explain_call
def train_state(model: nn.Module, optimizer: optimizers.Optimizer, *, seed: int = 0) -> TrainState:
    """Return the state before the first step: the weights of the model and the initial optimizer state. `seed` is for dropout.

    Neither this function nor training changes the model or the optimizer. `functional(model).bind(state.params, state.buffers)` returns a
    module with trained weights. `model.update(state.params)` copies trained weights into the original model.

    >>> train_state(nn.Linear(2, 3), optimizers.SGD(0.1))
    TrainState(params=<9 numbers in 2 arrays>, buffers=<0 numbers in 0 arrays>, opt=<11 numbers in 4 arrays>, step=0, seed=0)
    """
    check_not_negative(seed=seed)
    module = functional(model)
    shards = shards_of(model, module.params, module.buffers)
    params, buffers = tree_map(with_plain_strides, (module.params, module.buffers))
    state = TrainState(params, buffers, start(optimizer, params), 0, seed, shards=shards)
    evaluate_state(state)
    return state
