"""The search for better options: each trial trains the folds of a run with other option values."""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any, Literal

import numpy as np
from attrs import evolve, frozen

from mlxfp.app.kaggle.validation.out_of_fold import score
from mlxfp.app.run_folders.files import read_array
from mlxfp.app.run_folders.folders import FOLD_OOF, FoldFolder
from mlxfp.app.runs.events import FoldEnded, Noted, RunEvent
from mlxfp.app.runs.folding import run_fold
from mlxfp.app.runs.from_config.planning import changed
from mlxfp.app.runs.outcomes import decided
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.tuning.events import TrialEnded
from mlxfp.app.runs.tuning.spaces import Space, values_of
from mlxfp.app.runs.tuning.studies import BestTrial, Study, Trial, opened
from mlxfp.support.errors import MlxfpError
from mlxfp.support.progress import Progress


@frozen
class Limits:
    """Limits of a search: the maximum number of trials, and the seconds until the search ends. Only the first trial may take longer."""

    trials: int | None
    seconds: float | None


def search(
    plan: Plan, space: Space, folder: Path, limits: Limits, note: Callable[[BestTrial], None]
) -> Generator[RunEvent, None, BestTrial]:
    """Start or continue a search in `folder`. Yield the events of its trials, and return the best trial.

    After each trial, `note` is called with the best trial so far.
    """
    end = None if limits.seconds is None else monotonic() + limits.seconds
    how: dict[str, Any] = {"maximize": plan.metric.greater_is_better, "seed": plan.training.seed}

    def late() -> bool:
        return end is not None and monotonic() >= end

    with opened(folder, space, values_of(plan, space), note, **how) as study:
        with Progress("trials", unit="trial", total=lambda: limits.trials, done=study.ended, lines=True) as progress:
            while (trial := study.next(limits.trials, late=late())) is not None:
                events = _run(study, folder, trial, plan, late)
                yield from _shown(events, progress) if plan.training.progress else events
        return study.best()


def _shown(events: Iterator[RunEvent], progress: Progress) -> Iterator[RunEvent]:
    """Yield the events of a trial, and update the progress display after each fold and trial."""
    for event in events:
        yield event
        if isinstance(event, FoldEnded | TrialEnded):
            progress.update(int(isinstance(event, TrialEnded)))


def _run(study: Study, folder: Path, trial: Trial, plan: Plan, late: Callable[[], bool]) -> Generator[RunEvent, None, None]:
    """Run a trial. The next search continues a trial that was interrupted."""
    trial_plan = _with_trial(plan, folder, f"trial-{trial.number:04}", {} if trial.given else trial.values)
    outcome: Literal["complete", "stopped", "failed", "late"] = "failed"
    reached, reason = None, ""
    try:
        outcome = yield from _train(study, trial, trial_plan, late)
        reached = _total(trial_plan, [read_array(file / FOLD_OOF) for file in _files(trial_plan)]) if outcome == "complete" else None
    except OSError:  # errors such as a full disk are not caused by the option values of the trial
        raise
    except Exception as error:
        if trial.given:
            error.add_note("This is an error of the original configuration. Correct the configuration before tuning.")
            raise
        reason = str(error) if isinstance(error, MlxfpError) else f"{type(error).__name__}: {error}"
    if outcome == "late":
        ended = [fold.done for fold in _files(trial_plan)]
        yield Noted(
            folder,
            f"The time limit interrupted trial {trial.number} after {sum(ended)} of {len(ended)} folds. To continue this trial, "
            "repeat the command.",
        )
        return
    study.end(trial, reached, reason or outcome)
    rmtree(trial_plan.folder, ignore_errors=True)
    yield TrialEnded(folder, trial.number, outcome, reached, trial.values, reason)


def _train(
    study: Study, trial: Trial, plan: Plan, late: Callable[[], bool]
) -> Generator[RunEvent, None, Literal["complete", "stopped", "late"]]:
    """Train the folds of a trial until the trial is pruned or the time limit is reached."""
    files, scores = _files(plan), list[float]()
    for number, (fold, fold_folder) in enumerate(zip(plan.folds, files, strict=True), 1):
        for event in run_fold(plan, fold, fold_folder, ()):
            yield event
            if not isinstance(event, FoldEnded):
                if late() and not trial.given:
                    return "late"
            elif event.score is not None:
                scores.append(event.score)
        # prune no trial before half of its folds are finished
        behind = bool(scores) and study.falls_behind(trial, number, float(np.mean(scores)))
        if behind and len(files) <= 2 * number < 2 * len(files):
            return "stopped"
    return "complete"


def _with_trial(plan: Plan, folder: Path, name: str, values: Mapping[str, Any]) -> Plan:
    """Return a copy of the run plan for one trial, with the option values `values`. The trial writes its files to `folder`/`name`."""
    quiet = {"observers.progress": False, "observers.plots": False, "observers.mlflow": None}
    trial = changed(plan, {**values, **quiet, "output": str(folder), "name": name})
    return evolve(trial, data=evolve(plan.data, test=None))  # trials need only the validation score


def _total(plan: Plan, predictions: list[Any]) -> float:
    """Return the score over all folds, with the same threshold tuning as in a finished run."""
    return score(decided(plan, predictions)[1], plan.metric).overall


def _files(plan: Plan) -> list[FoldFolder]:
    return [FoldFolder(plan.folder, number) for number, _ in enumerate(plan.folds, 1)]
