"""Laws of training. A train step is a pure function, loading restores the saved state, and observers do not change events."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from mlxfp.support.trees import flatten, paths, tree_map

if TYPE_CHECKING:  # imported only by type checkers, so that checks of datasets do not import MLX
    from mlxfp.core.datasets import Dataset
    from mlxfp.training.loop.events import Event, Observer
    from mlxfp.training.steps.state import TrainState
    from mlxfp.training.steps.steps import Batch, Step

__tracebackhide__ = True

_CALLS = 12  # Number of calls without `mx.compile`, enough to find a value that changes only at every tenth call.


def assert_pure_step(step: "Step", state: "TrainState", batch: "Batch") -> None:
    """Check that a training step changes neither state nor batch, and that a second call gives a bit-identical result.

    A compiled step keeps the Python values of its first call, and hides, for example, a counter in an optimizer. The law therefore repeats
    the test without `mx.compile`, with several calls.

    >>> import mlx.core as mx
    >>> from mlx import nn, optimizers
    >>> import mlxfp as fp
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    >>> assert_pure_step(step, fp.train_state(model, optimizer), {"x": mx.ones((2, 1)), "y": mx.ones((2, 1))})
    """
    before = _bytes((state, dict(batch)))
    result = step(state, batch)
    assert _bytes((state, dict(batch))) == before, (
        f"a step does not change its input, but changed its input at {_changed_paths((state, dict(batch)), before)}"
    )
    _assert_repeats(step, state, batch, _bytes(result), "a second call", calls=1)
    with _without_compile():
        _assert_repeats(step, state, batch, _bytes(step(state, batch)), "a later call without mx.compile", calls=_CALLS)


def _assert_repeats(  # noqa: PLR0913  # a call and its result
    step: "Step", state: "TrainState", batch: "Batch", first: list[Any], which: str, *, calls: int
) -> None:
    for _ in range(calls):
        result = step(state, batch)
        assert _bytes(result) == first, (
            f"the same state and batch give the same result, but {which} differs at {_changed_paths(result, first)}. Keep counts and other "
            "values that change in the state, not in Python attributes"
        )


@contextmanager
def _without_compile() -> Iterator[None]:
    import mlx.core as mx

    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()


def assert_uses_parameters(step: "Step", state: "TrainState", batch: "Batch") -> None:
    """Check that the metrics of a step depend on the parameters: if all parameters are NaN, at least one metric must not be finite.

    A loss that ignores its argument `model` and calls another model breaks the law.

    >>> import mlx.core as mx
    >>> from mlx import nn, optimizers
    >>> import mlxfp as fp
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    >>> assert_uses_parameters(step, fp.train_state(model, optimizer), {"x": mx.ones((2, 1)), "y": mx.ones((2, 1))})
    """
    import mlx.core as mx

    nothing = tree_map(lambda array: mx.full(array.shape, float("nan"), array.dtype), state.params)
    _, metrics = step(evolve(state, params=nothing), batch)
    finite = {name: float(value) for name, value in metrics.items() if mx.isfinite(value).all().item()}
    assert len(finite) < len(metrics) or not metrics, (
        f"the metrics of a step depend on the parameters in the state, but with parameters of NaN the metrics are {finite}. Call the model "
        "that the loss receives: def loss(model, batch): ... model(batch[...])"
    )


def assert_compiled_equals_eager(step: "Step", state: "TrainState", batch: "Batch", *, tolerance: float = 1e-5) -> None:
    """Check that a compiled step gives the same result as the code without `mx.compile`, up to rounding.

    >>> import mlx.core as mx
    >>> from mlx import nn, optimizers
    >>> import mlxfp as fp
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    >>> assert_compiled_equals_eager(step, fp.train_state(model, optimizer), {"x": mx.ones((2, 1)), "y": mx.ones((2, 1))})
    """
    compiled = step(state, batch)
    with _without_compile():
        eager = step(state, batch)
    (structure, left), (other, right) = flatten(compiled), flatten(eager)
    assert structure == other, f"compiled and eager results have different structures: {structure} and {other}"
    for name, a, b in zip(paths(structure), left, right, strict=True):
        close = np.allclose(_numbers(a), _numbers(b), rtol=tolerance, atol=tolerance, equal_nan=True)
        assert close, f"compiled and eager differ at {name}: {a} and {b}"


def assert_saves(state: "TrainState", folder: Path) -> None:
    """Check that a state saved to a folder and loaded from the folder is bit-identical.

    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn, optimizers
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     assert_saves(fp.train_state(nn.Linear(2, 3), optimizers.SGD(0.1)), Path(folder))
    """
    from mlxfp.training.loop.checkpoints import load_state, save_state

    save_state(folder / "law.safetensors", state)
    loaded = load_state(folder / "law.safetensors", state).state
    assert loaded == state, f"a state is loaded as it was saved, but the loaded state differs at {_changed_paths(loaded, _bytes(state))}"


def assert_continues(  # noqa: PLR0913  # a run and its stop
    step: "Step", state: "TrainState", batches: "Dataset[dict[str, Any]]", *, stop: int, steps: int, folder: Path
) -> None:
    """Check that a run saved after `stop` steps and continued to `steps` steps ends in the same state as an uninterrupted run.

    The states must be bit-identical, and the events after the stop must be equal, including their metrics.

    >>> from tempfile import TemporaryDirectory
    >>> import mlx.core as mx
    >>> from mlx import nn, optimizers
    >>> import mlxfp as fp
    >>> batches = fp.pipe(fp.from_examples([{"x": [i / 4]} for i in range(4)]), fp.batch(1), fp.collate(fp.collators.default()))
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"]), optimizer)
    >>> with TemporaryDirectory() as folder:
    ...     assert_continues(step, fp.train_state(model, optimizer), batches, stop=1, steps=3, folder=Path(folder))
    """
    from mlxfp.training.loop.checkpoints import load_state, save_state
    from mlxfp.training.loop.fitting import fit

    whole, expected = _last_and_contents(fit(step, state, batches, steps=steps))
    first, first_contents = _last_and_contents(fit(step, state, batches, steps=stop))
    save_state(folder / "law.safetensors", first.state, cursor=first.cursor, running=first.running)
    checkpoint = load_state(folder / "law.safetensors", state)
    rest, rest_contents = _last_and_contents(
        fit(step, checkpoint.state, batches, steps=steps, cursor=checkpoint.cursor, running=checkpoint.running)
    )
    assert rest.state == whole.state, (
        f"stopping, saving and loading change nothing, "
        f"but after stopping at step {stop} the run differs at {_changed_paths(rest.state, _bytes(whole.state))}"
    )
    # leave out the event RunStarted of the continued run, and the event Stopped of the stopped run
    expected_rest = expected[len(first_contents) - 1 :]
    assert rest_contents[1:] == expected_rest, (
        f"after stopping at step {stop} a run yields the same events: expected {expected_rest}, got {rest_contents[1:]}"
    )


def _last_and_contents(events: "Iterable[Event]") -> "tuple[Event, list[Any]]":
    """Run all steps. Return the last event, and all events without their states."""
    contents = [(type(last := event).__name__, event.step, event.epoch, getattr(event, "metrics", None)) for event in events]
    return last, contents


def assert_accumulates(
    make: Callable[[int], "tuple[Step, TrainState]"], batch: "Batch", sizes: Sequence[int], *, tolerance: float = 1e-5
) -> None:
    """Check that an update accumulated over parts of a batch (of any size) equals the update of the whole batch, up to rounding.

    `make(count)` returns a step that accumulates `count` batches, and the initial state. `sizes` is the number of examples in each part.

    >>> import mlx.core as mx
    >>> from mlx import nn, optimizers
    >>> import mlxfp as fp
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> def make(count):
    ...     loss = lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"])
    ...     return fp.train_step(model, loss, optimizer, accumulate=count), fp.train_state(model, optimizer)
    >>> assert_accumulates(make, {"x": mx.arange(4.0)[:, None], "y": mx.ones((4, 1))}, [1, 3])
    """
    whole, state = make(1)
    expected, _ = whole(state, batch)
    step, state = make(len(sizes))
    for start, stop in pairwise(np.cumsum([0, *sizes]).tolist()):
        state, _ = step(state, {name: value[start:stop] for name, value in batch.items()})
    (structure, actual), (_, whole_batch) = flatten(state.params), flatten(expected.params)
    for name, ours, theirs in zip(paths(structure), actual, whole_batch, strict=True):
        close = np.allclose(_numbers(ours), _numbers(theirs), rtol=tolerance, atol=tolerance)
        assert close, f"updates accumulate, but parts of sizes {list(sizes)} give {name} {ours}, and the whole batch gives {theirs}"


def assert_keeps_events(observer: "Observer", events: Iterable["Event"]) -> None:
    """Check that an observer passes on every event, unchanged and in order. An observer may add events, or end the run early.

    >>> import mlxfp as fp
    >>> assert_keeps_events(iter, [fp.events.Event(None, None, 0), fp.events.Event(None, None, 1)])
    """
    originals = list(events)
    ids = {id(event) for event in originals}
    passed = [event for event in observer(iter(originals)) if id(event) in ids]
    same = [id(event) for event in passed] == [id(event) for event in originals[: len(passed)]]
    assert same, f"{observer} passes events on unchanged and in order, but of {originals} only {passed} arrived"


def assert_observes_lazily(observer: "Observer", events: Sequence["Event"]) -> None:
    """Check that an observer reads the next event only after passing on all earlier events.

    >>> import mlxfp as fp
    >>> assert_observes_lazily(iter, [fp.events.Stepped(None, None, 0, {}), fp.events.Stepped(None, None, 0, {})])
    """
    from mlxfp.training.loop.events import Stepped

    read_events: list[Event] = []

    def logged() -> "Iterator[Event]":
        for event in events:
            read_events.append(event)
            yield event

    for count, event in enumerate((event for event in observer(logged()) if isinstance(event, Stepped)), 1):
        steps = [step for step in read_events if isinstance(step, Stepped)]
        assert steps[-1] is event, (
            f"{observer} reads an event only after passing on all earlier events, but has read {len(steps)} steps and passed on {count}"
        )


def _numbers(leaf: Any) -> Any:
    import mlx.core as mx

    return np.array(leaf.astype(mx.float32)) if isinstance(leaf, mx.array) else leaf


def _bytes(tree: Any) -> list[Any]:
    import mlx.core as mx

    leaves = flatten(tree)[1]
    mx.eval([leaf for leaf in leaves if isinstance(leaf, mx.array)])
    return [(leaf.shape, str(leaf.dtype), bytes(memoryview(leaf))) if isinstance(leaf, mx.array) else leaf for leaf in leaves]  # type: ignore[arg-type]  # supports the buffer protocol


def _changed_paths(tree: Any, before: list[Any]) -> str:
    names = paths(flatten(tree)[0])
    return ", ".join(name for name, old, new in zip(names, before, _bytes(tree), strict=False) if old != new) or "its structure"
