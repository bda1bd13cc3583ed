"""Adapters that prepare the data loaders of several packages for an audit. This module imports none of these packages.

Each adapter takes a function that creates a loader, and returns a `Loader` for `examine`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.testing.audit.values import Loader, numbers_of


def grain(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Prepare a loader of Google's grain for an audit. `rows` is the number of rows in an epoch, and must be a multiple of the batch size.

    `make(seed, workers)` returns a `DataLoader` or dataset that yields several epochs in sequence.

    >>> from mlxfp.testing import audit
    >>> audit.grain(lambda seed, workers: ..., rows=24).name
    'grain'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        iterator = iter(make(seed, workers))
        before, seen = epoch * rows, 0
        if state is not None:
            seen, saved = state
            iterator.set_state(saved)
        while seen < before + rows and (item := next(iterator, None)) is not None:
            seen += len(numbers_of(item))
            if seen > before:
                yield item, (seen, iterator.get_state())

    return Loader("grain", rows, run)


def datasets(make: Callable[[int], Any], *, rows: int) -> Loader:
    """Prepare a streamed Hugging Face dataset for an audit without workers. `make(seed)` returns an `IterableDataset`.

    >>> from mlxfp.testing import audit
    >>> audit.datasets(lambda seed: ..., rows=24).name
    'datasets'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        dataset = make(seed)
        dataset.set_epoch(epoch)
        if state is not None:
            dataset.load_state_dict(state)
        for item in dataset:
            yield item, dataset.state_dict()

    return Loader("datasets", rows, run)


def torch(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Prepare a torch `DataLoader` for an audit. `make(seed, workers)` returns the loader.

    Each iteration of the loader is an epoch. To begin with a later epoch, the audit iterates the earlier epochs first. If the sampler,
    batch sampler or dataset has a method `set_epoch`, the audit calls this method instead. A `DataLoader` cannot save its state. To resume
    a run, the audit skips the first items.

    >>> from mlxfp.testing import audit
    >>> audit.torch(lambda seed, workers: ..., rows=24).name
    'torch'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        loader = make(seed, workers)
        parts: list[Any] = [getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")]
        counting = [part for part in parts if hasattr(part, "set_epoch")]
        for part in counting:
            part.set_epoch(epoch)
        yield from _remaining_items(loader, 0 if counting else epoch, state)

    return Loader("torch", rows, run)


def mlx_data(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Prepare a stream or buffer of mlx-data for an audit.

    `make(seed, workers)` calls `mlx.data.core.set_state(seed)` and returns the stream or buffer. Before the next epoch, the audit calls the
    method `reset` of the stream or buffer, if this method exists. Streams and buffers cannot save their state. To resume a run, the audit
    skips the first items.

    >>> from mlxfp.testing import audit
    >>> audit.mlx_data(lambda seed, workers: ..., rows=24).name
    'mlx_data'
    """
    return Loader("mlx_data", rows, lambda seed, epoch, workers, state: _remaining_items(make(seed, workers), epoch, state))


def _remaining_items(loader: Any, epochs: int, state: int | None) -> Iterator[tuple[Any, int]]:
    """Skip `epochs` epochs, then the first `state` items. Yield the other items of the epoch with their positions (1, 2, ...)."""
    reset = getattr(loader, "reset", lambda: None)
    for _ in range(epochs):
        for _ in loader:
            pass
        reset()
    for count, item in enumerate(loader, 1):
        if count > (state or 0):
            yield item, count


def stateful_dataloader(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Prepare a `StatefulDataLoader` of torchdata for an audit. `make(seed, workers)` returns the loader. Each iteration is an epoch.

    >>> from mlxfp.testing import audit
    >>> audit.stateful_dataloader(lambda seed, workers: ..., rows=24).name
    'stateful_dataloader'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        loader = make(seed, workers)
        if state is not None:
            loader.load_state_dict(state)
        for item, _ in _remaining_items(loader, epoch if state is None else 0, None):
            yield item, loader.state_dict()

    return Loader("stateful_dataloader", rows, run)


def pipeline(make: Callable[[int, int], Dataset[Any]], *, rows: int) -> Loader:
    """Prepare an mlxfp pipeline for `audit.examine`. The argument `make` is a function: `make(seed, workers)` returns the pipeline.

    >>> import mlxfp as fp
    >>> from mlxfp.testing import audit
    >>> audit.pipeline(lambda seed, workers: fp.from_examples([{"x": 0}]), rows=1).name
    'pipeline'
    """
    return Loader("pipeline", rows, lambda seed, epoch, workers, state: iterate(make(seed, workers), state, epoch=epoch))
