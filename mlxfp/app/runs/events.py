"""The events of a run, as frozen values: `run` yields them."""

from pathlib import Path

from attrs import frozen

from mlxfp import events
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.support.html import Html, clip, element, fragment, table


@frozen
class RunEvent:
    """An event of a run, whose files are in `folder`.

    >>> RunEvent(Path("runs/titanic")).folder.name
    'titanic'
    """

    folder: Path


@frozen
class Began(RunEvent):
    """A run begins or continues; `done` of its `folds` are finished already.

    >>> Began(Path("runs/titanic"), folds=5, done=2).done
    2
    """

    folds: int
    done: int


@frozen
class FoldBegan(RunEvent):
    """A fold, counted from 1, begins to train on `rows` rows, or continues from `step`.

    >>> FoldBegan(Path("runs/titanic"), 1, rows=712, step=0).fold
    1
    """

    fold: int
    rows: int
    step: int


@frozen
class Trained(RunEvent):
    """An event of a fold's training: one of `mlxfp.training.loop.events`.

    >>> from mlxfp.training.steps.state import TrainState
    >>> stepped = events.Stepped(TrainState({}, {}, {}, step=7, seed=0), None, 0, {"loss": 0.5})
    >>> Trained(Path("runs/titanic"), 1, stepped).event.metrics
    {'loss': 0.5}
    """

    fold: int
    event: events.Event


@frozen
class FoldEnded(RunEvent):
    """A fold is finished: its predictions are in its folder. `score` is None where the metric is undefined on its rows.

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
class LeftOut(RunEvent):
    """A member of a run with model.name=auto is left out, for the time or because it failed.

    >>> LeftOut(Path("runs/titanic"), "forest", why="no time was left").member
    'forest'
    """

    member: str
    why: str


@frozen
class Weighed(RunEvent):
    """What a member is worth to a run with model.name=auto: its own score, its weight in what is submitted, from 0 to 1.

    `adds` is how much better the score of the blend is with the member than without it; None where there is no blend.

    >>> Weighed(Path("runs/titanic"), "lightgbm", score=0.83, weight=0.6, adds=0.004).weight
    0.6
    """

    member: str
    score: float
    weight: float
    adds: float | None


@frozen
class Ended(RunEvent):
    """All folds are finished, and all outputs are written. `score` is that of the out-of-fold predictions, None where undefined.

    `submission` is None without a test file or a sample.

    >>> Ended(Path("runs/titanic"), Score("accuracy", (0.75, 0.85), 0.8), submission=None).score.overall
    0.8
    """

    score: Score | None
    submission: Path | None

    def _repr_html_(self) -> str:
        """Show the score of each fold in a notebook, and where the files are."""
        score = "The score is undefined." if self.score is None else Html(self.score._repr_html_())
        return fragment(score, *(element("p", element("code", clip(path, 300))) for path in (self.folder, self.submission) if path))
