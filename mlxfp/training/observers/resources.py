"""The memory that a run uses."""

from collections.abc import Iterable, Iterator
from functools import partial

import mlx.core as mx

from mlxfp.core.checks import check_positive
from mlxfp.training.loop.events import Event, MemoryRead, Observer, Stepped


def log_memory(*, limit: int | None = None) -> Observer:
    """Add a `MemoryRead` event after every reading of the metrics: bytes in use, at the peak, and kept for reuse.

    If those in use and those kept are more than `limit` together, the kept ones are released (`mx.clear_cache`); the event has the numbers
    from before. Without `limit` only the limit of MLX itself applies (`mx.get_memory_limit`).

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.steps.state import TrainState
    >>> events = [Stepped(TrainState({}, {}, {}, 7, 0), None, 0, {"loss": 0.5})]
    >>> [type(event).__name__ for event in pipe(events, log_memory(limit=8 * 2**30))]
    ['Stepped', 'MemoryRead']
    """
    if limit is not None:
        check_positive(limit=limit)
    return partial(_log_memory, limit=limit)


def _log_memory(events: Iterable[Event], *, limit: int | None) -> Iterator[Event]:
    for event in events:
        yield event
        if isinstance(event, Stepped) and event.metrics:
            active, cache = mx.get_active_memory(), mx.get_cache_memory()
            if limit is not None and active + cache > limit:
                mx.clear_cache()
            yield event.derive(MemoryRead, active, mx.get_peak_memory(), cache)
