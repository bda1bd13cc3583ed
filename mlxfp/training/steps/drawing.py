"""Random numbers from MLX's global generator as a function of a key.

`mx.random.normal(shape)` takes a key from the global generator. `mx.compile` would store this key as a constant, and every call of the
compiled function would draw the same numbers. A step therefore puts its own key, an argument of the compiled function, into the
generator, and restores the previous key afterwards. A compiled function that draws no random numbers has no extra cost.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
from attrs import define

from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in, fold_in_rows, fold_into_rows

R = TypeVar("R")

_REQUIRED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@define(eq=False)
class Drawing:
    """Detector of random draws in a `drawing_from` block. A draw replaces the key of the generator, so a new key reveals a draw."""

    untouched: mx.array

    @property
    def drawn(self) -> bool:
        """True if random numbers were drawn in the `with drawing_from(...)` block, outside nested blocks."""
        return generator() is not self.untouched


_DRAWING: ContextVar[Drawing | None] = ContextVar("drawing", default=None)


@contextmanager
def drawing_from(key: mx.array) -> Iterator[Drawing]:
    """Set the key, uint32[2], of the global random generator for a `with` block. Restore the previous key after the block.

    >>> with drawing_from(mx.random.key(3)):
    ...     first = mx.random.uniform().item()
    >>> with drawing_from(mx.random.key(3)) as drawing:
    ...     first == mx.random.uniform().item(), drawing.drawn
    (True, True)
    """
    before, outer = generator(), _DRAWING.get()
    undrawn = outer is not None and not outer.drawn
    token = _DRAWING.set(Drawing(set_generator(key)))
    try:
        yield _DRAWING.get()  # type: ignore[misc]  # set above
    finally:
        _DRAWING.reset(token)
        restored = set_generator(before)
        if outer is not None and undrawn:
            outer.untouched = restored


@contextmanager
def refusing_draws(complaint: str) -> Iterator[None]:
    """Raise `ArgumentError` with the message `complaint` if the `with` block draws from MLX's global generator.

    Draws in a nested `drawing_from` block are allowed.
    """
    with drawing_from(generator()) as drawing:
        yield
        if drawing.drawn:
            raise ArgumentError(complaint)


def step_key(seed: int, step: int, rank: int | None) -> mx.array:
    """Return the key of a step, uint32[2]: `random_key(seed, "step", step)`. With a rank, the hash also includes "rank" and the rank.

    >>> from mlxfp.models.layers import random_key
    >>> step_key(3, 70, None).tolist() == random_key(3, "step", 70).tolist()
    True
    """
    return _step_keys(seed, step // _KEYS, rank)[step % _KEYS]


_KEYS = 64  # number of keys computed in one call; three times as fast as one call per key


@lru_cache(maxsize=16)
def _step_keys(seed: int, block: int, rank: int | None) -> list[mx.array]:
    steps = np.arange(block * _KEYS, (block + 1) * _KEYS)
    keys = fold_in_rows(fold_in(seed, "step"), steps)
    keys = keys if rank is None else fold_into_rows(keys, "rank", rank)
    return [mx.array([key >> 32, key & 0xFFFFFFFF], mx.uint32) for key in keys.tolist()]


def generator() -> mx.array:
    """Return the key array in the global generator of this thread. Every random draw replaces the array."""
    state: Any = mx.random.state
    key: mx.array = state[0]
    return key


def set_generator(key: mx.array) -> mx.array:
    """Copy the values of `key` into the global generator of this thread. Return the key array of the generator.

    MLX 0.32 has no function to set the key. Therefore `mx.random.seed` gives the generator a new key array, and `key` overwrites the values
    of the new array. The previous key array stays unchanged, because other code may hold a reference to the array.
    """
    mx.random.seed(0)
    state = generator()
    state[:] = key
    return state


def given_key(function: Callable[..., R], key: mx.array) -> Callable[[Any, Any], R]:
    """Turn a function of (model, batch, key) into a function of (model, batch). Return other functions unchanged.

    A function takes a key if it has three positional parameters without a default.

    >>> given_key(lambda model, batch, key: key.tolist(), mx.random.key(3))("model", "batch")
    [0, 3]
    >>> given_key(lambda model, batch, rate=0.1: rate, mx.random.key(3))("model", "batch")
    0.1
    """
    return (lambda model, batch: function(model, batch, key)) if _takes_key(function) else function


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built-in functions may lack a signature
        return False
    # A function with a key has three required arguments: the model, the batch and the key.
    return sum(parameter.kind in _REQUIRED and parameter.default is parameter.empty for parameter in parameters) == 3
