"""Stage `collate`: from groups to batches of MLX arrays."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain, pairwise, repeat
from typing import Any

import mlx.core as mx
import pyarrow.compute as pc
from attrs import field, frozen
from toolz import identity

from mlxfp.collators.columns import Arrays, Choosing, Cutting
from mlxfp.collators.stacking import Stack, stacking, to_batch, to_chunk
from mlxfp.core.chunks import EPOCH, RecordBatch, Schema, number_as, source_rows, visible
from mlxfp.core.datasets import Dataset
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import brief
from mlxfp.core.row_names import row_name
from mlxfp.core.stages import Batch, Halves, Stage, State, Traits
from mlxfp.data.lengths.batching import Cuts, Grouping
from mlxfp.support.arrow_types import is_list
from mlxfp.support.checks import check_callable, explain_call
from mlxfp.support.errors import ArgumentTypeError, MlxfpError


@explain_call
def collate(
    collator: Callable[[Examples], dict[str, Any]] | Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> Callable[[Dataset[Examples]], Dataset[Batch]]:
    """Turn every group into a batch with `collator`, a pure function from a sequence of examples to a dict of `mx.array`.

    The stage evaluates the arrays, so a lazy array never leaves its thread. Values of the dict are `mx.array` or tuples of strings; other
    values raise `ArgumentTypeError`. An exception gains a note with the source rows of the group.

    >>> import mlxfp as fp
    >>> import mlx.core as mx
    >>> sums = fp.collate(lambda group: {"total": mx.array(sum(row["x"] for row in group))})
    >>> [int(each["total"]) for each in fp.pipe(fp.from_examples([{"x": i} for i in range(4)]), fp.batch(2), sums)]
    [1, 5]
    """
    check_callable(collator=collator)
    return _Collate(collator)


_BYTES_AT_ONCE = 1 << 20  # Size of the rows read in one step, in bytes: 1 MB fits into the cache of a CPU core.
_BYTES_OF_A_STACK = 1 << 17  # Bytes gathered at once from rows of equal size. Sizes from 64 KB to 256 KB are about equally fast.
_ROWS_OF_EACH = 64  # Minimum number of rows gathered per chunk of a table. With fewer rows, the cost per chunk dominates.
_UNEQUAL = re.compile("non-uniform|inhomogeneous|same shape|same length")  # pattern for errors of MLX and NumPy about unequal lengths


@frozen(repr=False)
class _Collate(Stage):
    collator: Any  # function from a sequence of examples to a batch, for example a `Choosing` object
    accepts = frozenset({"groups"})
    emits = "batches"

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[Any]]:
        __tracebackhide__ = True  # Hide this frame in pytest and IPython: a traceback then ends in the user's function.
        group = Examples(chunk)
        try:
            batch = self.collator(group)
            _check(batch, self.collator)
            mx.eval(batch)
        except Exception as error:
            rows = group.rows.tolist()
            error.add_note(f"collating source rows {', '.join(map(row_name, rows[:8]))}{', ...' if len(rows) > 8 else ''}")
            if isinstance(error, AttributeError) and isinstance(error.obj, Examples):
                error.add_note("A function that needs a list of dicts gets one from fp.collators.foreign(function).")
            if not isinstance(error, MlxfpError) and _UNEQUAL.search(str(error)) and (lengths := ", ".join(_lengths(chunk))):
                error.add_note(
                    f"Lists have different lengths: {lengths}. Pad the lists. For token ids, use "
                    "fp.collators.text(pad_id=..., column=...). For other lists, append values to the shorter lists in the collator."
                )
            raise
        return state, (batch,)

    def schema(self, schema: Schema) -> Schema:
        if isinstance(self.collator, Choosing):
            self.collator.check(schema)
        return schema

    @property
    def traits(self) -> Traits:
        return Traits(
            columns_read=self.collator.uses if isinstance(self.collator, Choosing) else None,
            length=identity,
            fuse=self._fused,
            advice="A user-defined collator is faster with whole columns (Examples.column) than row by row.",
        )

    def stored(self, batch: Batch, schema: Schema | None) -> RecordBatch:
        return to_chunk(batch, schema)

    def restored(self, row: RecordBatch) -> Batch:
        return to_batch(row)

    def halves(self, schema: Schema) -> Halves | None:
        """Split `collate` into two halves: stages that workers can run, and a stage that creates the MLX arrays.

        Return None if the stages for workers would save too little time.
        """
        prepared = self.collator.prepared(schema) if isinstance(self.collator, Choosing) else None
        return None if prepared is None else Halves(prepared.stages, _Collate(prepared.collator))

    def _fused(self, before: Stage, needed: Collection[str]) -> Stage | None:
        return _CollateCuts(before, self) if isinstance(before, Grouping) and isinstance(self.collator, Cutting) else None


@frozen(repr=False)
class _CollateCuts(Stage):
    """Combination of a grouping stage, such as `batch`, and `collate`. The columns of many groups are read in one step."""

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

    @property
    def traits(self) -> Traits:
        return Traits(length=self.grouping.count)

    def _batches(self, cuts: Iterable[Cuts]) -> Iterator[Any]:
        for rows, ends in cuts:
            batches: Iterable[Any] = repeat(None)
            with suppress(MlxfpError):  # The error of an invalid group is ignored here, and raised by a second call below.
                batches = self.collate.collator.batches(Examples(rows), ends)
            for (first, stop), batch in zip(pairwise(ends), batches, strict=False):
                if batch is not None:
                    yield batch
                else:  # The common call gave no batch for this group. A separate call gives the batch, or an error that names the row.
                    yield from self.collate.step((), rows.slice(first, stop - first))[1]

    def gathering(self, holder: Any, schema: Schema) -> Stage | None:
        collator, counted = self.collate.collator, self.grouping.missing(None) is not None
        arrays = collator.arrays(schema) if counted else None
        return None if arrays is None else _CollateReferences(self.grouping, self.collate, holder, arrays)

    def __repr__(self) -> str:
        return f"{self.grouping!r}, {self.collate!r}"


@frozen(repr=False)
class _CollateReferences(_CollateCuts):
    """Combination of `batch` and `collate` for rows given by their indices in a table in memory.

    The saved state contains the values of the rows that do not yet fill a batch, as in the stage `batch`.
    """

    holder: Any
    arrays: Arrays
    idle: list[Stack] = field(factory=list, init=False, eq=False)  # memory of earlier batches, for reuse

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[Any]]:
        begun = 0 if state is None else min(self.grouping.missing(state) or 0, chunk.num_rows)
        cuts: Iterable[Cuts] = ()
        if begun:
            state, cuts = self.grouping.cut(state, self._gathered(chunk.slice(0, begun)))
        rest, later = self.grouping.cut(None, chunk.slice(begun))
        return state if rest is None else self._gathered(rest), chain(self._batches(cuts), self._late_batches(later))

    def _late_batches(self, cuts: Iterable[Cuts]) -> Iterator[Any]:
        stack = self._stack()
        return self._batches(self._pieces(cuts)) if stack is None else self._stacked(stack, cuts)

    def _pieces(self, cuts: Iterable[Cuts]) -> Iterator[Cuts]:
        """Read rows of several groups at once, because each read has a cost per chunk of the table. Yield pairs (rows, group bounds)."""
        size = self._size
        together = max(1, _ROWS_OF_EACH * len(self.holder.rows.chunks) // size, self._groups_in(_BYTES_AT_ONCE)) * size
        for chunk, ends in cuts:
            for begin in range(0, ends[-1], together):
                some = self._gathered(chunk.slice(begin, min(together, ends[-1] - begin)))
                yield some, range(0, some.num_rows + 1, size)

    def _stacked(self, stack: Stack, cuts: Iterable[Cuts]) -> Iterator[Any]:
        together = self._groups_in(_BYTES_OF_A_STACK)
        for chunk, ends in cuts:
            indices = source_rows(chunk).copy()  # The indices are copied once, because NumPy would copy a read-only array in each `take`.
            for begin in range(0, len(ends) - 1, together):
                some = ends[begin : begin + together + 1]
                batches = stack(indices[some[0] : some[-1]], [end - some[0] for end in some])
                for (first, stop), batch in zip(pairwise(some), batches, strict=True):
                    if batch is not None:
                        yield batch
                    else:
                        yield from self.collate.step((), self._gathered(chunk.slice(first, stop - first)))[1]
        self.idle.append(stack)

    def _stack(self) -> Stack | None:
        try:
            return self.idle.pop()  # `pop` is atomic, so two threads never write to the same batch memory.
        except IndexError:
            read, most = self.holder.rows.reader, self._groups_in(_BYTES_OF_A_STACK) * self._size
            return stacking(self.arrays, lambda name: read(name, most), self.collate.collator.finished)

    @property
    def _size(self) -> int:
        return self.grouping.missing(None) or 1

    def _groups_in(self, size: int) -> int:
        """Return the number of groups that together have about `size` bytes, at least 1."""
        first = self.holder.rows.chunks[0]()
        fitting: int = size * first.num_rows // (1 + first.nbytes) // self._size
        return max(1, fitting)

    def _gathered(self, chunk: RecordBatch) -> RecordBatch:
        indices, epoch = source_rows(chunk), chunk.column(EPOCH)[0].as_py()
        return number_as(self.holder.take(epoch, indices), epoch, indices)


def _lengths(chunk: RecordBatch) -> Iterator[str]:
    """Yield a text for each column whose lists differ in length, such as "1 to 3 items in the column 'ids'"."""
    for column, values in zip(visible(chunk).schema, visible(chunk).columns, strict=True):
        if is_list(column.type):
            least, most = pc.min_max(pc.list_value_length(values)).values()
            if least != most:
                yield f"{least} to {most} items in the column {column.name!r}"


_FOREIGN = "For a collate function of another library use fp.collators.foreign(function)."


def _check(batch: object, collator: object) -> None:
    if not isinstance(batch, dict):
        raise ArgumentTypeError(f"A collator must return a dict of mx.array, got {type(batch).__name__} from {brief(collator)}. {_FOREIGN}")
    for name, value in batch.items():
        if not isinstance(value, mx.array | tuple):
            raise ArgumentTypeError(
                f"A collator must return mx.array values, got {type(value).__name__} for {name!r} from {brief(collator)}. "
                f"Convert the value with mx.array(...). {_FOREIGN}"
            )
