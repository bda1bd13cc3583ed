"""The laws of cursors catch what does not resume exactly, takes foreign cursors, or reads too much again."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from attrs import frozen

import mlxfp as fp
from mlxfp.core.execution import run, start
from mlxfp.core.sources import Position
from mlxfp.testing.laws import assert_refused, assert_replay_is_bounded, assert_resumable
from mlxfp.testing.probing import from_chunks
from tests.testing.laws import broken

WHOLE = fp.parts.one_chunk(broken.TABLE)
ONES = [WHOLE.slice(row, 1) for row in range(WHOLE.num_rows)]


@pytest.mark.parametrize(
    "dataset",
    [
        fp.Dataset(broken.OffByOne()),
        fp.Dataset(broken.OneChunkLate()),
        fp.pipe(from_chunks(ONES), broken.MutatingState()),
        fp.pipe(from_chunks(ONES), broken.LyingState()),
        fp.pipe(from_chunks(ONES), fp.filter(broken.Global())),
        fp.pipe(from_chunks(ONES), broken.CountingStage()),
        fp.pipe(from_chunks(ONES), broken.wrapped(broken.ForgetsResume)),
        fp.pipe(from_chunks(ONES), broken.wrapped(broken.OrderOfArrival), fp.batch(1)),
    ],
    ids=repr,
)
def test_what_does_not_resume_exactly_is_caught(dataset: fp.Dataset[Any]):
    with pytest.raises(AssertionError):
        assert_resumable(dataset)


@frozen(repr=False)
class ResumesOnce(fp.parts.Wrapper):
    """Resumes exactly from a fresh run; the positions that a resumed run hands out are those of a fresh one."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        skipped = position or 0
        for number, (chunk, _) in enumerate(run(self.dataset, start(epoch, None))):
            if number >= skipped:
                yield chunk, number + 1 - (skipped if skipped > 2 else 0)


def test_resuming_twice_must_be_resuming_once():
    with pytest.raises(AssertionError, match=r"resuming .* at every item"):
        assert_resumable(fp.pipe(from_chunks(ONES), broken.wrapped(ResumesOnce)))


def test_a_run_that_ends_early_when_resumed_at_every_item_is_caught():
    with pytest.raises(AssertionError, match=r"resuming .* at every item ends after"):
        assert_resumable(fp.pipe(from_chunks(ONES), broken.wrapped(EndsWhenResumedTwice)))


@frozen(repr=False)
class EndsWhenResumedTwice(fp.parts.Wrapper):
    """Resumes exactly from a fresh run; a resumed run hands out positions that are at the end."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        resumed, done = position or (False, 0)
        for number, (chunk, _) in enumerate(run(self.dataset, start(epoch, None)), 1):
            if number > done and not resumed:
                yield chunk, (position is not None, number)


def test_more_items_by_one_way_than_by_the_other_are_caught():
    lengths = count(2)
    dataset = fp.from_iterable(lambda: ({"x": 0} for _ in range(next(lengths))), schema=broken.TABLE.schema)
    with pytest.raises(AssertionError, match=r"gives 3 items, but iterate gave 2"):
        assert_resumable(dataset)


@frozen
class Lenient:
    """All values of this class have one fingerprint."""

    divisor: int

    def __fingerprint__(self) -> int:
        return 0

    def __call__(self, row: Any) -> bool:
        return bool(row["x"] % self.divisor == 0)


def test_taking_the_cursor_of_another_pipeline_is_caught():
    table = fp.from_table(broken.TABLE)
    assert_refused(fp.pipe(table, fp.batch(2)), fp.pipe(table, fp.batch(3)))
    assert_refused(fp.pipe(table, fp.shuffle(seed=0)), fp.pipe(table, fp.shuffle(seed=1)))
    with pytest.raises(AssertionError, match=r"must raise CursorMismatchError for the cursors of"):
        assert_refused(fp.pipe(table, fp.filter(Lenient(2))), fp.pipe(table, fp.filter(Lenient(3))))


@frozen(repr=False)
class ReadsAllAgain(fp.parts.Wrapper):
    """Resumes exactly, by reading everything before the position."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        for number, (chunk, _) in enumerate(run(self.dataset, start(epoch, None)), 1):
            if number > (position or 0):
                yield chunk, number


def test_reading_more_than_one_chunk_again_is_caught():
    assert_replay_is_bounded(fp.compose(fp.filter(Lenient(2)), fp.batch(2)), ONES)
    again = broken.wrapped(ReadsAllAgain)
    assert_resumable(again(from_chunks(ONES)))
    with pytest.raises(AssertionError, match=r"reads at most 2 chunks until the next item, but it read 3"):
        assert_replay_is_bounded(again, ONES)
