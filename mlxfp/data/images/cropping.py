"""Stages that crop images, at the centre or at a random position."""

from collections.abc import Callable, Sequence
from math import exp, log, sqrt
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.lib.stride_tricks import sliding_window_view

from mlxfp.core.chunks import Example
from mlxfp.core.datasets import Dataset
from mlxfp.data.images.editing import Drawn, ImageStage, name_of
from mlxfp.data.images.pixels import Pixels, Size, UnusableImageError, pillow, resized
from mlxfp.data.images.resizing import as_size
from mlxfp.support.checks import check_integer, check_not_negative, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError

Range = tuple[float, float]

_TRIES = 10  # Number of random regions that are tried, as in torchvision.


@explain_call
def center_crop(size: tuple[int, int], *, image: str = "image") -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Crop the centre of each image to `size`, (height, width). The results are tensors uint8 [height, width, C].

    `fp.images.decode` describes the types of the column `image`. Encoded files are decoded to RGB. Raises `DataError` with the row and
    file of an image smaller than `size`.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> numbers = fp.from_table({"image": np.arange(16, dtype=np.uint8).reshape(1, 4, 4)})
    >>> fp.pipe(numbers, fp.images.center_crop((2, 2)))[0]["image"][..., 0].tolist()
    [[5, 6], [9, 10]]

    See also: `resize_short_side`, to put before it.
    """
    check_text(image=image)
    return _CenterCrop(as_size(size), image)


@explain_call
def random_crop(
    size: tuple[int, int], *, seed: int, padding: int = 0, image: str = "image"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Crop each image at a random position to `size`, (height, width).

    All positions are equally likely. The position depends on seed, epoch and row. Before the crop, `padding` black pixels are added
    to every side. Column types and errors are the same as for `center_crop`.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> numbers = fp.from_table({"image": np.tile(np.arange(16, dtype=np.uint8).reshape(1, 4, 4), (3, 1, 1))})
    >>> [row["image"][0, 0, 0].item() for row in fp.pipe(numbers, fp.images.random_crop((2, 2), seed=0))]
    [9, 8, 5]
    """
    check_integer(seed=seed)
    check_not_negative(padding=padding)
    check_text(image=image)
    return _RandomCrop(as_size(size), seed, padding, image)


@explain_call
def random_resized_crop(  # noqa: PLR0913  # keyword-only, except size
    size: tuple[int, int],
    *,
    seed: int,
    scale: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
    antialias: bool = True,
    image: str = "image",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Crop a region of random area and aspect ratio from each image and resize the region to `size`, (height, width).

    The region is chosen as in torchvision's `RandomResizedCrop` (Szegedy et al., "Going Deeper with Convolutions", 2015). The fraction
    of the area is uniform in `scale`. The logarithm of width / height is uniform in the logarithms of `ratio`. Ten regions are tried. The
    first region that fits into the image is used, at a uniformly random position. If no region fits, the crop is the largest centre region
    with an aspect ratio in `ratio`.

    Random numbers depend on seed, epoch and row. Filter, column types and errors are the same as for `resize`.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> pictures = fp.from_table({"image": np.zeros((1, 40, 60, 3), np.uint8)})
    >>> fp.pipe(pictures, fp.images.random_resized_crop((32, 32), seed=0))[0]["image"].shape
    (32, 32, 3)

    See also: `resize_short_side` and `center_crop`, for validation.
    """
    check_integer(seed=seed)
    check_types(bool, antialias=antialias)
    check_text(image=image)
    pillow("images.random_resized_crop")
    return _RandomResizedCrop(as_size(size), seed, _range(scale, 1, scale=scale), _range(ratio, None, ratio=ratio), antialias, image)


@frozen(repr=False)
class _CenterCrop(ImageStage):
    size: Size
    image: str = "image"

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        top, left = (round(spare / 2) for spare in _spare(pixels, self.size))  # rounded as in torchvision
        return _part(pixels, top, left, self.size)


@frozen(repr=False)
class _RandomCrop(ImageStage):
    size: Size
    seed: int
    padding: int = 0
    image: str = "image"
    draws_each: ClassVar[int] = 2

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        result: Pixels = self.edit_all(pixels[None], drawn[None])[0]
        return result

    def edit_all(self, images: Pixels, drawn: Drawn) -> Pixels:
        padded = _with_margin(images, self.padding) if self.padding else images
        tops, lefts = (drawn * (np.array(_spare(padded[0], self.size)) + 1)).astype(np.int64).T
        parts: Pixels = sliding_window_view(padded, self.size, axis=(1, 2))[np.arange(len(padded)), tops, lefts]  # [N, C, height, width]
        return parts.transpose(0, 2, 3, 1)


@frozen(repr=False)
class _RandomResizedCrop(ImageStage):
    size: Size
    seed: int
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    antialias: bool = True
    image: str = "image"
    draws_each: ClassVar[int] = 2 * _TRIES + 2

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        part = _part(pixels, *self._chosen(pixels.shape[0], pixels.shape[1], drawn.tolist()))
        return resized(part, self.size, name_of(self), antialias=self.antialias)

    def _chosen(self, height: int, width: int, drawn: list[float]) -> tuple[int, int, Size]:
        """Return the top row, the left column and the size of the crop."""
        lowest, highest = self.ratio
        *tries, down, right = drawn
        for share, shape in zip(tries[::2], tries[1::2], strict=True):
            area = height * width * _between(share, *self.scale)
            ratio = exp(_between(shape, log(lowest), log(highest)))
            wide, high = round(sqrt(area * ratio)), round(sqrt(area / ratio))
            if 0 < wide <= width and 0 < high <= height:
                return int(down * (height - high + 1)), int(right * (width - wide + 1)), (high, wide)
        wide, high = min(width, round(height * highest)), min(height, round(width / lowest))
        return (height - high) // 2, (width - wide) // 2, (max(high, 1), max(wide, 1))


def _with_margin(images: Pixels, margin: int) -> Pixels:
    """Add black pixels on every side of images [N, H, W, C]. This code is ten times faster than `np.pad`."""
    count, height, width, channels = images.shape
    out = np.zeros((count, height + 2 * margin, width + 2 * margin, channels), images.dtype)
    out[:, margin : margin + height, margin : margin + width] = images
    return out


def _part(pixels: Pixels, top: int, left: int, size: Size) -> Pixels:
    height, width = size
    return pixels[top : top + height, left : left + width]


def _spare(pixels: Pixels, size: Size) -> tuple[int, int]:
    """Return by how many rows and columns an image is larger than the crop. Raise `UnusableImageError` for a smaller image."""
    height, width = pixels.shape[0] - size[0], pixels.shape[1] - size[1]
    if height < 0 or width < 0:
        raise UnusableImageError(
            f"the image has {pixels.shape[0]} x {pixels.shape[1]} pixels (height x width), too few for a crop of {size[0]} x {size[1]}. "
            "Put resize or resize_short_side before the crop, or remove small images with filter."
        )
    return height, width


def _between(number: float, low: float, high: float) -> float:
    return low + number * (high - low)


def _range(values: Any, most: float | None, **named: Any) -> Range:
    name = next(iter(named))
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise ArgumentError(f"{name} must be a pair (minimum, maximum), got {values!r}.")
    low, high = values
    check_types((int, float), **{f"{name}[0]": low, f"{name}[1]": high})
    if not 0 < low <= high or high == float("inf") or (most is not None and high > most):
        above = "" if most is None else f", at most {most}"
        raise ArgumentError(f"{name} must be a pair (minimum, maximum) of numbers above 0{above}, in increasing order, got {values!r}.")
    return float(low), float(high)
