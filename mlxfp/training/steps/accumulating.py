"""Weighted sums of gradients over several batches or processes, before an update."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal

import mlx.core as mx
from mlx import nn
from mlx.nn.layers.distributed import FullyShardedModule

from mlxfp.distributed import Ranks
from mlxfp.evaluation.rows import sum_of
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.trees import TreeDef, flatten, tree_map, unflatten

Condition = mx.array | Literal[True]  # condition of `where_tree`: a bool array, or True
Ties = tuple[tuple[int, tuple[int, ...]], ...]

_NEVER = mx.array(False)  # noqa: FBT003  # lazy zeros would belong to the creating thread


def sum_and_weight(result: Any) -> tuple[mx.array, mx.array]:
    """Check the result of a loss or metric. Return sum and weight as float32 scalars."""
    pair = result if isinstance(result, tuple) else (result,)
    numbers = [mx.array(part, mx.float32) if isinstance(part, int | float) else part for part in pair]
    if len(numbers) != 2 or not all(isinstance(number, mx.array) and number.size == 1 for number in numbers):
        # The message has no array values: arrays cannot be printed inside a trace.
        types = ", ".join(f"{type(number).__name__}{list(getattr(number, 'shape', ()))}" for number in numbers)
        if len(numbers) == 1 and getattr(numbers[0], "size", None) == 1:
            raise ArgumentTypeError(
                f"A loss or metric must return two scalars, (sum, weight), got one scalar: {types}. Return (values.sum(), "
                "mx.array(values.size)) for the values of a batch, or (mean * count, count) for the mean of a batch."
            )
        raise ArgumentTypeError(
            f"A loss or metric must return two scalars, (sum, weight), got ({types}). Return the result of a loss in fp.losses "
            "unchanged, or return (values.sum(), mx.array(values.size)) for the values of a batch."
        )
    if any(number.dtype == mx.complex64 for number in numbers):
        raise ArgumentTypeError(
            "A loss or metric must return real numbers, got a complex sum or weight. Return values.abs().sum() or mx.real(values).sum()."
        )
    total, weight = (number.reshape(()).astype(mx.float32) for number in numbers)
    # Workaround for MLX 0.32: mx.compile fails (IndexError: _Map_base::at) if a result is a cast that occurs twice in the graph.
    # For example, a loss with the result (mean * weight, weight) casts an integer weight twice.
    # The multiplication by 1 and the reshapes avoid the IndexError of mx.compile, without additional kernels.
    # A test in tests/training/steps/test_steps.py fails as soon as mx.compile no longer raises the IndexError.
    return total * 1, weight.reshape(1).reshape(())


def zero_sums(params: Any) -> dict[str, Any]:
    """Return float32 zeros for the weighted sums before the first batch."""
    return {"gradients": tree_map(lambda leaf: mx.zeros(leaf.shape, mx.float32), params), "weight": mx.array(0.0)}


def weighted_sums(gradients: Any, divisor: mx.array, weight: mx.array, counts: mx.array | None) -> dict[str, Any]:
    """Return `divisor` times the gradients of a mean loss, in float32, and the weight. The products are the gradients of the loss sum.

    If the bool scalar `counts` is False, all results are zero, so the batch has no effect. `counts=None` is the same as True.
    """
    sums = {"gradients": tree_map(lambda leaf: leaf.astype(mx.float32) * divisor, gradients), "weight": weight}
    return sums if counts is None else tree_map(lambda leaf: mx.where(counts, leaf, 0), sums)


def mean_gradients(sums: dict[str, Any], params: Any) -> Any:
    """Return `sums["gradients"]` divided by `sums["weight"]`, in the dtypes of the parameters."""
    weight = mx.where(sums["weight"] == 0, 1, sums["weight"])
    return tree_map(lambda leaf, param: (leaf / weight).astype(param.dtype), sums["gradients"], params)


def clip(gradients: Any, norm: float, *, ranks: Ranks | None = None, holders: Sequence[int] = ()) -> tuple[Any, mx.array]:
    """Scale gradients so that their joint Euclidean norm is at most `norm`. Return the new gradients and the old norm (float32).

    In a divided model, the norm covers the arrays of all ranks, and `holders` has the number of ranks with the same array, for each array.
    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
    """
    squares = [sum_of(leaf.astype(mx.float32).square()) for leaf in flatten(gradients)[1]]
    if ranks is not None and holders:
        squares = [ranks.add_up_all(mx.stack([square / count for square, count in zip(squares, holders, strict=True)]).sum())]
    before = mx.sqrt(mx.stack(squares).sum()) if squares else mx.array(0.0)
    scale = mx.minimum(norm / mx.maximum(before, 1e-12), 1)
    return tree_map(lambda leaf: (leaf * scale).astype(leaf.dtype), gradients), before


def all_finite(tree: Any) -> mx.array:
    """Return a bool scalar: True if all numbers in a tree of arrays are finite."""
    return mx.stack([mx.isfinite(leaf).all() for leaf in flatten(tree)[1]]).all()


def decided(condition: mx.array, *, compiled: bool) -> Condition:
    """Replace a true bool array by the Python value True, so that `where_tree` needs no `mx.where`.

    A false array stays an array. In a compiled step every array stays an array, because arrays have no values in a trace.
    """
    try:
        return True if not compiled and condition.item() else condition
    except ValueError:  # inside a trace, `condition.item()` raises ValueError, because arrays have no values
        return condition


def where_tree(condition: Condition, new: Any, old: Any, *, only: Collection[int] | None = None, tied: Ties = ()) -> Any:
    """Return the tree `new` if the condition is true, else the tree `old`.

    With leaf indices in `only`, the condition applies to these leaves, and all other leaves come from `new`. With `only=None`, the
    condition applies to all leaves. The argument `tied`, a result of `ties`, makes compiled steps faster and does not change the values.
    """
    if condition is True:
        return new
    structure, leaves = flatten(new)
    before = flatten(old)[1]
    pairs = enumerate(zip(leaves, before, strict=True))
    selected = [
        new if new is old or (only is not None and index not in only) else mx.where(condition, new, old) for index, (new, old) in pairs
    ]
    for index, others in tied:
        other = before[index]
        for other_index in others:
            if (selected[other_index].shape, selected[other_index].dtype) == (other.shape, other.dtype):
                other = mx.where(_NEVER, selected[other_index], other)
        selected[index] = mx.where(condition, leaves[index], other)
    return unflatten(structure, selected)


def ties(structure: TreeDef) -> Ties:
    """Return groups of arrays that an update changes together: a parameter, its optimizer moments and its average.

    A group has the leaf index of the parameter, and the leaf indices of the moments and the average. Without groups, `mx.compile` would
    build up to five kernels per parameter. `where_tree` connects the arrays of a group, so MLX computes a group in one kernel.
    """
    indices = unflatten(structure, range(structure.size))
    opt, average = indices["opt"], indices["extra"].get("average", {}).get("params", {})
    group_states = opt.get("states", ())  # MultiOptimizer has one state per parameter group
    trees = [opt, *(group_states if isinstance(group_states, list) else ()), average]
    others_of: dict[int, list[int]] = {}
    for index, others in (pair for tree in trees for pair in _alongside(indices["params"], tree)):
        others_of.setdefault(index, []).extend(others)
    return tuple((index, tuple(others)) for index, others in others_of.items())


def _alongside(params: Any, tree: Any) -> Iterator[tuple[int, list[int]]]:
    """Yield pairs from two trees of leaf indices: an index in `params`, and the list of indices at the same path in `tree`."""
    if isinstance(params, int):
        yield params, flatten(tree)[1]
    elif isinstance(params, dict) and isinstance(tree, dict):
        for key in params.keys() & tree.keys():
            yield from _alongside(params[key], tree[key])
    elif isinstance(params, list) and isinstance(tree, list):
        for pair in zip(params, tree, strict=False):
            yield from _alongside(*pair)


def sum_over_ranks(  # noqa: PLR0913  # everything sent in one message
    ranks: Ranks, sums: dict[str, Any], mean: mx.array, weight: mx.array, counts: mx.array | None, *, summed: Collection[int]
) -> tuple[dict[str, Any], mx.array, mx.array, mx.array | None]:
    """Add up gradients, losses and weights over all copies of the model. Return the sums, the mean loss, the total weight and `counts`.

    The argument `counts` is a bool scalar: True if the results of this copy are finite. The returned `counts` is True if the results of all
    copies are finite, and None if the argument is None. `summed` has the indices of gradients that are already sums over all ranks.
    """
    finite = mx.array(1.0) if counts is None else counts.astype(mx.float32)
    structure, gradients = flatten(sums["gradients"])
    unsummed = {index: leaf for index, leaf in enumerate(gradients) if index not in summed}
    unsummed, sum_of_weights, (total, weight, finite) = ranks.add_up((unsummed, sums["weight"], (mean * weight, weight, finite)))
    sums = {
        "gradients": unflatten(structure, [unsummed.get(index, leaf) for index, leaf in enumerate(gradients)]),
        "weight": sum_of_weights,
    }
    return sums, total / mx.where(weight == 0, 1, weight), weight, None if counts is None else finite == ranks.world.copies


def average_over_ranks(ranks: Ranks, news: dict[int, mx.array], *, divided: Collection[int]) -> dict[int, mx.array]:
    """Average changed floating-point buffers, such as running statistics, over all copies of the model. Integers stay unchanged.

    `divided` has the indices of buffers divided between ranks. These buffers also stay unchanged.
    """
    statistics = {index: new for index, new in news.items() if mx.issubdtype(new.dtype, mx.floating) and index not in divided}
    return news | {index: total / ranks.world.copies for index, total in ranks.add_up(statistics).items()}


def sum_gradients(model: nn.Module, ranks: Ranks) -> None:
    """Make fully sharded modules sum the gradients of their parts over all ranks.

    This function modifies the module, so pass a private copy. MLX's own `fully_shard` divides the sums by the number of ranks, and uses an
    operation that some backends lack.
    """
    for layer in model.modules():
        if isinstance(layer, FullyShardedModule):
            layer._gather_fn = partial(_gathered, ranks, layer._gather_fn)  # noqa: SLF001  # the only hook in MLX


def _gathered(ranks: Ranks, gather: Callable[[list[mx.array]], list[mx.array]], shards: list[mx.array]) -> list[mx.array]:
    """Gather whole parameters from the parts of all ranks, as MLX's `gather` does. The backward pass sums gradients over all ranks."""
    wholes = gather(shards)  # these lazy arrays are used only for shapes and dtype, and never computed
    kind, shapes = wholes[0].dtype, [whole.shape for whole in wholes]
    ends = list(accumulate(shard.size for shard in shards))[:-1]

    @mx.custom_function
    def gathered(shards: list[mx.array]) -> list[mx.array]:
        rows = ranks.gather_parts(mx.concatenate([shard.reshape(-1).astype(kind) for shard in shards]))
        return [part.reshape(shape) for part, shape in zip(mx.split(rows, ends, axis=1), shapes, strict=True)]

    @gathered.vjp
    def added(shards: list[mx.array], cotangents: list[mx.array], _: Any) -> list[mx.array]:
        rows = mx.concatenate([cotangent.astype(mx.float32).reshape(ranks.world.size, -1) for cotangent in cotangents], axis=1)
        gradients = mx.split(ranks.add_up_parts(rows), ends)
        return [part.reshape(shard.shape).astype(shard.dtype) for part, shard in zip(gradients, shards, strict=True)]

    return gathered(shards)  # type: ignore[return-value]
