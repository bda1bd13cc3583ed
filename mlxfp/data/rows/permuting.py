"""Permutations by number: where row `i` of a shuffled dataset comes from, computed for the rows that are asked for."""

from functools import lru_cache
from math import isqrt

import numpy as np

from mlxfp.core.chunks import Indices
from mlxfp.support.randomness import fold_in, fold_in_rows, generator

_LISTED = 2**20  # up to here the permutation is drawn and kept (8 MB); beyond, it is computed from the key in constant memory
_ROUNDS = 4  # each round changes both halves; four are enough for a pseudorandom permutation (Luby and Rackoff, 1988)


def permute(indices: Indices, *, count: int, key: int) -> Indices:
    """Return where the rows `indices` of a permutation of `count` rows come from: int64[N].

    Up to 2**20 rows, the permutation is uniform over all of them (Fisher-Yates, numpy's Philox). Beyond, it is a Feistel network over
    the pairs (i // b, i % b) with b near the square root, walked again where it leaves the range (Black and Rogaway, "Ciphers with
    arbitrary finite domains", 2002): no memory, any row on its own.
    """
    return _listed(count, key)[indices] if count <= _LISTED else _walked(indices, count, key)


@lru_cache(maxsize=4)
def _listed(count: int, key: int) -> Indices:
    order: Indices = generator(key).permutation(count)
    order.flags.writeable = False
    return order


def _walked(indices: Indices, count: int, key: int) -> Indices:
    found = _feistel(indices, count, key)
    while (outside := found >= count).any():
        found[outside] = _feistel(found[outside], count, key)
    return found


def _feistel(indices: Indices, count: int, key: int) -> Indices:
    width = isqrt(count - 1) + 1
    height = -(-count // width)
    left, right = indices // width, indices % width
    for turn in range(_ROUNDS):
        left = (left + _hashed(right, fold_in(key, turn, "left"), height)) % height
        right = (right + _hashed(left, fold_in(key, turn, "right"), width)) % width
    return left * width + right


def _hashed(values: Indices, key: int, below: int) -> Indices:
    return (fold_in_rows(key, values) % np.uint64(below)).astype(np.int64)
