"""Random permutations with random access. For a large permutation, only the requested elements are computed."""

from functools import lru_cache
from math import isqrt

import numpy as np

from mlxfp.core.chunks import Indices
from mlxfp.support.randomness import fold_in, fold_in_rows, generator

_LISTED = 2**20  # Largest number of rows whose permutation is stored (8 MB). Larger permutations are computed in constant memory.
_ROUNDS = 4  # Number of rounds of the Feistel network. Four rounds give a pseudorandom permutation (Luby and Rackoff, 1988).


def permute(indices: Indices, *, count: int, key: int) -> Indices:
    """Return elements of a random permutation of the numbers 0 to `count` - 1: the elements at the positions `indices`, int64[N].

    For `count` up to 2**20, all permutations are equally likely (Fisher-Yates with NumPy's Philox generator). A larger permutation is never
    stored. Instead, a Feistel network computes each element separately, by permuting pairs (i // b, i % b) with b near the square root of
    `count`. A result that is out of range passes through the network again (cycle walking; Black and Rogaway, "Ciphers with arbitrary
    finite domains", 2002).
    """
    return _listed(count, key)[indices] if count <= _LISTED else _walked(indices, count, key)


@lru_cache(maxsize=4)
def _listed(count: int, key: int) -> Indices:
    order: Indices = generator(key).permutation(count)
    order.flags.writeable = False
    return order


def _walked(indices: Indices, count: int, key: int) -> Indices:
    result = _feistel(indices, count, key)
    while (outside := result >= count).any():
        result[outside] = _feistel(result[outside], count, key)
    return result


def _feistel(indices: Indices, count: int, key: int) -> Indices:
    width = isqrt(count - 1) + 1
    height = -(-count // width)
    major, minor = indices // width, indices % width
    for round_ in range(_ROUNDS):
        major = (major + _hashed(minor, fold_in(key, round_, "left"), height)) % height
        minor = (minor + _hashed(major, fold_in(key, round_, "right"), width)) % width
    return major * width + minor


def _hashed(values: Indices, key: int, below: int) -> Indices:
    return (fold_in_rows(key, values) % np.uint64(below)).astype(np.int64)
