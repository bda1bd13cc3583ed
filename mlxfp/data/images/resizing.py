"""Stages that resize images."""

from collections.abc import Callable
from typing import Any

import attrs
from attrs import frozen

from mlxfp.core.chunks import Example
from mlxfp.core.datasets import Dataset
from mlxfp.data.images.columns import ImageKind
from mlxfp.data.images.editing import Drawn, ImageStage, name_of
from mlxfp.data.images.pixels import Pixels, Size, all_resized, check_size, pillow, resized
from mlxfp.support.checks import check_positive, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def resize(size: tuple[int, int], *, antialias: bool = True, image: str = "image") -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Resize all images to `size`, (height, width), with a bilinear filter. The results are tensors uint8 [height, width, C].

    With `antialias`, a new pixel averages all covered pixels, as in Pillow, torchvision and mlx-data. Values equal Pillow's within 1.
    Without `antialias`, a new pixel comes from the four nearest pixels, as in OpenCV and TensorFlow. Values equal OpenCV's within 1,
    and shrinking fine details causes aliasing patterns.

    `decode` describes the types of the column `image`. Encoded files are decoded to RGB. Needs Pillow (extra `vision`). Raises
    `SchemaError` for a column of another type, and `DataError` with the row and file of an image that cannot be decoded.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> steps = fp.from_table({"image": np.array([[[0, 100], [100, 200]]], np.uint8)})
    >>> fp.pipe(steps, fp.images.resize((1, 1)))[0]["image"].tolist()
    [[[100]]]

    See also: `resize_short_side`, which keeps the proportions; `random_resized_crop`, for training.
    """
    check_types(bool, antialias=antialias)
    check_text(image=image)
    pillow("images.resize")
    return _Resize(as_size(size), antialias, image)


@explain_call
def resize_short_side(length: int, *, antialias: bool = True, image: str = "image") -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Resize images so that the shorter side has `length` pixels. The aspect ratio stays the same.

    The longer side is rounded down, as in torchvision. Images may still differ in size. To get one size, put `center_crop` after this
    stage. Filter, column types and errors are the same as for `resize`. Also raises `DataError` for a narrow image that would grow
    beyond `PIL.Image.MAX_IMAGE_PIXELS` pixels.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> wide = fp.from_table({"image": np.zeros((1, 40, 60, 3), np.uint8)})
    >>> fp.pipe(wide, fp.images.resize_short_side(20))[0]["image"].shape
    (20, 30, 3)
    """
    check_positive(length=length)
    check_types(bool, antialias=antialias)
    check_text(image=image)
    pillow("images.resize_short_side")
    return _ResizeShortSide(length, antialias, image)


def as_size(size: Any) -> Size:
    """Return `size` as (height, width). Raise `ArgumentError` unless `size` is a pair of positive integers."""
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise ArgumentError(f"size must be (height, width), got {size!r}.")
    height, width = size
    check_positive(height=height, width=width)
    return height, width


@frozen(repr=False)
class _Resize(ImageStage):
    size: Size
    antialias: bool = True
    image: str = "image"

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        return resized(pixels, self.size, name_of(self), antialias=self.antialias)

    def edit_all(self, images: Pixels, drawn: Drawn) -> Pixels:
        return all_resized(images, self.size, name_of(self), antialias=self.antialias)


@frozen(repr=False)
class _ResizeShortSide(ImageStage):
    _length: int
    antialias: bool = True
    image: str = "image"

    def kind(self, kind: ImageKind) -> ImageKind:
        return kind if kind.size is None else attrs.evolve(kind, size=self._reached(kind.size))

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        height, width, _ = pixels.shape
        return resized(pixels, self._checked((height, width)), name_of(self), antialias=self.antialias)

    def edit_all(self, images: Pixels, drawn: Drawn) -> Pixels:
        _, height, width, _ = images.shape
        return all_resized(images, self._checked((height, width)), name_of(self), antialias=self.antialias)

    def _reached(self, size: Size) -> Size:
        height, width = size
        short = min(size)
        return self._length * height // short, self._length * width // short

    def _checked(self, size: Size) -> Size:
        """Return the size of an image after resizing. The argument `size` is the size before resizing.

        Raise `UnusableImageError` for too many pixels, because a narrow image can grow very large.
        """
        (height, width), reached = size, self._reached(size)
        check_size(reached, pillow(name_of(self)), f"the image has {width:,} x {height:,} pixels and would have")
        return reached
