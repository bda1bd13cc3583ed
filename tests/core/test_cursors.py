"""The run loop: every cursor of every pipeline continues exactly where it stands."""

import asyncio
import threading
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.cursors import Cursor, Snapshot
from mlxfp.support.errors import ArgumentTypeError, CursorError, CursorMismatchError, FingerprintError, MlxfpError
from mlxfp.testing import laws
from mlxfp.testing.comparing import same
from mlxfp.testing.strategies import pipelines, sources

NUMBERS = fp.from_table({"x": range(10)})


def total(examples: Any) -> dict[str, Any]:
    import mlx.core as mx

    return {"total": mx.array([float(len(repr(example))) for example in examples]), "names": tuple(map_names(examples))}


def map_names(examples: Any) -> list[str]:
    return [name for example in examples for name in example]


@given(pipelines(), st.integers(0, 2))
def test_random_pipelines_continue_exactly_from_every_cursor(dataset: fp.Dataset[Any], epoch: int):
    laws.assert_resumable(dataset, epoch=epoch)


@given(pipelines(), st.integers(0, 2))
def test_random_pipelines_obey_the_laws_of_datasets_and_stages(dataset: fp.Dataset[Any], epoch: int):
    laws.assert_repeatable(dataset, epoch=epoch)
    laws.assert_described(dataset, epoch=epoch)
    laws.assert_pure_stages(dataset, epoch=epoch)


@given(pipelines())
def test_random_pipelines_are_values(dataset: fp.Dataset[Any]):
    laws.assert_value(dataset)


@given(pipelines(), pipelines())
def test_random_pipelines_refuse_each_others_cursors_unless_they_are_equal(a: fp.Dataset[Any], b: fp.Dataset[Any]):
    if a != b:
        laws.assert_refused(a, b)
        laws.assert_refused(b, a)


@given(sources(), st.integers(1, 3))
def test_batches_resume_as_examples_do(dataset: fp.Dataset[fp.parts.Example], size: int):
    batches = fp.pipe(dataset, fp.batch(size), fp.collate(total), fp.repeat(2))
    laws.assert_resumable(batches)
    laws.assert_described(batches)


@given(st.lists(st.integers(0, 40), min_size=1), st.integers(0, 3))
def test_a_cursor_is_exact_in_chunks_longer_than_what_becomes_rows_at_once(places: list[int], epoch: int):
    dataset = fp.pipe(fp.from_table({"x": range(1000)}), fp.filter(_odd), fp.shuffle(seed=3, buffer=7))
    items = list(fp.iterate(dataset, epoch=epoch))
    for place in places:
        resumed = [item for item, _ in fp.iterate(dataset, items[place * 12][1])]
        assert resumed == [item for item, _ in items[place * 12 + 1 :]]


def _odd(row: fp.parts.Example) -> bool:
    return bool(row["x"] % 2)


def test_an_item_comes_with_the_cursor_after_it():
    items = list(fp.iterate(fp.pipe(NUMBERS, fp.batch(4))))
    assert [len(item) for item, _ in items] == [4, 4, 2]
    assert all(isinstance(item, fp.Examples) for item, _ in items)
    assert [len(item) for item, _ in fp.iterate(fp.pipe(NUMBERS, fp.batch(4)), items[0][1])] == [4, 2]
    assert list(fp.iterate(fp.pipe(NUMBERS, fp.batch(4)), items[-1][1])) == []


def test_the_epoch_of_a_cursor_wins_over_the_argument():
    dataset = fp.pipe(NUMBERS, fp.shuffle(seed=0))
    first, cursor = next(fp.iterate(dataset, epoch=5))
    rest = [item for item, _ in fp.iterate(dataset, cursor, epoch=9)]
    assert cursor.epoch == 5
    assert [first, *rest] == [item for item, _ in fp.iterate(dataset, epoch=5)] != list(dataset)


def test_a_printed_cursor_shows_the_epoch_and_the_number_of_batches():
    """The number counts all batches of the epoch, also after resuming from bytes and for items made ahead."""
    batches = fp.pipe(NUMBERS, fp.shuffle(seed=0), fp.batch(2), fp.collate(total), fp.prefetch(2))
    cursors = [cursor for _, cursor in fp.iterate(batches, epoch=3)]
    assert [repr(cursor) for cursor in cursors] == [f"Cursor(epoch=3, batches={number})" for number in (1, 2, 3, 4, 5)]
    restored = Cursor.from_bytes(cursors[2].to_bytes())
    assert repr(restored) == "Cursor(epoch=3, batches=3)"
    assert [cursor.items for _, cursor in fp.iterate(batches, restored)] == [4, 5]
    assert repr(next(fp.iterate(fp.pipe(NUMBERS, fp.batch(4))))[1]) == "Cursor(epoch=0, groups=1)"


def test_an_endless_dataset_resumes():
    dataset = fp.pipe(fp.from_iterable(lambda: ({"x": i} for i in count())), fp.batch(3))
    items = list(islice(fp.iterate(dataset), 200))
    again = Cursor.from_bytes(items[149][1].to_bytes())
    assert [item for item, _ in islice(fp.iterate(dataset, again), 50)] == [item for item, _ in items[150:]]


def test_a_cursor_of_another_pipeline_is_refused_with_the_first_difference():
    _, cursor = next(fp.iterate(fp.pipe(NUMBERS, fp.batch(2))))
    with pytest.raises(CursorMismatchError) as caught:
        fp.iterate(fp.pipe(NUMBERS, fp.batch(3)), cursor)
    assert str(caught.value) == (
        "The cursor belongs to another pipeline. First difference: the cursor has batch(size=2), the pipeline batch(size=3). "
        "Iterate over the pipeline that made the cursor, or start this pipeline without a cursor."
    )
    with pytest.raises(CursorMismatchError, match=r"the cursor has from_table\(10 rows\), the pipeline from_table\(10 rows\) with other"):
        fp.iterate(fp.pipe(fp.from_table({"x": range(1, 11)}), fp.batch(2)), cursor)
    with pytest.raises(CursorMismatchError, match=r"the cursor has nothing there, the pipeline take\(count=1\) as part 3"):
        fp.iterate(fp.pipe(NUMBERS, fp.batch(2), fp.take(1)), cursor)


def test_a_cursor_with_states_for_other_stages_is_refused():
    dataset = fp.pipe(NUMBERS, fp.batch(2))
    _, cursor = next(fp.iterate(dataset))
    with pytest.raises(CursorError, match=r"The cursor holds the states of 2 stages, but the pipeline has 1: pipe\(from_table"):
        fp.iterate(fp.pipe(NUMBERS, fp.batch(2)), evolve(cursor, base=Snapshot(0, states=(None, None))))


def test_cursors_are_compared_by_value_with_arrays_and_chunks_in_their_states():
    dataset = fp.pipe(fp.from_table({"x": [1.0, float("nan"), 3.0]}), fp.shuffle(seed=0, buffer=2), fp.batch(2))
    a, b = (list(fp.iterate(dataset)) for _ in range(2))
    assert [cursor for _, cursor in a] == [cursor for _, cursor in b]
    assert a[0][1] != a[1][1]
    assert len({cursor for _, cursor in a + b}) == len(a)
    assert Snapshot(0, states=(np.arange(3),)) == Snapshot(0, states=(np.arange(3),)) != Snapshot(0, states=(np.arange(4),))


def test_iterating_over_what_is_no_dataset_says_what_to_do():
    with pytest.raises(ArgumentTypeError, match=r"iterate works on a dataset, got list: \[1\]. Start with a source"):
        fp.iterate([1])  # type: ignore[arg-type]  # the mistake that is tested


def test_a_cursor_of_a_pipeline_without_a_fingerprint_cannot_be_written():
    lock = threading.Lock()
    dataset = fp.pipe(NUMBERS, fp.filter(lambda row: lock is not None))
    _, cursor = next(fp.iterate(dataset))
    assert [item for item, _ in fp.iterate(dataset, cursor)] == list(dataset)[1:]
    with pytest.raises(FingerprintError, match=r"A value of type lock has no fingerprint"):
        cursor.to_bytes()


def test_an_error_says_what_was_being_read_and_by_which_stage():
    dataset = fp.pipe(NUMBERS, fp.map(lambda row: {"y": 1 // (row["x"] - 3)}, schema=pa.schema({"y": pa.int64()})), fp.repeat(2))
    with pytest.raises(ZeroDivisionError) as caught:
        list(fp.iterate(dataset, epoch=1))
    notes = "\n".join(caught.value.__notes__)
    assert "on source row 3: {'x': 3}" in notes
    assert "while running map(function=" in notes
    assert notes.count("reading from from_table(10 rows), epoch 2") == 1


def test_items_before_an_error_come_out_first():
    dataset = fp.pipe(NUMBERS, fp.batch(2), fp.map(lambda row: {"y": 1 // (row["x"] - 5)}, schema=pa.schema({"y": pa.int64()})))
    items: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        items.extend(item for item, _ in fp.iterate(dataset))
    assert [list(item) for item in items] == [[{"y": -1}, {"y": -1}], [{"y": -1}, {"y": -1}]]


async def collected(dataset: fp.Dataset[Any], cursor: Cursor | None = None, *, stop: int | None = None, epoch: int = 0) -> list[Any]:
    found: list[Any] = []
    items = fp.aiterate(dataset, cursor, epoch=epoch)
    async for item in items:
        found.append(item)
        if len(found) == stop:
            break
    await items.aclose()  # type: ignore[attr-defined]  # an async generator
    return found


@given(pipelines(), st.integers(0, 2))
def test_aiterate_yields_what_iterate_yields(dataset: fp.Dataset[Any], epoch: int):
    found, expected = asyncio.run(collected(dataset, epoch=epoch)), list(fp.iterate(dataset, epoch=epoch))
    assert same([item for item, _ in found], [item for item, _ in expected])
    assert [cursor for _, cursor in found] == [cursor for _, cursor in expected]


def test_aiterate_resumes_and_ends_its_thread_when_left_early():
    (item, cursor), *_ = asyncio.run(collected(NUMBERS, stop=3))
    assert item == {"x": 0}
    assert [row["x"] for row, _ in asyncio.run(collected(NUMBERS, cursor))] == list(range(1, 10))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mlxfp")]


def test_leaving_a_run_early_closes_the_source():
    closed: list[str] = []

    def rows() -> Iterator[fp.parts.Example]:
        try:
            yield from ({"x": x} for x in range(2000))
        finally:
            closed.append("closed")

    items = fp.iterate(fp.pipe(fp.from_iterable(rows, schema=pa.schema({"x": pa.int64()})), fp.repeat(2), fp.take(900)))
    next(items)
    items.close()  # type: ignore[attr-defined]  # a generator
    assert closed == ["closed"]


def test_rows_of_a_group_keep_their_source_rows():
    groups = fp.pipe(fp.from_examples([{"x": x} for x in range(7)]), fp.filter(_odd), fp.batch(2))
    assert [group.rows.tolist() for group in groups] == [[1, 3], [5]]


@pytest.mark.parametrize(
    ("epoch", "message"), [(-1, "epoch must be at least 0, got epoch=-1."), (1.0, "epoch must be an int, got epoch=1.0.")]
)
def test_an_epoch_is_a_number_from_0_on(epoch, message):
    with pytest.raises(MlxfpError, match=message):
        fp.iterate(fp.from_table({"x": [1]}), epoch=epoch)


@frozen(repr=False)
class Sized(fp.Source):
    """Ten rows in chunks of some size, which is no part of what it is."""

    size: int = field(eq=False)

    def schema(self) -> pa.Schema:
        return pa.schema({"x": pa.int64()})

    def read(self, epoch: int, position: Any) -> Iterator[tuple[pa.RecordBatch, int]]:
        for first in range(position or 0, 10, self.size):
            stop = min(first + self.size, 10)
            yield pa.record_batch({"x": range(first, stop)}), stop


@given(before=st.integers(1, 11), after=st.integers(1, 11), groups=st.booleans())
def test_a_cursor_is_exact_where_a_source_cuts_other_chunks_when_it_is_read_again(before, after, groups):
    stages = (fp.filter(Odd()), fp.batch(2)) if groups else (fp.filter(Odd()),)
    whole = fp.pipe(fp.Dataset(Sized(before)), *stages)
    rest = [item for item, _ in fp.iterate(whole)]
    for place, (_, cursor) in enumerate(fp.iterate(whole), 1):
        assert [item for item, _ in fp.iterate(fp.pipe(fp.Dataset(Sized(after)), *stages), cursor)] == rest[place:]


@frozen
class Odd:
    def __call__(self, row: fp.parts.Example) -> bool:
        return bool(row["x"] % 3)
