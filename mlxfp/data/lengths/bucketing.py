"""Stages that group examples by length, up to a budget of tokens or in buckets of similar length."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.core.arrow.gathering import rows_in
from mlxfp.core.arrow.ragged import ends_of
from mlxfp.core.chunks import Example, Indices, RecordBatch
from mlxfp.core.datasets import Dataset
from mlxfp.core.examples import Examples
from mlxfp.core.row_names import row_at
from mlxfp.core.stages import Groups
from mlxfp.data.lengths.batching import Cuts, Grouping, after, whole
from mlxfp.data.lengths.index_plans import IndexPlan, Planned, has_lengths
from mlxfp.data.lengths.shape_planning import check_lengths, group_sizes
from mlxfp.data.lengths.tokens import lengths_of
from mlxfp.support.checks import check_positive, check_text, explain_call, not_none
from mlxfp.support.errors import ArgumentError, DataError


@explain_call
def batch_by_tokens(
    tokens: int, *, pad_multiple: int = 1, max_size: int | None = None, column: str = "input_ids"
) -> Callable[[Dataset[Example]], Dataset[Examples]]:
    """Group as many consecutive examples as fit a budget of tokens. Groups of long examples are small.

    The padded size of a group is the number of examples times the longest length, rounded up to `pad_multiple` (use the value of the
    collator). The padded size is at most `tokens`, which bounds the memory of a batch. To convert a limit in bytes, divide by the
    bytes that your model needs per token. `max_size` also limits the number of examples. Raises `DataError` for a row larger than the
    budget.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1] * length} for length in (2, 3, 3, 8, 1)])
    >>> [[len(row["input_ids"]) for row in group] for group in fp.pipe(rows, fp.batch_by_tokens(9))]
    [[2, 3, 3], [8], [1]]

    See also: `bucket_by_length`, which groups examples of similar length.
    """
    check_positive(tokens=tokens, pad_multiple=pad_multiple, **not_none(max_size=max_size))
    check_text(column=column)
    if tokens < pad_multiple:
        raise ArgumentError(f"tokens={tokens} is too small for an example padded to pad_multiple={pad_multiple}. Increase tokens.")
    return _BatchByTokens(tokens, pad_multiple, max_size, column)


@explain_call
def bucket_by_length(
    lengths: Sequence[int], *, size: int | None = None, tokens: int | None = None, drop_last: bool = False, column: str = "input_ids"
) -> Callable[[Dataset[Example]], Dataset[Examples]]:
    """Group examples of similar length. A collator that pads to `lengths` then adds little padding and creates few shapes.

    For each value in `lengths`, a bucket collects the examples that will be padded to this length. A full bucket becomes a group of `size`
    examples. With the argument `tokens` instead of `size`, a group has at most `tokens` tokens, including padding. Full groups of one
    bucket have the same shape.

    At the end of the data, the examples left in all buckets are sorted from longest to shortest and grouped. Only the last group may be
    short. `drop_last=True` drops a short last group. Raises `DataError` for a row longer than the last of `lengths`.

    If all example lengths are known in advance, the groups are planned before any example is read. Lengths are known after reading a table
    or Arrow files, and after `load` and `cache`, but no longer after `map` or `shuffle`. Planned groups have a length and random access, so
    `shuffle`, `unbatch` and `shard` can follow. A stream gives the same groups.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1] * length} for length in (2, 7, 3, 8, 9, 1)])
    >>> [[len(row["input_ids"]) for row in group] for group in fp.pipe(rows, fp.bucket_by_length([4, 10], size=2))]
    [[2, 3], [7, 8], [9, 1]]

    See also: `shape_plan`, which finds the lengths with the least padding; `lengths=` of the collators, which pads to them.
    """
    check_text(column=column)
    check_lengths(lengths)
    if (size is None) == (tokens is None):
        raise ArgumentError(f"bucket_by_length takes either size or tokens, got size={size} and tokens={tokens}.")
    check_positive(**not_none(size=size, tokens=tokens))
    if tokens is not None and tokens < lengths[-1]:
        raise ArgumentError(f"tokens={tokens} is too small for an example of {lengths[-1]} tokens, the last of lengths. Increase tokens.")
    return _BucketByLength(tuple(lengths), size, tokens, drop_last, column)


@frozen(repr=False)
class _BatchByTokens(Grouping):
    """Stage that groups rows within a budget of tokens. The state contains the rows of the unfinished group."""

    tokens: int
    pad_multiple: int = 1
    max_size: int | None = None
    column: str = "input_ids"

    def cut(self, rest: RecordBatch | None, chunk: RecordBatch) -> tuple[RecordBatch | None, Iterable[Cuts]]:
        rows = after(rest, chunk)
        starts = self._starts(rows)
        return (rows.slice(starts[-1]) if rows.num_rows else None), ((rows.slice(0, starts[-1]), starts),)

    def cut_last(self, rest: RecordBatch | None) -> Iterable[Cuts]:
        return () if rest is None else (whole(rest),)

    def groups(self, count: int | None) -> tuple[Groups, ...]:
        padded = range(self.pad_multiple, self.tokens + 1, self.pad_multiple)
        sizes = [range(1, min(self.tokens // length, self.max_size or self.tokens) + 1) for length in padded]
        return _spans(sizes, padded, self.column)

    def _starts(self, rows: RecordBatch) -> list[int]:
        """Return the row index at which each group begins."""
        padded = np.maximum(1, -(-lengths_of(rows, self.column, "batch_by_tokens") // self.pad_multiple)) * self.pad_multiple
        if (padded > self.tokens).any():
            index = int(np.argmax(padded > self.tokens))
            raise DataError(
                f"batch_by_tokens: {row_at(rows, index)} takes {padded[index]} tokens with padding, more than the budget of "
                f"tokens={self.tokens}. Truncate with tokenize(max_length=...), or increase tokens."
            )
        starts, longest, limit = [0], 0, self.max_size or self.tokens
        for index, length in enumerate(padded.tolist()):
            longest, size = max(longest, length), index + 1 - starts[-1]
            if longest * size > self.tokens or size > limit:
                starts.append(index)
                longest = length
        return starts


@frozen(repr=False)
class _BucketByLength(Grouping):
    """Stage that groups rows of similar length. The state contains the rows not yet grouped, in the order of arrival."""

    lengths: tuple[int, ...]
    size: int | None = None
    tokens: int | None = None
    drop_last: bool = False
    column: str = "input_ids"
    regroups = True  # groups hold rows out of the order of the input, see `predict`

    def __call__(self, dataset: Any) -> Any:
        """Append this stage to a dataset.

        If all row lengths are known, return a dataset that plans the groups and reads rows by index instead.
        """
        if isinstance(dataset, Dataset) and dataset.level == "examples" and has_lengths(dataset):
            return Dataset(Planned(dataset, self))
        return super().__call__(dataset)

    def plan(self, lengths: Indices) -> IndexPlan:
        """Return the rows of each group. The argument `lengths` holds the length of each row: int64[N]."""
        full, waiting = self._full_groups(lengths)
        last = self._leftover_groups(lengths[waiting])
        kind = np.int32 if len(lengths) < 2**31 else np.int64
        documents: Any = np.concatenate([full.documents, waiting[last.documents]]).astype(kind)
        return IndexPlan(documents, np.concatenate([full.ends, full.ends[-1] + last.ends[1:]]))

    def cut(self, rest: RecordBatch | None, chunk: RecordBatch) -> tuple[RecordBatch | None, Iterable[Cuts]]:
        rows = after(rest, chunk)
        groups, waiting = self._full_groups(self.lengths_in(rows))
        return rows.take(pa.array(waiting)), _gathered(rows, groups)

    def cut_last(self, rest: RecordBatch | None) -> Iterable[Cuts]:
        return () if rest is None else _gathered(rest, self._leftover_groups(self.lengths_in(rest)))

    def count(self, rows: int) -> int | None:
        if self.size is None:
            return None
        return rows // self.size if self.drop_last else -(-rows // self.size)

    def notes(self) -> tuple[str, ...]:
        return (f"holds fewer than {sum(self.sizes):,} rows",)

    def groups(self, count: int | None) -> tuple[Groups, ...]:
        # With a token budget instead of `size`, the row count does not tell the size of the last groups. Any smaller size is then possible.
        known = None if self.size is None else count
        sizes = [group_sizes(size, known, drop_last=self.drop_last) for size in self.sizes]
        return _spans(sizes, self.lengths, self.column)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of rows in a full group, for each bucket."""
        return tuple(self.size or (self.tokens or 0) // length for length in self.lengths)

    def lengths_in(self, rows: RecordBatch) -> Indices:
        """Return the number of tokens of each row: int64[N]. Raises `DataError` for a row longer than the last of `lengths`."""
        lengths = lengths_of(rows, self.column, "bucket_by_length")
        if (lengths > self.lengths[-1]).any():
            index = int(np.argmax(lengths > self.lengths[-1]))
            raise DataError(
                f"bucket_by_length: {row_at(rows, index)} has {lengths[index]} tokens, more than the last of the lengths, "
                f"{self.lengths[-1]}. Truncate with tokenize(max_length={self.lengths[-1]}), or add a larger length."
            )
        return lengths

    def _full_groups(self, lengths: Indices) -> tuple[IndexPlan, Indices]:
        """Return the full groups, and the indices of the rows that are still in incomplete groups."""
        buckets = np.searchsorted(self.lengths, lengths)
        inside = [np.flatnonzero(buckets == bucket) for bucket in range(len(self.lengths))]
        counts = [len(rows) // size for rows, size in zip(inside, self.sizes, strict=True)]
        rows = np.concatenate([rows[: count * size] for rows, count, size in zip(inside, counts, self.sizes, strict=True)])
        ends = ends_of(np.repeat(self.sizes, counts))
        waits = np.ones(len(lengths), bool)
        waits[rows] = False
        # Sort groups by the index of the last row in each group. Chunk boundaries do not change this order.
        return IndexPlan(rows, ends).take(np.argsort(rows[ends[1:] - 1])), np.flatnonzero(waits)

    def _leftover_groups(self, lengths: Indices) -> IndexPlan:
        """Return the groups of the rows that remain in the buckets at the end. Rows are grouped from longest to shortest."""
        buckets = np.searchsorted(self.lengths, lengths)
        order, ends = np.argsort(-lengths, kind="stable"), [0]
        while ends[-1] < len(order):
            # The longest row determines the padded length of the group.
            ends.append(ends[-1] + self.sizes[buckets[order[ends[-1]]]])
        if ends[-1] > len(order):
            ends[-1:] = [] if self.drop_last else [len(order)]
        return IndexPlan(order[: ends[-1]], np.array(ends))


def _spans(sizes: Iterable[Sequence[int]], lengths: Sequence[int], column: str) -> tuple[Groups, ...]:
    """Return for each bucket the possible group sizes, and the possible lengths of the longest row in a group."""
    least = (0, *(length + 1 for length in lengths[:-1]))
    return tuple(Groups(*fact).holding(column) for fact in zip(sizes, least, lengths, strict=True))


def _gathered(rows: RecordBatch, groups: IndexPlan) -> tuple[Cuts, ...]:
    """Copy the rows of each group next to each other. All groups are copied in one call, because one call per group is slower."""
    if len(groups.ends) == 1:
        return ()
    return ((rows_in(rows.schema, [rows]).take(np.asarray(groups.documents, np.int64)), groups.ends.tolist()),)
