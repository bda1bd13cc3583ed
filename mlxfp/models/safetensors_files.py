"""The head of a safetensors file, checked before MLX makes arrays of it.

The format (github.com/huggingface/safetensors): the length of the head, 8 bytes; the head, a JSON object that gives each array a dtype, a
shape and its place in the bytes that follow.
"""

import json as jsons
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

_LONGEST = 100_000_000  # bytes of a head, as in the reference implementation
_DIMENSION = 2**31  # of a shape: MLX counts in 32 bits
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4}
_SIZES |= {"U64": 8, "I64": 8, "F64": 8, "C64": 8}


def check_head(path: Path) -> None:
    """Raise `ValueError` unless every array that the file declares lies in the file, by itself, and has the size of its shape."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST):
            raise ValueError(f"its head has {length:,} bytes as declared, and the file {size:,}")
        try:
            head = jsons.loads(file.read(length))
        except RecursionError as error:
            raise ValueError("its head is nested too deeply") from error
    if not isinstance(head, dict):
        raise ValueError(f"its head is {type(head).__name__}, not an object")  # noqa: TRY004  # the file is wrong, not an argument
    arrays = {name: array for name, array in head.items() if name != "__metadata__"}
    ranges = sorted((*_range(name, array, size - 8 - length), name) for name, array in arrays.items())
    for (_, end, name), (start, _, other) in pairwise(ranges):
        if start < end:
            raise ValueError(f"the arrays {name!r} and {other!r} overlap")


def _range(name: str, array: Any, room: int) -> tuple[int, int]:
    """Return where the bytes of an array begin and end."""
    if not isinstance(array, Mapping) or str(array.get("dtype")) not in _SIZES:
        raise ValueError(f"the array {name!r} has no dtype that is known: {array!r:.80}")
    shape: Any = array.get("shape")
    place: Any = array.get("data_offsets")
    if not _are_whole(shape) or not all(number < _DIMENSION for number in shape):
        raise ValueError(f"the array {name!r} has an impossible shape, {shape!r:.80}")
    if not _are_whole(place) or len(place) != 2 or not place[0] <= place[1] <= room:
        raise ValueError(f"the array {name!r} lies at {place!r:.80} of {room:,} bytes")
    if place[1] - place[0] != prod(shape) * _SIZES[array["dtype"]]:
        raise ValueError(f"the array {name!r} of shape {shape!r:.80} and {array['dtype']} has {place[1] - place[0]:,} bytes")
    return place[0], place[1]


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)
