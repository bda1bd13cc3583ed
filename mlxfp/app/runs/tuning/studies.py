"""Storage of a search with Optuna in one SQLite file. If a process is killed, the next process continues the search.

A trial in the state RUNNING at the start of a process was interrupted. This trial is marked as failed, and a new trial continues with
the same option values and folder. The heartbeat of Optuna is not used, because it needs a minute and works only inside `optimize`.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mlxfp.app.runs.tuning.spaces import Parameter, Space
from mlxfp.support.optional import optional
from mlxfp.support.randomness import fold_in

FILE = "study.db"
_FIRST = "first"  # Optuna attribute of a repeated trial: the number of the first attempt
_SECONDS = 60  # timeout in seconds while another program uses the SQLite file
_STARTUP = 4  # minimum number of completed trials before pruning


@frozen(eq=False)
class Trial:
    """A running trial. `values` holds the tried option values."""

    number: int
    values: dict[str, Any]
    inner: Any = field(repr=False)

    @property
    def given(self) -> bool:
        """True for trial 0, the trial of the original configuration."""
        return self.number == 0


@frozen
class BestTrial:
    """The best trial, with score and values. `given` is the score of the original configuration, `trials` the number of ended trials."""

    trial: int
    score: float
    values: dict[str, Any]
    given: float
    trials: int


@frozen(eq=False)
class Study:
    """A study in a folder, returned by `opened`.

    `given` holds the values of the tuned options before the search.
    """

    space: Space
    given: Mapping[str, Any]
    maximize: bool
    seed: int
    optuna: Any = field(repr=False)
    inner: Any = field(repr=False)

    @property
    def ended(self) -> int:
        """Number of ended trials."""
        return len(self._in("COMPLETE", "PRUNED"))

    def next(self, trials: int | None, *, late: bool) -> Trial | None:
        """Start and return the next trial. Return None after `trials` trials, or if no time is left (`late=True`).

        The trial of the original configuration runs in any case, because every search needs the score for comparison.
        """
        given = [trial.state.name for trial in self._in("COMPLETE", "WAITING") if _number(trial) == 0]
        if not given:
            self.inner.enqueue_trial(dict(self.given), user_attrs={_FIRST: 0})
        if "COMPLETE" in given and (late or (trials is not None and self.ended >= trials)):
            return None
        # Failed trials do not change the seed of the sampler, so a continued study proposes the same values as an uninterrupted study.
        self.inner.sampler = self.optuna.samplers.TPESampler(seed=fold_in(self.seed, "trial", self.ended) % 2**31)
        inner = self.inner.ask()
        number = _number(inner)
        tried = [parameter for parameter in self.space if number or parameter.key in self.given]
        return Trial(number, {parameter.key: _suggest(inner, parameter) for parameter in tried}, inner)

    def repeat_interrupted(self) -> None:
        """Put interrupted trials of killed processes into the queue again. These trials do not count as ended."""
        for trial in self._in("RUNNING"):
            self.inner.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
            self.inner.enqueue_trial(trial.params, user_attrs={**trial.user_attrs, _FIRST: _number(trial)})

    def falls_behind(self, trial: Trial, fold: int, mean: float) -> bool:
        """Report the mean score of the first `fold` folds. Return True if the mean is worse than the median of the completed trials."""
        trial.inner.report(mean, fold)
        others = sorted(other.intermediate_values[fold] for other in self._in("COMPLETE") if fold in other.intermediate_values)
        if trial.given or len(others) < _STARTUP:
            return False
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
        return bool(mean < middle if self.maximize else mean > middle)

    def end(self, trial: Trial, score: float | None, reason: str) -> None:
        """Record the score of a trial, or the reason for a missing score."""
        if score is None:  # after the state PRUNED, Optuna avoids similar option values in later trials
            trial.inner.set_user_attr("reason", reason)
            self.inner.tell(trial.inner, state=self.optuna.trial.TrialState.PRUNED)
        else:
            self.inner.tell(trial.inner, score)

    def best(self) -> BestTrial:
        """Return the best trial. Of trials with equal scores, return the first."""
        complete = sorted(self._in("COMPLETE"), key=_number)
        best = (max if self.maximize else min)(complete, key=lambda trial: trial.value)
        values = dict(best.params) if _number(best) else {}
        return BestTrial(_number(best), best.value, values, complete[0].value, self.ended)

    def _in(self, *states: str) -> list[Any]:
        return list(self.inner.get_trials(deepcopy=False, states=tuple(self.optuna.trial.TrialState[state] for state in states)))


@contextmanager
def opened(folder: Path, space: Space, given: Mapping[str, Any], *, maximize: bool, seed: int) -> Iterator[Study]:
    """Open or create the study in a folder. Raises `MissingExtraError` without Optuna."""
    optuna = optional("optuna", extra="tune", needed_by="mlxfp tune")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # hide the message about a new study
    storage = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # connect with a function, not with a URL, because an SQLite URL cannot express every path
        connect = {"creator": lambda: sqlite3.connect(folder / FILE, timeout=_SECONDS, check_same_thread=False)}
        storage = optuna.storages.RDBStorage(f"sqlite:///{FILE}", engine_kwargs=connect)
        direction = "maximize" if maximize else "minimize"
        inner = optuna.create_study(study_name="tuning", storage=storage, direction=direction, load_if_exists=True)
        study = Study(space, given, maximize, seed, optuna, inner)
        study.repeat_interrupted()
        yield study
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        optuna.logging.set_verbosity(before)


def _number(trial: Any) -> int:
    return int(trial.user_attrs.get(_FIRST, trial.number))


def _suggest(trial: Any, parameter: Parameter) -> Any:
    key, values = parameter.key, parameter.values
    if parameter.kind == "choice":
        return trial.suggest_categorical(key, values)
    suggest = trial.suggest_int if parameter.kind == "int" else trial.suggest_float
    return suggest(key, *values, log=parameter.kind == "log")
