"""What is made of a run's folds: scores, predictions of the test rows, the file to hand in, the picture, the receipt."""

import csv
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from mlxfp.core.errors import DataError, MissingExtraError
from mlxfp.core.identity import fingerprint
from mlxfp.kaggle.ensembling import ensembles
from mlxfp.kaggle.ensembling.stacking import second_stage
from mlxfp.kaggle.ensembling.thresholds import Threshold, threshold
from mlxfp.kaggle.specs.reading import PARTS, hash_file
from mlxfp.kaggle.specs.spec_files import save_spec
from mlxfp.kaggle.specs.specs import CLASSED, DatasetSpec
from mlxfp.kaggle.specs.tables import column_values
from mlxfp.kaggle.validation.out_of_fold import OutOfFold, Score, out_of_fold, score
from mlxfp.kaggle.validation.scoring import Numbers
from mlxfp.runs.events import Ended, Noted, RunEvent
from mlxfp.runs.folders import (
    FOLDS,
    METRICS,
    OOF,
    PICTURE,
    RECEIPT,
    SPEC,
    TEST,
    flat,
    is_as_written,
    read_json,
    settled,
    write_json,
    write_text,
)
from mlxfp.runs.folding import FoldFolder
from mlxfp.runs.plans import Plan
from mlxfp.runs.submission import hand_in
from mlxfp.training.observers.plotting import plot_run

_PACKAGES = ("mlxfp", "mlx", "numpy", "pyarrow", "tokenizers", "attrs", "scikit-learn")
_COMBINE = {"mean": ensembles.mean, "rank": ensembles.rank, "vote": ensembles.vote}


@frozen
class Decision:
    """How predictions of new rows are made of those of the folds' models, as the whole run found it."""

    ensemble: str
    threshold: float | None = None

    def __call__(self, predictions: Sequence[Numbers]) -> Numbers:
        """Combine the predictions of all folds: float64[N], or [N, C]; labels where there is a threshold."""
        made = _COMBINE[self.ensemble](predictions)
        return made if self.threshold is None else Threshold(self.threshold)((made,))


def environment() -> dict[str, Any]:
    """Return the versions that results may depend on."""
    return {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine(), **_versions()}


def write_folds(plan: Plan) -> None:
    """Write who validates where: a line for each row, a column for each repeat."""
    ids = _ids(plan)
    names = [f"repeat_{repeat + 1}" for repeat in range(plan.folds.repeats)]
    columns = [ids, *(assigned + 1 for assigned in plan.folds.assignments)]
    write_text(plan.folder / FOLDS, _csv([_id_name(plan), *names], columns))


def is_done(folder: Path) -> bool:
    """Whether a run has ended in a folder, and what came out is as it was written."""
    if not (folder / RECEIPT).is_file():
        return False
    return all(is_as_written(folder / name, digest) for name, digest in read_json(folder / RECEIPT)["outputs"].items())


def outcome(plan: Plan) -> Ended | None:
    """Return how a run ended whose files are all there, as they were written, or None: then there is something left to do."""
    folder, handed = plan.folder, plan.folder / plan.config.competition.submission
    if not is_done(folder) or (_can_hand_in(plan) and handed.name not in read_json(folder / RECEIPT)["outputs"]):
        return None
    numbers = read_json(folder / METRICS)
    folds = [nan if value is None else value for value in numbers.get("folds", ())]
    found = Score(numbers["metric"], tuple(folds), numbers["oof"]) if "oof" in numbers else None
    return Ended(folder, found, handed if handed.is_file() else None)


def finish(plan: Plan, files: Sequence[FoldFolder]) -> Iterator[RunEvent]:
    """Make everything of folds that are done."""
    folder, competition = plan.folder, plan.config.competition
    save_spec(plan.problem.spec, folder / SPEC)
    write_folds(plan)
    oof = out_of_fold(plan.folds, plan.problem.targets, [each.oof(fold) for each, fold in zip(files, plan.folds, strict=True)])
    _write_oof(plan, oof)
    decision, judged = Decision(competition.ensemble), oof
    if competition.threshold:
        tuned = second_stage(threshold(plan.metric), oof)
        assert isinstance(tuned.combine, Threshold)
        decision, judged = evolve(decision, threshold=tuned.combine.value), tuned.oof
    found: Score | None = None
    try:
        found = score(judged, plan.metric)
    except DataError as error:
        yield Noted(folder, f"{plan.metric.name} is undefined on the out-of-fold predictions: {error}")
    write_json(folder / METRICS, _metrics(plan, oof, found, decision))
    handed: Path | None = None
    if plan.problem.test is not None:
        made = decision([each.test() for each in files])
        _write_test(plan, made)
        handed, why = _hand_in(plan, made)
        if why:
            yield Noted(folder, why)
    yield from draw(plan, files)
    _write_receipt(plan, files)
    yield Ended(folder, found, handed)


def draw(plan: Plan, files: Sequence[FoldFolder]) -> Iterator[RunEvent]:
    """Draw the picture of the run, if it is asked for and can be drawn."""
    if plan.config.observers.plots:
        try:
            plot_run({f"fold {each.fold}": each.log for each in files}, plan.folder / PICTURE)
        except MissingExtraError as error:
            yield Noted(plan.folder, f"No picture was drawn. {error}")


def _can_hand_in(plan: Plan) -> bool:
    return plan.problem.path_of("test") is not None and plan.problem.path_of("sample") is not None


def _hand_in(plan: Plan, made: Numbers) -> tuple[Path | None, str]:
    test, sample = plan.problem.path_of("test"), plan.problem.path_of("sample")
    if test is None or sample is None:
        return None, f"There is no sample submission in {plan.problem.folder}, so none was made. The predictions are in {TEST}."
    path = plan.folder / plan.config.competition.submission
    hand_in(plan.metric, plan.problem.spec, made, test=test, sample=sample).write(path)
    return path, ""


def _write_oof(plan: Plan, oof: OutOfFold) -> None:
    truth = oof.targets.reshape(len(oof.targets), -1)
    targets = ["target"] if truth.shape[1] == 1 else [f"target_{name}" for name in plan.problem.spec.target]
    names, columns = [_id_name(plan), *targets], [_ids(plan), *truth.T]
    for repeat, predictions in enumerate(oof.predictions):
        prefix = f"repeat_{repeat + 1}_" if plan.folds.repeats > 1 else ""
        names += _names(plan, predictions, prefix)
        columns += list(predictions.reshape(len(predictions), -1).T)
    write_text(plan.folder / OOF, _csv(names, columns))


def _write_test(plan: Plan, made: Numbers) -> None:
    assert plan.problem.test is not None
    id_name = plan.problem.spec.id
    ids = np.arange(len(made)) if id_name is None else column_values(plan.problem.test, id_name)
    write_text(plan.folder / TEST, _csv([_id_name(plan), *_names(plan, made, "")], [ids, *made.reshape(len(made), -1).T]))


def prediction_names(spec: DatasetSpec, predictions: Numbers) -> tuple[str, ...]:
    """Name the columns of predictions, [N] or [N, C]: classes, or the targets where they are several."""
    if predictions.ndim == 1:
        return ("prediction",)
    return spec.classes if spec.kind in CLASSED and spec.kind != "multilabel" else spec.target


def _names(plan: Plan, predictions: Numbers, prefix: str) -> list[str]:
    return [f"{prefix}{name}" for name in prediction_names(plan.problem.spec, predictions)]


def _metrics(plan: Plan, oof: OutOfFold, found: Score | None, decision: Decision) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    if found is not None:
        mean, sd, *folds = (None if isnan(value) else value for value in (found.mean, found.sd, *found.folds))
        numbers = {"oof": found.overall, "folds": folds, "mean": mean, "sd": sd}
    plain = {"threshold": decision.threshold, "oof_at_one_half": score(oof, plan.metric).overall} if decision.threshold is not None else {}
    return {"metric": plan.metric.name, "greater_is_better": plan.metric.greater_is_better, **numbers, **plain}


def _write_receipt(plan: Plan, files: Sequence[FoldFolder]) -> None:
    """Say what the run was made of, and the hashes of what it made: the same receipt is the same run."""
    made = [plan.folder / name for name in (SPEC, FOLDS, OOF, TEST, METRICS, plan.config.competition.submission)]
    parts = {part: plan.problem.path_of(part) for part in PARTS}
    write_json(
        plan.folder / RECEIPT,
        {
            "config": flat(plan.config),
            "versions": environment(),
            "data": {"files": {part: hash_file(path) for part, path in parts.items() if path is not None}, **identities(plan)},
            "folds": [each.result() for each in files],
            "outputs": {path.name: hash_file(path) for path in made if path.is_file()},
        },
    )


def identities(plan: Plan) -> dict[str, str]:
    """Return what identifies the data and the folds of a run: another of these is another run."""
    test = {} if plan.problem.test is None else {"test": fingerprint(plan.problem.test)}
    given = [*_files(plan.config.model.path), *_files(plan.config.text.tokenizer)]
    return {
        "config": fingerprint(settled(plan.config)),
        "spec": fingerprint(plan.problem.spec),
        "rows": fingerprint(plan.rows),
        **test,
        "folds": plan.folds.fingerprint,
        **{file.name: hash_file(file) for file in given},
    }


def _files(path: str | None) -> list[Path]:
    """Find the files of weights and of a tokenizer: at a path, or in the folder there."""
    if path is None or not Path(path).is_dir():
        return [] if path is None or not Path(path).is_file() else [Path(path)]
    return sorted(file for file in Path(path).iterdir() if file.suffix in (".json", ".safetensors", ".txt", ".bpe") and file.is_file())


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _id_name(plan: Plan) -> str:
    return plan.problem.spec.id or "row"


def _ids(plan: Plan) -> Any:
    name = plan.problem.spec.id
    return np.arange(plan.folds.size) if name is None else column_values(plan.rows, name)


def _csv(names: Sequence[str], columns: Sequence[Any]) -> str:
    """Write columns as CSV: floats with all digits that they have, nothing for NaN."""
    text = StringIO()
    lists = [["" if value != value else value for value in np.asarray(column).tolist()] for column in columns]
    csv.writer(text, lineterminator="\n").writerows([names, *zip(*lists, strict=True)])
    return text.getvalue()
