"""The search: trials of one study, each of which trains the folds of a run with other values."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any, Literal

import numpy as np
from attrs import evolve, frozen

from mlxfp.app.kaggle.validation.out_of_fold import score
from mlxfp.app.run_folders.files import read_array
from mlxfp.app.run_folders.folders import FOLD_OOF, FoldFolder
from mlxfp.app.runs.events import FoldEnded, RunEvent
from mlxfp.app.runs.folding import run_fold
from mlxfp.app.runs.from_config.planning import changed
from mlxfp.app.runs.outcomes import decided
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.tuning.events import TrialEnded
from mlxfp.app.runs.tuning.spaces import Space, values_of
from mlxfp.app.runs.tuning.studies import Found, Study, Trial, opened
from mlxfp.support.errors import MlxfpError
from mlxfp.support.progress import Progress


@frozen
class Limits:
    """When to begin no more trials: after so many in all, or so many seconds."""

    trials: int | None
    seconds: float | None


def search(plan: Plan, space: Space, folder: Path, limits: Limits, note: Callable[[Found], None]) -> Generator[RunEvent, None, Found]:
    """Continue the study in a folder, or begin it; yield what happens, and return what is the best in the end.

    `note` is called with what is the best whenever a trial has ended. Other processes may work on the same study: where there is no trial
    left to begin, this one waits for theirs.
    """
    end = None if limits.seconds is None else monotonic() + limits.seconds
    how: dict[str, Any] = {"maximize": plan.metric.greater_is_better, "seed": plan.training.seed}

    def late() -> bool:
        return end is not None and monotonic() >= end

    with opened(folder, space, values_of(plan, space), note, **how) as study:
        with Progress("trials", unit="trial", total=lambda: limits.trials, done=study.ended, lines=True) as progress:
            while (task := study.next(limits.trials, late=late())) is not None:
                if isinstance(task, Trial):
                    with closing(_run(study, task, plan, late)) as events:
                        yield from _shown(events, progress) if plan.training.progress else events
                else:
                    _wait(task, None if end is None or late() else end - monotonic())
        return study.best()


def _shown(events: Iterator[RunEvent], progress: Progress) -> Iterator[RunEvent]:
    """Yield the events of a trial, and show how far the search is when a fold or the trial has ended."""
    for event in events:
        yield event
        if isinstance(event, FoldEnded | TrialEnded):
            progress.update(int(isinstance(event, TrialEnded)))


def _wait(lock: Any, seconds: float | None) -> None:
    """Wait until the process that has a lock releases it, or the time is up."""
    from filelock import Timeout

    try:
        with lock.acquire(timeout=-1 if seconds is None else seconds):
            pass
    except Timeout:
        pass


def _run(study: Study, trial: Trial, plan: Plan, late: Callable[[], bool]) -> Generator[RunEvent, None, None]:
    """Run a trial. Where it is not consumed to its end, or raises, a later process continues it, or another one."""
    own = with_trial(plan, study.folder, f"trial-{trial.number:04}", {} if trial.given else trial.values)
    outcome: Literal["complete", "stopped", "failed", "late"] = "failed"
    reached, reason = None, ""
    try:
        try:
            outcome = yield from _train(study, trial, own, late)
            reached = total(own, [read_array(each / FOLD_OOF) for each in _files(own)]) if outcome == "complete" else None
        except OSError:  # the disk is full, or a file has gone: not because of the values
            raise
        except Exception as error:
            if trial.given:
                error.add_note("The configuration itself fails, so it cannot be tuned.")
                raise
            reason = str(error) if isinstance(error, MlxfpError) else f"{type(error).__name__}: {error}"
        if outcome == "late":
            study.put_back(trial)
            return
        study.end(trial, reached, reason or outcome)
        rmtree(own.folder, ignore_errors=True)
    finally:
        trial.lock.release()
    yield TrialEnded(study.folder, trial.number, outcome, reached, trial.values, reason)


def _train(
    study: Study, trial: Trial, plan: Plan, late: Callable[[], bool]
) -> Generator[RunEvent, None, Literal["complete", "stopped", "late"]]:
    """Train the folds of a trial one after the other, as long as it does not fall behind and the time is not up."""
    files, scores = _files(plan), list[float]()
    for place, (fold, each) in enumerate(zip(plan.folds, files, strict=True), 1):
        for event in run_fold(plan, fold, each, ()):
            yield event
            if not isinstance(event, FoldEnded):
                if late() and not trial.given:
                    return "late"
            elif event.score is not None:
                scores.append(event.score)
        # Fewer than half of the folds say too little.
        behind = bool(scores) and study.falls_behind(trial, place, float(np.mean(scores)))
        if behind and len(files) <= 2 * place < 2 * len(files):
            return "stopped"
    return "complete"


def with_trial(plan: Plan, folder: Path, name: str, values: Mapping[str, Any]) -> Plan:
    """Return a plan with the values of a trial; its files are in `folder`/`name`."""
    quiet = {"observers.progress": False, "observers.plots": False, "observers.mlflow": None}
    trial = changed(plan, {**values, **quiet, "output": str(folder), "name": name})
    return trial if plan.teacher is not None else evolve(trial, data=evolve(plan.data, test=None))  # rows to submit need no predictions


def total(plan: Plan, predictions: list[Any]) -> float:
    """Score the predictions of all folds as a run does."""
    return score(decided(plan, predictions)[1], plan.metric).overall


def _files(plan: Plan) -> list[FoldFolder]:
    return [FoldFolder(plan.folder, place) for place, _ in enumerate(plan.folds, 1)]
