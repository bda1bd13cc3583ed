"""The stage that turns groups into batches of MLX arrays."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, repeat
from typing import Any

import mlx.core as mx
from attrs import frozen

from mlxfp.collators.columns import Choosing
from mlxfp.collators.cutting import Columns, Padded
from mlxfp.core.checks import check_callable
from mlxfp.core.chunks import Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentTypeError, MlxfpError
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import brief
from mlxfp.core.row_names import row_name
from mlxfp.core.stages import Batch, Stage, State
from mlxfp.data.lengths.batching import Cuts, Grouping


def collate(collator: Callable[[Sequence[Example]], dict[str, Any]]) -> Callable[[Dataset[Examples]], Dataset[Batch]]:
    """Turn every group into one batch with `collator`, a pure function from a sequence of examples to a dict of `mx.array`.

    The stage evaluates the arrays, so a lazy array never leaves the thread that made it. The values of the dict are `mx.array` or tuples of
    strings; others raise `ArgumentTypeError`. An exception gains a note with the source rows of the group.

    >>> import mlx.core as mx
    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> sums = collate(lambda group: {"total": mx.array(sum(row["x"] for row in group))})
    >>> [int(each["total"]) for each in pipe(from_examples([{"x": i} for i in range(4)]), batch(2), sums)]
    [1, 5]
    """
    check_callable(collator=collator)
    return _Collate(collator)


@frozen(repr=False)
class _Collate(Stage):
    collator: Any  # a function from a sequence of examples to a batch, which may be `Choosing`
    accepts = frozenset({"groups"})
    emits = "batches"
    advice = "A collator of your own is faster with whole columns, from Examples.column, than row after row."

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[Any]]:
        __tracebackhide__ = True  # pytest and IPython leave this frame out: the user's function comes after it
        group = Examples(chunk)
        try:
            batch = self.collator(group)
            _check(batch, self.collator)
            mx.eval(batch)
        except Exception as error:
            rows = group.rows.tolist()
            error.add_note(f"collating source rows {', '.join(map(row_name, rows[:8]))}{', ...' if len(rows) > 8 else ''}")
            raise
        return state, (batch,)

    def schema(self, schema: Schema) -> Schema:
        if isinstance(self.collator, Choosing):
            self.collator.check(schema)
        return schema

    def columns_read(self) -> Collection[str] | None:
        return self.collator.uses if isinstance(self.collator, Choosing) else None

    def length(self, count: int) -> int:
        return count

    def fuse_with_previous(self, before: Stage, needed: Collection[str]) -> Stage | None:
        return _CollateCuts(before, self) if isinstance(before, Grouping) and isinstance(self.collator, Padded) else None


@frozen(repr=False)
class _CollateCuts(Stage):
    """A grouping stage and the `collate` after it in one: the columns of many groups are read at once, and batches cut from them."""

    grouping: Grouping
    collate: _Collate
    emits = "batches"

    def start(self, epoch: int) -> State:
        return self.grouping.start(epoch)

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[Any]]:
        state, cuts = self.grouping.cut(state, chunk)
        return state, self._batches(cuts)

    def finish(self, state: State) -> Iterable[Any]:
        return self._batches(self.grouping.cut_last(state))

    def schema(self, schema: Schema) -> Schema:
        return self.collate.schema(self.grouping.schema(schema))

    def length(self, count: int) -> int | None:
        return self.grouping.length(count)

    def _batches(self, cuts: Iterable[Cuts]) -> Iterator[Any]:
        for rows, ends in cuts:
            columns: Columns | None = None
            with suppress(MlxfpError):  # a group has a mistake, which is reported when it is the turn of that group
                columns = self.collate.collator.read(Examples(rows)) if len(ends) > 2 else None
            made = repeat(None) if columns is None else columns.batches(ends)
            for (first, stop), batch in zip(pairwise(ends), made, strict=False):
                if batch is not None:
                    yield batch
                else:  # collate the group by itself: that works, or raises an error about the right row
                    yield from self.collate.step((), rows.slice(first, stop - first))[1]

    def __repr__(self) -> str:
        return f"{self.grouping!r}, {self.collate!r}"


def _check(batch: object, collator: object) -> None:
    if not isinstance(batch, dict):
        raise ArgumentTypeError(f"A collator returns a dict of mx.array, got {type(batch).__name__} from {brief(collator)}.")
    for name, value in batch.items():
        if not isinstance(value, mx.array | tuple):
            raise ArgumentTypeError(
                f"A collator returns mx.array values, got {type(value).__name__} for {name!r} from {brief(collator)}. "
                "Wrap it: mx.array(...)."
            )
