"""The events of tuning, as frozen values: `tune` yields them among those of the folds that it trains."""

from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from mlxfp.app.runs.events import RunEvent


@frozen
class TrialEnded(RunEvent):
    """A trial is over, and `score` is that of its out-of-fold predictions; trial 0 is the configuration that was given.

    `outcome` is "complete"; "stopped", where its first folds were worse than those of the other trials; or "failed". Then `score` is
    None, and `reason` says why. `values` are those that it has tried, by their paths.

    >>> TrialEnded(Path("runs/titanic/tuning"), 3, "complete", 0.84, {"model.dropout": 0.1}).score
    0.84
    """

    trial: int
    outcome: Literal["complete", "stopped", "failed"]
    score: float | None
    values: dict[str, Any] = field(factory=dict)
    reason: str = ""


@frozen
class Tuned(RunEvent):
    """Tuning has ended: the best of so many `trials` is `trial`, and its configuration is in the file `config`.

    `score` chose the trial, and is therefore too good; `given` is that of the configuration that was given, on the same folds. `nested`,
    if it was asked for, is the score of the best trials of the training rows of each fold, on the rows of that fold, which had no part in
    tuning: compare it with `given`.

    >>> Tuned(Path("runs/titanic/tuning"), "accuracy", 7, 20, 0.85, 0.83, Path("best.yaml"), nested=0.835).nested
    0.835
    """

    metric: str
    trial: int
    trials: int
    score: float
    given: float
    config: Path
    nested: float | None = None
