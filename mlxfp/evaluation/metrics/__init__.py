"""Metrics: each measures a batch as totals; `merge` combines totals in any grouping, `compute` turns them into numbers.

The state of an evaluation is a dict from names to totals: it starts as `merge([])`, which is {}, `merge([state, more])` updates it,
`merge([a, b])` combines those of two machines, and `compute(state)` ends it. All of these functions are pure; `evaluate` uses them.
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
