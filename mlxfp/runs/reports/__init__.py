"""Reports for the eyes: a page in HTML of every run, of logs of training, and comparisons of several runs."""

from mlxfp.runs.reports.comparing import Disagreement, Pair, RunComparison, compare, write_comparison
from mlxfp.runs.reports.event_logs import write_logs
from mlxfp.runs.reports.writing import write

__all__ = ["Disagreement", "Pair", "RunComparison", "compare", "write", "write_comparison", "write_logs"]


def __dir__() -> list[str]:
    return __all__
