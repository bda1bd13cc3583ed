"""Stage that stacks the images of each group to one array, for `collators.vision`. Handles encoded files and pixels of variable size."""

import numpy as np
from attrs import field, frozen

from mlxfp.core.chunks import RecordBatch, set_column
from mlxfp.core.row_names import file_of, row_at
from mlxfp.core.stages import RowWise
from mlxfp.data.images.columns import ImageKind, Load, loads_of
from mlxfp.data.images.pixels import Mode, Pixels, Size, UnusableImageError, in_mode, resized
from mlxfp.support.errors import DataError


@frozen(repr=False)
class Stacked(RowWise):
    """Stage that stacks all images of a group (rows after `batch`) into one array. `wanted_by` is a function name for error messages."""

    image: str
    mode: Mode | None
    size: Size | None
    wanted_by: str = field(repr=False)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        pixels = self.pixels(chunk)
        height, width, channels = pixels.shape[1:]
        kind = ImageKind("grey" if channels == 1 else "rgb", (height, width))
        return set_column(chunk, self.image, kind.column([pixels], len(pixels)))

    def pixels(self, chunk: RecordBatch) -> Pixels:
        """Return the images of a group, uint8[B, H, W, C].

        Raise `DataError` for an undecodable image and for unequal sizes or channels.
        """
        loads = loads_of(chunk, self.image, self.mode, self.wanted_by, of=_GROUP)
        images = [self._loaded(load, chunk, row) for row, load in enumerate(loads)]
        other = next((row for row, image in enumerate(images) if image.shape != images[0].shape), None)
        if other is not None:
            raise DataError(
                f"{self._at(chunk, other)} has the shape {images[other].shape}, but the first image has the shape {images[0].shape}. "
                "To make sizes equal, give size=(height, width). To make channels equal, give mode='rgb'."
            )
        return np.stack(images)

    def _loaded(self, load: Load, chunk: RecordBatch, row: int) -> Pixels:
        try:
            pixels = in_mode(load(), self.mode)
        except UnusableImageError as error:
            raise DataError(f"{self._at(chunk, row)}: {error}") from error
        return pixels if self.size is None else resized(pixels, self.size, self.wanted_by)

    def _at(self, chunk: RecordBatch, row: int) -> str:
        return f"{self.wanted_by}: column {self.image!r} of {row_at(chunk, row, of=_GROUP)}{file_of(chunk, self.image, row)}"


_GROUP = "group"
