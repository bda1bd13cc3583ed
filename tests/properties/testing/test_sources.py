"""The laws of sources catch wrong positions, schemas, lengths and random access."""

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.testing.laws import assert_random_access, assert_reads
from tests.testing.laws import broken


def test_a_source_that_is_right_passes():
    assert_reads(broken.BrokenSource())
    assert_random_access(fp.Dataset(broken.BrokenSource()), np.array([6, 0, 0, 3]))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (broken.OffByOne(), "from position 3 gives what follows chunk 0"),
        (broken.OneChunkLate(), "from position 0 gives what follows chunk 0"),
        (broken.Endless(), "from position 0 gives what follows chunk 3"),
        (broken.WrongCount(), "states the length 8, but reads 7"),
        (broken.WrongTypes(), "states the schema"),
        (broken.OnePass(), "twice gives the same"),
    ],
    ids=repr,
)
def test_the_law_catches(source: fp.Source, words: str):
    with pytest.raises(AssertionError, match=words):
        assert_reads(source)


def test_positions_that_no_cursor_can_write_are_caught():
    with pytest.raises(ArgumentTypeError, match=r"A cursor cannot store set"):
        assert_reads(broken.SetPosition())


def test_taking_rows_in_another_order_is_caught():
    dataset = fp.Dataset(broken.SortsIndices())
    assert_random_access(dataset, np.array([0, 3, 6]))
    with pytest.raises(AssertionError, match=r"taking the rows \[3, 0\]"):
        assert_random_access(dataset, np.array([3, 0]))


def test_a_stage_that_only_claims_to_be_row_wise_is_caught():
    with pytest.raises(AssertionError, match=r"taking the rows \[3, 0\]"):
        assert_random_access(fp.pipe(fp.from_table(broken.TABLE), broken.FakeRowWise()), np.array([3, 0]))


def test_what_has_no_random_access_is_caught():
    with pytest.raises(AssertionError, match=r"has random access"):
        assert_random_access(fp.pipe(fp.from_table(broken.TABLE), fp.filter(bool)), np.array([0]))
