"""Headers of Arrow messages, read before decompression. A few compressed bytes can expand to many gigabytes."""

import struct
from typing import Any

import pyarrow as pa

_HEADER, _COMPRESSION, _DICTIONARY_DATA = 2, 3, 1  # field indices in Message.fbs of the Arrow format


def is_compressed(stream: Any) -> bool:
    """Return True if an Arrow stream contains a compressed batch. `stream` is a buffer, or a file at its first message.

    Reads only the message headers. Bytes of another format raise `ArrowInvalid` or `struct.error`.

    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, pa.schema({"x": pa.int64()}), options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
    ...     writer.write_batch(pa.record_batch({"x": [0] * 1000}))
    >>> is_compressed(sink.getvalue())
    True
    """
    return any(_has_compression(message) for message in pa.ipc.MessageReader.open_stream(stream))


def _has_compression(message: pa.ipc.Message) -> bool:
    if message.type not in ("record batch", "dictionary"):
        return False
    head = message.metadata.to_pybytes()
    batch = _follow(head, _field(head, _follow(head, 0), _HEADER))
    if message.type == "dictionary":
        batch = _follow(head, _field(head, batch, _DICTIONARY_DATA))
    return _field(head, batch, _COMPRESSION) > 0


def _follow(head: bytes, at: int) -> int:
    """Read the relative offset at position `at`, and return the position that the offset points to."""
    return at + int(struct.unpack_from("<I", head, at)[0])


def _field(head: bytes, table: int, number: int) -> int:
    """Return the position of a table field (https://flatbuffers.dev/internals/#tables), or 0 if the field is missing."""
    fields = table - struct.unpack_from("<i", head, table)[0]
    inside = 4 + 2 * number
    offset = struct.unpack_from("<H", head, fields + inside)[0] if inside < struct.unpack_from("<H", head, fields)[0] else 0
    return table + int(offset) if offset else 0
