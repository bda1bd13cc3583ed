"""Values for the argument `on=` of `write`, which selects threads, processes, ranks or a cluster.

The number of workers changes the speed, but never the result.
"""

from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from mlxfp.data.running.engines import RayPool, SparkPool
from mlxfp.data.running.pools import Inline, Pool, Threads
from mlxfp.data.running.processes import Processes
from mlxfp.support.checks import check_positive, not_none
from mlxfp.support.optional import optional

__all__ = ["Runner", "inline", "processes", "ray", "spark", "threads"]


def __dir__() -> list[str]:
    return __all__


RANKS = "ranks"  # name of the runner with which all ranks write the files together


@frozen(repr=False)
class Runner:
    """Value for the argument `on=` of `write`, made by `inline`, `threads`, `processes`, `ranks`, `ray` or `spark`.

    >>> processes(2).workers
    2
    """

    name: str
    workers: int
    open: Callable[[], Pool] = field(eq=False)  # starts the workers

    def __repr__(self) -> str:
        return f"runners.{self.name}({self.workers if self.workers and self.name != 'inline' else ''})"


def inline() -> Runner:
    """Run jobs in the calling thread.

    >>> inline()
    runners.inline()
    """
    return Runner("inline", 1, Inline)


def threads(workers: int) -> Runner:
    """Run jobs in several threads. Use threads for functions that release the GIL (Arrow, NumPy, decoding) or wait for a network.

    >>> threads(2)
    runners.threads(2)
    """
    check_positive(workers=workers)
    return Runner("threads", workers, lambda: Threads(workers))


def processes(workers: int) -> Runner:
    """Run jobs in several processes (extra `processes`). Use processes for Python code, which holds the GIL.

    >>> processes(2)
    runners.processes(2)
    """
    check_positive(workers=workers)
    optional("loky", extra="processes", needed_by="runners.processes")
    return Runner("processes", workers, lambda: Processes(workers))


def ray(workers: int | None = None) -> Runner:
    """Run jobs on a Ray cluster (extra `ray`). All machines need access to the output folder.

    `workers` is the number of parallel Ray tasks, by default one per core of the cluster. A Ray task writes one file, or runs stateless
    stages on some rows. Unless `ray.init` was called before, Ray is started with `workers` processes on this machine.

    >>> ray(8)
    runners.ray(8)
    """
    check_positive(**not_none(workers=workers))
    return Runner("ray", workers or 0, lambda: RayPool(workers))


def spark(session: Any, *, workers: int) -> Runner:
    """Run jobs in a Spark or Sail session. All machines need access to the output folder.

    `session` is a `pyspark.sql.SparkSession`, with or without Spark Connect. `workers` is the number of parallel tasks. mlxfp and
    cloudpickle must be installed on all machines.

    >>> session = object()  # SparkSession.builder.remote("sc://...").getOrCreate()
    >>> spark(session, workers=8)
    runners.spark(8)
    """
    check_positive(workers=workers)
    return Runner("spark", workers, lambda: SparkPool(session, workers))
