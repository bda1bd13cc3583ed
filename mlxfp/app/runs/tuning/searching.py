"""The search for better options: each trial trains the folds of a run with other option values."""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any, Literal

import numpy as np
from attrs import evolve

from mlxfp.app.kaggle.validation.out_of_fold import score
from mlxfp.app.runs.events import FoldEnded, Noted, RunEvent, TrialEnded
from mlxfp.app.runs.folding import run_fold
from mlxfp.app.runs.from_config.planning import changed
from mlxfp.app.runs.outcomes import decided
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.tuning.studies import Study, Trial
from mlxfp.support.errors import MlxfpError
from mlxfp.support.progress import Progress


def search(study: Study, plan: Plan, folder: Path, *, trials: int | None, seconds: float | None) -> Iterator[RunEvent]:
    """Start or continue a search in `folder`, and yield the events of its trials.

    The search ends after `trials` trials, counted over all calls, or after `seconds`. Only the first trial may take longer.
    """
    end = None if seconds is None else monotonic() + seconds

    def late() -> bool:
        return end is not None and monotonic() >= end

    with Progress("trials", unit="trial", total=lambda: trials, done=study.ended, lines=True) as progress:
        while (trial := study.next(trials, late=late())) is not None:
            for event in _run(study, folder, trial, plan, late):
                yield event
                if plan.training.progress and isinstance(event, FoldEnded | TrialEnded):
                    progress.update(int(isinstance(event, TrialEnded)))


def _run(study: Study, folder: Path, trial: Trial, plan: Plan, late: Callable[[], bool]) -> Generator[RunEvent, None, None]:
    """Run a trial. The next search continues a trial that was interrupted."""
    trial_plan = _with_trial(plan, folder, f"trial-{trial.number:04}", {} if trial.given else trial.values)
    outcome: Literal["complete", "stopped", "failed", "late"] = "failed"
    reached, reason = None, ""
    try:
        outcome = yield from _train(study, trial, trial_plan, late)
        if outcome == "complete":  # tune the threshold as in a finished run
            reached = score(decided(trial_plan, trial_plan.fold_folders)[1], plan.metric).overall
    except OSError:  # errors such as a full disk are not caused by the option values of the trial
        raise
    except Exception as error:
        if trial.given:
            error.add_note("This is an error of the original configuration. Correct the configuration before tuning.")
            raise
        reason = str(error) if isinstance(error, MlxfpError) else f"{type(error).__name__}: {error}"
    if outcome == "late":
        ended = [fold.done for fold in trial_plan.fold_folders]
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
    files, scores = plan.fold_folders, list[float]()
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
    seconds = None if plan.minutes is None else 60 * plan.minutes / len(list(plan.folds))
    # Trials need only the validation score.
    return evolve(trial, data=evolve(plan.data, test=None), training=evolve(trial.training, seconds=seconds))
