"""Folds that train together: each goes on up to its next step, and then the steps of all are computed in one program."""

from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path

from mlxfp.core.running.showing import Showing
from mlxfp.runs.events import Noted, RunEvent, Trained
from mlxfp.training.loop.events import Queued, Stepped
from mlxfp.training.steps.joint import JointSteps

Events = Generator[RunEvent, None, None]


def in_turns(folds: Iterable[Events], joint: JointSteps, count: int, run: Path) -> Events:
    """Yield the events of all folds, of which at most `count` train at a time, with `joint` steps; the next begins where one has ended."""
    waiting, live = iter(folds), list[Events]()
    said = False
    try:
        while live := [*live, *islice(waiting, count - len(live))]:
            for fold in tuple(live):
                if not (yield from _to_next_step(fold)):
                    live.remove(fold)
            joint.compute()
            if joint.alone and not said:
                yield Noted(
                    run, f"training.together: MLX cannot compute steps of this network together, so each is computed alone: {joint.alone}"
                )
                said = True
    finally:
        for fold in live:
            fold.close()
    if joint.made:
        share = joint.joined / joint.made
        yield Noted(run, f"training.together: of {joint.made:,} steps, {share:.0%} were computed with those of other folds.")


def _to_next_step(fold: Events) -> Generator[RunEvent, None, bool]:
    """Yield the events of a fold up to its next step; return whether there is one."""
    for event in fold:
        if isinstance(event, Trained) and isinstance(event.event, Queued):
            return True
        yield event
    return False


def show_steps(events: Events) -> Events:
    """Show how many steps of all folds have been made."""
    with Showing("training", unit="steps") as shown, closing(events):
        for event in events:
            yield event
            if isinstance(event, Trained) and isinstance(event.event, Stepped):
                shown.add()
