"""Calling a user's function on many rows: in order, in threads, with a generator of each row's own, and no longer than it is wanted."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from threading import Event
from typing import Any, TypeVar

import numpy as np

from mlxfp.core.chunks import LEAF_BITS, Example
from mlxfp.core.nodes import brief
from mlxfp.core.randomness import Keys

Result = TypeVar("Result")

_LARGEST_BLOCK = 16  # rows: a block costs about 25 µs, and threads should finish together


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
    if _unwanted.get()():
        raise UnwantedWork
    try:
        return function(row, *extra)
    except Exception as error:
        leaf, place = divmod(int(number), 1 << LEAF_BITS)
        error.add_note(
            f"on {'a row' if leaf < 0 else f'source row {place}'}{f' of joined source {leaf}' if leaf > 0 else ''}: {brief(row)}"
        )
        raise


def in_order(work: Callable[[slice], list[Result]], count: int, *, workers: int) -> list[Result]:
    """Return `work` of the rows 0 to `count`, done block by block in `workers` threads; the same as `work(slice(0, count))` in one.

    The error that comes out is the first in the order of the rows, and no thread is left when this returns or raises: threads live as
    long as one chunk is worked on. They see the context variables of the caller (numpy's `errstate`, the precision of decimals).
    """
    __tracebackhide__ = True
    if workers == 1:
        return work(slice(0, count))
    size = max(1, min(_LARGEST_BLOCK, count // (4 * workers)))
    blocks, failed = [slice(first, min(first + size, count)) for first in range(0, count, size)], Event()
    with ThreadPoolExecutor(workers, "mlxfp-map") as pool:
        try:
            tasks = [pool.submit(context_until(failed.is_set).run, work, block) for block in blocks]
            return [result for task in tasks for result in task.result()]
        except BaseException:  # an interrupt too
            failed.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
