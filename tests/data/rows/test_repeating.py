"""repeat: pass after pass, each an epoch of its own."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.cursors import Cursor
from mlxfp.core.describing import length
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.rows.map_filter import filter
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.support.errors import ArgumentError, DataError

ROWS = from_examples([{"x": i} for i in range(7)])


def numbers(items):
    return [row["x"] for row in items]


@given(st.integers(1, 4), st.integers(0, 3))
def test_every_pass_is_the_epoch_of_its_number(epochs, epoch):
    shuffled = pipe(ROWS, shuffle(seed=0))
    passes = [numbers(row for row, _ in iterate(shuffled, epoch=epoch * epochs + number)) for number in range(epochs)]
    found = pipe(shuffled, repeat(epochs))
    assert numbers(row for row, _ in iterate(found, epoch=epoch)) == [x for each in passes for x in each]
    assert length(found) == 7 * epochs


@given(st.integers(0, 40))
def test_what_never_ends_resumes_and_has_no_length(place):
    endless = pipe(ROWS, shuffle(seed=0), repeat(None))
    assert length(endless) is None
    run = list(islice(iterate(endless), 50))
    cursor = Cursor.from_bytes(run[place][1].to_bytes())
    assert numbers(row for row, _ in islice(iterate(endless, cursor), 49 - place)) == numbers(row for row, _ in run[place + 1 :])


def test_nothing_for_ever_is_an_error_and_nothing_a_few_times_is_nothing():
    nothing = pipe(ROWS, filter(lambda row: False))
    assert list(pipe(nothing, repeat(3))) == []
    with pytest.raises(DataError, match=r"repeat\(None\) would never end: an epoch of pipe\(from_examples\(7 rows\), .* has no items"):
        next(iter(pipe(nothing, repeat(None))))
    with pytest.raises(ArgumentError, match=r"epochs must be at least 1, got epochs=0\."):
        repeat(0)
