"""A study of Optuna in one SQLite file, for any number of processes, each of which may be killed.

Whatever reads and writes the study takes its lock. The process of a trial holds another lock, which the system releases when the process
ends: so a trial that is running for the file, and whose lock is free, was killed. It is marked as failed, and the same values are tried
again, in the folder that it has begun. Optuna's own heartbeat would need a minute to notice, and works in its own loop alone.
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
_FIRST = "first"  # the number of the first attempt of a trial, which it is called by
_SECONDS = 60  # to wait for another program that reads the file
_STARTUP = 4  # trials that are completed before any is stopped


@frozen(eq=False)
class Trial:
    """A trial that this process runs: the values of the parameters, and the lock that says so."""

    number: int
    values: dict[str, Any]
    inner: Any = field(repr=False)
    lock: Any = field(repr=False)

    @property
    def given(self) -> bool:
        """Whether it is the configuration that was given."""
        return self.number == 0


@frozen
class Found:
    """The best trial: its score and its values, the score of the configuration that was given, and how many trials have ended."""

    trial: int
    score: float
    values: dict[str, Any]
    given: float
    trials: int


@frozen(eq=False)
class Study:
    """A study in a folder; made by `opened`.

    `given` are the values of the configuration that was given, as far as they are known. `note` is called with the best trial whenever
    one has ended, and no other process is in the study meanwhile.
    """

    folder: Path
    space: Space
    given: Mapping[str, Any]
    maximize: bool
    seed: int
    note: Callable[[Found], None] = field(repr=False)
    optuna: Any = field(repr=False)
    inner: Any = field(repr=False)

    @property
    def ended(self) -> int:
        """How many trials have ended."""
        with claiming(self.folder):
            return len(self._in("COMPLETE", "PRUNED"))

    def next(self, trials: int | None, *, late: bool) -> Any:
        """Begin a trial, up to this many in all: return it; or the lock of one that must end before it is known what to do; or None.

        When it is `late`, only the configuration that was given is begun, without whose score there is no best one.
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
        # The proposals depend on the seed and on the trials before, so that a study that was killed goes on to the same ones.
        place = len(self._in("COMPLETE", "PRUNED", "RUNNING"))
        self.inner.sampler = self.optuna.samplers.TPESampler(seed=fold_in(self.seed, "trial", place) % 2**31)
        inner = self.inner.ask()
        lock = self._lock(inner.number)
        lock.acquire()
        number = inner.user_attrs.get(_FIRST, inner.number)
        tried = [parameter for parameter in self.space if number or parameter.key in self.given]
        return Trial(number, {parameter.key: _suggest(inner, parameter) for parameter in tried}, inner, lock)

    def _running(self) -> Iterator[tuple[int, Any]]:
        """Yield the numbers and locks of the trials that run in some process, and put back those that were killed."""
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
        """Leave a trial for a process that continues the study: it does not count."""
        with claiming(self.folder):
            self._put_back(self.inner.get_trials(deepcopy=False)[trial.inner.number])

    def _put_back(self, trial: Any) -> None:
        self.inner.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
        self.inner.enqueue_trial(trial.params, user_attrs={**trial.user_attrs, _FIRST: _number(trial)})

    def falls_behind(self, trial: Trial, fold: int, mean: float) -> bool:
        """Note the mean score of the folds so far, and tell whether it is worse than the median of those of the completed trials."""
        with claiming(self.folder):
            trial.inner.report(mean, fold)
            others = sorted(each.intermediate_values[fold] for each in self._in("COMPLETE") if fold in each.intermediate_values)
        if trial.given or len(others) < _STARTUP:
            return False
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
        return bool(mean < middle if self.maximize else mean > middle)

    def end(self, trial: Trial, score: float | None, reason: str) -> None:
        """Note the score of a trial, or why it has none."""
        with claiming(self.folder):
            if score is None:  # among those that Optuna calls pruned, so that it learns to stay away from their values
                trial.inner.set_user_attr("reason", reason)
                self.inner.tell(trial.inner, state=self.optuna.trial.TrialState.PRUNED)
            else:
                self.inner.tell(trial.inner, score)
            if (found := self._best()) is not None:
                self.note(found)

    def best(self) -> Found:
        """Return the best trial, of equal ones the first; the configuration that was given has its score."""
        with claiming(self.folder):
            found = self._best()
            assert found is not None
            self.note(found)
        return found

    def _best(self) -> Found | None:
        complete = sorted(self._in("COMPLETE"), key=_number)
        if not complete or _number(complete[0]) != 0:
            return None
        found = (max if self.maximize else min)(complete, key=lambda trial: trial.value)
        values = dict(found.params) if _number(found) else {}
        return Found(_number(found), found.value, values, complete[0].value, len(self._in("COMPLETE", "PRUNED")))

    def _in(self, *states: str) -> list[Any]:
        return list(self.inner.get_trials(deepcopy=False, states=tuple(self.optuna.trial.TrialState[state] for state in states)))

    def _lock(self, number: int) -> Any:
        return _file_lock(self.folder / f".trial-{number:04}.lock")


@contextmanager
def claiming(folder: Path) -> Iterator[None]:
    """Keep other processes out of the study in a folder, which is made if needed; they wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with _file_lock(folder / _LOCK):
        yield


@contextmanager
def opened(  # noqa: PLR0913  # each says what is searched, and how
    folder: Path, space: Space, given: Mapping[str, Any], note: Callable[[Found], None], *, maximize: bool, seed: int
) -> Iterator[Study]:
    """Open the study in a folder, or make one. Raises `MissingExtraError` without Optuna."""
    optuna = optional("optuna", extra="tune", needed_by="mlxfp tune")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would say on standard error that there is a new study
    storage = None
    try:
        with claiming(folder):
            # A URL cannot hold every path.
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

    return FileLock(path, thread_local=False)  # a generator may go on in another thread


def _number(trial: Any) -> int:
    return int(trial.user_attrs.get(_FIRST, trial.number))


def _suggest(trial: Any, parameter: Parameter) -> Any:
    key, values = parameter.key, parameter.values
    if parameter.kind == "choice":
        return trial.suggest_categorical(key, values)
    suggest = trial.suggest_int if parameter.kind == "int" else trial.suggest_float
    return suggest(key, *values, log=parameter.kind == "log")
