"""What the datasets of a mixture have given so far: counted from a cursor, with no other state."""

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
    """The share of one dataset of a mixture so far, and the share that its weight asks for.

    >>> Proportion(wanted=0.75, realised=0.74, count=740, tokens=None).realised
    0.74
    """

    wanted: float
    realised: float  # share of the examples, or of the tokens with by="tokens"; 0 before the first example
    count: int  # examples; groups or batches if these are mixed
    tokens: int | None  # None unless the mixture goes by tokens; an empty row counts as one


def mixture_proportions(dataset: Dataset[Any], cursor: Cursor) -> tuple[Proportion, ...]:
    """Return what each dataset of a mixture (`mix`, `interleave`) had given when the run came to the cursor, in their order.

    Exactly the rows that were needed for the items so far: also those that stages after the mixture still hold, or left out. Where
    `repeat` follows, they are those of the current pass. Where a source that holds the mixture comes before `batch` (`prefetch`, `take`),
    rows count a chunk at a time. Feeds the source chunk in hand to the stages a dozen times at most. Of mixtures in a mixture, it is the
    outer one.

    Raises `PipelineError` if there is no mixture, or if a source after it reads everything at once and so keeps no cursor of it
    (`load`, `cache`, a `shuffle` in memory); `CursorMismatchError` for a cursor of another pipeline.

    >>> import mlxfp as fp
    >>> a, b = (fp.from_examples([{"x": x}] * 50) for x in "ab")
    >>> groups = fp.pipe(fp.mix([a, b], [3, 1]), fp.batch(10))
    >>> group, cursor = next(fp.iterate(groups))
    >>> [(each.wanted, each.realised, each.count) for each in fp.inspect.mixture_proportions(groups, cursor)]
    [(0.75, 0.7, 7), (0.25, 0.3, 3)]
    """
    iterate(dataset, cursor)  # checks that they belong together
    owner, at = dataset, cursor
    while not isinstance(owner.source, Mix):
        inside = tuple(owner.source.traits.children_at(replay(owner, at).position)) if len(children(owner.source)) == 1 else ()
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


def _given(dataset: Dataset[Any], cursor: Cursor, mixture: Mix) -> NDArray[np.int64]:
    """Return the counts of each dataset, in the unit of the mixture and in items: int64[2, N]."""
    base = cursor.base
    with closing(dataset.hooks.source(mixture).read(base.epoch, base.position)) as chunks:  # type: ignore[type-var]  # a generator
        chunk, after = next(chunks, (None, base.position)) if cursor.done else (None, base.position)
    if chunk is None or mixture.traits.level != "examples":  # no item yet, or an item of `finish`
        return mixture.given_at(after)
    needed = bisect_left(range(chunk.num_rows), cursor.done, key=lambda size: _made(dataset, cursor, chunk.slice(0, size)))
    return mixture.given_at(base.position) + mixture.given_in(chunk.slice(0, needed))


def _made(dataset: Dataset[Any], cursor: Cursor, chunk: RecordBatch) -> int:
    """Count the items that come out of the first rows after the snapshot of a cursor, up to the item of the cursor."""
    hooks, count = _OnlyChunk(dataset.hooks, chunk=chunk), 0
    with closing(execute(as_written(dataset), cursor.back(cursor.done), hooks)) as items:  # type: ignore[type-var]  # a generator
        for item, _ in items:
            if hooks.ended:  # rows of `finish` come after the cursor
                break
            count += item.num_rows if dataset.level == "examples" else 1
            if count >= cursor.done:
                return cursor.done
    return count


@frozen(eq=False)
class _OnlyChunk(Hooks):
    """Reads one chunk instead of the source."""

    chunk: RecordBatch = field(kw_only=True)
    ended: list[bool] = field(factory=list, kw_only=True)

    def source(self, source: Source) -> SourceCalls:
        def read(epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
            yield self.chunk, None
            self.ended.append(True)

        return evolve(super().source(source), read=read)
