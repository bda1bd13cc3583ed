"""Steps of several trainings, such as those of folds, that are computed in one compiled program.

A step of a small model does not fill a GPU. Each training calls a step of its own, as always; the results of the calls are computed later,
those of several steps at once, by `mx.vmap` over their stacked arrays. Results that are read earlier are computed then.

Steps are computed together if MLX makes the same graph of them, down to every constant, for their shapes: the graph, not the Python code
that makes it, is compared. Arrays that a model keeps in private, such as bins of columns, may differ; they are stacked, too.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import mlx.core as mx
from attrs import define, field
from toolz import groupby

from mlxfp.models.bounds import Bounds, holds, tracing
from mlxfp.models.layers import MAPPED
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import TreeDef, flatten, paths, unflatten
from mlxfp.training.steps.batches import flat_batch
from mlxfp.training.steps.drawing import step_key
from mlxfp.training.steps.state import Leaves, TrainState, leaves_of, promise_of, state_of_leaves
from mlxfp.training.steps.steps import Batch, Metrics, TrainStep

_Place = tuple[list[mx.array], int]  # the leaves of several states, stacked, and which row is that of a state
_BITWISE = "BitwiseBinary"  # as MLX calls &, | and ^ in a graph


class JointSteps:
    """Steps that are computed together: `step` makes one of each training's own, and `compute` does what they were asked for.

    `alone` says why no steps can be computed together; None as long as they can. Of `made` steps, `joined` were computed with others.

    >>> from mlx import nn, optimizers
    >>> from mlxfp.training.steps.state import train_state
    >>> from mlxfp.training.steps.steps import train_step
    >>> models, optimizer, joint = (nn.Linear(1, 1), nn.Linear(1, 1)), optimizers.SGD(0.1), JointSteps()
    >>> steps = [joint.step(train_step(model, lambda model, batch: (model(batch["x"]).sum(), 2), optimizer)) for model in models]
    >>> made = [step(train_state(model, optimizer), {"x": mx.ones((2, 1))}) for step, model in zip(steps, models, strict=True)]
    >>> joint.waiting, sorted(made[0][1]), joint.waiting, joint.joined
    (2, ['loss', 'weight'], 0, 2)
    """

    def __init__(self) -> None:
        """Begin without steps."""
        self.alone: str | None = None
        self.made = self.joined = 0
        self._calls: list[_Call] = []
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        self._private: dict[Hashable, tuple[tuple[JointStep, ...], list[mx.array]]] = {}  # of the last steps of each program

    @property
    def waiting(self) -> int:
        """How many calls of steps are not computed yet."""
        return len(self._calls)

    def step(self, step: TrainStep) -> "JointStep":
        """Return a step that does what this one does, together with the others."""
        return JointStep(step, self)

    def add(self, call: "_Call") -> None:
        """Take the call of a step, to be computed later."""
        self._calls.append(call)

    def compute(self) -> None:
        """Compute all calls that are waiting: each kind of them in one program."""
        calls, self._calls = self._calls, []
        self.made += len(calls)
        for several in groupby(attrgetter("kind"), calls).values():
            if len(several) > 1:
                self._compute(several)
                self.joined += len(several)
            else:
                several[0].compute()

    def _compute(self, calls: "Sequence[_Call]") -> None:
        steps, first = tuple(call.step for call in calls), calls[0]
        key = (first.kind, len(calls))
        if key not in self._programs:
            self._programs[key] = mx.compile(partial(_row_by_row, partial(first.step.mapped, first.structure, first.updates)))
        if key not in self._private or self._private[key][0] != steps:
            self._private[key] = steps, _stack([step.private for step in steps])
        leaves, metrics = self._programs[key](
            _stacked(calls), self._private[key][1], [call.key for call in calls], [call.arrays for call in calls]
        )
        mx.async_eval(leaves, metrics)
        for row, (call, numbers) in enumerate(zip(calls, metrics, strict=True)):
            call.computed((leaves, row), numbers)


class JointStep(TrainStep):
    """A step of a training that is computed with those of others; made by `JointSteps.step`."""

    def __init__(self, step: TrainStep, group: JointSteps) -> None:
        """Do what the step does."""
        vars(self).update(vars(step))
        if self._options.ranks is not None or not self._options.compile:
            raise ArgumentError("Steps of ranks, and steps with compile=False, are computed one after the other. Use the step itself.")
        self.group = group
        self._kinds: dict[Hashable, tuple[str, Bounds]] = {}
        self.private = self._model.private

    def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """Check the arguments, and promise what comes out of the step."""
        if self.group.alone is not None:
            return super().__call__(state, batch)
        before = promise_of(state)
        if not (isinstance(before, _Call) and before.step is self):  # else it fits
            self._leaves(state)
        elif before.metrics is None:
            self.group.compute()
        if self._outside:
            self._check_outside()
        structure, arrays = flat_batch(batch)
        updates = (state.step + 1) % self._options.accumulate == 0
        try:
            kind, bounds = self._kind(state, structure, arrays, updates=updates)
        except Exception as error:  # noqa: BLE001  # of the trace: a mistake in the batch, which is raised in the next line, or `mx.vmap`
            result = super().__call__(state, batch)
            self.group.alone = str(error)
            return result
        holds(bounds, arrays, partial(paths, structure))
        key = step_key(state.seed, state.step, None)
        call = _Call(self, kind, (state, batch), structure, updates=updates, key=key, arrays=arrays)
        self.group.add(call)
        return state_of_leaves(call, state.step + 1, state.seed), _Promised(call)

    def compute(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """Make the step alone, now."""
        return super().__call__(state, batch)

    def leaves(self, state: TrainState) -> list[mx.array]:
        """Return the leaves of a state before a step."""
        return self._leaves(state)

    def with_structure(self, leaves: list[mx.array]) -> Leaves:
        """Return leaves with the structure of the states of this step."""
        return self._structure, leaves

    def mapped(  # noqa: PLR0913, PLR0917  # what a step depends on, of several
        self,
        structure: TreeDef,
        updates: bool,  # noqa: FBT001  # bound by `partial`
        leaves: list[mx.array],
        private: list[mx.array],
        keys: list[mx.array],
        arrays: list[list[mx.array]],
        bounds: Bounds | None = None,
    ) -> tuple[list[mx.array], list[dict[str, mx.array]]]:
        """Make several steps that are not compiled: return their leaves, stacked, and the metrics of each."""
        bounds = {} if bounds is None else bounds

        def one(leaves: list[mx.array], private: list[mx.array], key: mx.array, arrays: list[mx.array]) -> Any:
            step = copy(self)
            step._model = self._model.holding(private)  # noqa: SLF001  # of this class
            with tracing(arrays, bounds):
                return step._flat(structure, leaves, key, arrays, updates=updates)  # noqa: SLF001

        token = MAPPED.set(True)  # of a context variable
        try:
            after, metrics = mx.vmap(one)(leaves, private, mx.stack(keys), _stack(arrays))
        finally:
            MAPPED.reset(token)
        return after, [{name: values[row] for name, values in metrics.items()} for row in range(len(keys))]

    def _kind(self, state: TrainState, structure: TreeDef, arrays: list[mx.array], *, updates: bool) -> tuple[str, Bounds]:
        """Return the digest of the graph of a step, which those share that can be computed together, and the bounds of the batch."""
        place = (structure, updates, tuple((array.shape, str(array.dtype)) for array in arrays))
        if place not in self._kinds:
            bounds: Bounds = {}
            key, leaves = step_key(0, 0, None), [leaf[None] for leaf in self._leaves(state)]
            given, flat = flatten((leaves, [array[None] for array in self.private], [key], [arrays]))

            def run(*flat: mx.array) -> list[mx.array]:
                leaves, private, keys, arrays = unflatten(given, list(flat))
                return flatten(self.mapped(structure, updates, leaves, private, keys, arrays, bounds))[1]

            graph: list[dict[str, Any]] = []
            mx.export_function(graph.append, run, *flat)
            self._kinds[place] = _digest(graph), bounds
        return self._kinds[place]


@define(eq=False)
class _Call:
    """A call of a step: what it was called with, until it is computed; then its row in the leaves of all, or its own leaves."""

    step: JointStep
    kind: str
    given: tuple[TrainState, Batch] | None
    structure: TreeDef
    updates: bool = field(kw_only=True)
    key: mx.array = field(kw_only=True)
    arrays: list[mx.array] = field(kw_only=True)
    place: _Place | None = None
    metrics: Metrics | None = None
    _leaves: list[mx.array] | None = None

    def __call__(self) -> Leaves:
        """Return the leaves of the state after the step."""
        self.wait()
        if self._leaves is None:
            assert self.place is not None
            leaves, row = self.place
            self._leaves = [leaf[row] for leaf in leaves]
        return self.step.with_structure(self._leaves)

    def wait(self) -> Metrics:
        """Have the step computed, if it is not; return its metrics."""
        if self.metrics is None:
            self.step.group.compute()
        assert self.metrics is not None
        return self.metrics

    def compute(self) -> None:
        """Compute the step alone."""
        assert self.given is not None
        state, metrics = self.step.compute(*self.given)
        self._leaves = leaves_of(state)[1]
        self.computed(None, metrics)

    def computed(self, place: _Place | None, metrics: Metrics) -> None:
        """Keep the results, and nothing of what led to them: the state has the call that it came from, and so on."""
        self.place, self.metrics = place, metrics
        self.given, self.arrays = None, []


class _Promised(Mapping[str, Any]):
    """The metrics of a call."""

    def __init__(self, call: _Call) -> None:
        self._call = call

    def __getitem__(self, name: str) -> mx.array:
        return self._call.wait()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._call.wait())

    def __len__(self) -> int:
        return len(self._call.wait())


def _row_by_row(mapped: Callable[..., Any], *args: Any) -> Any:
    """Make several steps, whose leaves lie row by row in memory, as those of a step alone and those of a checkpoint.

    MLX gives a result the strides of one of its arguments: the axis of the steps came last. A matrix that lies so is copied before it is
    multiplied, a transposed one as well, and a BLAS may round the product with the copy in another way.
    """
    leaves, metrics = mapped(*args)
    return [mx.contiguous(leaf) for leaf in leaves], metrics


def _stack(rows: Sequence[Sequence[mx.array]]) -> list[mx.array]:
    return [mx.stack(list(column)) for column in zip(*rows, strict=True)]


def _stacked(calls: Sequence[_Call]) -> list[mx.array]:
    """Return the leaves of the states before the calls, stacked: as they are where the last program has left them so."""
    given = [(call.step, call.given[0]) for call in calls if call.given is not None]
    places: list[_Place] = [getattr(promise_of(state), "place", None) or ([], 0) for _, state in given]
    leaves = places[0][0]
    if leaves and len(calls) == len(leaves[0]) and all(there is leaves and row == own for own, (there, row) in enumerate(places)):
        return leaves
    return _stack([step.leaves(state) for step, state in given])


def _digest(graph: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of a graph as MLX exports it; raises `ArgumentError` for one that `mx.vmap` gets wrong."""
    parts = {part["type"]: part for part in graph if part["type"] != "primitive"}
    depends = {name for name, *_ in parts["inputs"]["inputs"]}
    digest = blake2b(repr([parts["inputs"]["inputs"], parts["outputs"]["outputs"]]).encode())
    for name, array in parts["constants"]["constants"]:
        digest.update(repr((name, array.shape, str(array.dtype), array.tolist())).encode())
    for part in (part for part in graph if part["type"] == "primitive"):
        given = {name in depends for name, *_ in part["inputs"]}
        if part["name"] == _BITWISE and len(given) > 1:
            raise ArgumentError("MLX 0.32.4 computes &, | and ^ wrongly under mx.vmap, of numbers of a batch or state and constants.")
        depends |= {name for name, *_ in part["outputs"]} if any(given) else set()
        digest.update(repr((part["name"], part["arguments"], part["inputs"], part["outputs"])).encode())
    return digest.hexdigest()
