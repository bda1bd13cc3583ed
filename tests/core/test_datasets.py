"""Datasets: levels, random access, and sources and stages of one's own."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.execution import take_rows
from mlxfp.core.sources import Position, Source, SourceTraits, exact_length, first_chunks
from mlxfp.support.errors import PipelineError
from mlxfp.testing import laws
from mlxfp.testing.comparing import same
from mlxfp.testing.strategies import sources

NUMBERS = fp.from_table({"x": range(9)})


@frozen(repr=False)
class Squares(Source):
    """A source of one's own, with the two methods that it needs."""

    count: int

    def schema(self) -> Schema:
        return pa.schema({"x": pa.int64()})

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        for x in range(position or 0, self.count):
            yield pa.record_batch({"x": [x * x]}), x + 1


@frozen(repr=False)
class Halve(fp.RowWise):
    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk.set_column(0, "x", pa.array(chunk.column("x").to_numpy() // 2))


@frozen(repr=False)
class Passes(fp.Stage):
    """A stage of one's own, with the method that it needs."""

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, tuple[RecordBatch, ...]]:
        return state, (chunk,)


@frozen(repr=False)
class Same(fp.parts.Wrapper):
    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        return self.dataset.source.read(epoch, position)


def test_a_source_and_stages_of_ones_own_obey_the_laws():
    dataset = fp.pipe(fp.Dataset(Squares(5)), Halve(), Passes(), fp.batch(2))
    assert [[row["x"] for row in group] for group in dataset] == [[0, 0], [2, 4], [8]]
    laws.assert_reads(Squares(5))
    laws.assert_value(dataset)
    laws.assert_resumable(dataset)
    laws.assert_pure_stages(dataset)
    laws.assert_described(dataset)
    assert repr(dataset) == "pipe(squares(count=5), halve(), passes(), batch(size=2))"


def test_what_a_source_does_not_say_is_not_known():
    source = Squares(5)
    assert (source.indexable, source.length(), exact_length(source), source.version()) == (False, None, None, None)
    assert source.traits == SourceTraits()
    assert [chunk.num_rows for chunk in first_chunks(source)] == [1] * 5
    assert fp.length(fp.pipe(fp.Dataset(source), fp.batch(2))) is None
    with pytest.raises(PipelineError, match=r"squares\(count=5\) has no random access. Put load\(\) or cache\(path\) after this source."):
        source.take(0, np.array([1]))


def test_what_a_stage_does_not_say_is_not_known():
    assert fp.length(fp.pipe(NUMBERS, Passes())) is None
    assert fp.length(fp.pipe(NUMBERS, Halve())) == 9
    assert (Passes().start(0), Passes().finish(()), Passes().traits) == ((), (), fp.parts.Traits())


def test_a_wrapper_is_like_what_it_holds():
    inner = fp.pipe(NUMBERS, fp.batch(2))
    wrapped = Same(inner)
    assert (wrapped.traits.level, wrapped.length(), exact_length(wrapped), wrapped.version(), wrapped.schema()) == (
        "groups",
        5,
        5,
        None,
        pa.schema({"x": pa.int64()}),
    )
    assert wrapped.indexable is False
    assert sum(chunk.num_rows for chunk in first_chunks(wrapped)) == 9
    assert Same(fp.Dataset(Squares(3))).length() is None
    assert exact_length(Same(fp.Dataset(Squares(3)))) is None


def test_levels_follow_the_stages():
    groups = fp.pipe(NUMBERS, fp.batch(2))
    batches = fp.pipe(groups, fp.collate(dict))  # type: ignore[arg-type]  # never run
    assert (NUMBERS.level, groups.level, fp.pipe(groups, fp.unbatch()).level, batches.level, fp.pipe(batches, fp.take(1)).level) == (
        "examples",
        "groups",
        "examples",
        "batches",
        "batches",
    )
    with pytest.raises(
        PipelineError, match=r"batch\(size=2\) takes examples, got batches from collate\(collator=dict\). Move it before coll"
    ):
        fp.pipe(batches, fp.batch(2))  # type: ignore[call-overload]  # the mistake that is tested


def test_a_combinator_is_a_value_that_prints_as_its_call():
    assert fp.take(3) == fp.take(3) != fp.take(4)
    assert repr(fp.shuffle(seed=2)) == "shuffle(seed=2)"
    assert fp.parts.Combinator(Same, {})(NUMBERS) == fp.Dataset(Same(NUMBERS))


@given(sources(), st.data())
def test_an_index_gives_the_row_that_iterating_gives(dataset: fp.Dataset[Any], data: st.DataObject):
    rows = list(fp.pipe(dataset, fp.shuffle(seed=0)))
    if not dataset.indexable:
        with pytest.raises(PipelineError, match=r"needs random access, but from_\w+\((?s:.*)\) has no random access"):
            dataset[0]
        return
    shuffled = fp.pipe(dataset, fp.shuffle(seed=0))
    for place in range(-len(rows), len(rows)):
        assert same(shuffled[place], rows[place])
    part = data.draw(st.slices(len(rows)))
    assert same([dict(row) for row in shuffled[part]], rows[part])
    assert isinstance(shuffled[part], fp.Examples)
    for index in (len(rows), -len(rows) - 1, np.int64(len(rows) + 9_999)):
        with pytest.raises(IndexError, match=rf"An index is out of range: got \[{index}\] for {len(rows)} examples, in ") as caught:
            shuffled[index]
        assert isinstance(caught.value, fp.MlxfpError)


@given(st.lists(st.integers(0, 6), max_size=9), st.integers(0, 2))
def test_random_access_goes_through_row_wise_stages_and_views(indices: list[int], epoch: int):
    laws.assert_random_access(
        fp.pipe(NUMBERS, Halve(), fp.shuffle(seed=1), fp.skip(1), fp.take(7)), np.array(indices, np.int64), epoch=epoch
    )


def test_what_stands_in_the_way_of_random_access_is_named():
    with pytest.raises(
        PipelineError, match=r"dataset\[0\] needs random access, but filter\(predicate=bool\) has no random access. Put load\(\) or"
    ):
        fp.pipe(NUMBERS, fp.filter(bool))[0]
    with pytest.raises(PipelineError, match=r"dataset\[0\] needs random access, but from_iterable\(.*\) has no random access"):
        fp.from_iterable([{"x": 1}])[0]
    with pytest.raises(PipelineError, match=r"dataset\[slice\(None, 2, None\)\] needs single examples, got groups from batch\(size=2\)"):
        fp.pipe(NUMBERS, fp.batch(2))[:2]


@frozen(repr=False)
class Countless(Squares):
    @property
    def indexable(self) -> bool:
        return True


def test_a_source_with_random_access_must_say_how_many_rows_it_has():
    with pytest.raises(PipelineError, match=r"countless\(count=3\) is indexable, so its length\(\) must return the number of rows"):
        fp.Dataset(Countless(3))[0]


def test_rows_by_number_carry_their_numbers_and_keys():
    chunk = take_rows(fp.pipe(NUMBERS, Halve()), 2, np.array([8, 0]))
    assert chunk.column("__row__").to_pylist() == [8, 0]
    assert chunk.column("x").to_pylist() == [4, 0]


def test_an_error_in_random_access_says_what_was_being_read_once():
    dataset = fp.pipe(NUMBERS, fp.map(lambda row: {"y": 1 // row["x"]}, schema=pa.schema({"y": pa.int64()})), fp.shuffle(seed=0))
    with pytest.raises(ZeroDivisionError) as caught:
        dataset[:]
    notes = "\n".join(caught.value.__notes__)
    assert "on source row 0: {'x': 0}" in notes
    assert notes.count("reading from from_table(9 rows), epoch 0") == 1
