"""The laws of steps, losses, checkpoints and observers, as plain functions with messages."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxfp.core.datasets import Dataset
from mlxfp.core.trees import flatten, paths
from mlxfp.training.checkpoints import load_state, save_state
from mlxfp.training.events import Event, Observer, Stepped
from mlxfp.training.loops import fit, last
from mlxfp.training.state import TrainState
from mlxfp.training.steps import Batch, Step


def assert_pure_step(step: Step, state: TrainState, batch: Batch) -> None:
    """Law: a step changes neither the state nor the batch, and gives the same result again, bit for bit."""
    before = _bytes((state, dict(batch)))
    first, metrics = step(state, batch)
    assert _bytes((state, dict(batch))) == before, f"the step changed its input at {_where((state, dict(batch)), before)}"
    second, again = step(state, batch)
    assert _bytes((first, metrics)) == _bytes((second, again)), (
        f"a second call differs at {_where((second, again), _bytes((first, metrics)))}"
    )


def assert_compiled_equals_eager(step: Step, state: TrainState, batch: Batch, *, tolerance: float = 1e-5) -> None:
    """Law: the compiled step computes what the same code computes without `mx.compile`, up to rounding."""
    compiled = step(state, batch)
    mx.disable_compile()
    try:
        eager = step(state, batch)
    finally:
        mx.enable_compile()
    (structure, left), (other, right) = flatten(compiled), flatten(eager)
    assert structure == other, f"compiled and eager results have different structures: {structure} and {other}"
    for name, a, b in zip(paths(structure), left, right, strict=True):
        close = np.allclose(_numbers(a), _numbers(b), rtol=tolerance, atol=tolerance, equal_nan=True)
        assert close, f"compiled and eager differ at {name}: {a} and {b}"


def assert_saves(state: TrainState, folder: Path) -> None:
    """Law: a state that is saved and loaded is the same, bit for bit."""
    save_state(folder / "law.safetensors", state)
    loaded = load_state(folder / "law.safetensors", state).state
    assert loaded == state, f"the loaded state differs at {_where(loaded, _bytes(state))}"


def assert_continues(step: Step, state: TrainState, batches: Dataset[Batch], *, stop: int, steps: int, folder: Path) -> None:
    """Law: n steps are k steps, saving, loading, and n - k steps, bit for bit."""
    whole = last(fit(step, state, batches, steps=steps))
    first = last(fit(step, state, batches, steps=stop))
    save_state(folder / "law.safetensors", first.state, cursor=first.cursor)
    checkpoint = load_state(folder / "law.safetensors", state)
    rest = last(fit(step, checkpoint.state, batches, steps=steps, cursor=checkpoint.cursor))
    assert rest.state == whole.state, f"after stopping at step {stop} the run differs at {_where(rest.state, _bytes(whole.state))}"


Loss = Callable[..., tuple[mx.array, mx.array]]


def assert_adds_up(loss: Loss, arrays: Sequence[mx.array], sizes: Sequence[int], *, tolerance: float = 1e-5) -> None:
    """Law: sums and weights of a loss over the parts of a batch add up to those of the whole batch."""
    edges = np.cumsum([0, *sizes])
    parts = [loss(*(array[start:stop] for array in arrays)) for start, stop in pairwise(edges)]
    for name, whole, *split in zip(("sum", "weight"), loss(*arrays), *parts, strict=True):
        added = sum(float(part.item()) for part in split)
        assert np.isclose(whole.item(), added, rtol=tolerance, atol=tolerance), (
            f"parts of sizes {sizes} give the {name} {added}, all {whole}"
        )


def assert_keeps_events(observer: Observer, events: Iterable[Event]) -> None:
    """Law: an observer passes every event on, itself and in order; it may add some, or stop."""
    given = list(events)
    ids = {id(event) for event in given}
    passed = [event for event in observer(iter(given)) if id(event) in ids]
    assert [id(event) for event in passed] == [id(event) for event in given[: len(passed)]], f"{observer} changed the events"


def assert_lazy(observer: Observer, events: Sequence[Event]) -> None:
    """Law: an observer takes no event before the ones it took were passed on."""
    taken = []
    stream = observer(event for event in events if taken.append(event) or True)
    for seen, event in enumerate((event for event in stream if isinstance(event, Stepped)), 1):
        steps = [taken_event for taken_event in taken if isinstance(taken_event, Stepped)]
        assert steps[-1] is event, f"{observer} has taken {len(steps)} steps and passed on {seen}"


def _numbers(array: mx.array | float) -> Any:
    return np.array(array.astype(mx.float32)) if isinstance(array, mx.array) else array


def _bytes(tree: Any) -> list[Any]:
    leaves = flatten(tree)[1]
    mx.eval([leaf for leaf in leaves if isinstance(leaf, mx.array)])
    return [(leaf.shape, str(leaf.dtype), bytes(memoryview(leaf))) if isinstance(leaf, mx.array) else leaf for leaf in leaves]


def _where(tree: Any, before: list[Any]) -> str:
    names = paths(flatten(tree)[0])
    return ", ".join(name for name, old, new in zip(names, before, _bytes(tree), strict=False) if old != new) or "its structure"
