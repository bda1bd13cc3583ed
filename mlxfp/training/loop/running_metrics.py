"""The metrics of an epoch so far, as a value: the loop keeps it, and a checkpoint holds it, so a resumed run reports the same means."""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import field, frozen

from mlxfp.evaluation.metrics.totals import Totals, added
from mlxfp.support.errors import ArgumentTypeError

_ONCE = ("weight", "skipped")  # what counts once for each step


@frozen
class RunningMetrics:
    """The metrics of the steps of an epoch so far: `totals` up to the last reading, and `unread`, those of every step since.

    Of the unread ones, those of the last step may still be on the device. Sums are rounded at each reading, so both are kept apart until
    then. `batches` is how many the epoch has had; None: that is not known.
    """

    totals: Totals = field(factory=dict)
    unread: tuple[Mapping[str, Any], ...] = ()
    batches: int | None = 0

    def after(self, metrics: Mapping[str, Any]) -> "RunningMetrics":
        """Add the metrics of a step, which the device has begun; wait for those of the step before, and make Python numbers of them.

        So the device computes meanwhile, and the host is one step ahead, and no more.
        """
        known = (*self.unread[:-1], *read_numbers(self.unread[-1:]))
        return RunningMetrics(self.totals, (*known, metrics), None if self.batches is None else self.batches + 1)


def read_numbers(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Read the metrics of steps from the device. Raises `ArgumentTypeError` for values that are not numbers."""
    mx.eval(metrics)
    return [{name: _number(name, value) for name, value in each.items()} for each in metrics]


def total(values: Sequence[Mapping[str, float]]) -> Totals:
    """Add up the metrics of steps by weight. The weight itself, and whether a step was skipped, count once for each step."""
    columns: dict[str, tuple[list[float], list[float]]] = {}  # not by `merge`, which is for arrays too: its time would count
    for each in values:
        weight, counts = each.get("weight", 1.0), not each.get("skipped", 0.0)
        for name, value in ({"weight": 1.0} | dict(each)).items():
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
        return float(value.item())  # type: ignore[arg-type]  # a metric is real
    if value is None or isinstance(value, str) or np.size(value) != 1:
        shape = list(np.shape(value)) if np.ndim(value) else ""
        raise ArgumentTypeError(
            f"The metrics of a step are numbers, got {type(value).__name__}{shape} for {name!r}. Return a single number, such as its mean."
        )
    number: Any = value.item() if hasattr(value, "item") else value  # not by numpy, which has no bfloat16
    return float(number)
