import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.data.rows.calling import UnwantedWork, call, context_until, generators
from mlxfp.support.randomness import generator


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


@given(keys=st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_a_generator_of_many_keys_draws_what_one_of_each_draws(keys):
    def draws(random):
        return [random.integers(10, dtype=np.int32), random.random(), random.normal(), random.permutation(5).tolist()]

    found = [draws(random) for random in generators(np.array(keys, np.uint64))]
    assert found == [draws(generator(key)) for key in keys]
