"""Shares of the datasets in a mixture up to a cursor."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import execute, iterate
from mlxfp.core.nodes import children
from mlxfp.core.planning import as_written
from mlxfp.core.running.steps import Hooks, SourceCalls
from mlxfp.core.sources import Position, Source
from mlxfp.data.rows.mixing import Mix
from mlxfp.data.running.replaying import replay
from mlxfp.support.errors import PipelineError


@frozen
class Proportion:
    """Share of a dataset in a mixture: the wanted share and the share reached so far.

    >>> Proportion(wanted=0.75, realised=0.74, count=740, tokens=None).realised
    0.74
    """

    wanted: float  # share given by the weights of the mixture; the average share up to the cursor if the weights change during a run
    realised: float  # share of the dataset in all examples, or in all tokens with `by="tokens"`; 0 before the first example
    count: int  # number of items: examples, groups or batches, depending on the mixture
    tokens: int | None  # Number of tokens, or None without `by="tokens"`. An empty row counts as one token.


def mixture_proportions(dataset: Dataset[Any], cursor: Cursor) -> tuple[Proportion, ...]:
    """Return the share of each dataset in a mixture (`mix`, `interleave`) up to the cursor, in the order of the datasets.

    The shares count all rows that were read for the items before the cursor, also rows that later stages dropped or keep in a buffer.

    - After a `repeat`, only the current pass counts.
    - If `prefetch` or `take` follows the mixture, all rows of the source chunk at the cursor count.
    - If mixtures are nested, the shares belong to the outer mixture.

    The call runs the pipeline again on parts of the source chunk at the cursor, at most about twelve times.

    Raises `PipelineError` if the pipeline has no mixture, or if `load`, `cache` or `shuffle` in memory follows the mixture.
    Raises `CursorMismatchError` for a cursor of another pipeline.

    >>> import mlxfp as fp
    >>> a, b = (fp.from_examples([{"x": x}] * 50) for x in "ab")
    >>> groups = fp.pipe(fp.mix([a, b], [3, 1]), fp.batch(10))
    >>> group, cursor = next(fp.iterate(groups))
    >>> [(each.wanted, each.realised, each.count) for each in fp.inspect.mixture_proportions(groups, cursor)]
    [(0.75, 0.7, 7), (0.25, 0.3, 3)]
    """
    iterate(dataset, cursor)  # This call raises an error if the cursor belongs to another pipeline.
    owner, child_cursor = dataset, cursor
    while not isinstance(owner.source, Mix):
        child = tuple(owner.source.traits.children_at(replay(owner, child_cursor).position)) if len(children(owner.source)) == 1 else ()
        if not child:
            raise PipelineError(
                f"mixture_proportions needs a mixture, but finds none in {dataset!r}. Add mix to the pipeline. Put mix after load, "
                "cache, shuffle and concat, because mixture_proportions cannot see a mixture inside these stages."
            )
        ((owner, child_cursor),) = child
    mixture = owner.source
    given, counts = _given(owner, child_cursor, mixture)
    total = max(1, int(given.sum()))
    return tuple(
        Proportion(wanted, amount / total, count, amount if mixture.by == "tokens" else None)
        for wanted, amount, count in zip(mixture.weights.wanted(total), given.tolist(), counts.tolist(), strict=True)
    )


def _given(dataset: Dataset[Any], cursor: Cursor, mixture: Mix) -> NDArray[np.int64]:
    """Return the contribution of each of the N datasets to the mixture up to a cursor, int64[2, N].

    Row 0 holds numbers of items, or of tokens with `by="tokens"`. Row 1 always holds numbers of items.
    """
    base = cursor.base
    with closing(dataset.hooks.source(mixture).read(base.epoch, base.position)) as chunks:  # type: ignore[type-var]  # a generator
        chunk, after = next(chunks, (None, base.position)) if cursor.done else (None, base.position)
    # `chunk` is None if the cursor lies between two source chunks, or after the last source chunk.
    if chunk is None or mixture.traits.level != "examples":
        return mixture.given_at(after)
    needed = bisect_left(range(chunk.num_rows), cursor.done, key=lambda size: _items_of(dataset, cursor, chunk.slice(0, size)))
    return mixture.given_at(base.position) + mixture.given_in(chunk.slice(0, needed))


def _items_of(dataset: Dataset[Any], cursor: Cursor, chunk: RecordBatch) -> int:
    """Return the number of items that the pipeline makes from the rows of `chunk`. Count at most `cursor.done` items."""
    hooks, count = _OnlyChunk(dataset.hooks, chunk=chunk), 0
    with closing(execute(as_written(dataset), cursor.back(cursor.done), hooks)) as items:  # type: ignore[type-var]  # a generator
        for item, _ in items:
            if hooks.ended:  # Stop after the rows of `chunk`. Items that stages create at the end of the data do not count.
                break
            count += item.num_rows if dataset.level == "examples" else 1
            if count >= cursor.done:
                return cursor.done
    return count


@frozen(eq=False)
class _OnlyChunk(Hooks):
    """Hooks for a pipeline that reads only `chunk`, and no rows of its source."""

    chunk: RecordBatch = field(kw_only=True)
    ended: list[bool] = field(factory=list, kw_only=True)

    def source(self, source: Source) -> SourceCalls:
        def read(epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
            yield self.chunk, None
            self.ended.append(True)

        return evolve(super().source(source), read=read)
