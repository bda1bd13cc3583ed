"""Outputs of a run with several models: metrics, predictions and submission."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlxfp.app.kaggle.ensembling.calibration import Threshold
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.app.kaggle.validation.cross_validation import Predict
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold
from mlxfp.app.kaggle.validation.scoring import METRICS, Numbers
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_array, read_json
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.auto.choosing import Choice, Chosen, after_numbers, after_of
from mlxfp.app.runs.auto.members import Member, describe
from mlxfp.app.runs.events import Noted, RunEvent, Weighed
from mlxfp.app.runs.folding import Events, load_predictor
from mlxfp.app.runs.from_config.planning import changed, models_in
from mlxfp.app.runs.outcomes import combine, ended, mean_over_folds, metrics_of, oof_predictions, write_outputs, write_receipt
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import Plan

RunMember = Callable[[Plan], Events]


def planned(plan: Plan, member: Member) -> Plan:
    """Return the plan for training one model of a run with several models. The results of the model go to a subfolder."""
    board = plan.trackers.tensorboard
    options: dict[str, Any] = {
        "name": member.name,
        "output": str(plan.folder / folders.MEMBERS),
        "competition.threshold": False,
        "observers.minutes": None,  # the time limit applies to all models together
        "observers.progress": False,
        "observers.mlflow_model": None,
        "observers.tensorboard": None if board is None else str(Path(board, plan.trackers.name)),  # runs share model names
    }
    if plan.synthetic:
        inputs = {"path": folders.SYNTHETIC, "spec": folders.SPEC}
        options |= {f"data.{name}": str((plan.folder / file).resolve()) for name, file in inputs.items()}
    by_path = {f"{section}.{name}": value for section, values in member.values.items() for name, value in values.items()}
    return changed(plan, options | by_path)


def finish(
    plan: Plan, names: Sequence[str], choose: Callable[[Mapping[str, OutOfFold]], Chosen], left_out: Mapping[str, str]
) -> Iterator[RunEvent]:
    """Write all outputs of the run for the models in `names`. `left_out` holds the reasons for excluded models."""
    folder, count = plan.folder, len(list(plan.folds))
    files = {name: [FoldFolder(folder / folders.MEMBERS / name, index + 1) for index in range(count)] for name in names}
    chosen = choose({name: oof_predictions(plan, files[name]) for name in names})
    after = chosen.choice.after
    numbers = metrics_of(plan, chosen.oof, chosen.scored, chosen.score, after.value if isinstance(after, Threshold) else None)
    test = None if plan.data.test is None else chosen.choice(tuple(mean_over_folds(files[name]) for name in names))
    submission = write_outputs(plan, chosen.oof, numbers | _about(chosen, left_out), test)
    receipts = {name: hash_file(folder / folders.MEMBERS / name / folders.RECEIPT) for name in names}
    write_receipt(plan, {"members": receipts})
    yield from told(folder)
    yield from ended(plan, chosen.oof, chosen.score, submission)


def _about(chosen: Chosen, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of `metrics.json` about each model: score, weight, and improvement of the blend's score."""
    parts = {
        name: {"oof": score, "weight": weight, "adds": chosen.adds.get(name)}
        for (name, score), weight in zip(chosen.parts.items(), chosen.choice.weights, strict=True)
    }
    blend = {} if chosen.blend is None else {"blend": chosen.blend.overall}
    about = {name: text for name in (*parts, *left_out) if (text := describe(name))}
    return {**after_numbers(chosen.choice), "single": chosen.single, **blend, "about": about, "members": parts, "left_out": dict(left_out)}


def told(folder: Path) -> Iterator[RunEvent]:
    """Yield an event with the score and weight of each model in a blend, and a message if the submission uses only one of the models."""
    numbers = read_json(folder / folders.METRICS)
    for name, member in numbers["members"].items():
        yield Weighed(folder, name, member["oof"], member["weight"], member["adds"])
    if numbers["single"] is not None and "blend" in numbers:
        yield Noted(
            folder,
            f"The blend is worse than the member {numbers['single']}: out-of-fold {numbers['metric']} "
            f"{numbers['blend']:.4f} against {numbers['oof']:.4f}. The submission uses only {numbers['single']}. This score is slightly "
            "optimistic, because the member was chosen by score.",
        )


def fold_answers(plan: Plan, names: Sequence[str], number: int) -> tuple[Numbers, ...]:
    """Return the predictions of each model for the validation rows of one fold. The argument `number` is the fold number, starting at 1."""
    return tuple(read_array(FoldFolder(plan.folder / folders.MEMBERS / name, number) / folders.FOLD_OOF) for name in names)


def has_members(folder: Path) -> bool:
    """Return True if a finished run has several models."""
    return "members" in read_json(folder / folders.METRICS)


def read_choice(folder: Path) -> tuple[tuple[Path, ...], Choice]:
    """Return the run folders of the models with nonzero weight, and the function that combines their predictions."""
    numbers = read_json(folder / folders.METRICS)
    weights = {name: member["weight"] for name, member in numbers["members"].items() if member["weight"] > 0}
    return tuple(folder / folders.MEMBERS / name for name in weights), Choice(
        tuple(weights.values()), after_of(numbers), METRICS[numbers["metric"]].errors == "logarithmic"
    )


def fold_model(run: Path, code: Code, index: int) -> Predict:
    """Return the trained model of a fold, where `index` is the index of the fold.

    If the run blends several models, the returned model combines the predictions of these models with the weights of the run.
    """
    if has_members(run):
        members, choice = read_choice(run)
        models = [load_predictor(models_in(member, code), FoldFolder(member, index + 1)) for member in members]
        return lambda rows: choice(tuple(model(rows) for model in models))
    model, limit = load_predictor(models_in(run, code), FoldFolder(run, index + 1)), read_json(run / folders.METRICS).get("threshold")
    return lambda rows: combine([model(rows)], limit)
