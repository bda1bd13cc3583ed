"""repeat: pass after pass, each an epoch of its own."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError

ROWS = fp.from_examples([{"x": i} for i in range(7)])


def numbers(items):
    return [row["x"] for row in items]


@given(st.integers(1, 4), st.integers(0, 3))
def test_every_pass_is_the_epoch_of_its_number(epochs, epoch):
    shuffled = fp.pipe(ROWS, fp.shuffle(seed=0))
    passes = [numbers(row for row, _ in fp.iterate(shuffled, epoch=epoch * epochs + number)) for number in range(epochs)]
    found = fp.pipe(shuffled, fp.repeat(epochs))
    assert numbers(row for row, _ in fp.iterate(found, epoch=epoch)) == [x for each in passes for x in each]
    assert fp.length(found) == 7 * epochs


@given(st.integers(0, 40))
def test_what_never_ends_resumes_and_has_no_length(place):
    endless = fp.pipe(ROWS, fp.shuffle(seed=0), fp.repeat(None))
    assert fp.length(endless) is None
    run = list(islice(fp.iterate(endless), 50))
    cursor = fp.Cursor.from_bytes(run[place][1].to_bytes())
    assert numbers(row for row, _ in islice(fp.iterate(endless, cursor), 49 - place)) == numbers(row for row, _ in run[place + 1 :])


def test_nothing_for_ever_is_an_error_and_nothing_a_few_times_is_nothing():
    nothing = fp.pipe(ROWS, fp.filter(lambda row: False))
    assert list(fp.pipe(nothing, fp.repeat(3))) == []
    with pytest.raises(DataError, match=r"repeat\(None\) would never end: an epoch of pipe\(from_examples\(7 rows\), .* has no items"):
        next(iter(fp.pipe(nothing, fp.repeat(None))))
    with pytest.raises(ArgumentError, match=r"epochs must be at least 1, got epochs=0\."):
        fp.repeat(0)
