"""Sums of gradients by weight, over several batches or several processes, before an update."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import mlx.core as mx

from mlxfp.distributed import Ranks
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.trees import TreeDef, flatten, tree_map, unflatten

Ties = tuple[tuple[int, tuple[int, ...]], ...]

_NEVER = mx.array(False)  # noqa: FBT003  # not zeros, which belong to the thread that made them until they are computed


def sum_and_weight(result: Any) -> tuple[mx.array, mx.array]:
    """Check the result of a loss or metric, and return its two scalars as float32."""
    pair = result if isinstance(result, tuple) else (result,)
    numbers = [mx.array(part, mx.float32) if isinstance(part, int | float) else part for part in pair]
    if len(numbers) != 2 or not all(isinstance(number, mx.array) and number.size == 1 for number in numbers):
        # Not the arrays themselves: inside a trace they cannot be printed.
        got = ", ".join(f"{type(number).__name__}{list(getattr(number, 'shape', ()))}" for number in numbers)
        raise ArgumentTypeError(f"A loss or metric returns (sum, weight), two scalars, got ({got}). See mlxfp.training.losses.")
    total, weight = (number.reshape(()).astype(mx.float32) for number in numbers)
    # Times one, and through another shape: mx.compile of MLX 0.32 fails (IndexError: _Map_base::at) where a result is a cast that is in the
    # graph twice, which happens when a loss multiplies its mean by a weight that is an integer. The sum is divided, in one kernel with
    # the multiplication; the weight is not, and takes none. A test in tests/training/steps/test_steps.py fails when this can be removed.
    return total * 1, weight.reshape(1).reshape(())


def zero_sums(params: Any) -> dict[str, Any]:
    """Make the sums before the first batch, in float32."""
    return {"gradients": tree_map(lambda leaf: mx.zeros(leaf.shape, mx.float32), params), "weight": mx.array(0.0)}


def weighted_sums(gradients: Any, divisor: mx.array, weight: mx.array, counts: mx.array | None) -> dict[str, Any]:
    """Turn the gradients of a sum / divisor into those of the sum, in float32; zeros if the batch does not count."""
    sums = {"gradients": tree_map(lambda leaf: leaf.astype(mx.float32) * divisor, gradients), "weight": weight}
    return sums if counts is None else tree_map(lambda leaf: mx.where(counts, leaf, 0), sums)


def mean_gradients(sums: dict[str, Any], params: Any) -> Any:
    """Divide the sums by their weight, and cast the result to the dtypes of the parameters."""
    weight = mx.where(sums["weight"] == 0, 1, sums["weight"])
    return tree_map(lambda leaf, like: (leaf / weight).astype(like.dtype), sums["gradients"], params)


def clip(
    gradients: Any, norm: float, *, add_up: Callable[[list[mx.array]], mx.array] = lambda squares: mx.stack(squares).sum()
) -> tuple[Any, mx.array]:
    """Scale a tree of gradients so that their joint Euclidean norm is at most `norm`: (gradients, norm before, float32).

    `add_up` adds up the squares of the norms of all arrays. Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural
    networks", 2013.
    """
    squares = [leaf.astype(mx.float32).square().sum() for leaf in flatten(gradients)[1]]
    before = mx.sqrt(add_up(squares)) if squares else mx.array(0.0)
    scale = mx.minimum(norm / mx.maximum(before, 1e-12), 1)
    return tree_map(lambda leaf: (leaf * scale).astype(leaf.dtype), gradients), before


def all_finite(tree: Any) -> mx.array:
    """Tell whether all numbers in all arrays of a tree are finite: a bool scalar."""
    return mx.stack([mx.isfinite(leaf).all() for leaf in flatten(tree)[1]]).all()


def where_tree(condition: mx.array, new: Any, old: Any, *, only: Collection[int] | None = None, tied: Ties = ()) -> Any:
    """Return the new tree if the condition holds, else the old one; with `only`, leaves at other places are always the new ones.

    `tied` are places of leaves that were computed together, see `ties`.
    """
    structure, leaves = flatten(new)
    before = flatten(old)[1]
    pairs = enumerate(zip(leaves, before, strict=True))
    kept = [new if new is old or (only is not None and place not in only) else mx.where(condition, new, old) for place, (new, old) in pairs]
    for place, others in tied:
        other = before[place]
        for each in others:
            if (kept[each].shape, kept[each].dtype) == (other.shape, other.dtype):
                other = mx.where(_NEVER, kept[each], other)
        kept[place] = mx.where(condition, leaves[place], other)
    return unflatten(structure, kept)


def ties(structure: TreeDef) -> Ties:
    """Return the place of each parameter in a state, with the places of its moments and of its average.

    `mx.compile` makes one kernel of operations that lead to one result, and the results on the way to it are further results of the
    kernel. So an update is one kernel for each parameter, but not if parameter and moments are each chosen by `mx.where` afterwards: that
    would be five. It is one again if the choice of the parameter depends on those of the moments: as what is never chosen.
    """
    places = unflatten(structure, range(structure.size))
    opt, average = places["opt"], places["extra"].get("average", {}).get("params", {})
    several = opt.get("states", ())  # those of MultiOptimizer, one for each group
    trees = [opt, *(several if isinstance(several, list) else ()), average]
    found: dict[int, list[int]] = {}
    for place, others in (pair for tree in trees for pair in _alongside(places["params"], tree)):
        found.setdefault(place, []).extend(others)
    return tuple((place, tuple(others)) for place, others in found.items())


def _alongside(params: Any, tree: Any) -> Iterator[tuple[int, list[int]]]:
    """Yield each leaf of `params` with the leaves of what is at its place in the other tree."""
    if isinstance(params, int):
        yield params, flatten(tree)[1]
    elif isinstance(params, dict) and isinstance(tree, dict):
        for key in params.keys() & tree.keys():
            yield from _alongside(params[key], tree[key])
    elif isinstance(params, list) and isinstance(tree, list):
        for pair in zip(params, tree, strict=False):
            yield from _alongside(*pair)


def sum_over_ranks(  # noqa: PLR0913  # all that is sent in one message
    ranks: Ranks, sums: dict[str, Any], mean: mx.array, weight: mx.array, counts: mx.array | None, *, summed: Collection[int]
) -> tuple[dict[str, Any], mx.array, mx.array, mx.array | None]:
    """Add up over all copies of the model: the sums, the mean loss, the weight, and whether the batches of all count.

    `summed` are the places of gradients that are sums over all ranks already.
    """
    finite = mx.array(1.0) if counts is None else counts.astype(mx.float32)
    structure, gradients = flatten(sums["gradients"])
    own = {place: leaf for place, leaf in enumerate(gradients) if place not in summed}
    own, sum_of_weights, (total, weight, finite) = ranks.add_up((own, sums["weight"], (mean * weight, weight, finite)))
    sums = {"gradients": unflatten(structure, [own.get(place, leaf) for place, leaf in enumerate(gradients)]), "weight": sum_of_weights}
    return sums, total / mx.where(weight == 0, 1, weight), weight, None if counts is None else finite == ranks.world.copies


def average_over_ranks(ranks: Ranks, news: dict[int, mx.array], *, divided: Collection[int]) -> dict[int, mx.array]:
    """Average changed buffers of a model over all copies, such as running statistics; integers stay those of this rank.

    `divided` are the places of those of which each rank has a part; they stay, too.
    """
    own = {place: new for place, new in news.items() if mx.issubdtype(new.dtype, mx.floating) and place not in divided}
    return news | {place: total / ranks.world.copies for place, total in ranks.add_up(own).items()}
