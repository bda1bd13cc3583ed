"""Sums of gradients by weight, over several batches or several processes, before an update."""

from collections.abc import Collection
from typing import Any

import mlx.core as mx

from mlxfp.core.trees import flatten, tree_map, unflatten
from mlxfp.distributed import Ranks


def zero_sums(params: Any) -> dict[str, Any]:
    """Make the sums before the first batch, in float32."""
    return {"gradients": tree_map(lambda leaf: mx.zeros(leaf.shape, mx.float32), params), "weight": mx.array(0.0)}


def weighted_sums(gradients: Any, weight: mx.array, counts: mx.array | None) -> dict[str, Any]:
    """Turn the gradients of a mean into those of a sum, in float32; zeros if the batch does not count."""
    sums = {"gradients": tree_map(lambda leaf: leaf.astype(mx.float32) * weight, gradients), "weight": weight}
    return sums if counts is None else tree_map(lambda leaf: mx.where(counts, leaf, 0), sums)


def mean_gradients(sums: dict[str, Any], params: Any) -> Any:
    """Divide the sums by their weight, and cast the result to the dtypes of the parameters."""
    weight = mx.where(sums["weight"] == 0, 1, sums["weight"])
    return tree_map(lambda leaf, like: (leaf / weight).astype(like.dtype), sums["gradients"], params)


def all_finite(tree: Any) -> mx.array:
    """Tell whether all numbers in all arrays of a tree are finite: a bool scalar."""
    return mx.stack([mx.isfinite(leaf).all() for leaf in flatten(tree)[1]]).all()


def where_tree(condition: mx.array, new: Any, old: Any, *, only: Collection[int] | None = None) -> Any:
    """Return the new tree if the condition holds, else the old one; with `only`, leaves at other places are always the new ones."""
    structure, leaves = flatten(new)
    pairs = enumerate(zip(leaves, flatten(old)[1], strict=True))
    kept = (new if new is old or (only is not None and place not in only) else mx.where(condition, new, old) for place, (new, old) in pairs)
    return unflatten(structure, list(kept))


def sum_over_ranks(
    ranks: Ranks, sums: dict[str, Any], mean: mx.array, weight: mx.array, counts: mx.array | None
) -> tuple[dict[str, Any], mx.array, mx.array, mx.array | None]:
    """Add up over all ranks: the sums, the mean loss, the weight, and whether the batches of all ranks count."""
    finite = mx.array(1.0) if counts is None else counts.astype(mx.float32)
    sums, (total, weight, finite) = ranks.add_up((sums, (mean * weight, weight, finite)))
    return sums, total / mx.where(weight == 0, 1, weight), weight, None if counts is None else finite == ranks.world.size


def average_over_ranks(ranks: Ranks, news: dict[int, mx.array]) -> dict[int, mx.array]:
    """Average changed buffers of a model over all ranks, such as running statistics; integers stay those of this rank."""
    totals = ranks.add_up({place: new for place, new in news.items() if mx.issubdtype(new.dtype, mx.floating)})
    return news | {place: total / ranks.world.size for place, total in totals.items()}
