"""Stage that mirrors images at random."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from attrs import frozen

from mlxfp.core.chunks import Example
from mlxfp.core.datasets import Dataset
from mlxfp.data.images.editing import Drawn, ImageStage
from mlxfp.data.images.pixels import Pixels
from mlxfp.support.checks import check_integer, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def random_flip(
    *, seed: int, probability: float = 0.5, vertical: bool = False, image: str = "image"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Mirror each image with the given probability, left to right, or top to bottom with `vertical=True`.

    The choice depends on seed, epoch and row. Column types and errors are the same as for `decode`.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> pairs = fp.from_table({"image": np.tile(np.array([[[1, 2]]], np.uint8), (4, 1, 1))})
    >>> [row["image"][0, :, 0].tolist() for row in fp.pipe(pairs, fp.images.random_flip(seed=0))]
    [[2, 1], [1, 2], [1, 2], [2, 1]]
    """
    check_integer(seed=seed)
    check_types((int, float), probability=probability)
    check_types(bool, vertical=vertical)
    check_text(image=image)
    if not 0 <= probability <= 1:
        raise ArgumentError(f"probability must be from 0 to 1, got {probability}.")
    return _RandomFlip(seed, float(probability), vertical, image)


@frozen(repr=False)
class _RandomFlip(ImageStage):
    seed: int
    probability: float = 0.5
    vertical: bool = False
    image: str = "image"
    draws_each: ClassVar[int] = 1

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        return self._mirrored(pixels) if drawn[0] < self.probability else pixels

    def edit_all(self, images: Pixels, drawn: Drawn) -> Pixels:
        result, chosen = images.copy(), drawn[:, 0] < self.probability
        result[chosen] = self._mirrored(images[chosen])
        return result

    def _mirrored(self, pixels: Pixels) -> Pixels:
        return np.flip(pixels, -3 if self.vertical else -2)
