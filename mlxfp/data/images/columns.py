"""Columns of images: encoded files, tensors of one size, or structs with the pixels of images of different sizes.

Images are read and written one at a time. A struct has the type `struct<rgb: large_binary, height: int32, width: int32>`. Grey images have
the field `grey` in place of `rgb`. The bytes are in row-major order, 3 (`rgb`) or 1 (`grey`) per pixel.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import prod

import numpy as np
import pyarrow as pa
from attrs import frozen
from toolz import identity

from mlxfp.core.arrow.gathering import to_fixed
from mlxfp.core.arrow.ragged import column_without_nulls
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema
from mlxfp.data.images.files import Memory, read_file
from mlxfp.data.images.pixels import CHANNELS, Mode, Pixels, Size
from mlxfp.support.arrow_types import is_binary, is_tensor
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import SchemaError

Load = Callable[[], Pixels]

_MODES: dict[int, Mode] = {1: "grey", 3: "rgb"}


@frozen
class ImageKind:
    """Mode (RGB or grey) of all images of a column, and their size if constant. Encoded files are decoded to RGB."""

    mode: Mode
    size: Size | None = None

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        if self.size is None:
            return pa.struct([(self.mode, pa.large_binary()), ("height", pa.int32()), ("width", pa.int32())])
        return pa.fixed_shape_tensor(pa.uint8(), (*self.size, CHANNELS[self.mode]))

    @property
    def bytes(self) -> int:
        """Number of bytes of an image, or 0 if the images of the column differ in size."""
        return 0 if self.size is None else prod((*self.size, CHANNELS[self.mode]))

    def column(self, blocks: Iterable[Pixels], count: int) -> pa.Array:
        """Join blocks of images to a column of `count` images. All images of a block have the same size, uint8[N, H, W, C]."""
        if self.size is not None:
            whole, first = np.empty((count, *self.size, CHANNELS[self.mode]), np.uint8), 0
            for block in blocks:
                whole[first : first + len(block)] = block
                first += len(block)
            return to_fixed(whole, self.type)
        rows = [(pixels.tobytes(), *pixels.shape[:2]) for block in blocks for pixels in block]
        columns = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(self.type)]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def kind_in(schema: Schema, name: str, wanted_by: str) -> ImageKind:
    """Return mode and size of the images of a column from the schema alone. Raise `SchemaError` for a column without images."""
    check_columns([name], [column for column in schema.names if column not in HIDDEN], wanted_by)
    kind = schema.field(name).type
    if is_tensor(kind) and kind.value_type == pa.uint8():
        logical_shape = (kind.shape[axis] for axis in kind.permutation or range(len(kind.shape)))
        height, width, channels = (*logical_shape, 1, 1, 1)[:3]
        if len(kind.shape) in (2, 3) and channels in _MODES:
            return ImageKind(_MODES[channels], (height, width))
    elif encoded_in(kind):
        return ImageKind("rgb")
    elif (mode := mode_of(kind)) is not None:
        return ImageKind(mode)
    raise SchemaError(
        f"{wanted_by}: column {name!r} must hold images: files as binary, or tensors uint8 [H, W] or [H, W, C] with 1 or 3 channels, got "
        f"{kind}. Channels must be the last axis. Move leading channels with map and np.moveaxis(image, 0, -1)."
    )


def encoded_in(kind: pa.DataType) -> bool:
    """Return True for a column of encoded files, as made by `read_images` and Hugging Face datasets."""
    return is_binary(kind) or (pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)


def mode_of(kind: pa.DataType) -> Mode | None:
    """Return the colour mode of a column type for images of different sizes. Return None for all other column types."""
    return next((mode for mode in _MODES.values() if kind == ImageKind(mode).type), None)


def loads_of(  # noqa: PLR0913  # two are keyword-only
    chunk: RecordBatch, name: str, mode: Mode | None, wanted_by: str, *, of: str = "chunk", memory: Memory | None = None
) -> list[Load]:
    """Return a list with one function per row. Each function returns the image of its row, uint8[H, W, C].

    A function raises `UnusableImageError` for a damaged image. Encoded files are decoded in `mode`. Other images keep their mode. Raises
    `DataError` for a row without an image.

    The argument `of` is the name of the table in error messages, for example "chunk". The argument `memory` is a buffer that all decoded
    files share. With such a buffer, the pixels of a file are valid until the next file is read.
    """
    column = column_without_nulls(chunk, name, wanted_by, of=of)
    if not len(column):
        return []
    if is_tensor(column.type):
        return [partial(identity, image) for image in tensors_of(chunk, name, wanted_by, of=of)]
    stored = mode_of(column.type)
    if stored is not None:
        parts = zip(column.field(stored), column.field("height").to_pylist(), column.field("width").to_pylist(), strict=True)
        return [partial(_stored, *part) for part in parts]
    files = column.field("bytes") if pa.types.is_struct(column.type) else column
    return [partial(read_file, _content(file), mode, wanted_by, memory) for file in files]


def tensors_of(chunk: RecordBatch, name: str, wanted_by: str, *, of: str = "chunk") -> Pixels:
    """Return the images of a tensor column, uint8[N, H, W, C], without a copy. Raise `DataError` for a row without an image."""
    tensors: Pixels = column_without_nulls(chunk, name, wanted_by, of=of).to_numpy_ndarray()
    return tensors[..., None] if tensors.ndim == 3 else tensors


def _stored(data: pa.Scalar, height: int, width: int) -> Pixels:
    return np.frombuffer(data.as_buffer(), np.uint8).reshape(height, width, -1)


def _content(file: pa.Scalar) -> bytes | memoryview:
    """Return the bytes of a file without a copy.

    A memoryview of an Arrow buffer holds signed bytes and never equals a `bytes` object. The view is therefore cast to unsigned bytes.
    """
    return memoryview(file.as_buffer()).cast("B") if file.is_valid else b""
