"""The base of the stages that change images: neighbouring ones run as one, block after block of images, with no column in between."""

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

_BYTES_TOGETHER = 1 << 20  # of images in a block: so many stay in the cache of a core


class ImageStage(RowWise):
    """A stage that changes each image of a column by itself. One that draws at random has a `seed`, and says how many numbers it draws."""

    __slots__ = ()
    draws_each: ClassVar[int] = 0
    image: str

    @abstractmethod
    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        """Change one image, uint8[H, W, C]; `drawn` are from 0 to 1. Raises `UnusableImageError`."""

    def edit_all(self, images: Pixels, drawn: Drawn) -> Pixels:
        """Change images uint8[N, H, W, C], at least one, as `edit` changes each; a stage for which that is quicker changes all at once."""
        return np.stack([self.edit(pixels, numbers) for pixels, numbers in zip(images, drawn, strict=True)])

    def kind(self, kind: ImageKind) -> ImageKind:
        """Say of which kind the images are afterwards."""
        return kind

    def schema(self, schema: Schema) -> Schema:
        """Return the schema with the type of such images."""
        return set_field(schema, self.image, self.kind(kind_in(schema, self.image, name_of(self))).type)

    @property
    def traits(self) -> Traits:
        """The columns that are read: that of images, and that of files, which messages name."""
        return Traits(row_wise=True, draws=seeded(self), columns_read=(self.image, PATH), longest_row=identity, fuse=self._fused)

    def _fused(self, before: Stage, needed: Collection[str]) -> Stage | None:
        if isinstance(before, ImageStage) and before.image == self.image:
            return _Edits((before, self))
        return _Edits((*before.stages, self)) if isinstance(before, _Edits) and before.stages[0].image == self.image else None

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Change the images of a chunk."""
        return _edited(chunk, (self,))


@frozen(repr=False)
class _Edits(RowWise):
    """Several of them in one. Only plans have it."""

    stages: tuple[ImageStage, ...]

    def schema(self, schema: Schema) -> Schema:
        return reduce(lambda before, stage: stage.schema(before), self.stages, schema)

    @property
    def traits(self) -> Traits:
        return evolve(self.stages[0].traits, draws=any(stage.traits.draws for stage in self.stages), fuse=None)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return _edited(chunk, self.stages)


def name_of(stage: Any) -> str:
    """Return the public name of a stage, for messages."""
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
    else:  # images of files are in memory one at a time, and the column has copies of them
        blocks = editing.one_by_one(loads_of(chunk, column, kinds[1].mode, name_of(first), memory=Memory()))  # of `decode`, its mode
    return set_column(chunk, column, kinds[-1].column(blocks, chunk.num_rows))


@frozen
class _Editing:
    """The stages that change the images of a chunk, and what each draws for them."""

    chunk: RecordBatch
    stages: Sequence[Any]
    drawn: Sequence[Drawn]

    def together(self, images: Pixels, count: int) -> Iterator[Pixels]:
        """Yield images uint8[N, H, W, C] after all stages, `count` at a time."""
        for begin in range(0, len(images), count):
            block = made = images[begin : begin + count]
            try:
                for stage, numbers in zip(self.stages, self.drawn, strict=True):
                    made = stage.edit_all(made, numbers[begin : begin + count])
            except UnusableImageError:  # the error has to name the row and the stage
                yield from self.one_by_one([partial(identity, pixels) for pixels in block], begin)
            else:
                yield made

    def one_by_one(self, loads: Sequence[Load], first: int = 0) -> Iterator[Pixels]:
        """Yield images, which may differ in size, as blocks of one; they are those of the rows from `first` on."""
        for place, load in enumerate(loads, first):
            stage = self.stages[0]
            try:
                pixels = load()
                for stage, numbers in zip(self.stages, self.drawn, strict=True):
                    pixels = stage.edit(pixels, numbers[place])
            except UnusableImageError as error:
                column = stage.image
                at = f"column {column!r} of {row_at(self.chunk, place)}{file_of(self.chunk, column, place)}"
                raise DataError(f"{name_of(stage)}: {at} {error}") from error
            yield pixels[None]


def _draw(stage: Any, chunk: RecordBatch) -> Drawn:
    """Draw what a stage needs for each row, from the key of the row: float64[N, draws_each]."""
    if not stage.draws_each:
        return np.empty((chunk.num_rows, 0))
    keys = fold_into_rows(row_keys(chunk), name_of(stage), stage.seed)
    return uniform(fold_in_rows(keys[:, None], np.arange(stage.draws_each)))
