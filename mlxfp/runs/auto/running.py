"""A run of several models: its members one after the other on the same folds, as long as the time allows, and what is made of them.

These are the models of model.name=auto, or the same model with several seeds.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any

from attrs import evolve

from mlxfp.core.errors import CheckpointError, ConfigError, DataError, MlxfpError
from mlxfp.kaggle.ensembling.calibration import Threshold
from mlxfp.kaggle.specs.reading import hash_file
from mlxfp.kaggle.validation.out_of_fold import OutOfFold, fold_predictions, out_of_fold
from mlxfp.kaggle.validation.scoring import METRICS, Numbers
from mlxfp.runs import folders
from mlxfp.runs.auto.choosing import Choice, Chosen, after_numbers, after_of, averaged, choose
from mlxfp.runs.auto.members import Member, facts_of, members, seeded
from mlxfp.runs.auto.records import Entry, Record, begin_record, read_record
from mlxfp.runs.events import Ended, FoldEnded, LeftOut, Noted, RunEvent, Trained, Weighed
from mlxfp.runs.files import read_array, read_json, write_json
from mlxfp.runs.folders import FoldFolder
from mlxfp.runs.from_config import AUTO, ENSEMBLES
from mlxfp.runs.outcomes import metrics_of, outcome, write_oof, write_receipt, write_test
from mlxfp.runs.plans import Plan
from mlxfp.training.loop.events import Stepped

_SLOW = "skops.io"  # imports all of scikit-learn, which takes seconds: once, and not of the time of the member that comes to it first
RunPlan = Callable[[Plan], Iterator[RunEvent]]


def run_auto(made: Plan, run_member: RunPlan) -> Iterator[RunEvent]:
    """Run the members of a plan, or continue, and submit their blend; yield what happens.

    What the clock decides is written down at once, and the outputs depend only on what is written.
    """
    over = outcome(made)
    if over is not None:
        yield from _told(made.folder)
        yield over
        return
    record = read_record(made.folder) or begin_record(made.folder, _members(made))
    if _is_chosen(made):
        with suppress(ImportError):
            import_module(_SLOW)
    said = set[str]()
    for place in range(len(record.entries)):
        for event in _run_entry(made, record, place, run_member):
            if not isinstance(event, Noted) or event.message not in said:
                yield event
            said |= {event.message} if isinstance(event, Noted) else set()
        record = read_record(made.folder) or record
    if not record.kept:
        record.path.unlink()  # once the reason is removed, all are tried again
        raise DataError(f"No model could be trained: {'; '.join(f'{each.name} {each.why}' for each in record.entries)}.")
    yield from _finish(made, record)


def _is_chosen(made: Plan) -> bool:
    """Whether members are chosen by the data and the time; those of several seeds are all trained, and averaged."""
    return made.config.model.name == AUTO


def _members(made: Plan) -> tuple[Member, ...]:
    return members(facts_of(made.data.spec, made.folds.size)) if _is_chosen(made) else seeded(made.config)


def _run_entry(made: Plan, record: Record, place: int, run_member: RunPlan) -> Iterator[RunEvent]:
    """Run a member, unless it is left out; the first one that works may take as long as it needs."""
    entry, minutes = record.entries[place], made.config.observers.minutes if _is_chosen(made) else None
    folder = _folder_of(made, entry)
    if entry.kept is not False:
        first = not any(each.kept for each in record.entries[:place])
        left = None if first or minutes is None else 60 * minutes - record.seconds
        entry = yield from _members_events(made, record, entry, left, run_member)
    if entry.kept is False:
        if folder.exists():
            rmtree(folder)
        yield LeftOut(made.folder, entry.name, entry.why)


def _members_events(made: Plan, record: Record, entry: Entry, left: float | None, run_member: RunPlan) -> Any:
    """Yield the events of a member and return its last entry in the record; its first fold may take its share of the time that is left.

    What comes before the first steps of a network, such as the compilation of its kernels, is done once for all folds.
    """
    if entry.kept is None and left is not None and left <= 0:
        return _decided(record, entry, "no time was left")
    count, ready = len(list(made.folds)), 0.0
    began, before = monotonic(), entry.seconds
    events = run_member(evolve(made, config=_config_of(made, entry)))
    try:
        for event in events:
            took = monotonic() - began
            if not ready and isinstance(event, Trained) and isinstance(event.event, Stepped):
                ready = took
            if entry.kept is None and left is not None and ready + count * (took - ready) > left:
                return _decided(record, evolve(entry, seconds=before + took), "its first fold took more than its share of the time")
            if isinstance(event, FoldEnded):
                entry = evolve(entry, kept=True, seconds=before + took)
                record = record.decided(entry)
            yield event
    except (ConfigError, CheckpointError):
        raise
    except (MlxfpError, ValueError) as error:  # of one model: the others still make a submission
        if not _is_chosen(made):
            raise
        return _decided(record, entry, f"it failed: {error}")
    finally:
        events.close()  # type: ignore[attr-defined]  # a generator
    return entry


def _decided(record: Record, entry: Entry, why: str) -> Entry:
    out = evolve(entry, kept=False, why=why)
    record.decided(out)
    return out


def _folder_of(made: Plan, entry: Entry) -> Path:
    return made.folder / folders.MEMBERS / entry.name


def _config_of(made: Plan, entry: Entry) -> Any:
    data = made.config.data
    path = data.path or str(folders.data_folder(made.folder, made.config).resolve())
    spec = data.spec if data.path is not None else str((made.folder / folders.SPEC).resolve())
    return entry.member.config(made.config, data=path, spec=spec, output=str(made.folder / folders.MEMBERS))


def _finish(made: Plan, record: Record) -> Iterator[RunEvent]:
    """Make all outputs of the members that were kept."""
    folder, names = made.folder, [entry.name for entry in record.kept]
    files = {entry.name: _files_of(made, entry) for entry in record.kept}
    oofs, tune = {name: _oof(made, files[name]) for name in names}, made.config.competition.threshold
    chosen = choose(made.data.spec, made.metric, oofs, tune=tune) if _is_chosen(made) else averaged(made.metric, oofs, tune=tune)
    write_oof(folder / folders.OOF, made, chosen.oof)
    after = chosen.choice.after
    numbers = metrics_of(made, chosen.oof, chosen.scored, chosen.score, after.value if isinstance(after, Threshold) else None)
    write_json(folder / folders.METRICS, numbers | _about(record, chosen))
    submission: Path | None = None
    if made.data.test is not None:
        submission = yield from write_test(made, chosen.choice(tuple(_of_test(files[name]) for name in names)))
    receipts = {name: hash_file(folder / folders.MEMBERS / name / folders.RECEIPT) for name in names}
    write_receipt(made, {"members": receipts})
    yield from _told(folder)
    yield Ended(folder, chosen.score, submission)


def _about(record: Record, chosen: Chosen) -> dict[str, Any]:
    """Return what is said of members: their scores, weights and what they add."""
    parts = {
        name: {"oof": score, "weight": weight, "adds": chosen.adds.get(name)}
        for (name, score), weight in zip(chosen.parts.items(), chosen.choice.weights, strict=True)
    }
    out = {entry.name: entry.why for entry in record.entries if entry.kept is False}
    blend = {} if chosen.blend is None else {"blend": chosen.blend.overall}
    return {**after_numbers(chosen.choice), "single": chosen.single, **blend, "members": parts, "left_out": out}


def _told(folder: Path) -> Iterator[RunEvent]:
    """Say what each member is worth, and whether one of them is submitted alone."""
    numbers = read_json(folder / folders.METRICS)
    for name, each in numbers["members"].items():
        yield Weighed(folder, name, each["oof"], each["weight"], each["adds"])
    if numbers["single"] is not None and "blend" in numbers:
        yield Noted(
            folder,
            f"The blend is worse than its best member: {numbers['metric']} {numbers['blend']:.4f} out of fold, and {numbers['oof']:.4f}. "
            f"So {numbers['single']} alone is submitted. As the best of several, its score may be a little too good.",
        )


def _files_of(made: Plan, entry: Entry) -> list[FoldFolder]:
    return [FoldFolder(_folder_of(made, entry), place + 1) for place in range(len(list(made.folds)))]


def _oof(made: Plan, files: list[FoldFolder]) -> OutOfFold:
    parts = [fold_predictions(fold, read_array(each / folders.FOLD_OOF)) for fold, each in zip(made.folds, files, strict=True)]
    return out_of_fold(made.folds, made.data.targets, parts)


def _of_test(files: list[FoldFolder]) -> Numbers:
    return ENSEMBLES["mean"]([read_array(each / folders.FOLD_TEST) for each in files])


def read_choice(folder: Path) -> tuple[tuple[Path, ...], Choice]:
    """Read which members of a finished run are in what it submits, as folders of runs, and how they are combined."""
    numbers = read_json(folder / folders.METRICS)
    weights = {name: each["weight"] for name, each in numbers["members"].items() if each["weight"] > 0}
    return tuple(folder / folders.MEMBERS / name for name in weights), Choice(
        tuple(weights.values()), after_of(numbers), METRICS[numbers["metric"]].errors == "logarithmic"
    )
