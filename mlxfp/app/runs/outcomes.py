"""Outputs of a run after the training of all folds: scores, test predictions, submission and receipt (hashes of all files)."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from mlxfp import Dataset
from mlxfp.app.kaggle.ensembling.calibration import Threshold, threshold
from mlxfp.app.kaggle.ensembling.ensembles import mean
from mlxfp.app.kaggle.ensembling.stacking import second_stage
from mlxfp.app.kaggle.specs.reading import PARTS, hash_file
from mlxfp.app.kaggle.specs.spec_files import save_spec, to_tree
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.specs.tables import column_values
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, Score, fold_predictions, out_of_fold, score, score_in
from mlxfp.app.kaggle.validation.scoring import Numbers, labels_of
from mlxfp.app.reports.baselines import constant_score
from mlxfp.app.reports.reading import Scored
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import csv_text, read_array, read_json, write_json, write_text
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.events import Ended, Noted, RunEvent
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.submission import make_submission, submission_files
from mlxfp.app.tasks.warnings import FEWEST_DUPLICATES, duplicated
from mlxfp.inspect import fingerprint
from mlxfp.support.blas import blas_threads
from mlxfp.support.errors import DataError
from mlxfp.support.structuring import flatten

_OF_VALUES = ("mae", "r2", "rmse")  # metrics that do not need predictions of at least 0
_PACKAGES = ("mlxfp", "mlx", "numpy", "pyarrow", "tokenizers", "attrs", "scikit-learn", "lightgbm", "catboost")


def combine(predictions: Sequence[Numbers], threshold: float | None) -> Numbers:
    """Average the predictions of the models of all folds, float64[N] or [N, C]. Return labels if `threshold` is not None."""
    combined = mean(predictions)
    return combined if threshold is None else Threshold(threshold)((combined,))


def environment() -> dict[str, Any]:
    """Return the package versions and the number of OpenBLAS threads, which may change the last digits of results."""
    versions: dict[str, Any] = {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    threads = blas_threads()
    return versions if threads is None else versions | {"blas_threads": threads}


def claim_environment(folder: Path) -> Iterator[RunEvent]:
    """Write the package versions and the number of OpenBLAS threads of a new run.

    For a continued run, restore the number of OpenBLAS threads, and yield a message about changed versions.
    """
    before = read_json(folder / folders.ENVIRONMENT) if (folder / folders.ENVIRONMENT).is_file() else {}
    blas_threads(before.get("blas_threads"))  # the number of threads can change the last digits of results
    now = environment()
    if not before:
        write_json(folder / folders.ENVIRONMENT, now)
    elif before != now:
        changed = ", ".join(f"{name} {before.get(name)} to {now.get(name)}" for name in now if before.get(name) != now[name])
        yield Noted(folder, f"Package versions have changed since the start of the run: {changed}. Results may differ in the last digits.")


def write_folds(plan: Plan) -> None:
    """Write the validation fold of each row to `folds.csv`, with one column for each repeat."""
    folds = [(f"repeat_{repeat + 1}", assigned + 1) for repeat, assigned in enumerate(plan.folds.assignments)]
    write_text(plan.folder / folders.FOLDS, csv_text([ids_of(plan.data.spec, plan.rows, plan.folds.size), *folds]))


def outcome(plan: Plan) -> Ended | None:
    """Return the final event of a finished run, or None if an output file is missing or has changed."""
    folder, submission = plan.folder, plan.folder / plan.submission
    if not folders.is_done(folder) or (
        submission_files(plan.data) is not None and submission.name not in read_json(folder / folders.RECEIPT)["outputs"]
    ):
        return None
    return Ended(folder, score_in(read_json(folder / folders.METRICS)), submission if submission.is_file() else None)


def finish(plan: Plan, files: Sequence[FoldFolder]) -> Iterator[RunEvent]:
    """Write all outputs of finished folds."""
    folder = plan.folder
    save_spec(plan.data.spec, folder / folders.SPEC)
    write_folds(plan)
    oof, scored, limit = decided(plan, files)
    total: Score | None = None
    try:
        total = score(scored, plan.metric)
    except DataError as error:
        yield Noted(folder, f"{plan.metric.name} is undefined on the out-of-fold predictions: {error}")
    test = None if plan.data.test is None else mean_over_folds(files, limit)
    submission = write_outputs(plan, oof, metrics_of(plan, oof, scored, total, limit), test)
    write_receipt(plan, {"folds": [file.result() for file in files]})
    yield from ended(plan, oof, total, submission)


def ended(plan: Plan, oof: OutOfFold, total: Score | None, submission: Path | None) -> Iterator[RunEvent]:
    """Yield the final event of a run or of one of its models. For a run, first yield messages about the results."""
    if plan.folder.parent.name != folders.MEMBERS:
        yield from _remarks(plan, oof, total, submission)
    yield Ended(plan.folder, total, submission)


def _remarks(plan: Plan, oof: OutOfFold, total: Score | None, submission: Path | None) -> Iterator[RunEvent]:
    """Yield messages about a useless score, predictions below 0 and a missing sample submission."""
    constant = None if total is None else constant_score(Scored(plan.data.spec, plan.metric, (), oof, None))
    if total is not None and constant is not None and not plan.metric.better(total.overall, constant):
        yield Noted(
            plan.folder,
            f"The model predicts no better than a constant: {plan.metric.name} {total.overall:.4f}, and {constant:.4f} with the same "
            "prediction for every row. Give the run more time, or columns that tell more about the target.",
        )
    below = (oof.predictions < 0) & (np.nanmin(oof.targets, axis=0) >= 0)
    if plan.metric.name in _OF_VALUES and below.any():
        yield Noted(
            plan.folder,
            f"{below.sum():,} of {below.size:,} out-of-fold predictions are below 0, but no target is. If values below 0 are impossible, "
            f"write 0 instead of such predictions, or train on relative errors: competition.metric=rmsle{folders.other_name(plan.folder)}.",
        )
    if plan.data.test is not None and submission is None:
        where = f"The test predictions are in {plan.folder / folders.TEST}."
        yield Noted(plan.folder, f"{where} No submission was written, because {plan.data.folder} has no sample submission.")


def oof_predictions(plan: Plan, files: Sequence[FoldFolder]) -> OutOfFold:
    """Read the out-of-fold predictions of a model on the folds of a run."""
    parts = [fold_predictions(fold, read_array(file / folders.FOLD_OOF)) for fold, file in zip(plan.folds, files, strict=True)]
    return out_of_fold(plan.folds, plan.data.targets, parts)


def mean_over_folds(files: Sequence[FoldFolder], threshold: float | None = None) -> Numbers:
    """Read the test predictions of a model, averaged over the folds. With `threshold`, return labels."""
    return combine([read_array(file / folders.FOLD_TEST) for file in files], threshold)


def decided(plan: Plan, files: Sequence[FoldFolder]) -> tuple[OutOfFold, OutOfFold, float | None]:
    """Return the out-of-fold predictions, the predictions to score, and the tuned threshold.

    If `plan.threshold` is true, the predictions to score are labels, made with the tuned threshold. Otherwise, the predictions to
    score are the out-of-fold predictions, and the threshold is None.
    """
    oof = oof_predictions(plan, files)
    if not plan.threshold:
        return oof, oof, None
    tuned = second_stage(threshold(plan.metric), oof)
    assert isinstance(tuned.combine, Threshold)
    return oof, tuned.oof, tuned.combine.value


def write_outputs(plan: Plan, oof: OutOfFold, metrics: Mapping[str, Any], test: Numbers | None) -> Path | None:
    """Write `metrics.json`, the predictions and, if there is a sample submission, the submission. Return the path of the submission.

    `test` holds the test predictions, or None without test rows.
    """
    write_json(plan.folder / folders.METRICS, metrics)
    _write_oof(plan, oof)
    if plan.data.test is None or test is None:
        return None
    ids = ids_of(plan.data.spec, plan.data.test, len(test))
    write_text(plan.folder / folders.TEST, csv_text([ids, *prediction_columns(plan.data.spec, test).items()]))
    if (filled := make_submission(plan.data, test)) is None:
        return None
    submission = plan.folder / plan.submission
    filled.write(submission)
    return submission


def _write_oof(plan: Plan, oof: OutOfFold) -> None:
    """Write targets and out-of-fold predictions as CSV, with a line per row. Each repeat of the folds has its own prediction columns."""
    truth = oof.targets.reshape(len(oof.targets), -1)
    names = ["target"] if truth.shape[1] == 1 else [f"target_{name}" for name in plan.data.spec.target]
    columns = [ids_of(plan.data.spec, plan.rows, plan.folds.size), *zip(names, truth.T, strict=True)]
    for repeat, predictions in enumerate(oof.predictions):
        prefix = f"repeat_{repeat + 1}_" if plan.folds.repeats > 1 else ""
        columns += [(f"{prefix}{name}", column) for name, column in prediction_columns(plan.data.spec, predictions).items()]
    write_text(plan.folder / folders.OOF, csv_text(columns))


def prediction_columns(spec: DatasetSpec, predictions: Numbers) -> dict[str, Numbers]:
    """Return predictions as columns by name: [N] as the second of two classes, or as `prediction`; [N, C] as the classes or targets."""
    if predictions.ndim == 1:
        has_name = len(spec.outputs) == 2 and spec.outputs[1] not in (spec.id, "row", "target")  # other columns of the files
        return {spec.outputs[1] if has_name else "prediction": predictions}
    return dict(zip(spec.outputs, predictions.T, strict=True))


def target_columns(spec: DatasetSpec, predictions: Numbers) -> dict[str, Any]:
    """Convert predictions to one column per target. A column holds class names, labels 0 and 1 (no and yes), or numbers of a regression."""
    if spec.task.one_class:
        return {spec.target[0]: np.array(spec.classes)[labels_of(predictions).astype(np.int64)]}
    values = predictions.reshape(len(predictions), -1).T
    return dict(zip(spec.target, (values > 0.5).astype(np.int64) if spec.task.has_classes else values, strict=True))


def metrics_of(plan: Plan, oof: OutOfFold, scored: OutOfFold, total: Score | None, limit: float | None) -> dict[str, Any]:
    """Return the content of `metrics.json`. The argument `scored` holds the predictions with the threshold applied."""
    numbers: dict[str, Any] = {}
    if total is not None:
        mean, sd, *folds = (None if isnan(value) else value for value in (total.mean, total.sd, *total.folds))
        numbers = {"oof": total.overall, "folds": folds, "mean": mean, "sd": sd, **_without_duplicates(plan, scored)}
    if limit is not None:
        numbers |= {"threshold": limit, "oof_at_one_half": score(oof, plan.metric).overall}
    return {"metric": plan.metric.name, "greater_is_better": plan.metric.greater_is_better, **numbers}


def _without_duplicates(plan: Plan, scored: OutOfFold) -> dict[str, Any]:
    """Score only rows without a duplicate in another fold. Return the score in a dict. The dict is empty if duplicates are rare."""
    alike = duplicated(plan.data, plan.folds)
    if alike.mean() < FEWEST_DUPLICATES or not alike.any():
        return {}
    rows = [(assigned >= 0) & ~alike for assigned in scored.folds.assignments]
    if not all(kept.any() for kept in rows):
        return {"without_duplicates": None}
    try:
        values = [plan.metric(scored.targets[kept], predictions[kept]) for kept, predictions in zip(rows, scored.predictions, strict=True)]
    except DataError:  # the metric is undefined on the rows without duplicates
        return {"without_duplicates": None}
    return {"without_duplicates": float(np.mean(values))}


def duplicate_warnings(folder: Path) -> Iterator[RunEvent]:
    """Yield a message with two scores if rows have duplicates in other folds: the score without these rows, and the score of all rows."""
    numbers = read_json(folder / folders.METRICS)
    if (others := numbers.get("without_duplicates")) is not None:
        alone = f"{numbers['metric']} {others:.4f} without rows equal to a row in another fold"
        yield Noted(folder, f"The score is {alone}, and {numbers['oof']:.4f} with all rows.")


def write_receipt(plan: Plan, parts: Mapping[str, Any]) -> None:
    """Write the receipt: options, versions, hashes of inputs and outputs, and the results in `parts`. Equal runs have equal receipts.

    Also remove an earlier report, which may show different outputs.
    """
    (plan.folder / folders.REPORT).unlink(missing_ok=True)
    names = (folders.SPEC, folders.FOLDS, folders.OOF, folders.TEST, folders.METRICS, plan.submission)
    outputs = [plan.folder / name for name in names]
    inputs = {part: plan.data.path_of(part) for part in PARTS}
    write_json(
        plan.folder / folders.RECEIPT,
        {
            "config": flatten(plan.settings),
            "versions": environment(),
            "data": {"files": {part: hash_file(path) for part, path in inputs.items() if path is not None}, **identities(plan)},
            **parts,
            "outputs": {path.name: hash_file(path) for path in outputs if path.is_file()},
        },
    )


def identities(plan: Plan) -> dict[str, str]:
    """Return the fingerprints of options, data, folds and code. A run can continue only with the same fingerprints."""
    test = {} if plan.data.test is None else {"test": fingerprint(plan.data.test)}
    return {
        "config": folders.config_fingerprint(plan.settings),
        "spec": fingerprint(to_tree(plan.data.spec)),  # without default values, such as new fields of a later version
        "rows": fingerprint(plan.rows),
        **test,
        "folds": plan.folds.fingerprint,
        **{file.name: hash_file(file) for path in plan.inputs for file in _model_files(path)},
        **{f"module {name}": hash_file(file) for name, file in plan.user_parts.files.items()},
    }


def _model_files(path: Path) -> list[Path]:
    """Return the weight and tokenizer files in a folder. The argument `path` can also be a single file."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    return sorted(file for file in path.iterdir() if file.suffix in (".json", ".safetensors", ".txt", ".bpe") and file.is_file())


def ids_of(spec: DatasetSpec, rows: Dataset[Any], count: int) -> tuple[str, Any]:
    """Return the name and the values of the identifier column, or row numbers if the spec has no identifier."""
    return (spec.id, column_values(rows, spec.id)) if spec.id is not None else ("row", np.arange(count))
