"""Rows of tokens for the tests of stages that look at lengths, and the laws that all of these stages obey."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch, one_chunk
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings

KINDS = (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.uint16()), pa.large_list(pa.int32()))

Chunks = tuple[RecordBatch, ...]
Transform = Callable[[fp.Dataset[Any]], fp.Dataset[Any]]


def numbered(lengths: Sequence[int], kind: pa.DataType = KINDS[0]) -> pa.Table:
    """Make rows of these lengths whose tokens are 0, 1, 2, ..., so that each can be told from the others; and a second column."""
    ends = np.cumsum([0, *lengths])
    rows = [list(range(first, last)) for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    return pa.table(
        {"input_ids": pa.array(rows, kind), "mask": pa.array([[token % 3 == 0 for token in row] for row in rows], pa.list_(pa.bool_()))}
    )


def row_lengths(*, longest: int = 12, max_rows: int = 8) -> st.SearchStrategy[list[int]]:
    """Make lengths of rows: short and long ones, and many that are equal."""
    return st.lists(st.integers(0, longest) | st.sampled_from([0, 1, 4, longest]), max_size=max_rows)


@st.composite
def chunkings(draw: st.DrawFn, *, longest: int = 12) -> tuple[Chunks, Chunks]:
    """Make the same rows of numbered tokens in two chunkings, cut out of longer chunks."""
    lengths, before, after = draw(row_lengths(longest=longest)), draw(row_lengths(max_rows=2)), draw(row_lengths(max_rows=2))
    whole = one_chunk(numbered([*before, *lengths, *after], draw(st.sampled_from(KINDS))))
    rows = pa.Table.from_batches([whole.slice(len(before), len(lengths))])
    return draw(rechunkings(rows)), draw(rechunkings(rows))


def rows_of(chunks: Sequence[RecordBatch]) -> list[list[int]]:
    """Return the tokens of each row."""
    return [row for chunk in chunks for row in chunk.column("input_ids").to_pylist()]


def assert_obeys(transform: Transform, chunks: Chunks, others: Chunks) -> None:
    """Law: a stage is a pure value whose runs resume anywhere and do not depend on chunks."""
    dataset = transform(from_chunks(chunks))
    laws.assert_value(dataset)
    laws.assert_described(dataset)
    laws.assert_repeatable(dataset, epoch=1)
    laws.assert_resumable(dataset, epoch=1)
    laws.assert_pure_stages(dataset, epoch=1)
    laws.assert_chunks_do_not_matter(transform, chunks, others, epoch=1)
    if next(iter(dataset), None) is not None:
        laws.assert_replay_is_bounded(transform, chunks)
    laws.assert_built_lazily(transform, chunks)


def run(transform: Transform, lengths: Sequence[int]) -> list[Any]:
    """Run numbered rows through a stage."""
    return list(fp.pipe(fp.from_table(numbered(lengths)), transform))
