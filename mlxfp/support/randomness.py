"""Random keys: all randomness is a hash of names, epochs and rows, without generator state.

A key is an unsigned 64-bit integer. `fold_in` derives a key from another key and a name or number. The result does not depend on
other draws, so chunking, threads, shards and the position of a stage cannot change it.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB

Keys = NDArray[np.uint64]


def fold_in(key: int, *parts: int | str) -> int:
    """Derive a key from a key and names or numbers, in order.

    The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014). A name is replaced by its BLAKE2b digest. For a
    fixed key, different numbers always give different keys.
    """
    for part in parts:
        key = _mix(key ^ _mix(_number(part) + _GOLDEN))
    return key


def fold_in_rows(key: int | Keys, rows: NDArray[np.int64] | Keys) -> Keys:
    """Return a random key for each row, uint64[N]: the same as `fold_in(key, row)`. `key` is one key for all rows, or uint64[N]."""
    mixed = _mix_rows(rows.astype(np.uint64) + np.uint64(_GOLDEN))
    return _mix_rows(np.asarray(key, np.uint64) ^ mixed)


def fold_into_rows(keys: Keys, *parts: int | str) -> Keys:
    """Return `fold_in(key, *parts)` for every key of an array, uint64[N].

    >>> fold_into_rows(np.array([1, 2], np.uint64), "my_stage", 0).shape
    (2,)
    """
    for part in parts:
        keys = _mix_rows(keys ^ np.uint64(_mix(_number(part) + _GOLDEN)))
    return keys


def uniform(keys: Keys) -> NDArray[np.float64]:
    """Convert keys to uniform numbers in [0, 1): float64 in the shape of the keys."""
    return np.asarray((keys >> np.uint64(11)) * 2.0**-53, np.float64)


def generator(key: int) -> np.random.Generator:
    """Return a numpy generator (Philox) seeded by the key."""
    return np.random.Generator(np.random.Philox(key=key))


def _number(part: int | str) -> int:
    if isinstance(part, str):
        return int.from_bytes(blake2b(part.encode(), digest_size=8).digest(), "little")
    return part & _MASK


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 30)) * _FIRST & _MASK
    value = (value ^ (value >> 27)) * _SECOND & _MASK
    return value ^ (value >> 31)


def _mix_rows(values: Keys) -> Keys:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return values ^ (values >> np.uint64(31))
