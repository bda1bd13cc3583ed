import asyncio
import time

import mlx.core as mx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, CursorMismatchError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.strategies import pipelines
from tests.data.left_running import no_thread_left, run_script

NUMBERS = pa.schema({"x": pa.int64()})
ENDLESS = fp.from_iterable(lambda: ({"x": x} for x in iter(int, 1)))


async def collected(*arguments, **options):
    return [item async for item in fp.aiterate(*arguments, **options)]


@settings(max_examples=30)
@given(dataset=pipelines(), epoch=st.integers(0, 2))
def test_it_gives_what_iterate_gives_with_the_same_cursors(dataset, epoch):
    whole = list(fp.iterate(dataset, epoch=epoch))
    with no_thread_left():
        assert_same(asyncio.run(collected(dataset, epoch=epoch)), whole, "the same items and cursors")
        for place, (_, cursor) in enumerate(whole):
            rest = asyncio.run(collected(dataset, fp.Cursor.from_bytes(cursor.to_bytes())))
            assert_same(rest, whole[place + 1 :], "the same rest")


def test_a_version_that_loses_the_last_item_would_be_caught():
    async def without_last(dataset):
        return (await collected(dataset))[:-1]

    assert asyncio.run(without_last(fp.from_table({"x": [1, 2]}))) != list(fp.iterate(fp.from_table({"x": [1, 2]})))


def test_other_tasks_run_while_it_waits():
    async def both():
        ticks, done = 0, asyncio.Event()

        async def consume():
            slow = fp.map(lambda row: time.sleep(0.05) or row, schema=NUMBERS)
            assert len(await collected(fp.pipe(fp.from_table({"x": [1, 2, 3]}), slow))) == 3
            done.set()

        task = asyncio.create_task(consume())
        while not done.is_set():
            await asyncio.sleep(0.001)
            ticks += 1
        await task
        return ticks

    assert asyncio.run(both()) > 10


def test_an_error_comes_after_the_items_before_it_and_leaves_no_thread():
    async def consume():
        seen = []
        dataset = fp.pipe(
            fp.from_table({"x": range(9)}), fp.batch(2), fp.map(lambda row: {"x": 1 // (row["x"] - 5)}, schema=NUMBERS), fp.prefetch(1)
        )
        try:
            async for item, _ in fp.aiterate(dataset):
                seen += item.column("x").to_pylist()
        except ZeroDivisionError as error:
            return seen, error.__notes__[0]

    with no_thread_left():
        assert asyncio.run(consume()) == ([-1] * 4, "on source row 5: {'x': 5}")


def test_who_stops_early_fails_or_is_cancelled_leaves_no_thread():
    dataset = fp.pipe(ENDLESS, fp.batch(2), fp.prefetch(2))

    async def stop():
        async for _ in fp.aiterate(dataset):
            break

    async def closed():
        items = fp.aiterate(dataset)
        await anext(items)
        await items.aclose()

    async def fail():
        async for _ in fp.aiterate(dataset):
            raise LookupError

    async def cancel():
        slow = fp.pipe(ENDLESS, fp.map(lambda row: time.sleep(0.01) or row, schema=NUMBERS), fp.prefetch(1))
        task = asyncio.create_task(collected(slow))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def late():
        async with asyncio.timeout(0.05):
            await collected(dataset)

    for way in (stop, closed, cancel):
        with no_thread_left():
            asyncio.run(way())
    for way, kind in ((fail, LookupError), (late, TimeoutError)):
        with no_thread_left(), pytest.raises(kind):
            asyncio.run(way())


def test_lazy_arrays_of_a_collator_can_be_used_by_the_loop():
    dataset = fp.pipe(
        fp.from_table({"x": range(4)}), fp.batch(2), fp.collate(lambda group: {"x": mx.array([row["x"] for row in group]) + 1})
    )
    assert [item["x"].tolist() for item, _ in asyncio.run(collected(dataset))] == [[1, 2], [3, 4]]


def test_an_interrupt_ends_the_loop_and_the_thread():
    code = """
import asyncio, signal, threading
from mlxfp.core.execution import aiterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_iterable

async def consume():
    threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    async for _ in aiterate(pipe(from_iterable(lambda: ({"x": x} for x in iter(int, 1))), batch(2), prefetch(2))):
        pass

try:
    asyncio.run(consume())
except KeyboardInterrupt:
    print("interrupted", [thread.name for thread in threading.enumerate() if thread.name.startswith("mlxfp")])
"""
    assert run_script(code) == (0, "interrupted []\n", "")


def test_what_is_no_dataset_or_its_cursor_is_refused_at_the_first_item():
    with pytest.raises(ArgumentTypeError, match="works on a dataset"):
        asyncio.run(collected([1]))
    with pytest.raises(CursorMismatchError):
        asyncio.run(collected(fp.from_table({"x": [1]}), next(fp.iterate(fp.from_table({"x": [2]})))[1]))
