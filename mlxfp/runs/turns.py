"""Folds that train at a time, in turns: each goes on up to its next step, and then the steps of all are computed, in one program."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from mlxfp.runs.events import Ended, Noted, RunEvent, Trained
from mlxfp.training.loop.events import Queued
from mlxfp.training.steps.joint import JointSteps

Events = Generator[RunEvent, None, None]


class Turns:
    """The folds of a run that train at a time: at most so many, of whichever seeds they are.

    >>> turns = Turns(2)
    >>> with turns.one():
    ...     turns.free
    1
    """

    def __init__(self, most: int) -> None:
        """Allow so many folds at a time. A single one has no others that its steps could be computed with."""
        self.free = most
        self.joint = JointSteps() if most > 1 else None

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take the place of a fold."""
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1

    def take(self, parts: Iterable[Events]) -> Events:
        """Yield the events of folds, which take a place each, or of models that do so with theirs; the next begins where a place is free.

        When all that have begun have called a step, one `Queued` is yielded for them.
        """
        waiting, live = iter(parts), list[Events]()
        try:
            while True:
                called = None
                for part in chain(tuple(live), self._begun(waiting, live)):
                    step = yield from _to_next_step(part)
                    called = called or step
                    if step is None:
                        live.remove(part)
                if called is None:
                    return
                yield called
        finally:
            for part in live:
                part.close()

    def _begun(self, waiting: Iterator[Events], live: list[Events]) -> Iterator[Events]:
        while self.free > 0 and (part := next(waiting, None)) is not None:
            live.append(part)
            yield part

    def computed(self, events: Iterator[RunEvent], run: Path) -> Events:
        """Compute the steps that are called in each turn; yield the other events, and before the end what share was computed together."""
        joint, said = self.joint, False
        for event in events:
            if joint is not None and _is_call(event):
                joint.compute()
                if joint.alone and not said:
                    yield Noted(
                        run, f"{_NAME}: MLX cannot compute steps of this network together, so each is computed alone: {joint.alone}"
                    )
                    said = True
                continue
            if joint is not None and joint.made and isinstance(event, Ended) and event.folder == run:
                share = joint.joined / joint.made
                yield Noted(run, f"{_NAME}: of {joint.made:,} steps, {share:.0%} were computed with those of other folds.")
            yield event


_NAME = "training.together"


def _to_next_step(part: Events) -> Generator[RunEvent, None, RunEvent | None]:
    """Yield the events up to the next step; return the call of it, if there is one."""
    for event in part:
        if _is_call(event):
            return event
        yield event
    return None


def _is_call(event: RunEvent) -> bool:
    return isinstance(event, Trained) and isinstance(event.event, Queued)
