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
from mlxfp.events import Stepped
from mlxfp.support.errors import CheckpointError, ConfigError, DataError, MlxfpError

_SLOW = "skops.io"  # imports scikit-learn, which takes seconds and must not count as training time of the first member


def run_auto(made: Plan, run_member: RunMember) -> Iterator[RunEvent]:
    """Start or continue the members of a plan, submit the blend, and yield the events.

    Decisions that depend on the clock are recorded at once. The outputs depend only on the record.
    """
    if (yield from told_before(made)):
        return
    record = read_record(made.folder) or begin_record(made.folder, members(facts_of(made.data.spec, made.folds.size)))
    with suppress(ImportError):
        import_module(_SLOW)
    for place in range(len(record.entries)):
        yield from _run_entry(made, record, place, run_member)
        record = read_record(made.folder) or record
    if not record.kept:
        record.path.unlink()  # the next run tries all members again
        raise DataError(f"No model could be trained: {'; '.join(f'{each.name} {each.why}' for each in record.entries)}.")
    by = partial(choose, made.data.spec, made.metric, tune=made.threshold)
    left_out = {entry.name: entry.why for entry in record.entries if entry.kept is False}
    yield from finish(made, [entry.name for entry in record.kept], by, left_out)


def _run_entry(made: Plan, record: Record, place: int, run_member: RunMember) -> Iterator[RunEvent]:
    """Run a member unless excluded. The first working member has no time limit."""
    entry, minutes = record.entries[place], made.minutes
    plan = planned(made, entry.member)
    if entry.kept is not False:
        first = not any(each.kept for each in record.entries[:place])
        left = None if first or minutes is None else 60 * minutes - record.seconds
        entry = yield from _members_events(plan, record, entry, left, run_member)
    if entry.kept is False:
        if plan.folder.exists():
            rmtree(plan.folder)
        yield LeftOut(made.folder, entry.name, entry.why)


def _members_events(
    plan: Plan, record: Record, entry: Entry, left: float | None, run_member: RunMember
) -> Generator[RunEvent, None, Entry]:
    """Yield the events of a member and return the last entry. Exclude the member if the time of the first fold exceeds its share of `left`.

    The time before the first training step, such as the compilation of kernels, counts only once for all folds.
    """
    if entry.kept is None and left is not None and left <= 0:
        return _decided(record, entry, "no time was left")
    count, ready = len(list(plan.folds)), 0.0
    began, before = monotonic(), entry.seconds
    events = run_member(plan)
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
    except (MlxfpError, ValueError) as error:  # the failure of one model must not stop the others
        return _decided(record, entry, f"it failed: {error}")
    finally:
        events.close()
    return entry


def _decided(record: Record, entry: Entry, why: str) -> Entry:
    out = evolve(entry, kept=False, why=why)
    record.decided(out)
    return out
