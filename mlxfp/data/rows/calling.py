"""Functions that call user functions on rows. They pass random generators, add row numbers to errors, and stop when no result is needed."""

from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from math import isnan
from typing import Any

import numpy as np

from mlxfp.core.chunks import LEAF_BITS, Example
from mlxfp.core.nodes import brief
from mlxfp.support.errors import FEW, listed
from mlxfp.support.randomness import Keys


class UnwantedWork(BaseException):
    """Exception that ends a worker thread when no consumer waits for the result. The exception is raised before a row is processed.

    Derives from `BaseException`, so that a pipeline with `on_error` never skips it as a failed row.
    """


_unwanted: ContextVar[Callable[[], bool]] = ContextVar("unwanted", default=lambda: False)


def context_until(unwanted: Callable[[], bool]) -> Context:
    """Return a copy of the current context (`contextvars`) in which calls of user functions can be cancelled.

    Once `unwanted()` returns True, the function `mlxfp.data.rows.calling.call` raises `UnwantedWork` instead of calling a user function.
    In a nested context, calls are also cancelled if the `unwanted` function of an enclosing context returns True.
    """
    outer, context = _unwanted.get(), copy_context()
    context.run(_unwanted.set, lambda: unwanted() or outer())
    return context


def call(function: Callable[..., Any], row: Example, number: int, *extra: Any) -> Any:
    """Call a user function on a row.

    An error of the function gets a note with the number of the source row and the names of columns without a value. Raises `UnwantedWork`
    if no consumer waits for the result.
    """
    __tracebackhide__ = True  # Hide this frame in pytest and IPython, so that a traceback ends in the user's function.
    stop_unwanted()
    try:
        return function(row, *extra)
    except Exception as error:
        leaf, row_number = divmod(int(number), 1 << LEAF_BITS)
        empty = [repr(name) for name, value in row.items() if value is None or (isinstance(value, float) and isnan(value))]
        error.add_note(
            f"on {'a row' if leaf < 0 else f'source row {row_number}'}{f' of joined source {leaf}' if leaf > 0 else ''}: {brief(row)}"
            f"{f'; empty: {listed(empty, most=FEW)}' if empty else ''}"
        )
        raise


def stop_unwanted() -> bool:
    """Raise `UnwantedWork` if no consumer waits for the result of this thread. Otherwise return False.

    The function can be the argument `cancel_check` of `FileLock.acquire`. The lock waits as long as `cancel_check` returns False.
    """
    if _unwanted.get()():
        raise UnwantedWork
    return False


def generators(keys: Keys) -> Iterator[np.random.Generator]:
    """Yield `generator(key)` for each key of an array. A generator is valid until the next iteration.

    A single Philox generator is reset for every key, which is seven times faster than creating generators.
    """
    philox = np.random.Philox(key=0)
    one, fresh = np.random.Generator(philox), philox.state
    for key in keys:
        fresh["state"]["key"] = np.array([key, 0], np.uint64)
        philox.state = fresh
        yield one
