"""One loop runs everything: hooks that change nothing change nothing, and a stage that says nothing about itself works everywhere."""

from typing import Any

import pyarrow as pa
import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.collators.collating import collate
from mlxfp.collators.task_specs import COLLATORS
from mlxfp.collators.texts import text
from mlxfp.core.chunks import RecordBatch, Schema, concat_chunks
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, with_hooks
from mlxfp.core.describing import explain, length, schema
from mlxfp.core.execution import iterate
from mlxfp.core.identity import fingerprint
from mlxfp.core.pipelines import pipe
from mlxfp.core.running.steps import Hooks, Step
from mlxfp.core.stages import RowWise, Stage
from mlxfp.data.inspection.checksums import checksum
from mlxfp.data.inspection.previews import preview
from mlxfp.data.inspection.profiling import profile
from mlxfp.data.inspection.provenance import row_origins, trace_row
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.shape_planning import batch_shapes
from mlxfp.data.rows.columns import select_columns
from mlxfp.data.rows.map_filter import map
from mlxfp.data.rows.mixing import mix
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.error_rows import on_error, skipped_rows
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples
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
    for place, (_, cursor) in enumerate(iterate(watched, epoch=epoch), 1):
        rest = expected[place:] if isinstance(expected, list) else expected.slice(place)
        assert_same(collect(dataset, Cursor.from_bytes(cursor.to_bytes())), rest, "the cursor of a watched run means the same")
    assert (repr(watched), fingerprint(watched)) == (repr(dataset), fingerprint(dataset))


def test_hooks_reach_the_datasets_that_sources_hold():
    calls: list[str] = []
    dataset = pipe(from_examples([{"x": 1}, {"x": 2}]), map(dict), shuffle(seed=0), repeat(2), prefetch(1), batch(2))
    list(with_hooks(dataset, lambda held: Counting(held.hooks, calls=calls)))
    assert sorted(set(calls)) == ["batch(size=2)", "map(function=dict)"]


@frozen(repr=False)
class Twice(Stage):
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
class Pairs(Stage):
    """Makes groups of two rows of a chunk, and has no traits."""

    emits = "groups"

    def step(self, state: Any, chunk: RecordBatch) -> Any:
        return state, (chunk.slice(first, 2) for first in range(0, chunk.num_rows, 2))


@frozen(repr=False)
class Plain(RowWise):
    """Passes rows on, with the traits of every row-wise stage."""

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk


ROWS = from_examples([{"input_ids": [1] * (place % 3 + 1), "y": place, "z": "a"} for place in range(9)])


@pytest.mark.parametrize("stage", [Twice(), Plain()])
def test_a_stage_without_traits_works_everywhere(stage: Stage, tmp_path: Any):
    for dataset in (
        pipe(ROWS, stage, select_columns(["y"])),
        pipe(ROWS, map(dict), stage, map(dict), batch(4)),
        pipe(ROWS, stage, load(), shuffle(seed=0), shard(0, 2), repeat(2), prefetch(1), stage, batch(4)),
        pipe(mix([pipe(ROWS, stage), ROWS], [1, 1], stop="all"), stage, cache(tmp_path), batch(4), collate(COLLATORS["default"]())),
        pipe(ROWS, stage, batch(4), collate(text(pad_id=0, label="y"))),
        pipe(ROWS, stage, Pairs(), load(), collate(text(pad_id=0, label="y")), prefetch(2, workers=2)),
        pipe(ROWS, stage, cache(tmp_path / "rows"), Pairs(), cache(tmp_path / "groups"), repeat(2)),
    ):
        assert_value(dataset)
        assert_plans_agree(dataset)
        assert_resumable(dataset)
        assert_plans_agree(dataset, epoch=1)
        for describe in (
            explain,
            preview,
            schema,
            length,
            profile,
            lambda rows: row_origins(rows, 1),
            lambda rows: checksum(rows, steps=3),
        ):
            assert describe(dataset) is not describe  # none of them refuses
    assert trace_row(pipe(ROWS, stage, batch(2)), 3).steps[-1].error is None
    skipping = pipe(ROWS, stage, map(lambda row: {"y": 1 / (row["y"] - 3)}), on_error("skip", max_rate=0.9))
    *_, (_, cursor) = iterate(skipping)
    assert {each.origin.row for each in skipped_rows(skipping, cursor)} == {3}
    for group, size in ((batch(4), 4), (Pairs(), 2)):
        assert batch_shapes(pipe(ROWS, stage, group, collate(text(pad_id=0, lengths=[4]))))[-1] == (size, 4)
        assert batch_shapes(pipe(ROWS, stage, group, collate(text(pad_id=0))))[-1] == (size, 3)


def test_an_error_names_the_stage_once_and_the_source_once():
    def fail(row: Any) -> Any:
        raise ValueError("no")

    inner = pipe(ROWS, map(dict), map(fail, schema=pa.schema({"x": pa.int64()})), map(dict, schema=pa.schema({"x": pa.int64()})))
    with pytest.raises(ValueError, match="no") as caught:
        list(pipe(inner, repeat(1), prefetch(1), batch(2)))
    notes = caught.value.__notes__
    assert [note for note in notes if note.startswith("while running")] == [
        "while running map(function=test_an_error_names_the_stage_once_and_the_source_once.<locals>.fail, schema=x: int64)"
    ]
    assert [note for note in notes if note.startswith("reading from")] == [f"reading from {ROWS.source!r}, epoch 0"]
