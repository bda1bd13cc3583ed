"""Laws of pipes and stages. Stages are pure and lazy, and chunk boundaries do not affect the result."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import attrs
import numpy as np

from mlxfp.core.chunks import RecordBatch, source_rows
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.core.execution import iterate, read_all
from mlxfp.core.pipelines import compose, pipe
from mlxfp.core.planning import as_written
from mlxfp.core.stages import Stage
from mlxfp.data.rows.map_filter import take
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.cursors import assert_plans_agree
from mlxfp.testing.laws.datasets import Transform, collect, logged, through_bytes
from mlxfp.testing.probing import from_chunks

__tracebackhide__ = True


def assert_pipes(
    value: object, *functions: Callable[[Any], Any], pipe: Callable[..., Any] = pipe, compose: Callable[..., Any] = compose
) -> None:
    """Check that `pipe(x, f, g) == pipe(x, compose(f, g))`, also for more functions, and that `compose` is associative.

    `pipe` and `compose` default to the functions of mlxfp.

    >>> assert_pipes(" hi ", str.strip, str.upper, len)
    """
    assert_same(pipe(value), value, "pipe(x) is x")
    expected = value
    for function in functions:
        expected = function(expected)
    assert_same(pipe(value, *functions), expected, f"piping through {functions} equals applying the functions in turn")
    whole = compose(*functions)
    assert_same(pipe(value, whole), expected, f"piping through {whole!r} equals piping through its parts")
    for cut in range(len(functions) + 1):
        left, right = functions[:cut], functions[cut:]
        assert_same(pipe(value, *left, compose(*right)), expected, f"composing the functions from {cut} on changes nothing")
        assert compose(compose(*left), compose(*right)) == whole, (
            f"compose is associative, but composing the first {cut} functions first changes the result"
        )


def assert_pure_stages(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Check that a call of a stage changes neither state nor chunk, and that equal arguments give an equal result.

    First, the law calls every stage with its chunks in order, and keeps the state before each call. Then the law repeats the calls in
    reverse order, with the kept states and with copies restored from bytes. A state that a cursor cannot store breaks the law.

    >>> import mlxfp as fp
    >>> assert_pure_stages(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.batch(2)))
    """
    for step in as_written(dataset).steps:
        before = attrs.evolve(dataset, stages=dataset.stages[: step.index])
        calls = dataset.hooks.step(step), dataset.hooks.finish(step)
        _assert_pure_stage(step.stage, *calls, list(read_all(before, epoch=epoch)), epoch)


def _assert_pure_stage(stage: Stage, call: Any, finish: Any, chunks: Sequence[Any], epoch: int) -> None:
    claim = f"{stage!r} is pure"
    state = stage.start(epoch)
    assert_same(stage.start(epoch), state, f"{claim}: every start gives the same state")
    steps = []
    for chunk in chunks:
        kept_state, kept_chunk = through_bytes((state, chunk))
        after, out = _step(call, state, chunk)
        assert_same(state, kept_state, f"{claim}: a step does not change the old state")
        assert_same(chunk, kept_chunk, f"{claim}: a step does not change its input")
        steps.append((state, chunk, after, out))
        state = after
    last = list(finish(state))
    for old, chunk, after, out in reversed(steps):
        for state_copy in (old, through_bytes(old)):
            actual_state, actual_out = _step(call, state_copy, chunk)
            assert_same(actual_out, out, f"{claim}: the same state and chunk give the same output")
            assert_same(actual_state, after, f"{claim}: the same state and chunk give the same next state")
    for state_copy in (state, through_bytes(state)):
        assert_same(list(finish(state_copy)), last, f"{claim}: a second call of finish gives the same output")


def assert_chunks_do_not_matter(
    transform: Transform, chunks: Sequence[RecordBatch], others: Sequence[RecordBatch], *, epoch: int = 0
) -> None:
    """Check that the sizes of source chunks do not change the items. `chunks` and `others` hold the same rows in chunks of different sizes.

    Hidden columns must also be equal.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> rows = pa.record_batch({"x": [1, 2, 3]})
    >>> assert_chunks_do_not_matter(fp.batch(2), [rows], [rows.slice(0, 1), rows.slice(1)])
    """
    first, second = transform(from_chunks(chunks)), transform(from_chunks(others))
    actual, expected = collect(second, epoch=epoch), collect(first, epoch=epoch)
    assert_same(actual, expected, f"chunk boundaries do not change the items of {second!r}: it gives what {first!r} gives")


def assert_fits_itself(transform: Transform, chunks: Sequence[RecordBatch], *, epoch: int = 0) -> None:
    """Check that a transform applied twice in a row gives the same items with and without optimization.

    The check finds errors in the stage trait `fuse`, which merges two stages into one. If a transform cannot process its own output, the
    law checks nothing.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> assert_fits_itself(fp.shuffle(seed=0), [pa.record_batch({"x": [1, 2]})])
    """
    try:
        twice = transform(transform(from_chunks(chunks)))
        collect(unoptimized(twice), epoch=epoch)
    except Exception:  # noqa: BLE001  # a user function that does not accept its own output may raise any error
        return
    assert_plans_agree(twice, epoch=epoch)


def assert_lazy(transform: Transform, chunks: Sequence[RecordBatch], *, ahead: int = 0, epoch: int = 0) -> None:
    """Check that a transform reads only the source rows that the requested items need.

    The transform may read `ahead` additional rows, and the rest of the last chunk. The law applies only if the transform keeps row order.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> assert_lazy(fp.batch(2), [pa.record_batch({"x": [i]}) for i in range(5)])
    """
    dataset, log = logged(transform, chunks)
    ends = list(accumulate(chunk.num_rows for chunk in chunks))
    needed = 0
    for count, rows in enumerate(_rows_of_items(dataset, epoch), 1):
        needed = max([needed, *(rows + 1)])
        allowed = next((end for end in ends if end >= needed + ahead), ends[-1])
        log.clear()
        for _ in iterate(take(count, redraw=True)(dataset), epoch=epoch):
            pass
        assert sum(log) <= allowed, f"{dataset!r} reads at most {allowed} rows for its first {count} items, but it read {sum(log)}"


def _rows_of_items(dataset: Dataset[Any], epoch: int) -> list[Any]:
    chunks = [source_rows(chunk) for chunk in read_all(dataset, epoch=epoch)]
    return chunks if dataset.level == "groups" else [row for rows in chunks for row in np.split(rows, len(rows))]


def _step(call: Any, state: Any, chunk: Any) -> tuple[Any, list[Any]]:
    after, out = call(state, chunk)
    return after, list(out)
