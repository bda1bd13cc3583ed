"""Unbiased estimate of the score after tuning (nested cross-validation), on rows that were not used for tuning."""

from collections.abc import Generator
from pathlib import Path

from attrs import evolve

from mlxfp import select
from mlxfp.app.run_folders.files import read_array
from mlxfp.app.run_folders.folders import FOLD_OOF, FoldFolder
from mlxfp.app.runs.events import RunEvent
from mlxfp.app.runs.folding import run_fold
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.tuning.searching import Limits, search, total, with_trial
from mlxfp.app.runs.tuning.spaces import Space
from mlxfp.support.errors import ConfigError


def check_nested(plan: Plan) -> None:
    """Raise `ConfigError` for a run whose folds cannot be split into inner folds."""
    if plan.teacher is not None:
        raise ConfigError(
            "A nested estimate cannot use data.pseudo_labels, because the pseudo-labels belong to other folds. Leave out --nested "
            "or data.pseudo_labels."
        )


def estimate(plan: Plan, space: Space, folder: Path, limits: Limits) -> Generator[RunEvent, None, float]:
    """Tune separately on the training rows of each fold. Return the score of the best trials on the validation rows.

    All files are written to `folder`. An interrupted estimate continues there.
    """
    from filelock import FileLock

    predictions = []
    for number, fold in enumerate(plan.folds, 1):
        fold_folder = folder / f"fold-{number:02}"
        data = evolve(plan.data, rows=select(fold.train)(plan.rows), test=None)
        result = yield from search(evolve(plan, data=data, folds=plan.make_folds(data)), space, fold_folder, limits, lambda _: None)
        best = with_trial(plan, fold_folder, f"best-{result.trial:04}", result.values)
        files = FoldFolder(best.folder, number)
        with FileLock(fold_folder / ".best.lock"):
            yield from run_fold(best, fold, files, ())
        predictions.append(read_array(files / FOLD_OOF))
    return total(plan, predictions)
