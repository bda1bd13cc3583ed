"""Runs with `model.name=auto`: train several models on the same folds within a time limit, and blend the models."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from shutil import rmtree
from time import monotonic
from typing import Any

from attrs import evolve

from mlxfp.app.runs.auto.choosing import adds_to_blend, choose
from mlxfp.app.runs.auto.members import FEWEST_EPOCHS, Member, facts_of, members
from mlxfp.app.runs.auto.records import Record, read_record
from mlxfp.app.runs.auto.results import RunMember, finish, fold_answers, planned, told
from mlxfp.app.runs.events import NO_TIME, FoldEnded, LeftOut, RunEvent, Trained
from mlxfp.app.runs.outcomes import outcome
from mlxfp.app.runs.plans import Plan, training_time
from mlxfp.events import RunStarted, Stepped
from mlxfp.support.errors import CheckpointError, ConfigError, DataError, MlxfpError

_FIRST_FITS = 0.4  # maximum share of the remaining time for the first successful model
_FIRST_LEAST = 0.1  # the first successful model always gets this fraction of the time limit, even after a slow start
_FITS = 0.8  # each model after the first may use 80 % of the remaining time for fitting, and 20 % for predicting
_CHEAP = 0.1  # a model that needs less than this fraction of the remaining time trains all folds, even if useless in the first fold
_LEAST = 0.05  # a network's total time is estimated after this share of its steps
# The module `skops.io` is slow to import. The training time of a fold should not include the import.
# The module is imported after the training of the first model, because the first model rarely needs `skops.io`.
_SLOW = "skops.io"


def run_auto(plan: Plan, run_member: RunMember, *, elapsed: float = 0.0) -> Iterator[RunEvent]:
    """Train several models or continue their training, write the submission of the blend, and yield the events.

    The time limit counts for the whole run, including the `elapsed` seconds before this call. The record of the run stores each decision
    that depends on elapsed time, before the training goes on. Equal records lead to equal outputs.
    """
    began = monotonic() - elapsed
    if (over := outcome(plan)) is not None:
        yield from told(plan.folder)
        yield over
        return
    record = read_record(plan.folder)
    if not record.entries:
        record = evolve(record, entries=members(facts_of(plan.data.spec, plan.rows)))
        record.write()
    end = None if plan.minutes is None else began + training_time(60 * plan.minutes) - record.seconds
    for index in range(len(record.entries)):
        if index:
            with suppress(ImportError):
                import_module(_SLOW)
        yield from _run_entry(plan, record, index, end, run_member)
        record = read_record(plan.folder)
    if not record.kept:
        record.path.unlink()  # delete the record of excluded models, so that the next run tries all models again
        reasons = "; ".join(f"{excluded.name} ({excluded.why})" for excluded in record.entries)
        raise DataError(f"No model of model.name=auto could be trained: {reasons}.")
    by = partial(choose, plan.data.spec, plan.metric, tune=plan.threshold)
    left_out = {entry.name: entry.why for entry in record.entries if entry.kept is False}
    yield from finish(plan, [entry.name for entry in record.kept], by, left_out)


def _run_entry(plan: Plan, record: Record, index: int, end: float | None, run_member: RunMember) -> Iterator[RunEvent]:
    """Train one model. A model that the run has already excluded is skipped.

    The first successful model is kept even if its training is slow. At the time limit, boosted trees stop with fewer trees.
    """
    entry = record.entries[index]
    member_plan = planned(plan, entry)
    if entry.kept is not False:
        first, remaining = not any(earlier.kept for earlier in record.entries[:index]), None
        if end is not None and plan.minutes is not None:
            remaining = end - monotonic()
            seconds = max(_FIRST_FITS * remaining, _FIRST_LEAST * 60 * plan.minutes) if first else _FITS * max(remaining, 0)
            member_plan = evolve(member_plan, training=evolve(member_plan.training, seconds=seconds / len(list(plan.folds))))
        entry = yield from _members_events(plan, member_plan, record, entry, None if first else remaining, run_member)
        if entry.kept is None:  # the network is too slow: train again with fewer epochs
            rmtree(member_plan.folder)
            yield from _run_entry(plan, record.decided(entry), index, end, run_member)
            return
    if entry.kept is False:
        if member_plan.folder.exists():
            rmtree(member_plan.folder)
        yield LeftOut(plan.folder, entry.name, entry.why)


def _members_events(  # noqa: PLR0913, PLR0917
    whole: Plan, plan: Plan, record: Record, entry: Member, remaining: float | None, run_member: RunMember
) -> Generator[RunEvent, None, Member]:
    """Train one model of a blend, yield the events, and return the updated entry of the model for the record of the run.

    `remaining` is the number of seconds left for all models, or None without a time limit. With a limit, a model is excluded after its
    first fold if it does not improve the blend, and during its first fold if the estimated time of all its folds exceeds the limit.
    Kernels are compiled only once, so the estimate counts the time before the first training step only once.
    For a slow network, the returned entry has fewer epochs and `kept=None` (undecided), and the caller trains the network again.
    """
    if entry.kept is None and remaining is not None and remaining <= 0:
        return _decided(record, entry, NO_TIME)
    count, ready, total = len(list(plan.folds)), 0.0, None
    began, before = monotonic(), entry.seconds
    events = run_member(plan)
    try:
        for event in events:
            took = monotonic() - began
            if isinstance(event, Trained) and isinstance(event.event, RunStarted):
                total = event.event.total
            share = 1.0
            if isinstance(event, Trained) and isinstance(event.event, Stepped):
                ready = ready or took
                share = 1.0 if total is None else min(1.0, max(_LEAST, event.event.state.step / total))
            if entry.kept is None and remaining is not None:
                expected = ready + count * (took - ready) / share - took
                is_measured = ready > 0 or isinstance(event, FoldEnded)
                why = _exclusion(event, expected, remaining - took, partial(_is_useful, whole, record, entry), is_measured=is_measured)
                fewer = None if expected <= remaining - took else _with_fewer_epochs(entry, _FITS * (remaining - took) / (expected + took))
                if why:
                    entry = evolve(entry, seconds=before + took)
                    return _decided(record, entry, why) if fewer is None else evolve(entry, values=fewer)
            if isinstance(event, FoldEnded):
                entry = evolve(entry, kept=True, seconds=before + took)
                record = record.decided(entry)
            yield event
    except (ConfigError, CheckpointError):
        raise
    except (MlxfpError, ValueError) as error:  # if one model fails, the other models must still be trained
        return _decided(record, entry, f"it failed: {error}")
    finally:
        events.close()
    return entry


def _with_fewer_epochs(entry: Member, share: float) -> dict[str, Any] | None:
    """Return the options of a network with fewer epochs. The argument `share` is the fraction of the epochs to keep.

    Return None if too few epochs would remain, or if the model is not a network.
    """
    training, observers = (entry.values.get(section, {}) for section in ("training", "observers"))
    epochs = int(share * training.get("epochs", 0))
    if epochs < FEWEST_EPOCHS:
        return None
    return entry.values | {
        "training": training | {"epochs": epochs},
        "observers": observers | {"patience": min(epochs, observers["patience"])},
    }


def _exclusion(event: RunEvent, expected: float, remaining: float, is_useful: Callable[[int], bool], *, is_measured: bool) -> str:
    """Return the reason to leave a slow or useless model out of the blend, or "" to keep the model.

    This function is called after each event of the first fold. `expected` is the estimated number of seconds until all folds of the model
    end. `remaining` is the number of seconds left in the run. `is_measured` is False before the first training step of a network and
    before the end of the first fold of another model: such a model has no time left.
    """
    if expected > remaining:
        return "its first fold took more than its share of the time" if is_measured else NO_TIME
    if isinstance(event, FoldEnded) and event.score is not None and expected > _CHEAP * remaining and not is_useful(event.fold):
        return "it adds nothing to the blend in its first fold"
    return ""


def _is_useful(plan: Plan, record: Record, entry: Member, number: int) -> bool:
    """Return True if a blend with the earlier models gives the new model a weight above 0. The blend is fitted on one validation fold."""
    targets = plan.data.targets[list(plan.folds)[number - 1].valid]
    names = [kept.name for kept in record.kept if kept.name != entry.name]
    return adds_to_blend(plan.data.spec, plan.metric, targets, fold_answers(plan, [*names, entry.name], number))


def _decided(record: Record, entry: Member, why: str) -> Member:
    out = evolve(entry, kept=False, why=why)
    record.decided(out)
    return out
