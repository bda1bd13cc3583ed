import gc
import signal
import threading
import time
from decimal import Decimal, localcontext

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.data.running import prefetching
from mlxfp.data.running.meters import QueueMeter
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing.laws import assert_lazy, assert_resumable, assert_transparent, assert_value
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines
from tests.data.left_running import no_thread_left, run_script

NUMBERS = pa.schema({"x": pa.int64()})


def numbers(count):
    return fp.from_table({"x": np.arange(count)})


def fails_at_seven(row):
    if row["x"] == 7:
        raise ValueError("seven")
    return row


def one_by_one(count):
    return from_chunks([pa.record_batch({"x": [x]}) for x in range(count)])


LINES = st.builds(lambda depth, size: fp.prefetch(depth, max_bytes=size), st.integers(1, 4), st.none() | st.integers(1, 200))


@settings(max_examples=30)
@given(dataset=pipelines(), line=LINES)
def test_it_changes_nothing_that_can_be_seen(dataset, line):
    with no_thread_left():
        assert_transparent(line, dataset)


@settings(max_examples=20)
@given(line=LINES, inner=LINES)
def test_an_error_comes_in_its_place_also_through_two_threads(line, inner):
    with no_thread_left():
        assert_transparent(fp.compose(inner, line), fp.pipe(one_by_one(20), fp.map(fails_at_seven, schema=NUMBERS)))
        assert_transparent(line, fp.pipe(one_by_one(20), fp.map(fails_at_seven, schema=NUMBERS), batch(3)))
        assert_resumable(fp.pipe(one_by_one(9), fp.shuffle(seed=1, buffer=3), inner, batch(2), line))


def test_a_line_that_swallows_errors_would_be_caught(monkeypatch):
    monkeypatch.setattr(prefetching._Line, "end", lambda self, error, end=prefetching._Line.end: end(self, None))
    with pytest.raises(AssertionError, match="errors included"):
        assert_transparent(fp.prefetch(2), fp.pipe(one_by_one(20), fp.map(fails_at_seven, schema=NUMBERS)))


@pytest.mark.parametrize("depth", [1, 3])
def test_it_works_ahead_by_as_many_items_as_it_says(depth):
    assert_lazy(fp.prefetch(depth), [pa.record_batch({"x": [x]}) for x in range(20)], ahead=depth)
    log = []
    items = fp.iterate(fp.prefetch(depth)(from_chunks([pa.record_batch({"x": [x]}) for x in range(20)], log=log)))
    next(items)
    assert settled(log) == 1 + depth
    items.close()


def settled(log):
    """Wait until nothing more is read."""
    size = -1
    while size != len(log):
        size = len(log)
        time.sleep(0.05)
    return size


@pytest.mark.parametrize(("max_bytes", "ahead"), [(1, 1), (2400, 1), (2401, 2), (4800, 2), (10**9, 8), (None, 8)])
def test_bytes_that_wait_are_bounded_and_one_item_may_go_beyond(max_bytes, ahead):
    log = []
    items = fp.iterate(fp.prefetch(8, max_bytes=max_bytes)(from_chunks([pa.record_batch({"x": np.arange(100)})] * 20, log=log)))
    next(items)
    assert settled(log) == 1 + ahead  # a chunk has 2,400 bytes, with its hidden columns
    items.close()


def test_the_bytes_of_batches_are_those_of_arrays_and_texts():
    batch = {"a": mx.zeros((2, 3), mx.float32), "b": np.zeros(4, np.int64), "names": ("é", "long " * 100)}
    assert prefetching._size(batch) > 24 + 32 + 500
    assert prefetching._size({"a": mx.zeros((2, 3), mx.float32), "b": np.zeros(4, np.int64)}) == 24 + 32
    assert prefetching._size(pa.record_batch({"x": np.arange(100)}).slice(10, 5)) == 40


def test_a_run_may_continue_with_another_depth():
    shallow, deep = (fp.pipe(numbers(20), batch(3), line) for line in (fp.prefetch(1), fp.prefetch(5, max_bytes=7)))
    assert shallow == deep
    assert fp.inspect.fingerprint(shallow) == fp.inspect.fingerprint(deep)
    whole = list(fp.iterate(shallow))
    rest = [item for item, _ in fp.iterate(deep, fp.Cursor.from_bytes(whole[2][1].to_bytes()))]
    assert rest == [item for item, _ in whole[3:]]
    assert_value(deep)


def test_it_prints_and_explains_what_it_holds():
    assert repr(fp.prefetch(2)) == "prefetch(depth=2)"
    assert repr(fp.prefetch(2, max_bytes=10)(numbers(3))) == "pipe(from_table(3 rows), prefetch(depth=2, max_bytes=10))"
    assert "holds up to 1 item ahead" in fp.explain(fp.prefetch(1)(numbers(3)))
    assert "holds up to 1,000 items ahead, or 2,000 bytes and one more" in fp.explain(fp.prefetch(1000, max_bytes=2000)(numbers(3)))


ENDLESS = fp.from_iterable(lambda: ({"x": x} for x in iter(int, 1)))


@pytest.mark.parametrize(
    "line", [fp.prefetch(1), fp.prefetch(100), fp.prefetch(3, max_bytes=1), fp.compose(fp.prefetch(2), batch(2), fp.prefetch(2))]
)
def test_no_thread_is_left_by_who_stops_early(line):
    with no_thread_left():
        for _ in fp.pipe(ENDLESS, line):
            break
    with no_thread_left():
        items = iter(fp.pipe(ENDLESS, line))
        next(items)
        del items
        gc.collect()
    with no_thread_left():
        assert len(list(fp.pipe(ENDLESS, line, fp.take(3)))) == 3
    with no_thread_left():
        assert len(list(zip(range(3), fp.pipe(ENDLESS, line), strict=False))) == 3


def test_no_thread_is_left_by_a_run_that_never_began():
    with no_thread_left():
        fp.iterate(fp.pipe(ENDLESS, fp.prefetch(2)))


def test_no_thread_is_left_after_an_error_of_the_consumer():
    def consume():
        for row in fp.pipe(ENDLESS, fp.prefetch(2)):
            raise LookupError(row)

    with no_thread_left():
        try:
            consume()
        except LookupError as error:
            kept = error  # with its traceback, and so the frame that iterated
            time.sleep(0.1)
            assert not [thread for thread in threading.enumerate() if thread.name == "mlxfp-prefetch"]
    assert kept


def test_no_thread_is_left_after_an_error_of_a_stage_or_of_a_thread_that_was_told_to_exit():
    def leaves(row):
        raise SystemExit("at once")

    with no_thread_left(), pytest.raises(ValueError, match="seven"):
        list(fp.pipe(numbers(20), fp.map(fails_at_seven, schema=NUMBERS), fp.prefetch(1)))
    with no_thread_left(), pytest.raises(SystemExit, match="at once"):
        list(fp.pipe(numbers(3), fp.map(leaves, schema=pa.schema({"x": pa.int64()})), fp.prefetch(2)))


def test_an_interrupt_of_the_consumer_leaves_no_thread():
    def consume():
        for _ in fp.pipe(ENDLESS, fp.prefetch(2)):
            raise KeyboardInterrupt

    with no_thread_left(), pytest.raises(KeyboardInterrupt):
        consume()


def test_an_interrupt_while_waiting_for_the_thread_leaves_none():
    slow = fp.map(lambda row: time.sleep(0.2) or row, schema=pa.schema({"x": pa.int64()}))

    def consume():
        threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        list(fp.pipe(ENDLESS, slow, fp.prefetch(2)))

    with no_thread_left(), pytest.raises(KeyboardInterrupt):
        consume()


SCRIPT = """
import sys, threading, time
import mlx.core as mx
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.collators.collating import collate
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import map
from mlxfp.data.running.meters import QueueMeter
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.sources.in_memory import from_examples

busy = collate(lambda group: {"x": (mx.ones((200, 200)) @ mx.ones((200, 200))).sum()})
dataset = pipe(from_examples([{"x": 1}] * 64), map(dict), repeat(None), prefetch(2), batch(4), busy, prefetch(1000, workers=2))
items = iterate(dataset)
next(items)
"""


def test_python_exits_cleanly_while_a_run_is_under_way():
    assert run_script(SCRIPT + "sys.modules['kept'] = [items]; print('end')") == (0, "end\n", "")  # outlives all globals


def test_python_exits_cleanly_after_an_error_and_after_an_interrupt():
    status, _, errors = run_script(SCRIPT + "raise LookupError('by the consumer')")
    assert (status, errors.count("Error: "), errors.count("Traceback")) == (1, 1, 1)
    main = "threading.main_thread().ident, signal.SIGINT"
    interrupt = f"import signal\nthreading.Timer(0.2, signal.pthread_kill, ({main})).start()\nfor item, _ in items: pass"
    status, _, errors = run_script(SCRIPT + interrupt)
    assert status != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1


def test_python_exits_while_one_thread_waits_for_another():
    script = """
import time
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.rows.map_filter import map
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples

def slow(row):
    time.sleep(0.2)
    return row

items = iterate(pipe(from_examples([{"x": 1}] * 20), map(slow), prefetch(1), map(dict), prefetch(1)))
print(next(items)[0])
"""
    assert run_script(script) == (0, "{'x': 1}\n", "")


def test_an_iterator_that_is_collected_as_garbage_in_the_thread_itself_ends_it():
    code = """
import gc, threading, time
import pyarrow as pa
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import map
from mlxfp.data.running.meters import QueueMeter
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_iterable

class Node:
    pass

gc.disable()
abandoned, collect = threading.Event(), lambda row: abandoned.is_set() and gc.collect() and row or row
endless = from_iterable(lambda: ({"x": x} for x in iter(int, 1)), schema=pa.schema({"x": pa.int64()}))

def abandon(*parts):
    node = Node()
    node.node, node.items = node, iter(pipe(endless, map(collect, schema=pa.schema({"x": pa.int64()})), *parts))
    next(node.items)

abandon(prefetch(1), batch(2), prefetch(1))
abandon(prefetch(10_000))
abandoned.set()
begin = time.monotonic()
while threading.active_count() > 1 and time.monotonic() - begin < 20:
    time.sleep(0.01)
print(threading.active_count())
"""
    assert run_script(code) == (0, "1\n", "")


def test_who_closes_in_another_thread_does_not_wait_for_the_worker():
    items = fp.iterate(fp.pipe(ENDLESS, fp.prefetch(2)))
    with no_thread_left():
        next(items)
        closer = threading.Thread(target=items.close)
        closer.start()
        closer.join()


def test_what_runs_when_python_exits_ends_the_thread(monkeypatch):
    registered = []
    monkeypatch.setattr(prefetching.atexit, "register", registered.append)
    monkeypatch.setattr(prefetching.atexit, "unregister", lambda function: None)
    items = fp.iterate(fp.pipe(ENDLESS, fp.prefetch(2)))
    with no_thread_left():
        next(items)
        registered[0]()
        assert not [thread for thread in threading.enumerate() if thread.name == "mlxfp-prefetch"]
    items.close()


def test_a_thread_of_the_consumer_may_iterate_too():
    found = []
    with no_thread_left():
        worker = threading.Thread(target=lambda: found.extend(fp.pipe(numbers(50), batch(4), fp.prefetch(2))))
        worker.start()
        worker.join()
    assert found == list(fp.pipe(numbers(50), batch(4)))


def test_batches_made_in_the_thread_can_be_used_in_another():
    batches = fp.pipe(
        numbers(8), fp.repeat(2), batch(4), fp.collate(lambda group: {"x": mx.array([row["x"] for row in group]) * 2}), fp.prefetch(2)
    )
    assert [item["x"].tolist() for item in batches] == [[0, 2, 4, 6], [8, 10, 12, 14]] * 2


def test_the_thread_sees_the_context_of_the_consumer():
    digits = fp.pipe(numbers(3), fp.map(lambda row: {"x": str(Decimal(1) / 3)}), fp.prefetch(2))
    with localcontext(prec=3):
        assert [row["x"] for row in digits] == ["0.333"] * 3


def test_it_can_be_watched():
    seen, queue = [], QueueMeter()
    queue.watch = seen.append
    watched = fp.prefetch(2)(one_by_one(5))
    watched = evolve(watched, source=evolve(watched.source, watch=queue))
    assert len(list(watched)) == 5
    assert len(seen) == 6
    assert set(seen) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fp.prefetch(0), ArgumentError, "depth must be at least 1, got depth=0."),
        (lambda: fp.prefetch("2"), ArgumentTypeError, "depth must be an int, got depth='2'."),
        (lambda: fp.prefetch(2, max_bytes=0), ArgumentError, "max_bytes must be at least 1, got max_bytes=0."),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
