import threading
import time
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.randomness import generator
from mlxfp.data.rows.thread_map import UnwantedWork, call, context_until, generators, in_order
from tests.data.left_running import no_thread_left, run_script


def each(function):
    return lambda rows: [function(row) for row in range(rows.start, rows.stop)]


def square_unless_bad(bad):
    def work(row):
        if row in bad:
            raise ValueError(f"row {row}")
        return row * row

    return each(work)


def outcome(function):
    try:
        return function()
    except ValueError as error:
        return str(error)


@given(count=st.integers(0, 100), workers=st.integers(1, 9), bad=st.sets(st.integers(0, 120), max_size=3))
def test_threads_give_what_one_gives_also_the_first_error(count, workers, bad):
    work = square_unless_bad(bad)
    with no_thread_left():
        assert outcome(lambda: in_order(work, count, workers=workers)) == outcome(lambda: work(slice(0, count)))


def test_a_version_that_takes_results_as_they_come_would_be_caught():
    def as_they_come(work, count):
        made = []
        threads = [threading.Thread(target=lambda row=row: made.extend(work(slice(row, row + 1)))) for row in range(count)]
        for thread in (*threads[::-1],):
            thread.start()
            thread.join()
        return made

    assert as_they_come(each(abs), 5) != in_order(each(abs), 5, workers=2)


def test_slow_rows_are_worked_on_at_the_same_time():
    together = threading.Barrier(4, timeout=20)  # breaks unless four threads meet
    assert in_order(each(lambda row: together.wait() >= 0), 4, workers=4) == [True] * 4


def test_after_an_error_no_other_row_is_begun():
    begun = []

    def work(row, number):
        begun.append(number)
        if number == 0:
            raise ValueError("first")
        time.sleep(0.05)

    with no_thread_left(), pytest.raises(ValueError, match="first"):
        in_order(lambda rows: [call(work, {}, number, number) for number in range(rows.start, rows.stop)], 1000, workers=2)
    assert len(begun) < 5


def test_work_that_is_unwanted_ends_before_the_next_row():
    unwanted, begun = threading.Event(), []

    def work(row, number):
        begun.append(number)
        if number == 3:
            unwanted.set()

    with pytest.raises(UnwantedWork):
        context_until(lambda: False).run(
            context_until(unwanted.is_set).run, lambda: [call(work, {}, number, number) for number in range(9)]
        )
    assert begun == [0, 1, 2, 3]
    call(work, {}, 4, 4)  # elsewhere it is wanted


def test_an_interrupt_leaves_no_thread():
    code = """
import signal, threading, time
from mlxfp.data.rows.thread_map import in_order

def work(rows):
    if rows.start == 0:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.01)
    return [0]

begin = time.monotonic()
try:
    in_order(work, 10_000, workers=2)
except KeyboardInterrupt:
    while threading.active_count() > 1 and time.monotonic() - begin < 5:
        time.sleep(0.001)
    print("interrupted", threading.active_count())
"""
    assert run_script(code) == (0, "interrupted 1\n", "")


def test_threads_see_the_context_of_the_caller():
    with localcontext(prec=3), np.errstate(divide="raise"):
        assert set(in_order(each(lambda _: str(Decimal(1) / 3)), 8, workers=2)) == {"0.333"}
        with pytest.raises(FloatingPointError):
            in_order(each(lambda _: np.ones(1) / np.zeros(1)), 8, workers=2)


@given(keys=st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_a_generator_of_many_keys_draws_what_one_of_each_draws(keys):
    def draws(random):
        return [random.integers(10, dtype=np.int32), random.random(), random.normal(), random.permutation(5).tolist()]

    found = [draws(random) for random in generators(np.array(keys, np.uint64))]
    assert found == [draws(generator(key)) for key in keys]
