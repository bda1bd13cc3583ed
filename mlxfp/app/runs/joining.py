"""Runs on several ranks: rank 0 makes the run, and the others train each model with it. They write nothing."""

from collections.abc import Iterator

from mlxfp.app.config.classes import RunConfig
from mlxfp.app.runs import folders
from mlxfp.app.runs.events import RunEvent
from mlxfp.app.runs.file_runs import prepare_files
from mlxfp.app.runs.folders import FoldFolder
from mlxfp.app.runs.folding import work_of
from mlxfp.app.runs.from_config import AUTO, has_members, is_estimator
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import plan
from mlxfp.app.runs.quickstart import prepare_fold
from mlxfp.app.runs.training import NOTHING_LEFT, join
from mlxfp.distributed import Ranks
from mlxfp.support.errors import ConfigError


def check_ranks(config: RunConfig, ranks: Ranks) -> None:
    """Raise `ConfigError` for a run that ranks cannot share."""
    size, count = config.training.size, ranks.world.copies
    if is_estimator(config) or config.model.name == AUTO:
        raise ConfigError(f"model.name={config.model.name} is fitted in one process. Run it without ranks.")
    if has_members(config):
        raise ConfigError(f"training.seeds: ranks train one model of each fold, got {config.training.seeds}. Run it without ranks.")
    if config.own.observers:
        raise ConfigError(
            "own.observers see the events of one rank, and one that ends the run there would leave the others waiting. Leave them out, or "
            "run without ranks."
        )
    if size % count:
        raise ConfigError(f"training.size: batches of {size} rows cannot be divided among {count} ranks. Give a multiple of {count}.")


def leading(events: Iterator[RunEvent], ranks: Ranks) -> Iterator[RunEvent]:
    """Yield the events of a run, and tell the other ranks when it has ended."""
    yield from events
    ranks.gather([NOTHING_LEFT, 0])


def following(config: RunConfig, code: Code, ranks: Ranks) -> Iterator[RunEvent]:
    """Train with rank 0 until it has nothing left to train: yields nothing, as rank 0 says what happens."""
    yield from ()
    folder, made = folders.run_folder(config), None
    while True:
        number, step = (int(each) for each in ranks.gather([NOTHING_LEFT, 0])[0])
        if number == NOTHING_LEFT:
            return
        files = FoldFolder(folder, number)
        if config.task == "competition":
            made = made or plan(config, code=code)
            fold = list(made.folds)[number - 1]
            work = work_of(prepare_fold(made, fold))
        else:
            work = prepare_files(config, code).work(config)
        join(config, work, files, ranks, step)
