"""Calling a user's function on rows: with a generator of each row's own, and no longer than it is wanted."""

from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import numpy as np

from mlxfp.core.chunks import LEAF_BITS, Example
from mlxfp.core.nodes import brief
from mlxfp.support.randomness import Keys


class UnwantedWork(BaseException):
    """Nobody waits for what a thread works on: raised in the thread, before the next row. No error that a pipeline could skip."""


_unwanted: ContextVar[Callable[[], bool]] = ContextVar("unwanted", default=lambda: False)


def context_until(unwanted: Callable[[], bool]) -> Context:
    """Return a copy of the context, to run work in that `call` ends when it is unwanted, or the work that started it is."""
    outer, context = _unwanted.get(), copy_context()
    context.run(_unwanted.set, lambda: unwanted() or outer())
    return context


def call(function: Callable[..., Any], row: Example, number: int, *extra: Any) -> Any:
    """Call a user's function on a row; an error says on which one. Raises `UnwantedWork` where nobody waits for the result."""
    __tracebackhide__ = True  # pytest and IPython leave this frame out: the user's function comes after it
    stop_unwanted()
    try:
        return function(row, *extra)
    except Exception as error:
        leaf, place = divmod(int(number), 1 << LEAF_BITS)
        error.add_note(
            f"on {'a row' if leaf < 0 else f'source row {place}'}{f' of joined source {leaf}' if leaf > 0 else ''}: {brief(row)}"
        )
        raise


def stop_unwanted() -> bool:
    """Raise `UnwantedWork` where nobody waits for what this thread works on; else return False, for what asks while it waits."""
    if _unwanted.get()():
        raise UnwantedWork
    return False


def generators(keys: Keys) -> Iterator[np.random.Generator]:
    """Yield what `generator(key)` returns for each key of an array, in turn; each is good until the next one.

    It is one generator that is set to the start of the next stream, in a seventh of the time that it takes to make a new one.
    """
    philox = np.random.Philox(key=0)
    one, fresh = np.random.Generator(philox), philox.state
    for key in keys:
        fresh["state"]["key"] = np.array([key, 0], np.uint64)
        philox.state = fresh
        yield one
