"""Targets of table networks: classes, labels or values, and the conversion of outputs to predictions."""

from typing import Literal, get_args

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.models.heads import class_names
from mlxfp.support.checks import as_class_names, check_choice, check_positive
from mlxfp.support.errors import ArgumentError

Kind = Literal["class", "labels", "value"]


@frozen
class TableTarget:
    """Target of a table network: logits of classes, a logit for each of several labels, or scaled values.

    Values are learned as (value - mean) / scale. With `log`, log(1 + value) takes the place of the value. `low` and `high` are the smallest
    and largest scaled values of the training rows; predictions are limited to this range. `mean`, `scale`, `low` and `high` have one number
    per output, or are empty. `classes` are the names of the outputs; `save` writes the names, and `load` restores the names.

    >>> TableTarget("value", 1, mean=(100.0,), scale=(50.0,)).read(np.array([0.0, 2.0])).tolist()
    [100.0, 200.0]
    """

    kind: Kind
    outputs: int
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    log: bool = False
    classes: tuple[str, ...] = field(default=(), converter=as_class_names, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_choice(get_args(Kind), kind=self.kind)
        check_positive(outputs=self.outputs)
        for name in ("mean", "scale", "low", "high"):
            if len(getattr(self, name)) not in (0, self.outputs):
                raise ArgumentError(f"{name} needs one number for each of {self.outputs} outputs, got {len(getattr(self, name))} numbers.")
        class_names(self.classes, self.outputs)

    def read(self, answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert probabilities or scaled values to predictions. Probabilities are unchanged; values get the units of the target."""
        if self.kind != "value":
            return answers
        values = answers * np.asarray(self.scale or 1.0) + np.asarray(self.mean or 0.0)
        return np.asarray(np.maximum(np.expm1(values), 0) if self.log else values)
