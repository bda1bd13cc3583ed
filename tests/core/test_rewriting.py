from attrs import evolve
from hypothesis import given

from mlxfp.core.optimizing import optimize
from mlxfp.core.pipelines import pipe
from mlxfp.core.rewriting import rewrite
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.columns import drop_columns, rename_columns
from mlxfp.data.rows.map_filter import map, take
from mlxfp.data.rows.mixing import concat
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.sources.in_memory import from_table
from mlxfp.testing.strategies import pipelines


@given(dataset=pipelines())
def test_rewriting_with_what_changes_nothing_gives_an_equal_dataset(dataset):
    assert rewrite(dataset, lambda source: source, lambda each: each.stages) == dataset


def test_every_source_and_stage_is_reached_and_sources_after_what_they_hold():
    a, b = from_table({"x": [1]}), from_table({"x": [2]})
    dataset = pipe(concat([pipe(a, map(dict)), pipe(b, take(1), map(dict))]), batch(2), repeat(3), map(dict))
    sources, stages = [], []
    rewrite(
        dataset, lambda source: sources.append(type(source).__name__) or source, lambda each: stages.append(len(each.stages)) or each.stages
    )
    assert sources == ["_FromTable", "_FromTable", "_Take", "_Concat", "_Repeat"]
    assert stages == [1, 0, 1, 1, 1]


def test_parts_are_replaced_wherever_they_are():
    dataset = pipe(from_table({"x": [1, 2, 3]}), batch(2), take(9), map(dict), repeat(2))
    other = rewrite(dataset, lambda source: evolve(source, count=1) if hasattr(source, "count") else source, lambda each: each.stages[:1])
    assert repr(other) == "pipe(from_table(3 rows), batch(size=2), take(count=1), map(function=dict), repeat(epochs=2))"
    assert repr(dataset) == "pipe(from_table(3 rows), batch(size=2), take(count=9), map(function=dict), repeat(epochs=2))"


def test_what_was_rewritten_to_be_faster_is_rewritten_as_it_was_written():
    dataset = pipe(from_table({"x": [1], "y": [2]}), drop_columns(["y"]), take(1), rename_columns({"x": "z"}))
    assert rewrite(optimize(dataset), lambda source: source, lambda each: each.stages) == dataset
