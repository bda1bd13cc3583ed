"""Feeding chunks through stages: the only place where state changes hands."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def push(stages: Sequence[Any], states: list[Any], first: int, chunks: Iterable[Any]) -> Iterator[Any]:
    """Feed chunks to stage number `first`, and what comes out to the stages after it; `states` is updated in place."""
    if first == len(stages):
        yield from chunks
        return
    stage = stages[first]
    for chunk in chunks:
        try:
            states[first], out = stage.step(states[first], chunk)
        except Exception as error:
            error.add_note(f"while running {stage!r}")
            raise
        yield from push(stages, states, first + 1, out)


def flush(stages: Sequence[Any], states: list[Any]) -> Iterator[Any]:
    """Finish every stage in turn, feeding what it still held to the stages after it."""
    for place, stage in enumerate(stages):
        yield from push(stages, states, place + 1, stage.finish(states[place]))
