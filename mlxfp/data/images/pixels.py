"""Operations on pixel arrays [H, W, C] with NumPy and Pillow. Both libraries release the GIL for large arrays."""

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

_BYTES_TOGETHER = 1 << 20  # Number of bytes of small images that are resized in one call. These bytes fit the CPU cache.
# Maximum number of bytes of a small image. The image must be within this limit both before and after resizing.
# Resizing several images in one call halves the time for 64 x 64 pixels and saves no time for 224 x 224.
_SMALL = 1 << 15


class UnusableImageError(Exception):
    """Error for an image that cannot be used. The message is a clause such as "the image has the mode CMYK".

    The caller adds the column and the row before the clause.
    """


def pillow(needed_by: str) -> Any:
    """Return the module `PIL.Image`. Raise `MissingExtraError` if Pillow is not installed."""
    return optional("PIL.Image", extra="vision", needed_by=needed_by)


def check_size(size: Size, pil: Any, change: str = "") -> None:
    """Raise `UnusableImageError` for an image with more pixels than Pillow allows. Call this function before decoding the pixels.

    The message begins with the text `change`, or with "the image has" if `change` is empty.
    """
    (height, width), most = size, pil.MAX_IMAGE_PIXELS
    if most is not None and width * height > most:
        raise UnusableImageError(
            f"{change or 'the image has'} {width:,} x {height:,} pixels, more than PIL.Image.MAX_IMAGE_PIXELS = {most:,}. The limit "
            "protects memory against malicious files. Set PIL.Image.MAX_IMAGE_PIXELS to a larger number for trusted files, or remove the "
            "row with filter."
        )


@cache
def installed(module: str) -> ModuleType | None:
    """Import a faster replacement of Pillow, or return None if the package is missing. Pixels differ from Pillow's by at most 1."""
    try:
        return import_module(module)
    except ImportError:
        return None


def in_mode(images: Pixels, mode: Mode | None) -> Pixels:
    """Convert images [..., H, W, C] to RGB or grey (ITU-R BT.601 luma). uint8 values are rounded as in Pillow."""
    channels = images.shape[-1]
    if mode == "rgb" and channels == 1:
        return np.repeat(images, 3, axis=-1)
    if mode == "grey" and channels == 3:
        whole = images.dtype == np.uint8
        weights = np.array([19595, 38470, 7471], np.uint32) if whole else np.array([0.299, 0.587, 0.114], np.float32)
        red, green, blue = (images[..., channel, None] * weight for channel, weight in enumerate(weights))
        luma: Pixels = red + green + blue
        return ((luma + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint8) if whole else luma
    return images


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Turn an image upright, given its EXIF orientation 1 to 8 (EXIF 2.32, section 4.6.4). Other numbers leave the image unchanged."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def resized(pixels: Pixels, size: Size, needed_by: str, *, antialias: bool = True) -> Pixels:
    """Resize an image [H, W, C], uint8 or float, with a bilinear filter.

    With `antialias`, a new pixel averages all covered pixels, as in Pillow and mlx-data. Without `antialias`, a new pixel comes from
    at most four old pixels, as in OpenCV. If cykooz_resizer is installed, antialiasing takes a third of the time, and values may
    differ by 1.
    """
    if pixels.shape[:2] == size:
        return pixels
    simd = installed("cykooz_resizer")
    if antialias and simd is not None and pixels.dtype == np.uint8:
        return _resized_by(simd, pixels, size)
    pil = pillow(needed_by)
    if pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return _resized_plane(pil, pixels, size, antialias)
    planes = [_resized_plane(pil, pixels[..., channel], size, antialias) for channel in range(pixels.shape[2])]
    return np.stack(planes, axis=-1)


def all_resized(images: Pixels, size: Size, needed_by: str, *, antialias: bool = True) -> Pixels:
    """Resize images [N, H, W, C], N >= 1. Each result equals the result of `resized`. Small images are resized in one call."""
    count, height, width, channels = images.shape
    if (height, width) == size:
        return images
    simd, most = installed("cykooz_resizer"), channels * max(height * width, size[0] * size[1])
    if simd is None or not antialias or images.dtype != np.uint8 or most > _SMALL:
        return np.stack([resized(pixels, size, needed_by, antialias=antialias) for pixels in images])
    together = _BYTES_TOGETHER // most
    if count <= together:
        return _resized_together(simd, images, size)
    result = np.empty((count, *size, channels), np.uint8)
    for begin in range(0, count, together):
        result[begin : begin + together] = _resized_together(simd, images[begin : begin + together], size)
    return result


def _resized_together(simd: Any, images: Pixels, size: Size) -> Pixels:
    """Resize uint8[N, H, W, C] in the two passes of cykooz_resizer.

    For the first pass, all images side by side form one wide image. For the second pass, all images form one tall image.
    """
    (count, old_height, width, channels), (height, new_width) = images.shape, size
    wide = images.swapaxes(0, 1).reshape(old_height, -1, 1)
    # The tall image holds first row 0 of all images, then row 1 of all images, and so on.
    tall = _resized_by(simd, wide, (height, wide.shape[1])).reshape(height * count, width, channels)
    return _resized_by(simd, tall, (height * count, new_width)).reshape(height, count, new_width, channels).swapaxes(0, 1)


def _resized_plane(pil: Any, plane: Pixels, size: Size, antialias: bool) -> Pixels:  # noqa: FBT001
    (height, width), image = size, pil.fromarray(np.ascontiguousarray(plane))
    if antialias:
        return np.asarray(image.resize((width, height), pil.Resampling.BILINEAR))
    return np.asarray(image.transform((width, height), pil.Transform.EXTENT, (0, 0, *image.size), pil.Resampling.BILINEAR))


def _resized_by(simd: Any, pixels: Pixels, size: Size) -> Pixels:
    (height, width), channels = size, pixels.shape[2]
    kind = simd.PixelType.U8 if channels == 1 else simd.PixelType.U8x3
    bilinear = simd.ResizeOptions(simd.ResizeAlg.convolution(simd.FilterType.bilinear), use_alpha=False)
    source, target = simd.ImageData(pixels.shape[1], pixels.shape[0], kind, pixels.tobytes()), simd.ImageData(width, height, kind)
    simd.Resizer().resize(source, target, bilinear)  # a new Resizer for each call, because threads must not share its buffer
    return np.frombuffer(target.get_buffer(), np.uint8).reshape(height, width, channels)
