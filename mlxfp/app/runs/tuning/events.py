"""The events of tuning. `tune` yields these events between the events of the folds."""

from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from mlxfp.app.runs.events import RunEvent


@frozen
class TrialEnded(RunEvent):
    """End of a trial with the out-of-fold score. Trial 0 is the original configuration.

    - `outcome`: "complete", "stopped" (the scores of the first folds were worse than in other trials) or "failed".
    - `score`: None if the trial was stopped or failed. `reason` holds the error of a failed trial.
    - `values`: the tried option values, with keys such as "model.dropout".

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
    """End of tuning. `trial` is the number of the best trial, `trials` the number of trials, and `config` the best configuration file.

    - `score` is the score of the best trial. This score is optimistic, because the best trial was selected by score.
    - `given` is the score of the original configuration on the same folds.

    >>> Tuned(Path("runs/titanic/tuning"), "accuracy", 7, 20, 0.85, 0.83, Path("best.yaml")).given
    0.83
    """

    metric: str
    trial: int
    trials: int
    score: float
    given: float
    config: Path
