"""Feeding chunks through stages: the only place where state changes hands."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def push(stages: Sequence[Any], states: list[Any], first: int, chunks: Iterable[Any]) -> Iterable[Any]:
    """Feed chunks to stage number `first`, and what comes out to the stages after it; `states` is updated in place.

    Lazy: a chunk is fed to a stage when what comes out of it is asked for.
    """
    for place in range(first, len(stages)):
        if not stages[place].idle:
            chunks = _through(stages[place], states, place, chunks)
    return chunks


def flush(stages: Sequence[Any], states: list[Any]) -> Iterator[Any]:
    """Finish every stage in turn, feeding what it still held to the stages after it."""
    for place, stage in enumerate(stages):
        yield from push(stages, states, place + 1, stage.finish(states[place]))


def blame(error: Exception, stage: Any) -> None:
    """Let an error say in which stage it was raised; one that runs others leaves that to them."""
    if not stage.runs():
        error.add_note(f"while running {stage!r}")


def _through(stage: Any, states: list[Any], place: int, chunks: Iterable[Any]) -> Iterator[Any]:
    for chunk in chunks:
        try:
            states[place], out = stage.step(states[place], chunk)
        except Exception as error:
            blame(error, stage)
            raise
        yield from out
