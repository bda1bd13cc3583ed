"""Metrics: what each says of a batch, as a value; `merge` puts such values together in any grouping, `compute` makes numbers of them.

The state of an evaluation is a dict from names to such values: `merge([])`, which is {}, is its start, `merge([state, more])` its
update, `merge([a, b])` joins those of two machines, and `compute(state)` ends it. All of them are pure. `evaluate` does just that.
"""

from mlxfp.evaluation.metrics.classification import accuracy, f1, log_loss, perplexity, roc_auc
from mlxfp.evaluation.metrics.regression import mae, r2, rmse
from mlxfp.evaluation.metrics.totals import Measured, compute, merge

__all__ = ["Measured", "accuracy", "compute", "f1", "log_loss", "mae", "merge", "perplexity", "r2", "rmse", "roc_auc"]
