"""Serialization of plain values as JSON, Arrow IPC and a checksum. Reading the bytes executes no code.

Layout: 8 bytes magic, 2 bytes version, 16 bytes BLAKE2b digest of the rest, 4 bytes JSON length, the JSON, the binary values (blobs). In
the JSON, plain values are unchanged, tuples are arrays, and all other values are `{"tag": ...}`. Blobs are located by [offset, size].
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from mlxfp.support.arrow_types import with_text_names
from mlxfp.support.errors import ArgumentTypeError, CursorError

_MAGIC = b"MLXFPCUR"
_VERSION = 5
_HEAD = len(_MAGIC) + 2 + 16 + 4
_NUMBERS = "biuf"  # codes of the numpy dtypes for bool, int, unsigned int and float


def pack(value: object, kinds: Mapping[str, type]) -> bytes:
    """Serialize a value: None, bool, int, float, str, bytes, tuple, dict, numpy and Arrow data, and the attrs classes in `kinds`."""
    blobs: list[bytes] = []
    text = json.dumps(_encode(value, kinds, blobs), allow_nan=False, separators=(",", ":")).encode()
    body = len(text).to_bytes(4, "little") + text + b"".join(blobs)
    return _MAGIC + _VERSION.to_bytes(2, "little") + blake2b(body, digest_size=16).digest() + body


def unpack(data: bytes, kinds: Mapping[str, type]) -> Any:
    """Return the value that `pack` serialized. Raises `CursorError` for invalid bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ArgumentTypeError(f"Cursor.from_bytes needs bytes, got {type(data).__name__}.")
    data = bytes(data)
    if data[:8] != _MAGIC:
        raise CursorError(
            f"These bytes are not a cursor: they start with {data[:8]!r}, not {_MAGIC!r}. Pass the bytes returned by Cursor.to_bytes()."
        )
    version = int.from_bytes(data[8:10], "little")
    if version != _VERSION:
        raise CursorError(
            f"The cursor has version {version}, but this mlxfp reads version {_VERSION}. Use the version of mlxfp that wrote the cursor."
        )
    if len(data) < _HEAD or blake2b(data[26:], digest_size=16).digest() != data[10:26]:
        raise CursorError(f"The cursor is damaged: the checksum of its {len(data)} bytes is wrong. Use an earlier cursor.")
    size = int.from_bytes(data[26:30], "little")
    try:
        return _decode(json.loads(data[30 : 30 + size]), kinds, data[30 + size :])
    except Exception as error:  # forged bytes with a correct checksum can raise any error here
        raise CursorError(
            f"The cursor cannot be read: {type(error).__name__}: {error}. Pass the bytes returned by Cursor.to_bytes()."
        ) from error


def _encode(value: Any, kinds: Mapping[str, type], blobs: list[bytes]) -> Any:  # noqa: C901, PLR0911  # one case per kind of value
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return {"tag": "float", "hex": value.hex()}
        case tuple():
            return [_encode(item, kinds, blobs) for item in value]
        case dict():
            return {"tag": "dict", "items": [[_encode(k, kinds, blobs), _encode(v, kinds, blobs)] for k, v in value.items()]}
        case bytes():
            return {"tag": "bytes", "at": _add_blob(value, blobs)}
        case pa.RecordBatch():
            return {"tag": "chunk", "at": _add_blob(_chunk_to_bytes(value), blobs)}
        case pa.Schema():
            return {"tag": "schema", "at": _add_blob(value.serialize().to_pybytes(), blobs)}
        case np.generic() | np.ndarray() if value.dtype.kind in _NUMBERS:
            plain = np.ascontiguousarray(value)
            return {"tag": "numbers", "dtype": plain.dtype.str, "shape": list(np.shape(value)), "at": _add_blob(plain.tobytes(), blobs)}
    for tag, kind in kinds.items():
        if type(value) is kind:
            return {"tag": tag, "fields": [_encode(getattr(value, f.name), kinds, blobs) for f in attrs.fields(kind) if f.eq]}
    raise ArgumentTypeError(
        f"A cursor cannot store {type(value).__name__}: {value!r:.60}. Build states and positions from None, bool, int, float, str, bytes, "
        "tuples, dicts, numpy numbers and Arrow record batches."
    )


def _decode(value: Any, kinds: Mapping[str, type], blobs: bytes) -> Any:  # noqa: PLR0911  # one case per kind of value
    if isinstance(value, list):
        return tuple(_decode(item, kinds, blobs) for item in value)
    if not isinstance(value, dict):
        return value
    match value["tag"]:
        case "float":
            return float.fromhex(value["hex"])
        case "dict":
            return {_decode(k, kinds, blobs): _decode(v, kinds, blobs) for k, v in value["items"]}
        case "bytes":
            return _blob(value, blobs)
        case "chunk":
            return _chunk_from_bytes(_blob(value, blobs))
        case "schema":
            return with_text_names(pa.ipc.read_schema(pa.py_buffer(_blob(value, blobs))))
        case "numbers":
            dtype = np.dtype(value["dtype"])
            if dtype.kind not in _NUMBERS:
                raise TypeError(f"numbers of the type {dtype}, which mlxfp never writes")
            array = np.frombuffer(_blob(value, blobs), dtype).reshape(value["shape"])
            return array if value["shape"] else array[()]
    kind = kinds[value["tag"]]
    return kind(*(_decode(item, kinds, blobs) for item in value["fields"]))


def _add_blob(data: bytes, blobs: list[bytes]) -> list[int]:
    at = [sum(map(len, blobs)), len(data)]
    blobs.append(data)
    return at


def _blob(value: Mapping[str, Any], blobs: bytes) -> bytes:
    start, size = value["at"]
    return blobs[start : start + size]


def _chunk_to_bytes(chunk: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, chunk.schema) as writer:
        writer.write_batch(chunk)
    return bytes(sink.getvalue().to_pybytes())


def _chunk_from_bytes(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        chunk = reader.read_next_batch()
    chunk.validate(full=True)  # offsets in forged bytes could point outside their buffers
    with_text_names(chunk.schema)
    if not chunk.num_rows:
        # An empty union column from IPC bytes has no buffer of type ids. Arrow then crashes in `nbytes`, so all columns are created anew.
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in chunk.schema.types], schema=chunk.schema)
    return chunk
