"""Where work is done: what `write` takes as `on=`. All but `ranks`, which is connected by MLX, are in `mlxfp.data.running.runners`.

A runner is a value; how many workers it has changes how long the work takes, never what comes out.
"""

from mlxfp.data.running.pools import Pool
from mlxfp.data.running.rank_pools import RankPool
from mlxfp.data.running.runners import RANKS, Runner, inline, processes, ray, spark, threads
from mlxfp.support.errors import ArgumentError

__all__ = ["Runner", "inline", "processes", "ranks", "ray", "spark", "threads"]


def __dir__() -> list[str]:
    return __all__


def ranks(*, limit: float = 60.0) -> Runner:
    """Share the work between the processes that `mlx.launch` started, on one machine or several; all of them must make the same call.

    Rank r of n writes the files r, r + n, r + 2n and so on; rank 0 writes the manifest when all have done theirs, and all return it. The
    folder must be one that all machines see. Where a stage has a state, rank 0 writes all files, and the others wait. Ranks tell each
    other all the time that they are there: where one fails or has died, the others raise `RankError`, and where one has not answered
    for `limit` seconds, the others end their processes with a message. Call it again to go on. Without `mlx.launch` this process is
    the only rank.

    >>> ranks()
    runners.ranks()
    """
    if not limit > 0:
        raise ArgumentError(f"limit must be above 0, got limit={limit!r}.")
    return Runner(RANKS, 0, lambda: _connected(limit))


def _connected(limit: float) -> Pool:
    from mlxfp.distributed import connect  # MLX, which other runners do not need

    return RankPool(connect(limit=limit))
