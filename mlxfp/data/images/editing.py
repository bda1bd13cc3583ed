"""Base class of image stages.

Neighbouring image stages are merged. A block of images passes through all merged stages before the next block. This saves memory: the
images between two stages are never stored as a column.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.chunks import RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.nodes import label
from mlxfp.core.row_names import PATH, file_of, row_at
from mlxfp.core.stages import RowWise, Stage, Traits, seeded
from mlxfp.data.images.columns import ImageKind, Load, kind_in, loads_of, tensors_of
from mlxfp.data.images.files import Memory
from mlxfp.data.images.pixels import Pixels, UnusableImageError
from mlxfp.support.errors import DataError
from mlxfp.support.randomness import fold_in_rows, fold_into_rows, uniform

Drawn = NDArray[np.float64]

_BYTES_TOGETHER = 1 << 20  # number of bytes in a block of images; a block fits the CPU cache


class ImageStage(RowWise):
    """Stage that changes each image of a column independently.

    A subclass with random changes has a field `seed`. Its attribute `draws_each` is the number of random numbers per image.
    """

    __slots__ = ()
    draws_each: ClassVar[int] = 0
    image: str

    @abstractmethod
    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        """Return the changed image, uint8[H, W, C]. Raises `UnusableImageError` for an image that the stage cannot change.

        `drawn`, float64[draws_each], holds random numbers, uniform in [0, 1).
        """

    def edit_all(self, images: Pixels, drawn: Drawn) -> Pixels:
        """Return the changed images of a block, uint8[N, H, W, C] with N >= 1. The default calls `edit` for each image.

        A subclass can override `edit_all` with a faster method that returns the same images.
        """
        return np.stack([self.edit(pixels, numbers) for pixels, numbers in zip(images, drawn, strict=True)])

    def kind(self, kind: ImageKind) -> ImageKind:
        """Return mode and size of the images after this stage, given mode and size before the stage.

        If a subclass has a field `size`, all images have this size after the stage.
        """
        return evolve(kind, size=getattr(self, "size", kind.size))

    def schema(self, schema: Schema) -> Schema:
        return set_field(schema, self.image, self.kind(kind_in(schema, self.image, name_of(self))).type)

    @property
    def traits(self) -> Traits:
        """Properties for the planner. The column `path` is read because error messages name the file of an image."""
        return Traits(row_wise=True, draws=seeded(self), columns_read=(self.image, PATH), longest_row=identity, fuse=self._fused)

    def _fused(self, before: Stage, needed: Collection[str]) -> Stage | None:
        if isinstance(before, ImageStage) and before.image == self.image:
            return _Edits((before, self))
        return _Edits((*before.stages, self)) if isinstance(before, _Edits) and before.stages[0].image == self.image else None

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return _edited(chunk, (self,))


@frozen(repr=False)
class _Edits(RowWise):
    """Several image stages merged into one. Merged stages exist only in plans, not in datasets."""

    stages: tuple[ImageStage, ...]

    def schema(self, schema: Schema) -> Schema:
        return reduce(lambda before, stage: stage.schema(before), self.stages, schema)

    @property
    def traits(self) -> Traits:
        return evolve(self.stages[0].traits, draws=any(stage.traits.draws for stage in self.stages), fuse=None)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return _edited(chunk, self.stages)


def name_of(stage: Any) -> str:
    """Return the public name of a stage for error messages."""
    return f"images.{label(type(stage))}"


def _edited(chunk: RecordBatch, stages: Sequence[Any]) -> RecordBatch:
    first, column = stages[0], stages[0].image
    kinds = [kind_in(chunk.schema, column, name_of(first))]
    for stage in stages:
        kinds.append(stage.kind(kinds[-1]))
    editing = _Editing(chunk, stages, [_draw(stage, chunk) for stage in stages])
    if kinds[0].size is not None and chunk.num_rows:
        count = max(1, _BYTES_TOGETHER // max(kind.bytes for kind in kinds))
        blocks = editing.together(tensors_of(chunk, column, name_of(first)), count)
    else:
        # Images are decoded one at a time to save memory.
        # Files are decoded directly in the colour mode that the images have after the first stage.
        blocks = editing.one_by_one(loads_of(chunk, column, kinds[1].mode, name_of(first), memory=Memory()))
    return set_column(chunk, column, kinds[-1].column(blocks, chunk.num_rows))


@frozen
class _Editing:
    """Loop that applies several image stages to the images of one chunk."""

    chunk: RecordBatch
    stages: Sequence[Any]
    drawn: Sequence[Drawn]

    def together(self, images: Pixels, count: int) -> Iterator[Pixels]:
        """Yield the images after all stages, uint8[N, H, W, C], in blocks of `count` images."""
        for begin in range(0, len(images), count):
            block = result = images[begin : begin + count]
            try:
                for stage, numbers in zip(self.stages, self.drawn, strict=True):
                    result = stage.edit_all(result, numbers[begin : begin + count])
            except UnusableImageError:  # edit the images of the block one by one, so that the error names row and stage
                yield from self.one_by_one([partial(identity, pixels) for pixels in block], begin)
            else:
                yield result

    def one_by_one(self, loads: Sequence[Load], first: int = 0) -> Iterator[Pixels]:
        """Yield the changed images, each as an array uint8[1, H, W, C]. `first` is the row index of the first image in the chunk."""
        for row, load in enumerate(loads, first):
            stage = self.stages[0]
            try:
                pixels = load()
                for stage, numbers in zip(self.stages, self.drawn, strict=True):
                    pixels = stage.edit(pixels, numbers[row])
            except UnusableImageError as error:
                column = stage.image
                at = f"column {column!r} of {row_at(self.chunk, row)}{file_of(self.chunk, column, row)}"
                raise DataError(f"{name_of(stage)}: {at}: {error}") from error
            yield pixels[None]


def _draw(stage: Any, chunk: RecordBatch) -> Drawn:
    """Return the random numbers of a stage for each row of a chunk, float64[rows, numbers per image]."""
    if not stage.draws_each:
        return np.empty((chunk.num_rows, 0))
    keys = fold_into_rows(row_keys(chunk), name_of(stage), stage.seed)
    return uniform(fold_in_rows(keys[:, None], np.arange(stage.draws_each)))
