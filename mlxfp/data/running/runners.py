"""Where work is done: what `write` takes as `on=`.

A runner is a value; how many workers it has changes how long the work takes, never what comes out.
"""

from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from mlxfp.data.running.engines import RayPool, SparkPool
from mlxfp.data.running.pools import Inline, Pool, Threads
from mlxfp.data.running.processes import Processes
from mlxfp.support.checks import check_positive
from mlxfp.support.optional import optional

__all__ = ["Runner", "inline", "processes", "ray", "spark", "threads"]


def __dir__() -> list[str]:
    return __all__


RANKS = "ranks"  # the name of the runner whose workers all make the same call


@frozen(repr=False)
class Runner:
    """What does the work of `write`: made by `inline`, `threads`, `processes`, `ranks`, `ray` and `spark`. `open` starts the workers.

    >>> processes(2).workers
    2
    """

    name: str
    workers: int
    open: Callable[[], Pool] = field(eq=False)  # starts the workers

    def __repr__(self) -> str:
        return f"runners.{self.name}({self.workers if self.workers and self.name != 'inline' else ''})"


def inline() -> Runner:
    """Do the work in the thread that calls.

    >>> inline()
    runners.inline()
    """
    return Runner("inline", 1, Inline)


def threads(workers: int) -> Runner:
    """Share the work between threads: for functions that release Python's lock (Arrow, numpy, decoding) or wait for a network.

    >>> threads(2)
    runners.threads(2)
    """
    check_positive(workers=workers)
    return Runner("threads", workers, lambda: Threads(workers))


def processes(workers: int) -> Runner:
    """Share the work between other processes, with extra `processes`: for Python code.

    >>> processes(2)
    runners.processes(2)
    """
    check_positive(workers=workers)
    optional("loky", extra="processes", needed_by="runners.processes")
    return Runner("processes", workers, lambda: Processes(workers))


def ray(workers: int | None = None) -> Runner:
    """Share the work between the machines of a Ray cluster, with the extra `ray`. The folder must be one that all of them see.

    Ray is started on this machine, with `workers` processes, unless `ray.init` was called before. Each task of Ray writes one file, or does
    the stages without a state for some rows. `workers`: how many tasks there are at a time, by default one for each core of the cluster.

    >>> ray(8)
    runners.ray(8)
    """
    if workers is not None:
        check_positive(workers=workers)
    return Runner("ray", workers or 0, lambda: RayPool(workers))


def spark(session: Any, *, workers: int) -> Runner:
    """Share the work between the machines of a Spark session, or one of Sail. The folder must be one that all of them see.

    `session` is a `pyspark.sql.SparkSession`, with Spark Connect or without, and `workers` how many tasks there are at a time. The machines
    need mlxfp and cloudpickle.

    >>> session = object()  # SparkSession.builder.remote("sc://...").getOrCreate()
    >>> spark(session, workers=8)
    runners.spark(8)
    """
    check_positive(workers=workers)
    return Runner("spark", workers, lambda: SparkPool(session, workers))
