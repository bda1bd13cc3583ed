"""An Optuna study in one SQLite file, shared by several processes that may be killed.

A lock protects the study. Each trial has its own lock, which the system releases if the process ends. If a trial
has the state RUNNING but no process holds its lock, the trial was killed. The study marks this trial as failed, and a new trial repeats
the values in the same folder.
The heartbeat of Optuna is not used, because it needs a minute and works only inside `optimize`.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from mlxfp.app.runs.tuning.spaces import Parameter, Space
from mlxfp.support.optional import optional
from mlxfp.support.randomness import fold_in

FILE, _LOCK = "study.db", ".study.lock"
_FIRST = "first"  # name of a trial attribute: if a trial is repeated, the attribute holds the trial number of the first attempt
_SECONDS = 60  # timeout in seconds while another program uses the SQLite file
_STARTUP = 4  # minimum number of completed trials before pruning


@frozen(eq=False)
class Trial:
    """A trial of this process, with the values of the parameters and the lock of the trial."""

    number: int
    values: dict[str, Any]
    inner: Any = field(repr=False)
    lock: Any = field(repr=False)

    @property
    def given(self) -> bool:
        """True if the trial is the original configuration."""
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

    `given` has the values of the tuned options in the original configuration. After each trial, `note(best_trial)` is called while the
    study is locked.
    """

    folder: Path
    space: Space
    given: Mapping[str, Any]
    maximize: bool
    seed: int
    note: Callable[[BestTrial], None] = field(repr=False)
    optuna: Any = field(repr=False)
    inner: Any = field(repr=False)

    @property
    def ended(self) -> int:
        """Number of ended trials."""
        with claiming(self.folder):
            return len(self._in("COMPLETE", "PRUNED"))

    def next(self, trials: int | None, *, late: bool) -> Any:
        """Start the next trial of the search. Return the trial, or None at the end of the search.

        If all remaining trials run in other processes, return the file lock of a running trial, so that the caller can wait. `trials` is
        the maximum number of trials. `late=True`: the time is over, and only the trial of the original configuration may still start.
        """
        with claiming(self.folder):
            running = list(self._running())
            ended = self._in("COMPLETE", "PRUNED")
            given = [trial for trial in self._in("COMPLETE", "RUNNING", "WAITING") if _number(trial) == 0]
            if not given:
                self.inner.enqueue_trial(dict(self.given), user_attrs={_FIRST: 0})
            done = any(trial.state.name == "COMPLETE" for trial in given)
            if not late and (trials is None or len(ended) + len(running) < trials):
                return self._begin()
            if done:
                return running[0][1] if running and not late else None
            return next((lock for number, lock in running if number == 0), None) or self._begin()

    def _begin(self) -> Trial:
        # Failed trials do not change the seed of the sampler, so a continued study proposes the same values as an uninterrupted study.
        count = len(self._in("COMPLETE", "PRUNED", "RUNNING"))
        self.inner.sampler = self.optuna.samplers.TPESampler(seed=fold_in(self.seed, "trial", count) % 2**31)
        inner = self.inner.ask()
        lock = self._lock(inner.number)
        lock.acquire()
        number = inner.user_attrs.get(_FIRST, inner.number)
        tried = [parameter for parameter in self.space if number or parameter.key in self.given]
        return Trial(number, {parameter.key: _suggest(inner, parameter) for parameter in tried}, inner, lock)

    def _running(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the file lock of each running trial. A trial whose process was killed is scheduled again."""
        from filelock import Timeout

        for trial in self._in("RUNNING"):
            lock = self._lock(trial.number)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                yield _number(trial), lock
            else:
                lock.release()
                self._put_back(trial)

    def put_back(self, trial: Trial) -> None:
        """Return a trial to the queue. The trial does not count as ended."""
        with claiming(self.folder):
            self._put_back(self.inner.get_trials(deepcopy=False)[trial.inner.number])

    def _put_back(self, trial: Any) -> None:
        self.inner.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
        self.inner.enqueue_trial(trial.params, user_attrs={**trial.user_attrs, _FIRST: _number(trial)})

    def falls_behind(self, trial: Trial, fold: int, mean: float) -> bool:
        """Report the mean score of the first `fold` folds. Return True if the mean is worse than the median of the completed trials."""
        with claiming(self.folder):
            trial.inner.report(mean, fold)
            others = sorted(other.intermediate_values[fold] for other in self._in("COMPLETE") if fold in other.intermediate_values)
        if trial.given or len(others) < _STARTUP:
            return False
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
        return bool(mean < middle if self.maximize else mean > middle)

    def end(self, trial: Trial, score: float | None, reason: str) -> None:
        """Record the score of a trial, or the reason for a missing score."""
        with claiming(self.folder):
            if score is None:  # with the state PRUNED, Optuna avoids similar values
                trial.inner.set_user_attr("reason", reason)
                self.inner.tell(trial.inner, state=self.optuna.trial.TrialState.PRUNED)
            else:
                self.inner.tell(trial.inner, score)
            if (best := self._best()) is not None:
                self.note(best)

    def best(self) -> BestTrial:
        """Return the best trial. Of trials with equal scores, return the first."""
        with claiming(self.folder):
            result = self._best()
            assert result is not None
            self.note(result)
        return result

    def _best(self) -> BestTrial | None:
        complete = sorted(self._in("COMPLETE"), key=_number)
        if not complete or _number(complete[0]) != 0:
            return None
        best = (max if self.maximize else min)(complete, key=lambda trial: trial.value)
        values = dict(best.params) if _number(best) else {}
        return BestTrial(_number(best), best.value, values, complete[0].value, len(self._in("COMPLETE", "PRUNED")))

    def _in(self, *states: str) -> list[Any]:
        return list(self.inner.get_trials(deepcopy=False, states=tuple(self.optuna.trial.TrialState[state] for state in states)))

    def _lock(self, number: int) -> Any:
        return _file_lock(self.folder / f".trial-{number:04}.lock")


@contextmanager
def claiming(folder: Path) -> Iterator[None]:
    """Hold the lock of the study in a folder. Create the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    with _file_lock(folder / _LOCK):
        yield


@contextmanager
def opened(  # noqa: PLR0913
    folder: Path, space: Space, given: Mapping[str, Any], note: Callable[[BestTrial], None], *, maximize: bool, seed: int
) -> Iterator[Study]:
    """Open or create the study in a folder. Raises `MissingExtraError` without Optuna."""
    optuna = optional("optuna", extra="tune", needed_by="mlxfp tune")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # hide the message about a new study
    storage = None
    try:
        with claiming(folder):
            # connect by a function, because an SQLite URL cannot express every path
            connect = {"creator": lambda: sqlite3.connect(folder / FILE, timeout=_SECONDS, check_same_thread=False)}
            storage = optuna.storages.RDBStorage(f"sqlite:///{FILE}", engine_kwargs=connect)
            direction = "maximize" if maximize else "minimize"
            inner = optuna.create_study(study_name="tuning", storage=storage, direction=direction, load_if_exists=True)
        yield Study(folder, space, given, maximize, seed, note, optuna, inner)
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        optuna.logging.set_verbosity(before)


def _file_lock(path: Path) -> Any:
    from filelock import FileLock

    return FileLock(path, thread_local=False)  # any thread may release the lock, because another thread may close the generator


def _number(trial: Any) -> int:
    return int(trial.user_attrs.get(_FIRST, trial.number))


def _suggest(trial: Any, parameter: Parameter) -> Any:
    key, values = parameter.key, parameter.values
    if parameter.kind == "choice":
        return trial.suggest_categorical(key, values)
    suggest = trial.suggest_int if parameter.kind == "int" else trial.suggest_float
    return suggest(key, *values, log=parameter.kind == "log")
