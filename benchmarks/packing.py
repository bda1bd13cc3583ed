"""pack: pack documents into rows of 512 tokens with segment ids and positions, compared with grain."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import mlxfp as fp
from benchmarks.inputs import token_rows
from benchmarks.measuring import Row, best, installed

_LENGTH, _BINS = 512, 128  # _BINS: number of open rows, equal in grain and mlxfp


def rows(*, small: bool) -> list[Row]:
    """Pack documents by best fit and by splitting, into NumPy arrays of full length."""
    ids, offsets = token_rows(1000 if small else 20_000, median=150, spread=0.8, longest=_LENGTH)
    return [*_against_grain(ids, offsets, "best_fit", _best_fit), *_against_grain(ids, offsets, "split", _split), *_by_index(small=small)]


def _by_index(*, small: bool) -> list[Row]:
    """Plan packed rows from lengths, and read a shuffled epoch of packed rows by index and on a stream."""
    count = 20_000 if small else 1_000_000
    lengths = np.random.default_rng(0).lognormal(np.log(150), 0.8, count).astype(np.int64).clip(1, _LENGTH)
    ids, offsets = token_rows(1000 if small else 100_000, median=150, spread=0.8, longest=_LENGTH)
    empty = pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(np.append(0, lengths.cumsum()), pa.int32()), _zeros(lengths.sum()))})
    documents = fp.from_table(pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))}))
    planned: Any = fp.pipe(fp.from_table(empty), fp.pack(_LENGTH)).source
    (seconds,) = best([lambda: len(fp.pipe(fp.from_table(empty), fp.pack(_LENGTH)))], repeats=3)
    size = sum(values.nbytes for values in (planned.plan.documents, planned.plan.firsts, planned.plan.sizes, planned.plan.ends)) / count
    packed = fp.pipe(documents, fp.pack(_LENGTH))
    shuffled = fp.pipe(packed, fp.shuffle(seed=0), fp.batch(32))
    stream = fp.pipe(documents, fp.map_chunks(_same), fp.pack(_LENGTH), fp.batch(32))
    assert len(packed) == sum(map(len, shuffled))
    by_index, on_stream = best([partial(_count, iter, shuffled), partial(_count, iter, stream)])
    work = f"plan for {count:,} documents"
    return [
        Row("pack", work, f"{seconds:.2f} s", "limit: 1.5 s", seconds, 1.5, "at most"),
        Row("pack", f"{work}: memory", f"{size:.1f} bytes for a document", "limit: 32 bytes", size, 32, "at most"),
        Row(
            "pack",
            f"{len(offsets) - 1:,} documents, a shuffled epoch by index",
            f"{len(ids) / by_index / 1e6:.1f}M tokens/s",
            f"stream: {len(ids) / on_stream / 1e6:.1f}M",
            on_stream / by_index,
            1,
        ),
    ]


def _same(chunk: pa.RecordBatch) -> pa.RecordBatch:
    """Return the chunk. After a function, the lengths of documents are unknown, and `pack` reads a stream."""
    return chunk


def _zeros(count: int) -> Any:
    return pa.array(np.zeros(count, np.int32))


def _against_grain(ids: Any, offsets: Any, method: Any, packed: Callable[[Any], Any]) -> list[Row]:
    work = f"{len(offsets) - 1:,} documents to rows of {_LENGTH}, {method}"
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))
    groups = fp.pipe(fp.from_table(pa.table({"input_ids": lists})), fp.pack(_LENGTH, method=method), fp.batch(32))
    ours = partial(_rows_of, groups)
    fill = len(ids) / (_LENGTH * ours())
    if not installed("grain"):
        (mine,) = best([ours])
        return [Row("pack", work, f"{len(ids) / mine / 1e6:.1f}M tokens/s, {fill:.1%} full", "grain: not installed", None, 2)]
    documents = [{"input_ids": row} for row in np.split(ids, offsets[1:-1])]
    theirs = partial(_count, packed, documents)
    other_fill = len(ids) / (_LENGTH * theirs())
    mine, other = best([ours, theirs])
    shown = (f"{len(ids) / mine / 1e6:.1f}M tokens/s, {fill:.1%} full", f"grain {len(ids) / other / 1e6:.2f}M, {other_fill:.1%} full")
    return [
        Row("pack", work, *shown, other / mine, 2),
        Row("pack", f"{work}: fill", *shown, fill / other_fill, 1),
    ]


def _rows_of(groups: Any) -> int:
    """Convert each group to three arrays int32[B, 512], the format of grain, and return the number of rows."""
    count = 0
    for group in groups:
        count += len(group)
        for name in ("input_ids", "segment_ids", "positions"):
            column = group.column(name)
            lengths = np.diff(column.offsets.to_numpy())
            filled = np.zeros((len(group), _LENGTH), np.int32)
            filled[np.arange(_LENGTH) < lengths[:, None]] = column.flatten().to_numpy()
    return count


def _count(packed: Callable[[Any], Any], documents: Any) -> int:
    return sum(1 for _ in packed(documents))


def _best_fit(documents: Any) -> Any:
    import grain

    read = grain.MapDataset.source(documents).to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    sizes = {"input_ids": _LENGTH}
    return grain.experimental.BestFitPackIterDataset(read, length_struct=sizes, num_packing_bins=_BINS, shuffle_bins=False)


def _split(documents: Any) -> Any:
    import grain

    read = grain.MapDataset.source(documents).to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    return grain.experimental.ConcatThenSplitIterDataset(read, length_struct={"input_ids": _LENGTH})
