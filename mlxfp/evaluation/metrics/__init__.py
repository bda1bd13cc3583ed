"""Metrics. A metric measures a batch as a total, `merge` combines totals in any grouping, and `compute` converts totals to numbers.

The state of an evaluation is a dict from names to totals. `merge([])`, {}, is the initial state, `merge([state, more])` adds a batch,
and `merge([a, b])` combines the states of two machines. `compute(state)` returns the result. All functions are pure, and `evaluate` calls
them.
"""

from mlxfp.evaluation.metrics.classification import Ranking, accuracy, f1, log_loss, perplexity, roc_auc
from mlxfp.evaluation.metrics.regression import Explained, mae, r2, rmse
from mlxfp.evaluation.metrics.totals import Measured, compute, merge

__all__ = [
    "Explained",
    "Measured",
    "Ranking",
    "accuracy",
    "compute",
    "f1",
    "log_loss",
    "mae",
    "merge",
    "perplexity",
    "r2",
    "rmse",
    "roc_auc",
]


def __dir__() -> list[str]:
    return __all__
