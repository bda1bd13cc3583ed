"""Metrics as sums over batches: functions of a batch return sums, `merge` adds up the sums, and `compute` returns the final numbers.

A dict from metric names to sums is the state of an evaluation. `merge([])` returns the initial state, {}. `merge([state, sums])` adds the
sums of a batch. `merge([a, b])` combines the states of two machines. `compute(state)` returns the result. All functions are pure.
`evaluate` calls these functions for all batches.
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
