"""memory-arrays, memory-tokens, memory-windows, memory-images: shuffled batches of rows in memory.

Numeric columns are compared with indexed numpy and MLX arrays. Tokens are compared with the batches of mlx-lm's trainer, which sorts
Python lists by length and pads to multiples of 32. Windows and small images are compared with the loaders of mlx-examples:
transformer_lm indexes a view of all windows, cvae resizes with mlx-data, and cifar flips and crops with mlx-data.
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
    """Read an epoch of shuffled batches from four tables with labels, in several batch sizes."""
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
    """Read an epoch of padded batches of similar length, in batch sizes common in fine-tuning."""
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


def windows(*, small: bool) -> list[Row]:
    """Read an epoch of all windows of 65 tokens, as inputs and labels of 64 tokens."""
    tokens = np.random.default_rng(0).integers(0, 13_000, 2_000 if small else 200_000).astype(np.int32)
    rows = fp.pipe(fp.from_table({"input_ids": [tokens]}), fp.windows(65, stride=1, drop_last=True), fp.load())
    found = []
    for size, bar in ((16, _BAR), (64, 0.75)):
        batches = fp.pipe(rows, fp.shuffle(seed=0), fp.batch(size), fp.collate(fp.collators.causal(pad_id=0, length=64)))
        work, count = f"{len(tokens):,} tokens, windows of 65: shuffle, batches of {size}", len(tokens) - 64
        ours, theirs = partial(_consume, batches), partial(_windows_by_hand, tokens, size)
        found.append(Row("memory-windows", *against(work, "numpy by hand", ours=ours, theirs=[theirs], rows=count), bar))
    return found


def _windows_by_hand(tokens: np.ndarray[Any, Any], size: int) -> None:
    views = np.lib.stride_tricks.sliding_window_view(tokens, 65)
    inputs, labels = views[:, :-1], views[:, 1:]
    order = np.random.default_rng(0).permutation(len(views))
    for first in range(0, len(order), size):
        rows = order[first : first + size]
        mx.eval(mx.array(inputs[rows]), mx.array(labels[rows]))


def images(*, small: bool) -> list[Row]:
    """Read an epoch of grey images resized from 28 x 28 to 64 x 64, and an epoch of flipped and cropped images of 32 x 32."""
    rng, count = np.random.default_rng(0), 256 if small else 5_120
    grey, color = (rng.integers(0, 256, (count, *shape), dtype=np.uint8) for shape in ((28, 28, 1), (32, 32, 3)))
    varied = fp.images.random_flip(seed=0), fp.images.random_crop((32, 32), seed=1, padding=4)
    return [
        _batches_of_images("28 x 28, resized to 64 x 64", grey, (fp.images.resize((64, 64)),), _resized_by_mlx_data),
        _batches_of_images("32 x 32, flipped and cropped", color, varied, _varied_by_mlx_data),
    ]


def _batches_of_images(name: str, images: np.ndarray[Any, Any], stages: tuple[Any, ...], transform: Callable[[Any], Any]) -> Row:
    batches = fp.pipe(fp.from_table({"image": images}), fp.shuffle(seed=0), *stages, fp.batch(128), fp.collate(fp.collators.vision()))
    theirs = [partial(_mlx_data, transform, images)] if installed("mlx.data") else None
    work = f"{len(images):,} images of {name}, batches of 128"
    return Row("memory-images", *against(work, "mlx-data", ours=partial(_consume, batches), theirs=theirs, rows=len(images)), _BAR)


def _mlx_data(transform: Callable[[Any], Any], images: np.ndarray[Any, Any]) -> None:
    buffer = import_module("mlx.data").buffer_from_vector([{"image": image} for image in images])
    stream = transform(buffer.shuffle().to_stream()).key_transform("image", lambda pixels: pixels.astype("float32") / 255)
    for batch in stream.batch(128):
        mx.eval(mx.array(batch["image"]))


def _resized_by_mlx_data(stream: Any) -> Any:
    return stream.image_resize("image", h=64, w=64)


def _varied_by_mlx_data(stream: Any) -> Any:
    padded = stream.image_random_h_flip("image", prob=0.5).pad("image", 0, 4, 4, 0.0).pad("image", 1, 4, 4, 0.0)
    return padded.image_random_crop("image", 32, 32)
