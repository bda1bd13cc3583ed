"""The events of a run and of tuning, yielded by `run` and `tune`."""

from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from mlxfp import events
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.support.html import Html, clip, element, fragment, table


@frozen
class RunEvent:
    """Base class of the events of a run in `folder`.

    >>> RunEvent(Path("runs/titanic")).folder.name
    'titanic'
    """

    folder: Path


@frozen
class Began(RunEvent):
    """Start or continuation of a run with `folds` folds, of which `done` are finished.

    >>> Began(Path("runs/titanic"), folds=5, done=2).done
    2
    """

    folds: int
    done: int


@frozen
class FoldBegan(RunEvent):
    """Start of the training of a fold, or its continuation after an interruption.

    `fold` is the number of the fold, starting at 1. `rows` is the number of training rows. `step` is the step at which the training
    starts, for example 0 for a new training.

    >>> FoldBegan(Path("runs/titanic"), 1, rows=712, step=0).fold
    1
    """

    fold: int
    rows: int
    step: int


@frozen
class Trained(RunEvent):
    """A training event of a fold, one of `fp.events`.

    >>> import mlxfp as fp
    >>> stepped = events.Stepped(fp.TrainState({}, {}, {}, step=7, seed=0), None, 0, {"loss": 0.5})
    >>> fp.runs.Trained(Path("runs/titanic"), 1, stepped).event.metrics
    {'loss': 0.5}
    """

    fold: int
    event: events.Event


@frozen
class FoldEnded(RunEvent):
    """End of a fold, with predictions written to the folder. `score` is None if the metric is undefined on the rows of the fold.

    >>> FoldEnded(Path("runs/titanic"), 1, metric="accuracy", score=0.8).score
    0.8
    """

    fold: int
    metric: str
    score: float | None

    def _repr_html_(self) -> str:
        """Show the score in a notebook."""
        shown = table(["fold", clip(self.metric, 60)], [(self.fold, "undefined" if self.score is None else self.score)])
        return fragment(element("div", shown, class_="scroll"))


@frozen
class Noted(RunEvent):
    """A message to the user that does not end the run.

    >>> Noted(Path("runs/titanic"), "The test file has 1 new category.").message
    'The test file has 1 new category.'
    """

    message: str


@frozen
class Summarized(RunEvent):
    """Summary before the training: rows, columns, target, metric and folds. `text` has one fact per line.

    >>> Summarized(Path("runs/titanic"), "metric: accuracy").text
    'metric: accuracy'
    """

    text: str


NO_TIME = "no time was left"  # reason for a model that the time limit excludes


@frozen
class LeftOut(RunEvent):
    """Exclusion of a model from a run with `model.name=auto`, because of the time limit or a failure.

    >>> LeftOut(Path("runs/titanic"), "forest", why="no time was left").member
    'forest'
    """

    member: str
    why: str


@frozen
class Weighed(RunEvent):
    """Score of one model of a run with `model.name=auto`, and its weight in the submission, from 0 to 1.

    `adds` is the improvement of the blend's score by the model, or None without a blend. A model with a negative improvement is removed,
    and gets the weight 0. The value `adds` of a removed model was measured before the removal.

    >>> Weighed(Path("runs/titanic"), "lightgbm", score=0.83, weight=0.6, adds=0.004).weight
    0.6
    """

    member: str
    score: float
    weight: float
    adds: float | None


@frozen
class Ended(RunEvent):
    """End of a run: all outputs are written. `score` is the out-of-fold score, or None if the metric is undefined.

    `submission` is None without a test file or a sample submission.

    >>> Ended(Path("runs/titanic"), Score("accuracy", (0.75, 0.85), 0.8), submission=None).score.overall
    0.8
    """

    score: Score | None
    submission: Path | None

    def _repr_html_(self) -> str:
        """Show the score of each fold and the paths of the files in a notebook."""
        score = "The score is undefined." if self.score is None else Html(self.score._repr_html_())
        return fragment(score, *(element("p", element("code", clip(path, 300))) for path in (self.folder, self.submission) if path))


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
