"""Safetensors files: atomic writes with a checksum, and validation of headers before MLX creates the arrays.

Format (github.com/huggingface/safetensors): header length in 8 bytes, then the header, a JSON object with dtype, shape and data offsets
of each array, then the data.
"""

import json as jsons
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import mlx.core as mx

from mlxfp.support.atomic_files import written_whole
from mlxfp.support.errors import CheckpointError

_LONGEST = 100_000_000  # maximum header size in bytes, as in the reference implementation
_DIMENSION = 2**31  # limit of the length of an axis, because MLX counts in 32 bits
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4}
_SIZES |= {"U64": 8, "I64": 8, "F64": 8, "C64": 8}

_UNSEALED = {"crc32": "00000000"}  # metadata of a new file: zeros reserve space for the checksum
_SEAL, _DIGITS = b'"crc32":"', 8
_BLOCK = 1 << 20


def write_safetensors(path: Path, arrays: Mapping[str, mx.array], metadata: Mapping[str, str], *, hint: str) -> None:
    """Write a safetensors file atomically, with a CRC-32 checksum in the metadata. Raises `CheckpointError`, which ends in `hint`."""
    try:
        with written_whole(path, suffix=".safetensors") as file:  # MLX appends .safetensors to names with another suffix
            mx.save_safetensors(str(file), dict(arrays), {**metadata, **_UNSEALED})
            at, checksum = _checksum(file)
            with file.open("r+b") as sealed:
                sealed.seek(at)
                sealed.write(checksum)
    except RuntimeError as error:  # MLX raises RuntimeError for write errors
        raise CheckpointError(f"{path} could not be written: {str(error).rstrip('.')}. {hint}") from error


def read_safetensors(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Return the lazy arrays and the metadata of a file. Files of other programs have no checksum.

    Raises `ValueError` or `RuntimeError` for an invalid header, and `ValueError` if the content differs from its checksum.
    """
    check_head(path)
    at, checksum = _checksum(path)
    with path.open("rb") as file:
        file.seek(at)
        if at and file.read(_DIGITS) != checksum:
            raise ValueError("the content differs from its checksum")
    arrays, metadata = mx.load(str(path), format="safetensors", return_metadata=True)
    return arrays, metadata  # type: ignore[return-value]  # the stubs lack `return_metadata`


def _checksum(path: Path) -> tuple[int, bytes]:
    """Return the position of the checksum in a file (0 without a checksum), and the checksum of the content as hexadecimal digits."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = file.read(length)
        at = head.find(_SEAL) + len(_SEAL)
        if at < len(_SEAL):
            return 0, b""
        value = crc32(head[:at] + b"0" * _DIGITS + head[at + _DIGITS :], crc32(length.to_bytes(8, "little")))
        while block := file.read(_BLOCK):
            value = crc32(block, value)
    return 8 + at, b"%08x" % value


def differences(expected: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """Describe each missing, unexpected or different array. The arguments map names of arrays to texts such as `float32[2, 3]`."""
    return [
        *(f"missing: {name} {text}" for name, text in expected.items() if name not in actual),
        *(f"unexpected: {name} {text}" for name, text in sorted(actual.items()) if name not in expected),
        *(f"different: {name} is {actual[name]}, expected {text}" for name, text in expected.items() if actual.get(name, text) != text),
    ]


def check_head(path: Path) -> None:
    """Raise `ValueError` unless all declared arrays lie inside the file, do not overlap, and have the size of their shape."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST):
            raise ValueError(f"the declared header size is {length:,} bytes, but the file has {size:,} bytes")
        try:
            head = jsons.loads(file.read(length))
        except RecursionError as error:
            raise ValueError("the header is nested too deeply") from error
    if not isinstance(head, dict):
        raise ValueError(f"the header is {type(head).__name__}, not an object")  # noqa: TRY004  # the file is wrong, not an argument
    arrays = {name: array for name, array in head.items() if name != "__metadata__"}
    ranges = sorted((*_range(name, array, size - 8 - length), name) for name, array in arrays.items())
    for (_, end, name), (start, _, other) in pairwise(ranges):
        if start < end:
            raise ValueError(f"the arrays {name!r} and {other!r} overlap")


def _range(name: str, array: Any, room: int) -> tuple[int, int]:
    """Return the byte offsets of the start and end of an array."""
    if not isinstance(array, Mapping) or str(array.get("dtype")) not in _SIZES:
        raise ValueError(f"the array {name!r} has no known dtype: {array!r:.80}")
    shape: Any = array.get("shape")
    offsets: Any = array.get("data_offsets")
    if not _are_whole(shape) or not all(number < _DIMENSION for number in shape):
        raise ValueError(f"the array {name!r} has an impossible shape, {shape!r:.80}")
    if not _are_whole(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise ValueError(f"the array {name!r} has the data offsets {offsets!r:.80}, but the file has {room:,} bytes of data")
    size, dtype = offsets[1] - offsets[0], array["dtype"]
    if size != prod(shape) * _SIZES[dtype]:
        raise ValueError(f"the array {name!r} has {size:,} bytes, which does not match its shape {shape!r:.80} and its dtype {dtype}")
    return offsets[0], offsets[1]


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)
