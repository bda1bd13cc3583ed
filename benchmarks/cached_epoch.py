"""cached-epoch: from tokens in a memory-mapped file to shuffled, padded batches of 32 as MLX arrays.

All libraries read ids and offsets from a memory-mapped file, and slice a row out of the ids. mlx-data stores rows itself, therefore its
buffer is filled before the measurement. Each library is measured with single rows, with lists of rows, with threads and without, as far
as supported. The fastest variant counts.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import frozen

import mlxfp as fp
from benchmarks.inputs import token_rows
from benchmarks.measuring import Row, against, installed

_BAR_OF = {"mlx-data": 1.5, "torch DataLoader": 3.3, "grain": 25.0}


def rows(*, small: bool) -> list[Row]:
    """Measure an epoch against every installed library."""
    count = 2000 if small else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = _Kept.write(folder, count)
        lists = pa.ListArray.from_arrays(pa.array(kept.offsets, pa.int32()), pa.array(np.asarray(kept.ids)))
        cached = fp.pipe(fp.from_table(pa.table({"input_ids": lists, "label": kept.labels})), fp.cache(folder))
        fp.length(cached)  # writes the cache file
        batches = fp.pipe(cached, fp.shuffle(seed=0), fp.batch(32), fp.collate(fp.collators.text(pad_id=0, label="label")))
        work = f"{count:,} kept rows: shuffle, padding, batches of 32"
        ours = partial(_consume, batches)
        return [
            Row("cached-epoch", *against(work, name, ours=ours, theirs=theirs, rows=count, repeats=15), _BAR_OF[name])
            for name, theirs in _peers(kept).items()
        ]


@frozen
class _Kept:
    """Token rows in a memory-mapped file, as a dataset for torch and grain."""

    ids: Any
    offsets: Any
    labels: Any

    @classmethod
    def write(cls, folder: Path, count: int) -> "_Kept":
        ids, offsets = token_rows(count, median=45, spread=0.5, longest=128)
        for name, array in (("ids", ids), ("offsets", offsets), ("labels", np.arange(count) % 2)):
            np.save(folder / name, array)
        # Plain arrays over the mapped memory: slicing a np.memmap takes four times as long.
        return cls(*(np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ("ids", "offsets", "labels")))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]], self.labels[row]


class _ManyAtOnce(_Kept):
    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, Any]]:
        starts, ends = self.offsets[rows].tolist(), self.offsets[np.array(rows) + 1].tolist()
        return [(self.ids[first:end], label) for first, end, label in zip(starts, ends, self.labels[rows], strict=True)]


def _peers(kept: _Kept) -> dict[str, list[Any] | None]:
    many = _ManyAtOnce(kept.ids, kept.offsets, kept.labels)
    buffer = _mlx_data_buffer(kept) if installed("mlx.data") else None
    return {
        "mlx-data": buffer and [partial(_consume, _MlxData(buffer, threads)) for threads in (0, 1, 2, 4)],
        "torch DataLoader": [partial(_torch_epoch, each) for each in (kept, many)] if installed("torch") else None,
        "grain": [partial(_grain_epoch, kept, threads) for threads in (0, 2)] if installed("grain") else None,
    }


def _consume(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def _torch_epoch(kept: _Kept) -> None:
    import torch

    _consume(torch.utils.data.DataLoader(kept, batch_size=32, shuffle=True, collate_fn=_pad))


def _grain_epoch(kept: _Kept, threads: int) -> None:
    import grain

    batches = grain.MapDataset.source(kept).shuffle(seed=0).batch(32, batch_fn=_pad)
    _consume(batches.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16 if threads else 0)))


def _pad(examples: Sequence[tuple[Any, Any]]) -> dict[str, mx.array]:
    lengths = [len(ids) for ids, _ in examples]
    ids = np.zeros((len(examples), max(lengths)), np.int32)
    mask = np.zeros_like(ids)
    for row, (length, example) in enumerate(zip(lengths, examples, strict=True)):
        ids[row, :length] = example[0]
        mask[row, :length] = 1
    labels = np.array([label for _, label in examples], np.int32)
    return {"input_ids": mx.array(ids), "attention_mask": mx.array(mask), "labels": mx.array(labels)}


def _mlx_data_buffer(kept: _Kept) -> Any:
    import mlx.data as dx

    spans = pairwise(kept.offsets.tolist())
    return dx.buffer_from_vector(
        [
            {"input_ids": kept.ids[first:end].copy(), "label": np.int32(label), "length": np.int32(end - first)}
            for (first, end), label in zip(spans, kept.labels, strict=True)
        ]
    )


@frozen
class _MlxData:
    """Iterable over the batches of an mlx-data buffer."""

    buffer: Any
    threads: int

    def __iter__(self) -> Iterator[dict[str, mx.array]]:
        stream = self.buffer.shuffle().to_stream().batch(32, pad={"input_ids": 0})
        for batch in stream.prefetch(8, self.threads) if self.threads else stream:
            mask = np.arange(batch["input_ids"].shape[1]) < batch["length"][:, None]
            yield {
                "input_ids": mx.array(batch["input_ids"]),
                "attention_mask": mx.array(mask.astype(np.int32)),
                "labels": mx.array(batch["label"]),
            }
