"""One loop runs everything: hooks that change nothing change nothing, and a stage that says nothing about itself works everywhere."""

from typing import Any

import pyarrow as pa
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch, Schema, concat_chunks
from mlxfp.core.datasets import Dataset, with_hooks
from mlxfp.core.describing import explain, length, schema
from mlxfp.core.running.steps import Hooks, Step
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws import assert_plans_agree, assert_resumable, assert_value
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.strategies import pipelines


@frozen(eq=False)
class Counting(Hooks):
    """Counts the calls of a run, and changes nothing."""

    calls: list[str] = field(kw_only=True)

    def step(self, step: Step) -> Any:
        call = super().step(step)

        def fed(state: Any, chunk: Any) -> Any:
            self.calls.append(step.text)
            return call(state, chunk)

        return fed


@given(dataset=pipelines(), epoch=st.integers(0, 2))
def test_hooks_that_change_nothing_change_nothing(dataset: Dataset[Any], epoch: int):
    calls: list[str] = []
    watched = with_hooks(dataset, lambda held: Counting(held.hooks, calls=calls))
    expected = collect(dataset, epoch=epoch)
    assert_same(collect(watched, epoch=epoch), expected, "a watched run gives the same")
    for place, (_, cursor) in enumerate(fp.iterate(watched, epoch=epoch), 1):
        rest = expected[place:] if isinstance(expected, list) else expected.slice(place)
        assert_same(collect(dataset, fp.Cursor.from_bytes(cursor.to_bytes())), rest, "the cursor of a watched run means the same")
    assert (repr(watched), fp.inspect.fingerprint(watched)) == (repr(dataset), fp.inspect.fingerprint(dataset))


def test_hooks_reach_the_datasets_that_sources_hold():
    calls: list[str] = []
    dataset = fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.map(dict), fp.shuffle(seed=0), fp.repeat(2), fp.prefetch(1), fp.batch(2))
    list(with_hooks(dataset, lambda held: Counting(held.hooks, calls=calls)))
    assert sorted(set(calls)) == ["batch(size=2)", "map(function=dict)"]


@frozen(repr=False)
class Twice(fp.Stage):
    """Gives every row twice, holds the last chunk back, and has no traits."""

    def start(self, epoch: int) -> Any:
        return None

    def step(self, state: Any, chunk: RecordBatch) -> Any:
        return chunk, () if state is None else (concat_chunks([state, state]),)

    def finish(self, state: Any) -> Any:
        return () if state is None else (concat_chunks([state, state]),)

    def schema(self, schema: Schema) -> Schema:
        return schema


@frozen(repr=False)
class Pairs(fp.Stage):
    """Makes groups of two rows of a chunk, and has no traits."""

    emits = "groups"

    def step(self, state: Any, chunk: RecordBatch) -> Any:
        return state, (chunk.slice(first, 2) for first in range(0, chunk.num_rows, 2))


@frozen(repr=False)
class Plain(fp.RowWise):
    """Passes rows on, with the traits of every row-wise stage."""

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk


ROWS = fp.from_examples([{"input_ids": [1] * (place % 3 + 1), "y": place, "z": "a"} for place in range(9)])


@pytest.mark.parametrize("stage", [Twice(), Plain()])
def test_a_stage_without_traits_works_everywhere(stage: fp.Stage, tmp_path: Any):
    for dataset in (
        fp.pipe(ROWS, stage, fp.select_columns(["y"])),
        fp.pipe(ROWS, fp.map(dict), stage, fp.map(dict), fp.batch(4)),
        fp.pipe(ROWS, stage, fp.load(), fp.shuffle(seed=0), fp.shard(0, 2), fp.repeat(2), fp.prefetch(1), stage, fp.batch(4)),
        fp.pipe(
            fp.mix([fp.pipe(ROWS, stage), ROWS], [1, 1], stop="all"),
            stage,
            fp.cache(tmp_path),
            fp.batch(4),
            fp.collate(fp.collators.COLLATORS["default"]()),
        ),
        fp.pipe(ROWS, stage, fp.batch(4), fp.collate(fp.collators.text(pad_id=0, label="y"))),
        fp.pipe(ROWS, stage, Pairs(), fp.load(), fp.collate(fp.collators.text(pad_id=0, label="y")), fp.prefetch(2, workers=2)),
        fp.pipe(ROWS, stage, fp.cache(tmp_path / "rows"), Pairs(), fp.cache(tmp_path / "groups"), fp.repeat(2)),
    ):
        assert_value(dataset)
        assert_plans_agree(dataset)
        assert_resumable(dataset)
        assert_plans_agree(dataset, epoch=1)
        for describe in (
            explain,
            fp.inspect.preview,
            schema,
            length,
            fp.inspect.profile,
            lambda rows: fp.inspect.row_origins(rows, 1),
            lambda rows: fp.inspect.checksum(rows, steps=3),
        ):
            assert describe(dataset) is not describe  # none of them refuses
    assert fp.inspect.trace_row(fp.pipe(ROWS, stage, fp.batch(2)), 3).steps[-1].error is None
    skipping = fp.pipe(ROWS, stage, fp.map(lambda row: {"y": 1 / (row["y"] - 3)}), fp.on_error("skip", max_rate=0.9))
    *_, (_, cursor) = fp.iterate(skipping)
    assert {each.origin.row for each in fp.inspect.skipped_rows(skipping, cursor)} == {3}
    for group, size in ((fp.batch(4), 4), (Pairs(), 2)):
        assert fp.inspect.batch_shapes(fp.pipe(ROWS, stage, group, fp.collate(fp.collators.text(pad_id=0, lengths=[4]))))[-1] == (size, 4)
        assert fp.inspect.batch_shapes(fp.pipe(ROWS, stage, group, fp.collate(fp.collators.text(pad_id=0))))[-1] == (size, 3)


def test_an_error_names_the_stage_once_and_the_source_once():
    def fail(row: Any) -> Any:
        raise ValueError("no")

    inner = fp.pipe(
        ROWS, fp.map(dict), fp.map(fail, schema=pa.schema({"x": pa.int64()})), fp.map(dict, schema=pa.schema({"x": pa.int64()}))
    )
    with pytest.raises(ValueError, match="no") as caught:
        list(fp.pipe(inner, fp.repeat(1), fp.prefetch(1), fp.batch(2)))
    notes = caught.value.__notes__
    assert [note for note in notes if note.startswith("while running")] == [
        "while running map(function=test_an_error_names_the_stage_once_and_the_source_once.<locals>.fail, schema=x: int64)"
    ]
    assert [note for note in notes if note.startswith("reading from")] == [f"reading from {ROWS.source!r}, epoch 0"]
