"""Grouping examples by number, and ungrouping them."""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen

from mlxfp.core.checks import check_positive
from mlxfp.core.chunks import Example, RecordBatch
from mlxfp.core.datasets import Dataset
from mlxfp.core.examples import Examples
from mlxfp.core.stages import Groups, Stage
from mlxfp.data.lengths.grouping import Cuts, Grouping, after, whole
from mlxfp.data.lengths.shape_planning import group_sizes


def batch(size: int, *, drop_last: bool = False) -> Callable[[Dataset[Example]], Dataset[Examples]]:
    """Group consecutive examples into groups of `size`.

    The last group may be short; `drop_last=True` leaves it out. Iterating yields `Examples`, a sequence of mappings over one record batch.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> [len(group) for group in pipe(from_examples([{"x": i} for i in range(5)]), batch(2))]
    [2, 2, 1]

    See also: `unbatch` for the inverse.
    """
    check_positive(size=size)
    return _Batch(size, drop_last)


def unbatch() -> Callable[[Dataset[Examples]], Dataset[Example]]:
    """Turn groups back into examples, in order: the inverse of `batch`.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> list(pipe(from_examples([{"x": 1}, {"x": 2}]), batch(2), unbatch()))
    [{'x': 1}, {'x': 2}]
    """
    return _Unbatch()


@frozen(repr=False)
class _Batch(Grouping):
    """The state holds the rows left over from earlier chunks, fewer than a group."""

    size: int
    drop_last: bool = False

    def cut(self, rest: RecordBatch | None, chunk: RecordBatch) -> tuple[RecordBatch | None, Iterable[Cuts]]:
        rows, held = chunk.num_rows, 0 if rest is None else rest.num_rows
        if not rows:
            return rest, ()
        if held + rows < self.size:
            return after(rest, chunk), ()
        start = self.size - held if held else 0  # only the group across the chunk boundary is copied, the others are slices
        stop = start + (rows - start) // self.size * self.size
        cuts = [whole(after(rest, chunk.slice(0, start)))] if held else []
        if stop > start:
            cuts.append((chunk.slice(start, stop - start), range(0, stop - start + 1, self.size)))
        return (chunk.slice(stop) if stop < rows else None), cuts

    def cut_last(self, rest: RecordBatch | None) -> Iterable[Cuts]:
        return () if rest is None or self.drop_last else (whole(rest),)

    def length(self, count: int) -> int:
        return count // self.size if self.drop_last else -(-count // self.size)

    def groups(self, count: int | None) -> tuple[Groups, ...]:
        return (Groups(group_sizes(self.size, count, drop_last=self.drop_last)),)


@frozen(repr=False)
class _Unbatch(Stage):
    accepts = frozenset({"groups"})
    emits = "examples"
    lengthens = False

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (chunk,)
