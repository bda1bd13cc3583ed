"""Stages that decode, resize, crop, flip and recolour images.

Images of one size are uint8 tensors. Images of different sizes are structs of pixel bytes, height and width.
"""

from mlxfp.data.images.colors import color_jitter
from mlxfp.data.images.cropping import center_crop, random_crop, random_resized_crop
from mlxfp.data.images.decoding import decode
from mlxfp.data.images.flipping import random_flip
from mlxfp.data.images.resizing import resize, resize_short_side

__all__ = [
    "center_crop",
    "color_jitter",
    "decode",
    "random_crop",
    "random_flip",
    "random_resized_crop",
    "resize",
    "resize_short_side",
]


def __dir__() -> list[str]:
    return __all__
