"""memory-arrays, memory-tokens: shuffled batches of rows in memory.

Columns of numbers are compared with indexing the arrays by hand, in numpy and in MLX; tokens with the batches of mlx-lm's trainer, which
sorts Python lists by length and pads to multiples of 32.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np

import mlxfp as fp
from benchmarks.inputs import token_rows
from benchmarks.measuring import Row, against, installed

Arrays = Mapping[str, np.ndarray[Any, Any]]
_SIZES = 32, 64, 128, 256
_BAR = 0.9


def rows(*, small: bool) -> list[Row]:
    """Make an epoch of shuffled batches of four tables, each with a label, in several sizes."""
    count = 2000 if small else 60_000
    rng = np.random.default_rng(0)
    tables: dict[str, np.ndarray[Any, Any]] = {
        "784 float32": rng.random((count, 784), np.float32),
        "[28, 28] uint8": rng.integers(0, 256, (count, 28, 28)).astype(np.uint8),
        "16 float32": rng.random((count, 16), np.float32),
        "128 int32": rng.integers(0, 30_000, (count, 128)).astype(np.int32),
    }
    label = rng.integers(0, 10, count).astype(np.int32)
    return [
        _compared(name, {"x": values, "label": label}, size, peer)
        for name, values in tables.items()
        for size in _SIZES
        for peer in ("numpy", "MLX")
    ]


def _compared(name: str, arrays: Arrays, size: int, peer: str) -> Row:
    batches = fp.pipe(fp.from_table(arrays), fp.shuffle(seed=0), fp.batch(size), fp.collate(fp.collators.default()))
    count, take = len(arrays["label"]), _WAYS[peer](arrays)
    work = f"{count:,} rows of {name}: shuffle, batches of {size}"
    ours, theirs = lambda: _consume(fp.iterate(batches)), lambda: _consume(_by_hand(take, count, size))
    return Row("memory-arrays", *against(work, f"{peer} by hand", ours=ours, theirs=[theirs], rows=count, repeats=15), _BAR)


def _consume(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def _by_hand(take: Callable[[Any], Mapping[str, mx.array]], count: int, size: int) -> Iterator[Mapping[str, mx.array]]:
    order = np.random.default_rng(0).permutation(count)
    for first in range(0, count, size):
        yield take(order[first : first + size])


def _numpy(arrays: Arrays) -> Callable[[Any], Mapping[str, mx.array]]:
    return lambda rows: {name: mx.array(values[rows]) for name, values in arrays.items()}


def _mlx(arrays: Arrays) -> Callable[[Any], Mapping[str, mx.array]]:
    held = {name: mx.array(values) for name, values in arrays.items()}

    def take(rows: Any) -> Mapping[str, mx.array]:
        places = mx.array(rows)
        batch = {name: values[places] for name, values in held.items()}
        mx.eval(batch)
        return batch

    return take


_WAYS = {"numpy": _numpy, "MLX": _mlx}


def tokens(*, small: bool) -> list[Row]:
    """Make an epoch of padded batches of rows of tokens in memory, of similar lengths, in the sizes that fine-tuning has."""
    count = 500 if small else 20_000
    ids, offsets = token_rows(count, median=45, spread=0.5, longest=128)
    lists = [ids[first:stop].tolist() for first, stop in pairwise(offsets)]
    return [_batches_of_tokens(lists, size) for size in (4, 8, 32)]


def _batches_of_tokens(lists: list[list[int]], size: int) -> Row:
    lengths = range(32, 129, 32)
    groups = fp.pipe(fp.from_table({"input_ids": lists}), fp.shuffle(seed=0), fp.bucket_by_length(lengths, size=size, drop_last=True))
    batches = fp.pipe(groups, fp.collate(fp.collators.causal(pad_id=0, lengths=lengths)))
    work = f"{len(lists):,} rows of tokens by length, padded, batches of {size}"
    theirs = [partial(_mlx_lm, [(row, 0) for row in lists], size)] if installed("mlx_lm") else None
    found = against(work, "mlx-lm", ours=lambda: _consume(fp.iterate(batches)), theirs=theirs, rows=len(lists), repeats=15)
    return Row("memory-tokens", *found, 1.0)


def _mlx_lm(rows: list[tuple[list[int], int]], size: int) -> None:
    _consume(import_module("mlx_lm.tuner.trainer").iterate_batches(rows, size, 2048))
