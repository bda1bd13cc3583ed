import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfp.collators.collating import collate
from mlxfp.collators.texts import text
from mlxfp.core.chunks import LEAF_BITS
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import compose, pipe
from mlxfp.core.row_names import Origin, locate
from mlxfp.core.sources import Source, SourceTraits
from mlxfp.core.stages import Stage, Traits
from mlxfp.data.inspection.provenance import row_origins, trace_row
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.lengths.packing import pack
from mlxfp.data.rows.columns import drop_columns
from mlxfp.data.rows.map_filter import filter, flat_map, map, take
from mlxfp.data.rows.mixing import concat, interleave, mix
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import load
from mlxfp.data.running.error_rows import on_error
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorMismatchError, PipelineError
from mlxfp.testing.probing import from_chunks
from mlxfp.text.templates.templates import template
from mlxfp.text.tokenizers.files import load_tokenizer
from mlxfp.text.tokenizing import tokenize


def numbers(count, first=0):
    return from_table({"x": np.arange(first, first + count)})


def to_batch(group):
    return {"x": mx.array([row["x"] for row in group])}


def values(item):
    return item["x"].tolist() if isinstance(item, dict) and hasattr(item["x"], "tolist") else [row["x"] for row in item]


SHAPES = {
    "groups": batch(3),
    "batches": compose(batch(3), collate(to_batch)),
    "prefetched": compose(batch(3), collate(to_batch), prefetch(2)),
    "several passes": compose(shuffle(seed=1), batch(3), collate(to_batch), repeat(3)),
    "shuffled stream": compose(shuffle(seed=1, buffer=4), filter(lambda row: row["x"] % 5 > 0), batch(2), prefetch(1), collate(to_batch)),
    "a shard": compose(shuffle(seed=2), shard(1, 2), batch(2), collate(to_batch), take(3, redraw=True), prefetch(2)),
    "packed in groups": compose(batch(4), unbatch(), batch(3), collate(to_batch)),
    "skipping": compose(
        map(lambda row: {"x": row["x"], "y": 1 / (row["x"] - 4)}), shuffle(seed=0), on_error("skip"), batch(3), collate(to_batch)
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("epoch", [0, 2])
def test_the_origins_of_every_item_are_the_rows_that_are_in_it(shape, epoch):
    dataset = pipe(numbers(13), shape)
    whole = list(iterate(dataset, epoch=epoch))
    for step, (item, _) in enumerate(whole):
        found = row_origins(dataset, step, epoch=epoch)
        assert [origin.row for origin in found] == values(item)
        assert {origin.source for origin in found} == {numbers(13).source}
    for place, (_, cursor) in enumerate(whole[:-1]):
        later = row_origins(dataset, len(whole) - place - 2, cursor=Cursor.from_bytes(cursor.to_bytes()))
        assert [origin.row for origin in later] == values(whole[-1][0])


def test_the_origin_of_an_example_is_one_row():
    assert row_origins(pipe(numbers(9), shuffle(seed=0)), 4) == (
        Origin(numbers(9).source, list(pipe(numbers(9), shuffle(seed=0)))[4]["x"]),
    )
    twice = pipe(numbers(3), flat_map(lambda row: [row, row]))
    assert [row_origins(twice, step)[0].row for step in range(6)] == [0, 0, 1, 1, 2, 2]


def test_joined_sources_are_told_apart_however_deep():
    a, b, c = numbers(3), numbers(3, first=10), numbers(3, first=20)
    dataset = pipe(interleave([pipe(a, shuffle(seed=1)), concat([b, pipe(c, map(dict))])]), batch(2), collate(to_batch))
    places = {a.source: 0, b.source: 10, c.source: 20}
    for step, item in enumerate(dataset):
        assert [places[origin.source] + origin.row for origin in row_origins(dataset, step)] == values(item)
    mixed = mix([pipe(part, batch(1), collate(to_batch)) for part in (a, b)], [1, 1], stop="all")
    assert [[places[o.source] + o.row for o in row_origins(mixed, step)] for step in range(6)] == [values(item) for item in mixed]


def test_an_origin_in_a_joined_source_is_traced_by_its_number():
    rows = pipe(mix([numbers(3), pipe(numbers(3, first=10), map(dict))], [1, 1], stop="all"), shuffle(seed=0))
    for step, row in enumerate(rows):
        trace = trace_row(rows, row_origins(rows, step)[0].number)
        assert trace.steps[-1].items == (row,)
        assert trace.origin == row_origins(rows, step)[0]


def test_rows_of_groups_are_located():
    both = concat([numbers(3), numbers(2)])
    (group,) = batch(9)(both)
    assert [locate(both, row).row for row in group.rows] == [0, 1, 2, 0, 1]
    assert locate(both, 1 << LEAF_BITS).source == numbers(2).source


@frozen(repr=False)
class _OfBatches(Source):
    traits = SourceTraits(level="batches")

    def schema(self):
        return pa.schema([])

    def read(self, epoch, position):
        yield {"x": mx.array([1])}, 1


@frozen(repr=False)
class _Doubled(Stage):
    accepts = frozenset({"batches"})
    traits = Traits(length=lambda count: count)

    def step(self, state, batch):
        return state, ({name: value * 2 for name, value in batch.items()},)


def test_stages_over_batches_are_passed():
    dataset = pipe(numbers(4), batch(2), collate(to_batch), _Doubled())
    assert [item["x"].tolist() for item in dataset] == [[0, 2], [4, 6]]
    assert [origin.row for origin in row_origins(dataset, 1)] == [2, 3]
    assert "x: int32[1], 6 to 6" in repr(trace_row(dataset, 3))


@frozen(repr=False)
class _EverySecond(Stage):
    """Takes every second item, of any level."""

    accepts = frozenset({"examples", "groups", "batches"})

    def start(self, epoch):
        return 0

    def step(self, count, item):
        return count + 1, (item,) if count % 2 else ()


def test_stages_of_any_level_are_passed_only_where_they_get_batches():
    rows = from_chunks([pa.record_batch({"x": [x]}) for x in range(8)])
    dataset = pipe(rows, _EverySecond(), batch(2), collate(to_batch))
    assert [values(item) for item in dataset] == [[1, 3], [5, 7]]
    assert [origin.row for origin in row_origins(dataset, 1)] == [5, 7]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: row_origins(numbers(3), 3), ArgumentError, "There is no item 3 .counted from 0.: the run has fewer items, in pipe"),
        (lambda: row_origins(numbers(3), -1), ArgumentError, "step must be at least 0, got step=-1."),
        (lambda: row_origins(numbers(3), 0.5), ArgumentTypeError, "step must be an int"),
        (lambda: row_origins([1], 0), ArgumentTypeError, "works on a dataset"),
        (lambda: row_origins(numbers(3), 0, cursor=next(iterate(numbers(4)))[1]), CursorMismatchError, "another pipeline"),
        (
            lambda: row_origins(Dataset(_OfBatches()), 0),
            PipelineError,
            r"The batches of of_batches\(\) have no row numbers.",
        ),
        (lambda: trace_row([1], 0), ArgumentTypeError, "works on a dataset"),
        (lambda: trace_row(numbers(3), -1), ArgumentError, "row must be at least 0"),
        (
            lambda: trace_row(numbers(3), 3),
            ArgumentError,
            r"There is no row 3 in from_table\(3 rows\): it has 3 rows. Use a row number from Examples.rows.",
        ),
        (lambda: trace_row(from_chunks([pa.record_batch({"x": [1]})]), 9), ArgumentError, "it has 1 rows"),
        (lambda: trace_row(numbers(3), 1 << LEAF_BITS), ArgumentError, "There is no source for row 17592186044416 in pipe"),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def steps(dataset, row, **options):
    return [(step.part, step.items, step.error) for step in trace_row(dataset, row, **options).steps]


@settings(max_examples=20)
@given(
    row=st.integers(0, 11),
    epoch=st.integers(0, 2),
    parts=st.lists(st.sampled_from([shuffle(seed=1), prefetch(2), load(), repeat(1), take(100, redraw=True)]), max_size=3),
)
def test_a_replayed_row_ends_as_it_comes_out(row, epoch, parts):
    def noisy(example, random):
        return {**example, "noise": random.random()}

    dataset = pipe(numbers(12), *parts, map(noisy, seed=3), *parts, batch(1))
    ran = {int(group.rows[0]): group[0] for group, _ in iterate(dataset, epoch=epoch)}
    if not any("load" in repr(part) for part in parts) or epoch == 0:  # what is random before load is so once
        assert steps(dataset, row, epoch=epoch)[-1][1] == (ran[row],)


def test_noise_in_joined_datasets_is_that_of_the_run():
    dataset = concat([numbers(3), numbers(3, first=10)])
    dataset = pipe(dataset, map(lambda row, random: {"x": row["x"], "noise": random.random()}, seed=0), batch(6))
    (group,) = dataset
    for number, row in zip(group.rows.tolist(), group, strict=True):
        assert steps(dataset, number)[-1][1] == (row,)


def test_each_part_says_what_it_made_of_the_row():
    dataset = pipe(
        from_iterable(lambda: ({"x": x, "y": "a"} for x in range(9))),
        flat_map(lambda row: [row] * row["x"]),
        drop_columns(["y"]),
        batch(4, drop_last=True),
        collate(to_batch),
        prefetch(1),
    )
    assert repr(trace_row(dataset, 2)).splitlines()[2:] == [
        "    x: 2",
        "    y: 'a'",
        "flat_map(function=test_each_part_says_what_it_made_of_the_row.<locals>.<lambda>)",
        "    1 of 2",
        "    x: 2",
        "    y: 'a'",
        "    2 of 2",
        "    x: 2",
        "    y: 'a'",
        "drop_columns(columns=('y',))",
        "    1 of 2",
        "    x: 2",
        "    2 of 2",
        "    x: 2",
        "batch(size=4, drop_last=True)",
        "    1 of 2",
        "    x: 2",
        "    2 of 2",
        "    x: 2",
        "collate(collator=to_batch)",
        "    x: int32[2], 2 to 2",
        "prefetch(depth=1)",
        "    the same",
    ]


def test_columns_that_go_or_come_are_said():
    dataset = pipe(numbers(4), map(lambda row: {"y": row["x"], "z": np.ones((2, 2))}), shard(0, 2, ends="pad"), drop_columns(["y"]))
    lines = repr(trace_row(dataset, 1)).splitlines()
    assert lines[4:] == [
        "    y: 1",
        "    z: float64[2, 2], 1 to 1",
        "    without x",
        "shard(index=0, count=2, ends='pad')",
        "    weight: 1.0",
        "drop_columns(columns=('y',))",
        "    without y",
    ]


def test_a_row_that_is_left_out_or_fails_ends_the_replay():
    dataset = pipe(
        numbers(6),
        filter(lambda row: row["x"] != 2),
        map(lambda row: {"y": 1 / (row["x"] - 3)}, schema=pa.schema({"y": pa.float64()})),
        batch(2),
    )
    assert repr(trace_row(dataset, 2)).endswith("\n    left out")
    assert len(trace_row(dataset, 2).steps) == 2
    said = f"ZeroDivisionError: division by zero; on source row 3: {{'x': 3}}; while running {dataset.stages[1]!r}"
    assert trace_row(dataset, 3).steps[-1].error == said
    assert repr(trace_row(dataset, 3)).endswith(f"failed: {said}")
    assert len(trace_row(dataset, 4).steps) == 4


def test_the_error_of_a_skipped_row_is_replayed():
    dataset = pipe(numbers(6), map(lambda row: {"y": 1 / (row["x"] - 3)}), shuffle(seed=0), on_error("skip"), batch(2))
    failed, fine = trace_row(dataset, 3), trace_row(dataset, 4)
    assert failed.steps[-1].error.startswith("ZeroDivisionError")
    assert [step.part.partition("(")[0] for step in fine.steps] == ["from_table", "map", "shuffle", "on_error", "batch"]
    assert failed.origin == Origin(numbers(6).source, 3)


def test_a_row_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 600_000 + "word\n")
    dataset = pipe(read_csv(tmp_path / "a.csv"), map(dict, schema=pa.schema({"x": pa.int64()})))
    found = trace_row(dataset, 600_000)
    assert len(found.steps) == 1
    assert found.steps[0].error.startswith("DataError")


def test_a_row_of_a_shared_pack_goes_alone():
    rows = from_examples([{"input_ids": [1, 2]}, {"input_ids": [3]}])
    assert steps(pipe(rows, pack(4)), 1)[-1][1] == ({"input_ids": [3], "segment_ids": [1], "positions": [0]},)
    assert row_origins(pipe(rows, pack(4)), 0) == (Origin(rows.source, 0),)


def test_a_passenger_is_followed_from_the_file_to_the_batch(data_folder):
    tokenizer = load_tokenizer(data_folder / "tokenizers" / "bert-base-uncased")
    dataset = pipe(
        read_csv(data_folder / "titanic" / "train.csv"),
        template("A {Age} year old {Sex} travelling in class {Pclass}."),
        tokenize(tokenizer, max_length=32),
        shuffle(seed=0),
        batch(32),
        collate(text(pad_id=tokenizer.pad_id, label="Survived", carry=["PassengerId"])),
        prefetch(2),
    )
    batches = list(dataset)
    assert [origin.row + 1 for origin in row_origins(dataset, 20)] == batches[20]["PassengerId"].tolist()
    assert "text: 'A 22.0 year old male travelling in class 3.'" in repr(trace_row(dataset, 0))
