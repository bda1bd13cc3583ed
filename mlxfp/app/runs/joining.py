"""Runs on several ranks: rank 0 executes the run, and the other ranks only take part in the training of each model."""

from collections.abc import Iterator

from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.events import RunEvent
from mlxfp.app.runs.file_runs import file_work
from mlxfp.app.runs.folding import work_of
from mlxfp.app.runs.plans import FilePlan, Plan, Start
from mlxfp.app.runs.quickstart import prepare_fold
from mlxfp.app.runs.training import NOTHING_LEFT, join
from mlxfp.distributed import Ranks


def leading(events: Iterator[RunEvent], ranks: Ranks) -> Iterator[RunEvent]:
    """Yield the events of a run on rank 0, then send the end of the run to the other ranks."""
    yield from events
    ranks.gather([NOTHING_LEFT, 0])


def following(start: Start, ranks: Ranks) -> Iterator[RunEvent]:
    """Train each model together with rank 0, until rank 0 sends the end of the run. Yields nothing, because rank 0 yields the events."""
    yield from ()
    plan: Plan | FilePlan | None = None
    while True:
        number, step = (int(value) for value in ranks.gather([NOTHING_LEFT, 0])[0])
        if number == NOTHING_LEFT:
            return
        plan = plan or start.plan()
        work = file_work(plan) if isinstance(plan, FilePlan) else work_of(prepare_fold(plan, list(plan.folds)[number - 1]))
        join(plan.training, work, FoldFolder(start.folder, number), ranks, step)
