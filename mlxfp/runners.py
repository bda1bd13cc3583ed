"""Runners for the argument `on=` of `write`. A runner chooses threads, processes, ranks, Ray or Spark for the work.

The number of workers changes the duration of the work, never the result. All runners except `ranks`, which requires MLX, are in
`mlxfp.data.running.runners`.
"""

from mlxfp.data.running.pools import Pool
from mlxfp.data.running.rank_pools import RankPool
from mlxfp.data.running.runners import RANKS, Runner, inline, processes, ray, spark, threads
from mlxfp.support.errors import ArgumentError

__all__ = ["Runner", "inline", "processes", "ranks", "ray", "spark", "threads"]


def __dir__() -> list[str]:
    return __all__


def ranks(*, limit: float = 60.0) -> Runner:
    """Divide the work between the processes started by `mlx.launch`, on one or several machines. All processes must make the same call.

    Rank r of n writes the files r, r + n, r + 2n and so on. Rank 0 writes the manifest after all files, and all ranks return the
    manifest. All machines must share the folder. If a stage has a state, rank 0 writes all files and the other ranks wait.

    Ranks regularly tell each other that they are alive. If a rank fails or dies, the other ranks raise `RankError`. If a rank does not
    answer for `limit` seconds, the other ranks end their processes with a message. To continue after a failure, repeat the call. Without
    `mlx.launch`, this process is the only rank.

    >>> ranks()
    runners.ranks()
    """
    if not limit > 0:
        raise ArgumentError(f"limit must be above 0, got limit={limit!r}.")
    return Runner(RANKS, 0, lambda: _connected(limit))


def _connected(limit: float) -> Pool:
    from mlxfp.distributed import connect  # the import is local, because only this runner needs MLX

    return RankPool(connect(limit=limit))
