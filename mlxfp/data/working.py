"""Calling a user's function on many rows: in order, in threads, with a generator of each row's own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import numpy as np

from mlxfp.core.randomness import Keys

Result = TypeVar("Result")

_LARGEST_BLOCK = 16  # rows: a thread that is told to stop finishes its block, and a task costs a thread about 25 µs


def in_order(work: Callable[[slice], list[Result]], count: int, *, workers: int) -> list[Result]:
    """Return `work` of the rows 0 to `count`, done block by block in `workers` threads; the same as `work(slice(0, count))` in one.

    The error that comes out is the first in the order of the rows, and no thread is left when this returns or raises: threads live as
    long as one chunk is worked on. They see the context variables of the caller (numpy's `errstate`, the precision of decimals).

    >>> in_order(lambda rows: [row * 2 for row in range(rows.start, rows.stop)], 5, workers=2)
    [0, 2, 4, 6, 8]
    """
    if workers == 1:
        return work(slice(0, count))
    size = max(1, min(_LARGEST_BLOCK, count // (4 * workers)))  # several blocks for each thread, for rows take different times
    with ThreadPoolExecutor(workers, "mlxfp-map") as pool:
        try:
            tasks = [pool.submit(copy_context().run, work, slice(first, min(first + size, count))) for first in range(0, count, size)]
            return [result for task in tasks for result in task.result()]
        except BaseException:  # an interrupt too: what has not begun will not
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def generators(keys: Keys) -> Iterator[np.random.Generator]:
    """Yield what `generator(key)` returns for each key of an array, in turn; each is good until the next one.

    It is one generator that is set to the start of the next stream, in a seventh of the time that it takes to make a new one.

    >>> [round(one.random(), 3) for one in generators(np.array([5, 6, 5], np.uint64))]
    [0.734, 0.685, 0.734]
    """
    philox = np.random.Philox(key=0)
    one, fresh = np.random.Generator(philox), philox.state
    for key in keys:
        fresh["state"]["key"] = np.array([key, 0], np.uint64)
        philox.state = fresh
        yield one
