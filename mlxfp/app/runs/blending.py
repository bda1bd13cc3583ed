"""Function `blend` for combining finished runs."""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Literal, get_args

from attrs import evolve, frozen

from mlxfp.app.kaggle.ensembling.ensembles import fixed, greedy, mean, rank, vote
from mlxfp.app.kaggle.ensembling.stacking import second_stage
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, Score, fold_predictions, out_of_fold, score
from mlxfp.app.kaggle.validation.scoring import Metric
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.reports.writing import write_at_the_end
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_json
from mlxfp.app.runs.auto.results import has_members, read_choice
from mlxfp.app.runs.finished import finished
from mlxfp.app.runs.outcomes import mean_over_folds, metrics_of, oof_predictions, write_outputs
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.reporting import finished_plan
from mlxfp.support.checks import check_choice
from mlxfp.support.errors import ArgumentError, ConfigError

Blend = Literal["mean", "rank", "vote", "greedy"]
_FIXED = {"mean": mean, "rank": rank, "vote": vote}
# All blended runs must have the same rows, test rows and folds.
# If two runs had different folds, one run could train a model on the validation rows of the other run.
_SAME = ("rows", "test", "folds")


@frozen
class Blended:
    """Score and submission of blended runs, returned by `blend`. `submission` is None without a test file or a sample submission.

    `parts` maps each run folder to the score of this run on the rows of the blend. With folds by time, the first fold is not scored.

    >>> Blended(Score("accuracy", (0.8, 0.9), 0.85), {}, None).score.overall
    0.85
    """

    score: Score
    parts: dict[str, float]
    submission: Path | None


def blend(runs: Sequence[str | PathLike[str]], out: str | PathLike[str], *, method: Blend = "mean", code: Code = None) -> Blended:
    """Combine the predictions of finished runs. Write out-of-fold and test predictions, metrics, submission and report to `out`.

    `method` is "mean", "rank" (mean of ranks, for ranking metrics), "vote" (for classes), or "greedy" (weights that improve the metric,
    learned for each fold from the other folds). The runs need the same data, `data.limit` and `validation`. Metric and submission format
    are taken from the first run. See `run` for the argument `code`. Raises `ConfigError` if rows or folds of the runs differ, `DataError`
    for an unfinished run or changed data, and `ArgumentError` for fewer than two runs, or if the folder `out` is not empty.

    >>> import mlxfp as fp
    >>> fp.runs.blend(["runs/first"], "runs/both")
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: A blend needs at least two runs, got 1. Add the folder of another run.
    """
    check_choice(get_args(Blend), method=method)
    if len(runs) < 2:
        raise ArgumentError(f"A blend needs at least two runs, got {len(runs)}. Add the folder of another run.")
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"The output folder of a blend must be empty or new, and {str(folder)!r} is not empty. Give another folder.")
    every = [Path(run) for run in runs]
    files = [finished(run)[1] for run in every]
    if (whole := next((run for run, run_files in zip(every, files, strict=True) if not run_files), None)) is not None:
        models = [quote(str(model)) for run in every for model in (read_choice(run)[0] if has_members(run) else (run,))]
        raise ArgumentError(
            f"A blend combines single models, and the run in {whole} has several models. Give the folders of the models: "
            f"mlxfp blend {' '.join(models)} --out {quote(str(folder))} --method greedy"
        )
    _check_same(every)
    first = finished_plan(every[0], code)
    oofs = [oof_predictions(first, run_folds) for run_folds in files]
    blended = second_stage(greedy(first.metric) if method == "greedy" else fixed(_FIXED[method]), *oofs)
    total = score(blended.oof, first.metric)
    parts = {str(run): _score_on(blended.oof, oof, first.metric) for run, oof in zip(every, oofs, strict=True)}
    metrics = metrics_of(first, blended.oof, blended.oof, total, None) | {"method": method, folders.BLENDED: parts}
    test = None if first.data.test is None else blended.predict(*map(mean_over_folds, files))
    submission = write_outputs(evolve(first, folder=folder), blended.oof, metrics, test)
    if first.plots and (trouble := write_at_the_end(folder, lambda _: LinearModel(first.data, first.folds), None, code=code)):
        warnings.warn(trouble, RuntimeWarning, stacklevel=2)
    return Blended(total, parts, submission)


def _check_same(runs: Sequence[Path]) -> None:
    known = [read_json(run / folders.DATA) for run in runs]
    for run, about in zip(runs, known, strict=True):
        differ = [name for name in _SAME if about.get(name) != known[0].get(name)]
        if differ:
            raise ConfigError(
                f"The run in {run} has different {', '.join(differ)} from the run in {runs[0]}, so validation rows of one run may "
                "be training rows of the other. Train both runs with the same data.path, data.limit and validation."
            )


def _score_on(whole: OutOfFold, oof: OutOfFold, metric: Metric) -> float:
    """Compute the score of one run on the rows for which the blend has predictions."""
    parts = [fold_predictions(fold, oof.predictions[fold.repeat, fold.valid]) for fold in whole.folds]
    return score(out_of_fold(whole.folds, whole.targets, parts), metric).overall
