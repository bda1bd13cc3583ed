"""Metrics of the current epoch, stored in events and checkpoints, so that a resumed run reports the same means."""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import field, frozen

from mlxfp.evaluation.metrics.totals import Totals, added
from mlxfp.support.errors import ArgumentTypeError

_ONCE = ("weight", "skipped")  # metrics whose means count all steps equally


@frozen
class RunningMetrics:
    """Metrics of the current epoch: `totals` has sums over the first steps, and `unread` has the metrics of each later step.

    `fit` adds `unread` to `totals` every `log_every` steps. Adding more often would change the rounding of the totals. The metrics of the
    last step may still be on the device.
    """

    totals: Totals = field(factory=dict)
    unread: tuple[Mapping[str, Any], ...] = ()

    def after(self, metrics: Mapping[str, Any]) -> "RunningMetrics":
        """Add the metrics of one more step. Return the new running metrics.

        The method first waits for the metrics of the previous step. The host is therefore at most one step ahead of the device.
        """
        known = (*self.unread[:-1], *read_numbers(self.unread[-1:]))
        return RunningMetrics(self.totals, (*known, metrics))


def read_numbers(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Read the metrics of steps from the device. Raises `ArgumentTypeError` for values that are not single numbers."""
    mx.eval(metrics)
    return [{name: _number(name, value) for name, value in step_metrics.items()} for step_metrics in metrics]


def total(values: Sequence[Mapping[str, float]]) -> Totals:
    """Add up the metrics of several steps. Each metric is multiplied by the metric `weight` of its step.

    Only `weight` and `skipped` are added without multiplication.
    """
    # This loop is a faster version of the function `merge`, for numbers only.
    columns: dict[str, tuple[list[float], list[float]]] = {}
    for metrics in values:
        weight, counts = metrics.get("weight", 1.0), not metrics.get("skipped", 0.0)
        for name, value in ({"weight": 1.0} | dict(metrics)).items():
            if name in _ONCE:
                amount, share = value, 1.0
            elif weight > 0 and counts:
                amount, share = value * weight, weight
            else:
                continue
            amounts, shares = columns.setdefault(name, ([], []))
            amounts.append(amount)
            shares.append(share)
    return {name: (added(amounts), added(shares)) for name, (amounts, shares) in columns.items()}


def _number(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is mx.array and value.size == 1:
        return float(value.item())  # type: ignore[arg-type]  # metrics are real numbers
    if value is None or isinstance(value, str) or np.size(value) != 1:
        shape = list(np.shape(value)) if np.ndim(value) else ""
        raise ArgumentTypeError(
            f"The metrics of a step are numbers, got {type(value).__name__}{shape} for {name!r}. Return a single number, such as the mean."
        )
    number: Any = value.item() if hasattr(value, "item") else value  # `item` also works for bfloat16, which NumPy lacks
    return float(number)
