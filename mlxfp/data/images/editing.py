"""The base of the stages that change images: neighbouring ones run as one, image after image, with no column in between."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
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
from mlxfp.data.images.columns import ImageKind, kind_in, loads_of
from mlxfp.data.images.pixels import Pixels, UnusableImageError

Drawn = NDArray[np.float64]


class ImageStage(RowWise):
    """A stage that changes each image of a column by itself. One that draws at random has a `seed`, and says how many numbers it draws."""

    __slots__ = ()
    lengthens = False
    draws_each: ClassVar[int] = 0
    image: str

    @abstractmethod
    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        """Change one image, uint8[H, W, C]; `drawn` are from 0 to 1. Raises `UnusableImageError`."""

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
    loads = loads_of(chunk, column, kinds[1].mode, name_of(first))  # where the first stage is `decode`, its mode
    drawn = [_draw(stage, chunk) for stage in stages]

    def images() -> Iterator[Pixels]:
        for place, load in enumerate(loads):
            stage = first
            try:
                pixels = load()
                for stage, numbers in zip(stages, drawn, strict=True):
                    pixels = stage.edit(pixels, numbers[place])
            except UnusableImageError as error:
                at = f"column {column!r} of {row_at(chunk, place)}{file_of(chunk, column, place)}"
                raise DataError(f"{name_of(stage)}: {at} {error}") from error
            yield pixels

    return set_column(chunk, column, kinds[-1].column(images(), chunk.num_rows))


def _draw(stage: Any, chunk: RecordBatch) -> Drawn:
    """Draw what a stage needs for each row, from the key of the row: float64[N, draws_each]."""
    if not stage.draws_each:
        return np.empty((chunk.num_rows, 0))
    keys = fold_into_rows(row_keys(chunk), name_of(stage), stage.seed)
    return uniform(fold_in_rows(keys[:, None], np.arange(stage.draws_each)))
