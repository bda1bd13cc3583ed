"""Pools that run jobs on a Ray or Spark cluster. Each job is sent as bytes. Inside a job, rows have the Arrow IPC format."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from mlxfp.core.running.segments import Job, Result
from mlxfp.data.running.pools import Pool, timed
from mlxfp.data.running.processes import dumps
from mlxfp.support.errors import WorkerError
from mlxfp.support.optional import optional


class RayPool(Pool):  # pragma: no cover  # its tests run where Ray is installed
    """Pool that runs jobs as Ray tasks. If a machine is lost, Ray repeats its tasks."""

    kind = "processes"

    def __init__(self, workers: int | None) -> None:
        """Connect to the configured Ray cluster, or start Ray on this machine."""
        self._ray: Any = optional("ray", extra="ray", needed_by="runners.ray")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        super().__init__(workers or max(1, int(self._ray.cluster_resources().get("CPU", 1))))
        self._done = self._ray.remote(num_cpus=1)(done)

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        received: Future[Result] = Future()
        received.set_running_or_notify_cancel()
        sent = self._done.remote(_as_bytes(job)).future()
        sent.add_done_callback(partial(self._receive, received))
        return received

    def close(self) -> None:
        """Shut Ray down if this pool started it."""
        if self._is_ours:
            self._ray.shutdown()

    def _receive(self, received: "Future[Result]", sent: "Future[bytes]") -> None:
        try:
            received.set_result(pickle.loads(sent.result()))  # noqa: S301  # written by our workers
        except (
            self._ray.exceptions.WorkerCrashedError,
            self._ray.exceptions.OutOfMemoryError,
            self._ray.exceptions.RaySystemError,
        ) as error:
            received.set_exception(WorkerError(f"Ray workers end repeatedly: {error}. Use a smaller rows_per_file, or fewer workers."))
        except BaseException as error:  # noqa: BLE001  # the parent process repeats the job and raises its error
            received.set_exception(error)


class SparkPool(Pool):
    """Pool that runs jobs as Spark tasks. Each job is a data frame of one row. Sail has the same interface and works as well."""

    kind = "processes"

    def __init__(self, session: Any, workers: int) -> None:
        """Create a pool with `workers` threads that send jobs to the Spark session `session`."""
        super().__init__(workers)
        self._session = session
        self._threads = ThreadPoolExecutor(workers, "mlxfp-spark")

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Run a job in the Spark session. A thread waits for the result."""
        return self._threads.submit(self._run, _as_bytes(job))

    def close(self) -> None:
        """Stop the threads. The Spark session stays open."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: bytes) -> Result:
        frame = self._session.createDataFrame([(job,)], "job binary").mapInArrow(all_done, "work binary")
        result: Result = pickle.loads(bytes(frame.collect()[0][0]))  # noqa: S301  # written by our workers
        return result


# --- functions that run on the workers


def done(job: bytes) -> bytes:
    """Run a pickled job and return the pickled result."""
    return _as_bytes(timed(pickle.loads(job)))  # noqa: S301  # written by the parent process


def all_done(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run pickled jobs, one per row. Yield the pickled results as record batches with the column `work`."""
    for frame in frames:
        yield pa.record_batch({"work": pa.array([done(job.as_py()) for job in frame.column(0)], pa.binary())})


def _as_bytes(value: Any) -> bytes:
    return dumps(value, lambda inner: None, None)
