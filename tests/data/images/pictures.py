"""Images for tests: files made by Pillow, the pixels that come out of a pipeline, and the numbers that a stage draws."""

from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.randomness import fold_in

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)
COLORS = st.sampled_from([1, 3])


def pillow() -> Any:
    return pytest.importorskip("PIL.Image", reason="decoding and resizing images needs Pillow: pip install 'mlxfp[vision]'")


def as_image(pixels: np.ndarray) -> Any:
    """The image of Pillow with these pixels, [H, W, 1] or [H, W, 3]."""
    return pillow().fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def as_pixels(image: Any) -> np.ndarray:
    """The pixels, [H, W, C], of an image of Pillow."""
    return np.atleast_3d(np.asarray(image))


def encoded(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def smooth(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Pixels [H, W, C] as those of photographs are: neighbours are alike."""
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 4, shape[2]), dtype=np.uint8)
    return as_pixels(as_image(coarse).resize(shape[1::-1], pillow().Resampling.BICUBIC))


def pixels_of(dataset: fp.Dataset[Any]) -> list[np.ndarray]:
    """The pixels of each row, [H, W, C], from tensors and from rows of different sizes."""
    return [_pixels(row["image"]) for row in dataset]


def _pixels(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        assert value.dtype == np.uint8
        return value
    data = next(iter(value.values()))
    return np.frombuffer(data, np.uint8).reshape(value["height"], value["width"], -1)


def shown(data: bytes, mode: Any = "rgb") -> np.ndarray:
    """The pixels that `decode` makes of a file."""
    (pixels,) = pixels_of(fp.pipe(fp.from_examples([{"image": data}]), fp.images.decode(mode=mode)))
    return pixels


def files(several: Any) -> fp.Dataset[Any]:
    """Rows of files of different sizes, from pixels."""
    return fp.from_examples([{"image": encoded(as_image(pixels)), "path": f"{place}.png"} for place, pixels in enumerate(several)])


def rows_of(several: Any) -> fp.Dataset[Any]:
    """Rows of images: tensors where all have one shape, else files."""
    alike = len({pixels.shape for pixels in several}) == 1
    return fp.from_table({"image": np.stack(several)}) if alike else files(several)


@st.composite
def images(draw: Any, least: int = 1, most: int = 12) -> np.ndarray:
    """Draw the pixels of one image, [H, W, C]."""
    sides = st.integers(least, most)
    shape = (draw(sides), draw(sides), draw(COLORS))
    return np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, shape).astype(np.uint8)


def colored(several: Any) -> list[np.ndarray]:
    """What files of these pixels are decoded to: RGB."""
    return [np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels for pixels in several]


def drawn(stage: str, seed: int, row: int, count: int, epoch: int = 0) -> list[float]:
    """The numbers from 0 to 1 that a stage draws for a row, one after the other."""
    key = fold_in(0, epoch, row, f"images.{stage}", seed)
    return [(fold_in(key, place) >> 11) * 2.0**-53 for place in range(count)]


TENSORS = pa.schema({"image": pa.fixed_shape_tensor(pa.uint8(), (4, 5, 3))})
