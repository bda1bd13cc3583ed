"""The protocol of experiment trackers, and a logging loop that keeps training alive if a tracker fails."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from math import isfinite
from types import TracebackType
from typing import Any, Protocol, Self

from mlxfp.support.errors import failure_text
from mlxfp.training.loop.events import EpochEnded, Event, Stepped, Stopped, Warned
from mlxfp.training.observers.logs import numbers_of
from mlxfp.training.steps.state import evaluate_state

_LOGGER = logging.getLogger("mlxfp")
_TRIES = 3  # logging stops after this number of consecutive failures, because each failure may take a whole timeout

Number = tuple[str, float, int]  # name, value and step of a metric


class Tracker(Protocol):
    """A run in an experiment tracker. Methods raise the errors of the tracker. Observers call the methods in order, from one thread.

    >>> import mlxfp as fp
    >>> def log_score(run: fp.observers.Tracker, score: float) -> None:
    ...     run.log_metrics([("score", score, 0)])  # name, value and step
    ...     run.end("FINISHED")
    """

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log the settings of the run."""

    def log_metrics(self, values: Sequence[Number]) -> None:
        """Log finite numbers."""

    def name_of(self, metric: str) -> str:
        """Return the metric name without characters that the tracker does not accept."""

    def last_steps(self) -> Mapping[str, int]:
        """Return the last logged step of each metric in a continued run. To avoid duplicates, observers log only later steps."""

    def end(self, status: str) -> None:
        """Mark the run as FINISHED, KILLED or FAILED."""


def track(
    events: Iterable[Event],
    *,
    source: str,
    begin: Callable[..., Tracker],
    params: Mapping[str, Any],
    at_end: Sequence[Callable[..., object]] = (),
) -> Iterator[Event]:
    """Yield the events, and log the metrics of each event to a tracker. Warnings start with `source`, the name of the observer.

    At the first event, `begin(step=event.step)` returns the tracker. A step above 0 means that a run continues. At the end of the run,
    `track` calls each function in `at_end` with the tracker, and with the last state as `state`.
    """
    with ExitStack() as stack:
        worker: _Worker | None = None
        for event in events:
            if worker is None:
                worker = stack.enter_context(_Worker(source, partial(begin, step=event.step)))
                worker.submit(lambda run: run.log_params(params))
            numbers = [(_metric_name(event, name), float(value), event.step) for name, value in numbers_of(event).items()]
            finite = [number for number in numbers if isfinite(number[1])]  # trackers do not plot infinity or NaN
            if finite:
                worker.log(finite)
            if isinstance(event, Stopped):
                evaluate_state(event.state)  # arrays are computed here, because the tracking thread must not compute arrays
                for job in at_end:
                    worker.submit(partial(job, state=event.state))
                wait(worker.jobs)
            for message in worker.failures():
                yield event.derive(Warned, message)
            yield event


def _metric_name(event: Event, name: str) -> str:
    prefix = "train/" if isinstance(event, Stepped) else "epoch/" if isinstance(event, EpochEnded) else ""
    return name if name.startswith("learning_rate") else f"{prefix}{name}"


class _Worker:
    """Thread that calls the methods of a tracker, one after another. Errors are collected instead of raised."""

    def __init__(self, source: str, begin: Callable[[], Tracker]) -> None:
        self._source = source
        self._pool = ThreadPoolExecutor(1, f"mlxfp-{source}")
        self._run = self._pool.submit(begin)
        self._last: Mapping[str, int] | None = None
        self.jobs: deque[Future[Any]] = deque([self._run])
        self._messages: set[str] = set()
        self._failed = 0  # number of consecutive failed jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        status = "FINISHED" if error is None else "KILLED" if isinstance(error, GeneratorExit | KeyboardInterrupt) else "FAILED"
        self.submit(lambda run: run.end(status))
        wait(self.jobs)
        list(self.failures())
        self._pool.shutdown()

    def submit(self, job: Callable[[Any], object]) -> None:
        """Add `job` to the queue of the thread. The thread calls `job(run)`, unless the run of the tracker could not start."""
        self.jobs.append(self._pool.submit(self._do, job))

    def log(self, numbers: Sequence[Number]) -> None:
        """Log metrics, except metrics of steps that the tracker already has from an earlier part of the run."""
        self.submit(partial(self._log, numbers=numbers))

    def _log(self, run: Tracker, numbers: Sequence[Number]) -> None:
        if self._last is None:
            self._last = run.last_steps()
        last = self._last
        named = [(run.name_of(name), value, step) for name, value, step in numbers]
        new = [number for number in named if number[2] > last.get(number[0], -1)]
        if new:
            run.log_metrics(new)

    def _do(self, job: Callable[[Tracker], object]) -> None:
        if self._failed == _TRIES:
            return
        try:
            job(self._run.result())
        except Exception:
            self._failed += 1
            raise
        self._failed = 0

    def failures(self) -> Iterator[str]:
        """Yield the error messages of finished jobs, without repetition."""
        while self.jobs and self.jobs[0].done():
            error = self.jobs.popleft().exception()
            message = failure_text(self._source, error)
            if error is not None and message not in self._messages:
                self._messages.add(message)
                _LOGGER.warning(message)
                yield message
