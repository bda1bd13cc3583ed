"""The functions `run` and `resume`."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from time import monotonic
from typing import Any

from attrs import evolve

from mlxfp.app.config.classes import RunConfig, check_config
from mlxfp.app.kaggle.specs.spec_files import save_spec
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.reports.writing import write_at_the_end
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.auto.results import fold_model
from mlxfp.app.runs.auto.running import run_auto
from mlxfp.app.runs.events import Began, Ended, FoldBegan, Noted, RunEvent, Summarized
from mlxfp.app.runs.file_runs import file_identities, file_work, run_files
from mlxfp.app.runs.folding import Events, run_fold, work_of
from mlxfp.app.runs.from_config.planning import start, start_again
from mlxfp.app.runs.from_config.problems import check_ranks
from mlxfp.app.runs.outcomes import claim_environment, duplicate_warnings, finish, identities, outcome, write_folds
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import FilePlan, Plan, Start, Training, training_time
from mlxfp.app.runs.quickstart import prepare_fold
from mlxfp.app.runs.summaries import summarize
from mlxfp.app.runs.tracking import score_metrics, track
from mlxfp.app.runs.training import NOTHING_LEFT, join
from mlxfp.app.tasks.warnings import run_warnings
from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_types
from mlxfp.support.errors import ConfigError, MlxfpError
from mlxfp.support.progress import Progress

_LINEAR = 0.05  # the linear model in the report may use at most 5 % of the time limit
_LEAST = 0.01  # a fold always gets this fraction of the time limit, even after the end of the limit


def run(config: RunConfig, *, code: Code = None, ranks: Ranks | None = None, since: float | None = None) -> Iterator[Any]:
    """Run a configuration lazily: train and evaluate every fold, predict the test rows, write the submission, and yield the events.

    The folder `output/name` receives the configuration, spec, folds, logs, checkpoints, models, out-of-fold and test predictions, metrics,
    submission, and a receipt with the hashes of all inputs and outputs. Unless `observers.plots` is false, `report.html` is
    written too. To continue a stopped or killed run, run the same configuration again: the outputs are bit-identical. If the folder holds
    another run or the data have changed, `run` raises an error and changes no file.

    `code` is the folder of the modules in the section `own` of the configuration. Without `code`, a configuration with such
    modules raises an error, because a configuration from another person would execute foreign code.

    With `ranks` from `distributed.connect`, every process calls `run`. Each rank trains on a share of every batch, so the number of ranks
    must divide `training.size`. Rank 0 writes the files and yields the events. All ranks need access to the folder of the run and to the
    data. An interrupted run may continue with another number of ranks.

    The run starts when the events are consumed. `since` is the value of `time.monotonic` from which the time limit `observers.minutes`
    counts, by default the start of the run. Raises `ConfigError` for a folder that is in use or holds another run, `DataError` for
    rows that are longer than `text.max_length`, and the errors of reading the data.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> changes = ["data.limit=60", "training.epochs=1", "validation.folds=2", "observers.progress=false", "observers.plots=false"]
    >>> with TemporaryDirectory() as folder:
    ...     config = fp.runs.load_config(preset="titanic", overrides=[*changes, f"output={folder}"]).config
    ...     *_, end = fp.runs.run(config)
    ...     end.submission.name, len(end.score.folds)
    ('submission.csv', 2)

    See also: `resume` to continue from the folder alone; `predict`; `export`; `blend` for several runs; `plan` for the data and folds.
    """
    check_config(config)
    check_types((type(None), Ranks), ranks=ranks)
    if ranks is None or ranks.world.size == 1:
        return _run(start(config, code), since=since)
    check_ranks(config, ranks)
    if ranks.world.rank:
        return following(start(config, code), ranks)
    return leading(_run(start(config, code), ranks), ranks)


def resume(folder: str | PathLike[str], *, overrides: Sequence[str] = (), code: Code = None) -> Iterator[Any]:
    """Continue the run in a folder with the stored configuration, or yield the final event of a finished run. The folder may have moved.

    `overrides` may set the paths of moved data (`data.path`), weights (`model.path`) and tokenizers (`text.tokenizer`). Options that do not
    influence results may also change. The limit `observers.minutes` may increase in an unfinished run. The number `training.epochs` may
    increase even in a finished run: all folds then continue from their last checkpoints, with the longer schedule. The argument `code` has
    the same meaning as in `run`. Raises `MissingFileError` for a folder without a run, and the errors of `run`.

    >>> import mlxfp as fp
    >>> fp.runs.resume("no such folder")
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: 'no such folder' is not the folder of a run: config.yaml is missing. ...
    """
    return _resume(*start_again(folder, overrides, code))


def _resume(begun: Start, epochs: int) -> Iterator[RunEvent]:
    more = begun.settings["training"]["epochs"]
    if more > epochs and begun.folder.parent.name == folders.MEMBERS:
        blend, config = begun.folder.parent.parent, begun.folder / folders.CONFIG
        raise ConfigError(
            f"training.epochs: the run in {begun.folder} is part of the blend in {blend}, and longer training would invalidate the blend. "
            f"Start a new run: mlxfp run {config} training.epochs={more} output=runs name=longer"
        )
    yield from _run(begun, epochs=epochs if more > epochs else None)


def _run(begun: Start, ranks: Ranks | None = None, since: float | None = None, epochs: int | None = None) -> Iterator[RunEvent]:
    """Check the inputs, then start or continue a run. If the number of epochs increases, `epochs` is the previous number."""
    folder, settings, since = begun.folder, begun.settings, monotonic() if since is None else since
    folders.check_folder(folder, settings["name"])
    new = folders.missing(folder)
    with folders.locked(folder):
        trained = False
        try:
            continued = folders.is_continued(folder, settings, extends=epochs is not None)
            plan = begun.plan()
            if continued:
                now = file_identities(plan) if isinstance(plan, FilePlan) else identities(plan)
                folders.check_data(folder, now, ignored="config")
            if epochs is not None:
                yield from _extend(plan, epochs, settings["training"]["epochs"])
            folders.claim(folder, settings)
            for event in _events(plan, begun.code, ranks, since):
                trained = trained or isinstance(event, FoldBegan)
                yield event
        except MlxfpError:
            if not trained:
                folders.remove(new)
            raise


def _extend(plan: Plan | FilePlan, before: int, epochs: int) -> Iterator[RunEvent]:
    """Increase the number of epochs of a run. Raise `ConfigError` for an estimator: more epochs would repeat the same fit."""
    folder = plan.folder
    if isinstance(plan, Plan) and plan.models.estimator is not None:
        raise ConfigError(
            f"training.epochs is only for networks, but the model of {folder} is the estimator {plan.models.name}. Nothing was "
            f"changed. For other model options: mlxfp run {folder / folders.CONFIG} name=second model.arguments.NAME=VALUE"
        )
    folders.extend(folder, epochs)
    yield Noted(
        folder,
        f"training.epochs increases from {before} to {epochs}: training continues from the last checkpoints, and the "
        "learning rate follows the schedule of the longer run.",
    )


def _events(plan: Plan | FilePlan, code: Code, ranks: Ranks | None, since: float) -> Iterator[RunEvent]:
    """Train the models of a run and yield the events. The run folder must exist and be locked. The run began at the time `since`."""
    folder = plan.folder
    if isinstance(plan, FilePlan):
        yield from _reported(run_files(evolve(plan, training=_limited(plan.training, since)), ranks), plan, None, code)
        return
    if not (folder / folders.FOLDS).is_file():
        yield Summarized(folder, summarize(plan))
    yield from _write_inputs(plan, run_warnings(plan.data, plan.folds, inferred=plan.inferred))
    limit = None if plan.minutes is None else _LINEAR * 60 * plan.minutes
    linear = LinearModel(plan.data, plan.folds, limit)
    member = partial(_run_member, linear)
    events = run_auto(plan, member, elapsed=monotonic() - since) if plan.auto else _run_folds(plan, ranks, since)
    for event in _reported(events, plan, linear, code):
        yield from duplicate_warnings(folder) if isinstance(event, Ended) and event.folder == folder else ()
        yield event


def _run_member(linear: LinearModel, plan: Plan) -> Events:
    """Train one model of a run with several models, and write the results to the folder of this model.

    The report compares the model with `linear`, the linear baseline. All models of the run have the same baseline.
    """
    with folders.locked(plan.folder):
        folders.claim(plan.folder, plan.settings)
        yield from _write_inputs(plan, ())  # no warnings, because the run with all models has already yielded the warnings
        yield from _reported(_run_folds(plan), plan, linear, None)


def _reported(events: Iterator[RunEvent], plan: Plan | FilePlan, linear: LinearModel | None, code: Code) -> Iterator[RunEvent]:
    """Write the report of a run before the final event, unless the report exists or `observers.plots` is false."""
    folder = plan.folder
    for event in events:
        ended = isinstance(event, Ended) and event.folder == folder
        if ended and plan.plots and not (folder / folders.REPORT).is_file():
            trouble = write_at_the_end(folder, lambda _: linear, partial(fold_model, folder, code), code=code)
            yield from [Noted(folder, trouble)] if trouble else ()
        yield event


def _run_folds(plan: Plan, ranks: Ranks | None = None, since: float | None = None) -> Iterator[RunEvent]:
    """Train the folds of a model. With `since`, the time limit counts from this moment, and the folds share the remaining time."""
    folder, files = plan.folder, plan.fold_folders
    yield Began(folder, len(files), sum(fold_files.done for fold_files in files))
    over = outcome(plan) if all(fold_files.done for fold_files in files) else None
    if over is not None:
        yield over
        return
    tracking = yield from track(plan.trackers, folder, plan.data.spec.name)
    done = {fold_files.fold for fold_files in files if fold_files.done}
    with Progress("folds", unit="fold", total=lambda: len(files), done=len(done), lines=True) as progress:
        for fold, fold_files in zip(plan.folds, files, strict=True):
            tracked = () if fold_files.done else (yield from tracking.fold(fold_files.fold))
            began, unfinished = monotonic(), sum(not other.done for other in files)
            training = plan.training if since is None else _limited(plan.training, since, max(1, unfinished))
            yield from run_fold(evolve(plan, training=training), fold, fold_files, tracked, ranks=ranks)
            if since is not None and unfinished == len(files) > 1:
                yield from _slow_folds(plan, len(files) - 1, monotonic() - began, monotonic() - since)
            if plan.training.progress and fold_files.fold not in done:
                progress.update()
    for event in finish(plan, files):
        if isinstance(event, Ended):
            yield from tracking.ended(score_metrics(event.score), event.submission)
        yield event


def _limited(training: Training, since: float, folds: int = 1) -> Training:
    """Return the settings for the training of a fold. The remaining seconds of the run are divided by the number of remaining folds."""
    if training.seconds is None:
        return training
    remaining = training_time(training.seconds) - (monotonic() - since)
    return evolve(training, seconds=max(remaining, _LEAST * training.seconds) / folds)


def _slow_folds(plan: Plan, remaining: int, took: float, elapsed: float) -> Iterator[RunEvent]:
    """Yield a message if the remaining folds probably end after the time limit. Estimators of scikit-learn cannot stop a fit early."""
    if plan.minutes is not None and elapsed + remaining * took > 60 * plan.minutes:
        yield Noted(
            plan.folder,
            f"The first fold took {took:.0f} seconds, so the remaining {remaining} folds probably end after the time limit "
            f"observers.minutes={plan.minutes:g}. For a faster run, set a lower validation.folds or a lower data.limit.",
        )


def _write_inputs(plan: Plan, warnings: Iterable[str]) -> Iterator[RunEvent]:
    """Write the fingerprints of the inputs of a new run, and yield warnings. For a continued run, check the stored fingerprints."""
    folder = plan.folder
    folders.claim_data(folder, identities(plan))
    if not (folder / folders.SPEC).is_file():
        save_spec(plan.data.spec, folder / folders.SPEC)
    if not (folder / folders.FOLDS).is_file():
        write_folds(plan)
    yield from claim_environment(folder)
    for message in warnings:
        yield Noted(folder, message)
    folders.update_paths(folder, plan.settings)


def leading(events: Iterator[RunEvent], ranks: Ranks) -> Iterator[RunEvent]:
    """Yield the events of a run on rank 0, then tell the other ranks to stop."""
    yield from events
    ranks.gather([NOTHING_LEFT, 0])


def following(start: Start, ranks: Ranks) -> Iterator[RunEvent]:
    """Train each model on several ranks, until rank 0 sends the signal to stop. Yields nothing, because rank 0 yields the events."""
    yield from ()
    plan: Plan | FilePlan | None = None
    while True:
        number, step = (int(value) for value in ranks.gather([NOTHING_LEFT, 0])[0])
        if number == NOTHING_LEFT:
            return
        plan = plan or start.plan()
        work = file_work(plan) if isinstance(plan, FilePlan) else work_of(prepare_fold(plan, list(plan.folds)[number - 1]))
        join(plan.training, work, FoldFolder(start.folder, number), ranks, step)
