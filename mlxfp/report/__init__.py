"""Reports for the eyes: a page in HTML of every run, and comparisons of several."""

from mlxfp.report.comparing import Disagreement, Pair, RunComparison, compare, write_comparison
from mlxfp.report.writing import write

__all__ = ["Disagreement", "Pair", "RunComparison", "compare", "write", "write_comparison"]


def __dir__() -> list[str]:
    return __all__
