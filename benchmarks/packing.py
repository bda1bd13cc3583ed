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
    return [*_against_grain(ids, offsets, "best_fit", _best_fit), *_against_grain(ids, offsets, "split", _split)]


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
