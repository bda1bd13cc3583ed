"""Observers that run only on rank 0 of several training processes."""

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_types
from mlxfp.training.loop.events import Observer


def on_first_rank(ranks: Ranks | None, observer: Observer) -> Observer:
    """Return the observer on rank 0, and an observer without effect on the other ranks."""
    check_types((type(None), Ranks), ranks=ranks)
    return observer if ranks is None or ranks.world.rank == 0 else iter
