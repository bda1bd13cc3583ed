"""Outputs of a run with several members: metrics, predictions and submission."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlxfp.app.kaggle.ensembling.calibration import Threshold
from mlxfp.app.kaggle.ensembling.ensembles import mean
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, fold_predictions, out_of_fold
from mlxfp.app.kaggle.validation.scoring import METRICS, Numbers
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_array, read_json, write_json
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.auto.choosing import Choice, Chosen, after_numbers, after_of
from mlxfp.app.runs.auto.members import Member
from mlxfp.app.runs.events import Ended, Noted, RunEvent, Weighed
from mlxfp.app.runs.folding import Events
from mlxfp.app.runs.from_config.planning import changed
from mlxfp.app.runs.outcomes import metrics_of, outcome, write_oof, write_receipt, write_test
from mlxfp.app.runs.plans import Plan

RunMember = Callable[[Plan], Events]


def planned(made: Plan, member: Member) -> Plan:
    """Return the plan of a member, a run in a subfolder."""
    own: dict[str, Any] = {"output": str(made.folder / folders.MEMBERS)}
    if made.synthetic:
        own |= {f"data.{name}": str((made.folder / file).resolve()) for name, file in (("path", folders.SYNTHETIC), ("spec", folders.SPEC))}
    if made.auto:
        own["observers.minutes"] = None  # of all members together
    return changed(made, own | member.options(made.trackers))


def told_before(made: Plan) -> Generator[RunEvent, None, bool]:
    """Yield the final events of a finished run. Return True if the run is finished."""
    over = outcome(made)
    if over is not None:
        yield from _told(made.folder)
        yield over
    return over is not None


def noted_once(events: Iterator[RunEvent]) -> Iterator[RunEvent]:
    """Drop notes with a message that was yielded before."""
    said = set[str]()
    for event in events:
        if isinstance(event, Noted):
            if event.message in said:
                continue
            said.add(event.message)
        yield event


def finish(
    made: Plan, names: Sequence[str], choose: Callable[[Mapping[str, OutOfFold]], Chosen], left_out: Mapping[str, str]
) -> Iterator[RunEvent]:
    """Write all outputs for the members `names`. `left_out` has the reasons of excluded members."""
    folder, files = made.folder, {name: _files_of(made, name) for name in names}
    chosen = choose({name: _oof(made, files[name]) for name in names})
    write_oof(folder / folders.OOF, made, chosen.oof)
    after = chosen.choice.after
    numbers = metrics_of(made, chosen.oof, chosen.scored, chosen.score, after.value if isinstance(after, Threshold) else None)
    write_json(folder / folders.METRICS, numbers | _about(chosen, left_out))
    submission: Path | None = None
    if made.data.test is not None:
        submission = yield from write_test(made, chosen.choice(tuple(_of_test(files[name]) for name in names)))
    receipts = {name: hash_file(folder / folders.MEMBERS / name / folders.RECEIPT) for name in names}
    write_receipt(made, {"members": receipts})
    yield from _told(folder)
    yield Ended(folder, chosen.score, submission)


def _about(chosen: Chosen, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of `metrics.json` about members: scores, weights and improvements of the blend."""
    parts = {
        name: {"oof": score, "weight": weight, "adds": chosen.adds.get(name)}
        for (name, score), weight in zip(chosen.parts.items(), chosen.choice.weights, strict=True)
    }
    blend = {} if chosen.blend is None else {"blend": chosen.blend.overall}
    return {**after_numbers(chosen.choice), "single": chosen.single, **blend, "members": parts, "left_out": dict(left_out)}


def _told(folder: Path) -> Iterator[RunEvent]:
    """Yield the score and weight of each member, and a note if one member is submitted alone."""
    numbers = read_json(folder / folders.METRICS)
    for name, each in numbers["members"].items():
        yield Weighed(folder, name, each["oof"], each["weight"], each["adds"])
    if numbers["single"] is not None and "blend" in numbers:
        yield Noted(
            folder,
            f"The blend is worse than its best member: {numbers['metric']} {numbers['blend']:.4f} out of fold, and {numbers['oof']:.4f}. "
            f"So {numbers['single']} alone is submitted. As the best of several, its score may be a little too good.",
        )


def _files_of(made: Plan, name: str) -> list[FoldFolder]:
    return [FoldFolder(made.folder / folders.MEMBERS / name, place + 1) for place in range(len(list(made.folds)))]


def _oof(made: Plan, files: list[FoldFolder]) -> OutOfFold:
    parts = [fold_predictions(fold, read_array(each / folders.FOLD_OOF)) for fold, each in zip(made.folds, files, strict=True)]
    return out_of_fold(made.folds, made.data.targets, parts)


def _of_test(files: list[FoldFolder]) -> Numbers:
    return mean([read_array(each / folders.FOLD_TEST) for each in files])


def has_members(folder: Path) -> bool:
    """Return True if a finished run has several models."""
    return "members" in read_json(folder / folders.METRICS)


def read_choice(folder: Path) -> tuple[tuple[Path, ...], Choice]:
    """Return the folders of the members with weight, and the choice that combines their predictions."""
    numbers = read_json(folder / folders.METRICS)
    weights = {name: each["weight"] for name, each in numbers["members"].items() if each["weight"] > 0}
    return tuple(folder / folders.MEMBERS / name for name in weights), Choice(
        tuple(weights.values()), after_of(numbers), METRICS[numbers["metric"]].errors == "logarithmic"
    )
