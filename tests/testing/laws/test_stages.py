"""The laws of stages catch stages that are not pure, that see chunk boundaries, and that read too far."""

import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.testing.laws import assert_chunks_do_not_matter, assert_lazy, assert_pure_stages
from mlxfp.testing.laws.datasets import Transform
from mlxfp.testing.probing import from_chunks
from tests.testing.laws import broken

WHOLE = fp.parts.one_chunk(broken.TABLE)
ONES = [WHOLE.slice(row, 1) for row in range(WHOLE.num_rows)]
UNEVEN = [WHOLE.slice(0, 3), WHOLE.slice(3, 0), WHOLE.slice(3)]


@pytest.mark.parametrize("stage", [broken.CountingStage(), broken.LyingState(), fp.filter(broken.Global())], ids=repr)
def test_hidden_state_breaks_purity(stage: Transform):
    with pytest.raises(AssertionError, match=r"is pure: the same state and chunk give the same output"):
        assert_pure_stages(stage(from_chunks(ONES)))


def test_a_state_that_is_changed_in_place_breaks_purity():
    with pytest.raises(AssertionError, match=r"a step does not change the old state"):
        assert_pure_stages(broken.MutatingState()(from_chunks(ONES)))


def test_writing_into_the_memory_of_the_input_breaks_purity():
    dataset = broken.WritingInPlace()(fp.from_table({"x": [1, 2, 3]}))
    with pytest.raises(AssertionError, match=r"a step does not change its input"):
        assert_pure_stages(dataset)


def test_a_state_that_no_cursor_can_write_breaks_purity():
    with pytest.raises(ArgumentTypeError, match=r"A cursor cannot store"):
        assert_pure_stages(broken.UnwritableState()(from_chunks(ONES)))


@pytest.mark.parametrize(
    "stage",
    [broken.NumberInChunk(), broken.DropsLastOfChunk(), broken.OtherRows(), broken.GroupPerChunk(), broken.FakeRowWise()],
    ids=repr,
)
@pytest.mark.parametrize("chunks", [ONES, UNEVEN], ids=["ones", "uneven"])
def test_a_stage_that_sees_where_chunks_end_is_caught(stage: Transform, chunks: list[pa.RecordBatch]):
    with pytest.raises(AssertionError, match=r"chunk boundaries do not change the items"):
        assert_chunks_do_not_matter(stage, [WHOLE], chunks)


@pytest.mark.parametrize("stage", [broken.Hoarder(), fp.compose(broken.Hoarder(), fp.batch(2))], ids=repr)
def test_a_stage_that_waits_for_the_end_is_caught(stage: Transform):
    with pytest.raises(AssertionError, match=r"reads at most 1 rows for its first 1 items, but it read 7|reads at most 2 rows"):
        assert_lazy(stage, ONES)
    assert_lazy(stage, ONES, ahead=7)


def test_one_row_of_look_ahead_too_much_is_caught():
    assert_lazy(broken.HoldsOne(), ONES, ahead=1)
    with pytest.raises(AssertionError, match=r"reads at most 1 rows for its first 1 items, but it read 2"):
        assert_lazy(broken.HoldsOne(), ONES)


def test_several_items_of_one_row_need_that_row_only():
    assert_lazy(fp.flat_map(lambda row: [row] * 3), ONES)
    with pytest.raises(AssertionError, match=r"reads at most 1 rows for its first 3 items, but it read 2"):
        assert_lazy(broken.ReadsOnForCopies(), ONES)
