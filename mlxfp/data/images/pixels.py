"""What is done to the pixels of one image, [H, W, C], in numpy and Pillow; on large arrays both let other threads run."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlxfp.support.optional import optional

Mode = Literal["rgb", "grey"]
Pixels = NDArray[Any]
Size = tuple[int, int]  # height and width

PILLOW_MODES = {"rgb": "RGB", "grey": "L"}
CHANNELS = {"rgb": 3, "grey": 1}

_BYTES_TOGETHER = 1 << 20  # of small images that are resized in one call: so many stay in the cache of a core
_SMALL = 1 << 15  # bytes of an image, before and after: 64 x 64 pixels take half the time together, 224 x 224 the same as one by one


class UnusableImageError(Exception):
    """The end of a sentence about an image: what is wrong with it, and what to do."""


def pillow(needed_by: str) -> Any:
    """Return the package, or raise `MissingExtraError`."""
    return optional("PIL.Image", extra="vision", needed_by=needed_by)


def check_size(size: Size, own: Any, change: str = "") -> None:
    """Check the size that a file declares, or that a `change` would give an image, before memory for so many pixels is asked for."""
    (height, width), most = size, own.MAX_IMAGE_PIXELS
    if most is not None and width * height > most:
        raise UnusableImageError(
            f"{change or 'has'} {width:,} x {height:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS, {most:,}: a small file may be made to "
            "need much memory. If you trust it, set that to a larger number; else filter such rows out."
        )


@cache
def installed(module: str) -> ModuleType | None:
    """Return a package that makes images faster, or None: the pixels are the same, or differ by 1, without it."""
    try:
        return import_module(module)
    except ImportError:
        return None


def in_mode(images: Pixels, mode: Mode | None) -> Pixels:
    """Convert [..., H, W, C] to RGB or grey as Pillow does (ITU-R BT.601 luma), for uint8 with the same rounding."""
    channels = images.shape[-1]
    if mode == "rgb" and channels == 1:
        return np.repeat(images, 3, axis=-1)
    if mode == "grey" and channels == 3:
        whole = images.dtype == np.uint8
        weights = np.array([19595, 38470, 7471], np.uint32) if whole else np.array([0.299, 0.587, 0.114], np.float32)
        red, green, blue = (images[..., place, None] * weight for place, weight in enumerate(weights))
        luma: Pixels = red + green + blue
        return ((luma + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint8) if whole else luma
    return images


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Turn an image upright that has one of the orientations 1 to 8 (EXIF 2.32, section 4.6.4); other numbers say nothing."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def resized(pixels: Pixels, size: Size, needed_by: str, *, antialias: bool = True) -> Pixels:
    """Resize uint8[H, W, C], or floats, with a bilinear filter.

    With `antialias` it is Pillow's, which takes the mean of all pixels that a new one covers, and that of mlx-data; without, a new pixel
    comes from four old ones at most, as in OpenCV. cykooz_resizer does the first in a third of the time, rounded in another way: some
    values differ by 1.
    """
    if pixels.shape[:2] == size:
        return pixels
    simd = installed("cykooz_resizer")
    if antialias and simd is not None and pixels.dtype == np.uint8:
        return _resized_by(simd, pixels, size)
    own = pillow(needed_by)
    if pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return _resized_plane(own, pixels, size, antialias)
    planes = [_resized_plane(own, pixels[..., channel], size, antialias) for channel in range(pixels.shape[2])]
    return np.stack(planes, axis=-1)


def all_resized(images: Pixels, size: Size, needed_by: str, *, antialias: bool = True) -> Pixels:
    """Resize images [N, H, W, C], at least one, as `resized` does each: together where they are small."""
    count, height, width, channels = images.shape
    if (height, width) == size:
        return images
    simd, most = installed("cykooz_resizer"), channels * max(height * width, size[0] * size[1])
    if simd is None or not antialias or images.dtype != np.uint8 or most > _SMALL:
        return np.stack([resized(pixels, size, needed_by, antialias=antialias) for pixels in images])
    together = _BYTES_TOGETHER // most
    if count <= together:
        return _resized_together(simd, images, size)
    made = np.empty((count, *size, channels), np.uint8)
    for begin in range(0, count, together):
        made[begin : begin + together] = _resized_together(simd, images[begin : begin + together], size)
    return made


def _resized_together(simd: Any, images: Pixels, size: Size) -> Pixels:
    """Resize uint8[N, H, W, C] in the two passes that cykooz_resizer makes of each image: all images as one that is wide, then tall."""
    (count, old, width, channels), (height, wide) = images.shape, size
    broad = images.swapaxes(0, 1).reshape(old, -1, 1)
    tall = _resized_by(simd, broad, (height, broad.shape[1])).reshape(height * count, width, channels)  # row by row, of all images
    return _resized_by(simd, tall, (height * count, wide)).reshape(height, count, wide, channels).swapaxes(0, 1)


def _resized_plane(own: Any, plane: Pixels, size: Size, antialias: bool) -> Pixels:  # noqa: FBT001
    (height, width), image = size, own.fromarray(np.ascontiguousarray(plane))
    if antialias:
        return np.asarray(image.resize((width, height), own.Resampling.BILINEAR))
    return np.asarray(image.transform((width, height), own.Transform.EXTENT, (0, 0, *image.size), own.Resampling.BILINEAR))


def _resized_by(simd: Any, pixels: Pixels, size: Size) -> Pixels:
    (height, width), channels = size, pixels.shape[2]
    kind = simd.PixelType.U8 if channels == 1 else simd.PixelType.U8x3
    bilinear = simd.ResizeOptions(simd.ResizeAlg.convolution(simd.FilterType.bilinear), use_alpha=False)
    given, made = simd.ImageData(pixels.shape[1], pixels.shape[0], kind, pixels.tobytes()), simd.ImageData(width, height, kind)
    simd.Resizer().resize(given, made, bilinear)  # not one for all calls: it holds memory that threads would share
    return np.frombuffer(made.get_buffer(), np.uint8).reshape(height, width, channels)
