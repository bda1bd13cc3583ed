"""Tuning of a run: search for a better configuration."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlxfp.app.config.classes import RunConfig, check_config
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import write_text
from mlxfp.app.runs.events import Noted, RunEvent, TrialEnded, Tuned
from mlxfp.app.runs.from_config.planning import changed, start
from mlxfp.app.runs.from_config.problems import check_tunable
from mlxfp.app.runs.outcomes import claim_environment, identities
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.tuning.searching import search
from mlxfp.app.runs.tuning.spaces import Space, check_space, space_of, values_of
from mlxfp.app.runs.tuning.studies import BestTrial, opened
from mlxfp.app.tasks.warnings import run_warnings
from mlxfp.support.checks import as_strings, check_positive
from mlxfp.support.errors import ArgumentError
from mlxfp.support.yaml_files import write_document

_BEST = "best.yaml"


def tune(
    config: RunConfig,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    vary: Sequence[str] = (),
    code: Code = None,
) -> Iterator[Any]:
    """Search lazily for better values of a configuration with Optuna (TPE). Yield the events and finally a `Tuned` event.

    A trial trains all folds with other values of the parameters in the search space of the model (`runs.SPACES`). Trial 0 is the
    original configuration, so the best trial is never worse on these folds. After half of the folds, a trial is stopped if the mean
    score is worse than the median of the completed trials. A failed trial does not end the search.

    Each text in `vary` changes one parameter of the search space:

    - `optimizer.learning_rate={log: [1e-4, 1e-2]}` sets a parameter with a kind (float, log, int or choice) and its limits or choices.
    - `model.dropout=null` removes a parameter from the search space.

    The search has two limits. `trials` is the maximum number of trials, including the trials of earlier calls. `minutes` is the time after
    which this call ends. Only trial 0 may take longer. The next call continues unfinished trials, also after a killed process.

    The folder `tuning` of the run has the Optuna study `study.db` and the best configuration so far, `best.yaml`. The run of `best.yaml` is
    called `name`-tuned and gives the same score.

    The score of the best trial is optimistic, because this score selected the trial.

    See `run` for `code`. The search starts when the events are consumed. Raises `ConfigError` for an invalid search space, `DataError` if
    data, configuration or space have changed since the start of the study, and the errors of `plan`.

    >>> import mlxfp as fp
    >>> fp.runs.tune(fp.runs.RunConfig())
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: tune needs a limit. Give trials=20 or minutes=10, or both.
    """
    check_config(config)
    given = as_strings("vary", vary)
    if trials is None and minutes is None:
        raise ArgumentError("tune needs a limit. Give trials=20 or minutes=10, or both.")
    if trials is not None:
        check_positive(trials=trials)
    if minutes is not None and not minutes > 0:
        raise ArgumentError(f"minutes must be above 0, got minutes={minutes!r}.")
    return _tune(config, trials, None if minutes is None else 60 * minutes, given, code)


def _tune(config: RunConfig, trials: int | None, seconds: float | None, vary: Sequence[str], code: Code) -> Iterator[RunEvent]:
    check_tunable(config)
    begun = start(config, code)
    folders.check_folder(begun.folder, begun.settings["name"])
    run_plan = begun.plan()
    assert isinstance(run_plan, Plan)
    space = space_of(run_plan, vary)
    check_space(run_plan, space)
    folder = run_plan.folder / folders.TUNING
    with folders.locked(folder):
        folders.claim_data(folder, _identities(run_plan, space))
        yield from claim_environment(folder)
        yield from (Noted(folder, message) for message in run_warnings(run_plan.data, run_plan.folds, inferred=run_plan.inferred))

        metric = run_plan.metric
        with opened(folder, space, values_of(run_plan, space), maximize=metric.greater_is_better, seed=run_plan.training.seed) as study:
            for event in search(study, run_plan, folder, trials=trials, seconds=seconds):
                if isinstance(event, TrialEnded):
                    _write_best(run_plan, folder, study.best())
                yield event
            result = study.best()
        _write_best(run_plan, folder, result)
        yield Tuned(folder, metric.name, result.trial, result.trials, result.score, result.given, folder / _BEST)


def _identities(run_plan: Plan, space: Space) -> dict[str, object]:
    """Return the values that identify a study. Each option has an entry, so that an error can name the option that has changed."""
    tried = {parameter.key: f"{parameter.kind} {list(parameter.values)}" for parameter in space}
    given = {name: value for name, value in identities(run_plan).items() if name != "config"}
    return {**given, **folders.decisive(run_plan.settings), "search space": tried}


def _write_best(run_plan: Plan, folder: Path, result: BestTrial) -> None:
    """Write the best configuration with a comment about the score."""
    best, metric = changed(run_plan, {**result.values, "name": f"{run_plan.trackers.name}-tuned"}), run_plan.metric.name
    about = (
        f"# Trial {result.trial} of {result.trials}: {metric} {result.score:.6g}. The score is too optimistic for new rows, because the "
        "trial was chosen on these folds.\n"
        f"# The original configuration has {result.given:.6g} on the same folds.\n"
    )
    write_text(folder / _BEST, about + write_document(best.settings))
