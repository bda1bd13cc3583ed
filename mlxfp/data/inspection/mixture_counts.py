"""What the datasets of a mixture have given so far: counted from a cursor, with nothing kept beside it."""

from bisect import bisect_left
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor, iterate
from mlxfp.core.datasets import Dataset, Level
from mlxfp.core.errors import PipelineError
from mlxfp.core.nodes import children
from mlxfp.core.reaching import held
from mlxfp.core.stepping import push
from mlxfp.data.rows.mixing import _Mix


@frozen
class Proportion:
    """What one dataset of a mixture has given, and the share of the whole that its weight asks for.

    >>> Proportion(wanted=0.75, realised=0.74, count=740, tokens=None).realised
    0.74
    """

    wanted: float
    realised: float  # of examples, or with by="tokens" of tokens; 0 as long as nothing was given
    count: int  # of examples; of groups or batches where these are mixed
    tokens: int | None  # None unless the mixture goes by tokens; an empty row counts as one


def mixture_proportions(dataset: Dataset[Any], cursor: Cursor) -> tuple[Proportion, ...]:
    """Return what each dataset of a mixture (`mix`, `interleave`) had given when the run came to the cursor, in their order.

    Exactly the rows that were needed for the items so far: also those that stages after the mixture still hold, or left out. Where
    `repeat` follows, they are those of the current pass. Where a source that holds the mixture comes before `batch` (`prefetch`, `take`),
    rows count a chunk at a time. Feeds the source chunk in hand to the stages a dozen times at most. Of mixtures in a mixture, it is the
    outer one.

    Raises `PipelineError` if there is no mixture, or if a source after it reads everything at once and so keeps no cursor of it
    (`load`, `cache`, a `shuffle` in memory); `CursorMismatchError` for a cursor of another pipeline.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.rows.mixing import mix
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> a, b = (from_examples([{"x": x}] * 50) for x in "ab")
    >>> groups = pipe(mix([a, b], [3, 1]), batch(10))
    >>> group, cursor = next(iterate(groups))
    >>> [(each.wanted, each.realised, each.count) for each in mixture_proportions(groups, cursor)]
    [(0.75, 0.7, 7), (0.25, 0.3, 3)]
    """
    iterate(dataset, cursor)  # checks that they belong together
    owner, at = dataset, cursor
    while not isinstance(owner.source, _Mix):
        inside = list(held(owner, at)) if len(children(owner.source)) == 1 else []
        if not inside:
            raise PipelineError(
                "There is nothing to count: the pipeline has no mixture, or a source after it reads everything at once or joins several "
                f"datasets. Put mix behind load, cache, shuffle and concat, in {dataset!r}."
            )
        ((owner, at),) = inside
    mixture = owner.source
    given, counts = _given(owner, at, mixture)
    total = max(1, int(given.sum()))
    return tuple(
        Proportion(weight / sum(mixture.weights), some / total, count, some if mixture.by == "tokens" else None)
        for weight, some, count in zip(mixture.weights, given.tolist(), counts.tolist(), strict=True)
    )


def _given(dataset: Dataset[Any], cursor: Cursor, mixture: Any) -> NDArray[np.int64]:
    """Return what each dataset gave, as the mixture counts it and in items: int64[2, N]."""
    base, left = cursor.base, cursor.done
    stages = dataset.resolved.stages
    states = [stage.start(base.epoch) for stage in stages] if base.states is None else list(base.states)
    position = base.position
    with closing(mixture.read(base.epoch, position)) as chunks:
        while left:
            chunk, after = next(chunks, (None, None))
            if chunk is None:  # the item came when the stages were flushed
                break
            before = tuple(states)
            made = _count(push(stages, states, 0, (chunk,)), dataset.level, left)
            if made == left and mixture.level == "examples":
                return _before(position, mixture) + _in(_needed(dataset, before, chunk, left), mixture)
            position, left = after, left - made
    return _before(position, mixture)


def _needed(dataset: Dataset[Any], states: tuple[Any, ...], chunk: RecordBatch, items: int) -> RecordBatch:
    """Return the first rows of a chunk, as few as give so many items: where a chunk ends means nothing, so they can be fed alone."""

    def made(size: int) -> int:
        return _count(push(dataset.resolved.stages, list(states), 0, (chunk.slice(0, size),)), dataset.level, items)

    return chunk.slice(0, bisect_left(range(chunk.num_rows), items, key=made))


def _before(position: Any, mixture: Any) -> NDArray[np.int64]:
    """Return what was given before a position."""
    return np.array(position[:2] if position else np.zeros((2, len(mixture.weights))), np.int64)


def _in(chunk: RecordBatch, mixture: Any) -> NDArray[np.int64]:
    """Return what is given in a chunk."""
    owners, costs = mixture.owners(chunk), mixture.costs(chunk)
    return np.array([np.bincount(owners, weights, len(mixture.weights)) for weights in (costs, None)], np.int64)


def _count(chunks: Iterable[Any], level: Level, enough: int) -> int:
    """Count the items of chunks, until there are enough."""
    count = 0
    for chunk in chunks:
        count += chunk.num_rows if level == "examples" else 1
        if count >= enough:
            return enough
    return count
