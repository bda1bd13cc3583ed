"""The base of the stages that change images: neighbouring ones run as one, image after image, with no column in between."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.errors import DataError
from mlxfp.core.nodes import label
from mlxfp.core.randomness import fold_in_rows, fold_into_rows, uniform
from mlxfp.core.row_names import PATH, file_of, row_at
from mlxfp.core.stages import RowWise, Stage
from mlxfp.data.images.columns import ImageKind, Load, kind_in, loads_of
from mlxfp.data.images.files import Memory
from mlxfp.data.images.pixels import Images, Pixels, UnusableImageError

Drawn = NDArray[np.float64]

_BYTES_TOGETHER = 1 << 20  # of images of one size: those of each stage are in memory


class ImageStage(RowWise):
    """A stage that changes each image of a column by itself. One that draws at random has a `seed`, and says how many numbers it draws."""

    __slots__ = ()
    lengthens = False
    draws_each: ClassVar[int] = 0
    image: str

    @abstractmethod
    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        """Change one image, uint8[H, W, C]; `drawn` are from 0 to 1. Raises `UnusableImageError`."""

    def edit_all(self, images: Images, drawn: Drawn) -> Images:
        """Change images of one size as `edit` changes each, at least one; a stage for which that is quicker changes all at once."""
        return [self.edit(pixels, numbers) for pixels, numbers in zip(images, drawn, strict=True)]

    def kind(self, kind: ImageKind) -> ImageKind:
        """Say of which kind the images are afterwards."""
        return kind

    def schema(self, schema: Schema) -> Schema:
        """Return the schema with the type of such images."""
        return set_field(schema, self.image, self.kind(kind_in(schema, self.image, name_of(self))).type)

    def columns_read(self) -> tuple[str, ...]:
        """Return the column of images, and that of files, which messages name."""
        return self.image, PATH

    def fuse_with_previous(self, before: Stage, needed: Collection[str]) -> Stage | None:
        """Return one stage for this and those before it that change the same images."""
        if isinstance(before, ImageStage) and before.image == self.image:
            return _Edits((before, self))
        return _Edits((*before.stages, self)) if isinstance(before, _Edits) and before.stages[0].image == self.image else None

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Change the images of a chunk."""
        return _edited(chunk, (self,))


@frozen(repr=False)
class _Edits(RowWise):
    """Several of them in one. Only plans have it."""

    stages: tuple[Any, ...]  # `ImageStage` each
    lengthens = False

    def schema(self, schema: Schema) -> Schema:
        return reduce(lambda before, stage: stage.schema(before), self.stages, schema)

    def columns_read(self) -> tuple[str, ...]:
        return self.stages[0].columns_read()  # type: ignore[no-any-return]  # see above

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
    memory = None if kinds[0].size else Memory()  # images of files are in memory one at a time, and the column has copies of them
    loads = loads_of(chunk, column, kinds[1].mode, name_of(first), memory=memory)  # where the first stage is `decode`, its mode
    editing = _Editing(chunk, stages, loads, [_draw(stage, chunk) for stage in stages])
    count = max(1, _BYTES_TOGETHER // prod(kinds[0].size)) if kinds[0].size else 1
    return set_column(chunk, column, kinds[-1].column(editing.images(count), chunk.num_rows))


@frozen
class _Editing:
    """The images of a chunk, and what each stage draws for them."""

    chunk: RecordBatch
    stages: Sequence[Any]
    loads: Sequence[Load]
    drawn: Sequence[Drawn]

    def images(self, count: int) -> Iterator[Pixels]:
        """Yield the images after all stages; `count` images, of one size, are changed together."""
        for begin in range(0, len(self.loads), count):
            places = range(begin, min(begin + count, len(self.loads)))
            try:
                yield from self._together(places)
            except UnusableImageError:  # the error has to name the row and the stage
                yield from self._one_by_one(places)

    def _together(self, places: range) -> Images:
        images: Images = [self.loads[place]() for place in places]
        for stage, numbers in zip(self.stages, self.drawn, strict=True):
            images = stage.edit_all(images, numbers[places.start : places.stop])
        return images

    def _one_by_one(self, places: range) -> Iterator[Pixels]:
        for place in places:
            stage = self.stages[0]
            try:
                pixels = self.loads[place]()
                for stage, numbers in zip(self.stages, self.drawn, strict=True):
                    pixels = stage.edit(pixels, numbers[place])
            except UnusableImageError as error:
                column = stage.image
                at = f"column {column!r} of {row_at(self.chunk, place)}{file_of(self.chunk, column, place)}"
                raise DataError(f"{name_of(stage)}: {at} {error}") from error
            yield pixels


def _draw(stage: Any, chunk: RecordBatch) -> Drawn:
    """Draw what a stage needs for each row, from the key of the row: float64[N, draws_each]."""
    if not stage.draws_each:
        return np.empty((chunk.num_rows, 0))
    keys = fold_into_rows(row_keys(chunk), name_of(stage), stage.seed)
    return uniform(fold_in_rows(keys[:, None], np.arange(stage.draws_each)))
