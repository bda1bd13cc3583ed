"""Runs with `model.name=auto`: train several models on the same folds within a time limit, and blend the models."""

from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from shutil import rmtree
from time import monotonic

from attrs import evolve

from mlxfp.app.runs.auto.choosing import choose
from mlxfp.app.runs.auto.members import facts_of, members
from mlxfp.app.runs.auto.records import Entry, Record, begin_record, read_record
from mlxfp.app.runs.auto.results import RunMember, finish, planned, told_before
from mlxfp.app.runs.events import FoldEnded, LeftOut, RunEvent, Trained
from mlxfp.app.runs.plans import Plan
from mlxfp.events import RunStarted, Stepped
from mlxfp.support.errors import CheckpointError, ConfigError, DataError, MlxfpError

_MEMBERS = 0.85  # share of the time limit for training the models; the rest is for blending and the report
_FIRST_FITS = 0.4  # maximum share of the training time for the first successful model
_FITS = 0.8  # share of the remaining time for fitting each further model; the rest is for its predictions
_LEAST = 0.05  # a network's total time is estimated after this share of its steps
_SLOW = "skops.io"  # module with a slow import; the import must not count as training time of the first model


def run_auto(plan: Plan, run_member: RunMember) -> Iterator[RunEvent]:
    """Train several models or continue their training, submit the blend, and yield the events.

    Decisions that depend on elapsed time are recorded at once. The outputs depend only on the recorded decisions.
    """
    if (yield from told_before(plan)):
        return
    record = read_record(plan.folder) or begin_record(plan.folder, members(facts_of(plan.data.spec, plan.folds.size)))
    with suppress(ImportError):
        import_module(_SLOW)
    for index in range(len(record.entries)):
        yield from _run_entry(plan, record, index, run_member)
        record = read_record(plan.folder) or record
    if not record.kept:
        record.path.unlink()  # remove the record, so that the next run tries all models again
        reasons = "; ".join(f"{excluded.name} ({excluded.why})" for excluded in record.entries)
        raise DataError(f"No model of model.name=auto could be trained: {reasons}.")
    by = partial(choose, plan.data.spec, plan.metric, tune=plan.threshold)
    left_out = {entry.name: entry.why for entry in record.entries if entry.kept is False}
    yield from finish(plan, [entry.name for entry in record.kept], by, left_out)


def _run_entry(plan: Plan, record: Record, index: int, run_member: RunMember) -> Iterator[RunEvent]:
    """Train a model unless the record excludes the model. The first successful model always finishes, but boosted trees may stop early."""
    entry, minutes = record.entries[index], plan.minutes
    member_plan = planned(plan, entry.member)
    if entry.kept is not False:
        first = not any(earlier.kept for earlier in record.entries[:index])
        remaining = None if minutes is None else _MEMBERS * 60 * minutes - record.seconds
        if remaining is not None:
            seconds = (_FIRST_FITS if first else _FITS) * max(remaining, 0) / len(list(plan.folds))
            member_plan = evolve(member_plan, seconds=seconds)
        entry = yield from _members_events(member_plan, record, entry, None if first else remaining, run_member)
    if entry.kept is False:
        if member_plan.folder.exists():
            rmtree(member_plan.folder)
        yield LeftOut(plan.folder, entry.name, entry.why)


def _members_events(
    plan: Plan, record: Record, entry: Entry, remaining: float | None, run_member: RunMember
) -> Generator[RunEvent, None, Entry]:
    """Yield the events of a model and return its final entry. Exclude the model if its first fold exceeds its share of the time limit.

    `remaining` is the number of seconds left for all models, or None without a limit. The time before the first training step, such as
    the compilation of kernels, counts only once for all folds. For a network, the time of the first fold is estimated from its first steps.
    """
    if entry.kept is None and remaining is not None and remaining <= 0:
        return _decided(record, entry, "no time was left")
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
            if entry.kept is None and remaining is not None and ready + count * (took - ready) / share > remaining:
                return _decided(record, evolve(entry, seconds=before + took), "its first fold took more than its share of the time")
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


def _decided(record: Record, entry: Entry, why: str) -> Entry:
    out = evolve(entry, kept=False, why=why)
    record.decided(out)
    return out
