"""Size of the values in a chunk, in bits, without unused parts of its buffers."""

from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.core.chunks import RecordBatch

_UNKNOWN = 64  # assumed number of bits per value for types without a known width


def content_bits(chunk: RecordBatch) -> int:
    """Return the size of the rows of a chunk, in bits. If the chunk is a slice of larger buffers, only the slice counts."""
    return sum(map(_bits, chunk.columns))


def _bits(column: Any) -> int:  # noqa: PLR0911  # one case per column type
    kind, rows = column.type, len(column)
    if isinstance(kind, pa.BaseExtensionType):
        return _bits(column.storage)
    if pa.types.is_dictionary(kind):
        return rows * int(kind.index_type.bit_width)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32)[4 * column.offset : 4 * (column.offset + rows)]
        return 8 * (views.nbytes + int(views[::4].sum(dtype=np.int64)))  # the first int32 of a binary view is the length of the value
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 32 * rows + 8 * _span(column, np.int32)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return 64 * rows + 8 * _span(column, np.int64)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        width = np.int64 if pa.types.is_large_list(kind) else np.int32
        ends = _ends(column, width)
        values = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        return rows * 8 * int(ends.itemsize) + sum(_bits(array.slice(ends[0], ends[-1] - ends[0])) for array in values)
    if pa.types.is_fixed_size_list(kind):
        return _bits(column.values.slice(column.offset * kind.list_size, rows * kind.list_size))
    if pa.types.is_struct(kind):
        return sum(_bits(column.field(index)) for index in range(kind.num_fields))
    return rows * _width(kind)


def _ends(column: Any, width: Any) -> Any:
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, width)
    return np.frombuffer(buffer, width, count=len(column) + 1, offset=column.offset * np.dtype(width).itemsize)


def _span(column: Any, width: Any) -> int:
    ends = _ends(column, width)
    return int(ends[-1]) - int(ends[0])


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width)
    except ValueError:
        return _UNKNOWN
