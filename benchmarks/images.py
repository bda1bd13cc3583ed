"""images, images-augment: from a folder of JPEG files of 500 x 375 pixels to batches of 32 at 224 x 224, as `mx.array`.

`images` is compared with mlx-data, which resizes with the same filter. `images-augment` is compared with Pillow in a thread pool.
"""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

import mlxfp as fp
from benchmarks.measuring import Row, against, installed

_SIDE, _SIZE, _WORKERS = 224, 32, 2
_THREADS = 1, 2, 3, 4


def rows(*, small: bool) -> list[Row]:
    """Decode and resize images. mlx-data runs with 1 to 4 threads, and the fastest run counts."""
    with _folder(64 if small else 512) as (folder, count):
        batches = _batches(folder, fp.images.resize((_SIDE, _SIDE)))
        theirs = [partial(_mlx_data, folder, threads) for threads in _THREADS] if installed("mlx.data") else None
        if theirs:
            _check_close(_mlx_data(folder, 1), batches)
        work = f"{count} JPEG files: decode, resize, batches of {_SIZE}"
        return [Row("images", *against(work, "mlx-data", ours=lambda: _consume(batches), theirs=theirs, rows=count), 0.85)]


def augmented(*, small: bool) -> list[Row]:
    """Decode images, crop and resize a random region, and flip at random."""
    with _folder(64 if small else 512) as (folder, count):
        stages = fp.images.random_resized_crop((_SIDE, _SIDE), seed=0), fp.images.random_flip(seed=0)
        batches = _batches(folder, *stages)
        theirs = [partial(_by_hand, folder, threads) for threads in (1, _WORKERS)]
        work = f"{count} JPEG files: decode, random resized crop, flip"
        found = against(work, "Pillow and threads", ours=lambda: _consume(batches), theirs=theirs, rows=count)
        return [Row("images-augment", *found, 1.2)]


@contextmanager
def _folder(count: int) -> Iterator[tuple[Path, int]]:
    """Write JPEG files with about the size of photographs."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as name:
        for place in range(count):
            rng = np.random.default_rng(place)
            coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
            noisy = np.asarray(coarse) + rng.normal(0, 6, (375, 500, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(Path(name, f"{place:04}.jpg"), quality=90)
        yield Path(name), count


def _batches(folder: Path, *stages: Any) -> fp.Dataset[Any]:
    groups = fp.pipe(fp.read_images(folder), *stages, fp.select_columns(["image"]), fp.batch(_SIZE))
    return fp.pipe(groups, fp.collate(_as_arrays), fp.prefetch(8, workers=_WORKERS))


def _as_arrays(group: fp.Examples) -> dict[str, mx.array]:
    return {"image": mx.array(group.column("image").to_numpy_ndarray())}  # uint8, as in the peers


def _consume(dataset: fp.Dataset[Any]) -> None:
    for _ in fp.iterate(dataset):
        pass


def _mlx_data(folder: Path, threads: int) -> list[np.ndarray[Any, Any]]:
    data = import_module("mlx.data")
    files = [{"image": str(path).encode()} for path in sorted(folder.iterdir())]
    stream = data.buffer_from_vector(files).load_image("image").image_resize("image", _SIDE, _SIDE).to_stream()
    first: list[np.ndarray[Any, Any]] = []
    for batch in stream.batch(_SIZE).prefetch(8, threads):
        array = mx.array(batch["image"])
        first = first or [np.array(array)]
    return first


def _check_close(theirs: list[np.ndarray[Any, Any]], ours: fp.Dataset[Any]) -> None:
    """Compare the first batch. A filter without antialiasing would differ by 4 on average."""
    first = np.array(next(iter(ours))["image"]).astype(int)
    difference = np.abs(first - theirs[0])
    if difference.mean() > 0.5:
        raise ValueError(f"mlx-data resizes in another way: its pixels differ by {difference.mean():.2f} on average.")


def _by_hand(folder: Path, threads: int) -> None:
    paths = sorted(folder.iterdir())
    with ThreadPoolExecutor(threads) as pool:
        images = pool.map(_varied, paths, range(len(paths)))
        for _ in range(0, len(paths), _SIZE):
            mx.array(np.stack([image for _, image in zip(range(_SIZE), images, strict=False)]))


def _varied(path: Path, seed: int) -> np.ndarray[Any, Any]:
    """Transform a file with Pillow as torchvision's RandomResizedCrop and RandomHorizontalFlip."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    with Image.open(path) as file:
        image = file.convert("RGB")
    part = image.crop(_part(image.height, image.width, rng.uniform)).resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    flipped = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part
    return np.asarray(flipped)


def _part(height: int, width: int, uniform: Callable[[float, float], float]) -> tuple[int, int, int, int]:
    for _ in range(10):
        area, ratio = height * width * uniform(0.08, 1), np.exp(uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, high = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(uniform(0, width - wide + 1)), int(uniform(0, height - high + 1))
            return left, top, left + wide, top + high
    return 0, 0, width, height
