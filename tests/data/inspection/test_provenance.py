import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import LEAF_BITS
from mlxfp.core.row_names import Origin, locate
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorMismatchError, PipelineError
from mlxfp.testing.probing import from_chunks


def numbers(count, first=0):
    return fp.from_table({"x": np.arange(first, first + count)})


def to_batch(group):
    return {"x": mx.array([row["x"] for row in group])}


def values(item):
    return item["x"].tolist() if isinstance(item, dict) and hasattr(item["x"], "tolist") else [row["x"] for row in item]


SHAPES = {
    "groups": batch(3),
    "batches": fp.compose(batch(3), fp.collate(to_batch)),
    "prefetched": fp.compose(batch(3), fp.collate(to_batch), fp.prefetch(2)),
    "several passes": fp.compose(fp.shuffle(seed=1), batch(3), fp.collate(to_batch), fp.repeat(3)),
    "shuffled stream": fp.compose(
        fp.shuffle(seed=1, buffer=4), fp.filter(lambda row: row["x"] % 5 > 0), batch(2), fp.prefetch(1), fp.collate(to_batch)
    ),
    "a shard": fp.compose(fp.shuffle(seed=2), fp.shard(1, 2), batch(2), fp.collate(to_batch), fp.take(3, redraw=True), fp.prefetch(2)),
    "packed in groups": fp.compose(batch(4), unbatch(), batch(3), fp.collate(to_batch)),
    "skipping": fp.compose(
        fp.map(lambda row: {"x": row["x"], "y": 1 / (row["x"] - 4)}),
        fp.shuffle(seed=0),
        fp.on_error("skip"),
        batch(3),
        fp.collate(to_batch),
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("epoch", [0, 2])
def test_the_origins_of_every_item_are_the_rows_that_are_in_it(shape, epoch):
    dataset = fp.pipe(numbers(13), shape)
    whole = list(fp.iterate(dataset, epoch=epoch))
    for step, (item, _) in enumerate(whole):
        found = fp.inspect.row_origins(dataset, step, epoch=epoch)
        assert [origin.row for origin in found] == values(item)
        assert {origin.source for origin in found} == {numbers(13).source}
    for place, (_, cursor) in enumerate(whole[:-1]):
        later = fp.inspect.row_origins(dataset, len(whole) - place - 2, cursor=fp.Cursor.from_bytes(cursor.to_bytes()))
        assert [origin.row for origin in later] == values(whole[-1][0])


def test_the_origin_of_an_example_is_one_row():
    assert fp.inspect.row_origins(fp.pipe(numbers(9), fp.shuffle(seed=0)), 4) == (
        Origin(numbers(9).source, list(fp.pipe(numbers(9), fp.shuffle(seed=0)))[4]["x"]),
    )
    twice = fp.pipe(numbers(3), fp.flat_map(lambda row: [row, row]))
    assert [fp.inspect.row_origins(twice, step)[0].row for step in range(6)] == [0, 0, 1, 1, 2, 2]


def test_joined_sources_are_told_apart_however_deep():
    a, b, c = numbers(3), numbers(3, first=10), numbers(3, first=20)
    dataset = fp.pipe(
        fp.interleave([fp.pipe(a, fp.shuffle(seed=1)), fp.concat([b, fp.pipe(c, fp.map(dict))])]), batch(2), fp.collate(to_batch)
    )
    places = {a.source: 0, b.source: 10, c.source: 20}
    for step, item in enumerate(dataset):
        assert [places[origin.source] + origin.row for origin in fp.inspect.row_origins(dataset, step)] == values(item)
    mixed = fp.mix([fp.pipe(part, batch(1), fp.collate(to_batch)) for part in (a, b)], [1, 1], stop="all")
    assert [[places[o.source] + o.row for o in fp.inspect.row_origins(mixed, step)] for step in range(6)] == [
        values(item) for item in mixed
    ]


def test_an_origin_in_a_joined_source_is_traced_by_its_number():
    rows = fp.pipe(fp.mix([numbers(3), fp.pipe(numbers(3, first=10), fp.map(dict))], [1, 1], stop="all"), fp.shuffle(seed=0))
    for step, row in enumerate(rows):
        trace = fp.inspect.trace_row(rows, fp.inspect.row_origins(rows, step)[0].number)
        assert trace.steps[-1].items == (row,)
        assert trace.origin == fp.inspect.row_origins(rows, step)[0]


def test_rows_of_groups_are_located():
    both = fp.concat([numbers(3), numbers(2)])
    (group,) = batch(9)(both)
    assert [locate(both, row).row for row in group.rows] == [0, 1, 2, 0, 1]
    assert locate(both, 1 << LEAF_BITS).source == numbers(2).source


@frozen(repr=False)
class _OfBatches(fp.Source):
    traits = fp.parts.SourceTraits(level="batches")

    def schema(self):
        return pa.schema([])

    def read(self, epoch, position):
        yield {"x": mx.array([1])}, 1


@frozen(repr=False)
class _Doubled(fp.Stage):
    accepts = frozenset({"batches"})
    traits = fp.parts.Traits(length=lambda count: count)

    def step(self, state, batch):
        return state, ({name: value * 2 for name, value in batch.items()},)


def test_stages_over_batches_are_passed():
    dataset = fp.pipe(numbers(4), batch(2), fp.collate(to_batch), _Doubled())
    assert [item["x"].tolist() for item in dataset] == [[0, 2], [4, 6]]
    assert [origin.row for origin in fp.inspect.row_origins(dataset, 1)] == [2, 3]
    assert "x: int32[1], 6 to 6" in repr(fp.inspect.trace_row(dataset, 3))


@frozen(repr=False)
class _EverySecond(fp.Stage):
    """Takes every second item, of any level."""

    accepts = frozenset({"examples", "groups", "batches"})

    def start(self, epoch):
        return 0

    def step(self, count, item):
        return count + 1, (item,) if count % 2 else ()


def test_stages_of_any_level_are_passed_only_where_they_get_batches():
    rows = from_chunks([pa.record_batch({"x": [x]}) for x in range(8)])
    dataset = fp.pipe(rows, _EverySecond(), batch(2), fp.collate(to_batch))
    assert [values(item) for item in dataset] == [[1, 3], [5, 7]]
    assert [origin.row for origin in fp.inspect.row_origins(dataset, 1)] == [5, 7]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: fp.inspect.row_origins(numbers(3), 3),
            ArgumentError,
            "There is no item 3 .counted from 0.: the run has fewer items, in pipe",
        ),
        (lambda: fp.inspect.row_origins(numbers(3), -1), ArgumentError, "step must be at least 0, got step=-1."),
        (lambda: fp.inspect.row_origins(numbers(3), 0.5), ArgumentTypeError, "step must be an int"),
        (lambda: fp.inspect.row_origins([1], 0), ArgumentTypeError, "works on a dataset"),
        (lambda: fp.inspect.row_origins(numbers(3), 0, cursor=next(fp.iterate(numbers(4)))[1]), CursorMismatchError, "another pipeline"),
        (
            lambda: fp.inspect.row_origins(fp.Dataset(_OfBatches()), 0),
            PipelineError,
            r"The batches of of_batches\(\) have no row numbers.",
        ),
        (lambda: fp.inspect.trace_row([1], 0), ArgumentTypeError, "works on a dataset"),
        (lambda: fp.inspect.trace_row(numbers(3), -1), ArgumentError, "row must be at least 0"),
        (
            lambda: fp.inspect.trace_row(numbers(3), 3),
            ArgumentError,
            r"There is no row 3 in from_table\(3 rows\): it has 3 rows. Use a row number from Examples.rows.",
        ),
        (lambda: fp.inspect.trace_row(from_chunks([pa.record_batch({"x": [1]})]), 9), ArgumentError, "it has 1 rows"),
        (lambda: fp.inspect.trace_row(numbers(3), 1 << LEAF_BITS), ArgumentError, "There is no source for row 17592186044416 in pipe"),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def steps(dataset, row, **options):
    return [(step.part, step.items, step.error) for step in fp.inspect.trace_row(dataset, row, **options).steps]


@settings(max_examples=20)
@given(
    row=st.integers(0, 11),
    epoch=st.integers(0, 2),
    parts=st.lists(st.sampled_from([fp.shuffle(seed=1), fp.prefetch(2), fp.load(), fp.repeat(1), fp.take(100, redraw=True)]), max_size=3),
)
def test_a_replayed_row_ends_as_it_comes_out(row, epoch, parts):
    def noisy(example, random):
        return {**example, "noise": random.random()}

    dataset = fp.pipe(numbers(12), *parts, fp.map(noisy, seed=3), *parts, batch(1))
    ran = {int(group.rows[0]): group[0] for group, _ in fp.iterate(dataset, epoch=epoch)}
    if not any("load" in repr(part) for part in parts) or epoch == 0:  # what is random before load is so once
        assert steps(dataset, row, epoch=epoch)[-1][1] == (ran[row],)


def test_noise_in_joined_datasets_is_that_of_the_run():
    dataset = fp.concat([numbers(3), numbers(3, first=10)])
    dataset = fp.pipe(dataset, fp.map(lambda row, random: {"x": row["x"], "noise": random.random()}, seed=0), batch(6))
    (group,) = dataset
    for number, row in zip(group.rows.tolist(), group, strict=True):
        assert steps(dataset, number)[-1][1] == (row,)


def test_each_part_says_what_it_made_of_the_row():
    dataset = fp.pipe(
        fp.from_iterable(lambda: ({"x": x, "y": "a"} for x in range(9))),
        fp.flat_map(lambda row: [row] * row["x"]),
        fp.drop_columns(["y"]),
        batch(4, drop_last=True),
        fp.collate(to_batch),
        fp.prefetch(1),
    )
    assert repr(fp.inspect.trace_row(dataset, 2)).splitlines()[2:] == [
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
    dataset = fp.pipe(
        numbers(4), fp.map(lambda row: {"y": row["x"], "z": np.ones((2, 2))}), fp.shard(0, 2, ends="pad"), fp.drop_columns(["y"])
    )
    lines = repr(fp.inspect.trace_row(dataset, 1)).splitlines()
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
    dataset = fp.pipe(
        numbers(6),
        fp.filter(lambda row: row["x"] != 2),
        fp.map(lambda row: {"y": 1 / (row["x"] - 3)}, schema=pa.schema({"y": pa.float64()})),
        batch(2),
    )
    assert repr(fp.inspect.trace_row(dataset, 2)).endswith("\n    left out")
    assert len(fp.inspect.trace_row(dataset, 2).steps) == 2
    said = f"ZeroDivisionError: division by zero; on source row 3: {{'x': 3}}; while running {dataset.stages[1]!r}"
    assert fp.inspect.trace_row(dataset, 3).steps[-1].error == said
    assert repr(fp.inspect.trace_row(dataset, 3)).endswith(f"failed: {said}")
    assert len(fp.inspect.trace_row(dataset, 4).steps) == 4


def test_the_error_of_a_skipped_row_is_replayed():
    dataset = fp.pipe(numbers(6), fp.map(lambda row: {"y": 1 / (row["x"] - 3)}), fp.shuffle(seed=0), fp.on_error("skip"), batch(2))
    failed, fine = fp.inspect.trace_row(dataset, 3), fp.inspect.trace_row(dataset, 4)
    assert failed.steps[-1].error.startswith("ZeroDivisionError")
    assert [step.part.partition("(")[0] for step in fine.steps] == ["from_table", "map", "shuffle", "on_error", "batch"]
    assert failed.origin == Origin(numbers(6).source, 3)


def test_a_row_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 600_000 + "word\n")
    dataset = fp.pipe(fp.read_csv(tmp_path / "a.csv"), fp.map(dict, schema=pa.schema({"x": pa.int64()})))
    found = fp.inspect.trace_row(dataset, 600_000)
    assert len(found.steps) == 1
    assert found.steps[0].error.startswith("DataError")


def test_a_row_of_a_shared_pack_goes_alone():
    rows = fp.from_examples([{"input_ids": [1, 2]}, {"input_ids": [3]}])
    assert steps(fp.pipe(rows, fp.pack(4)), 1)[-1][1] == ({"input_ids": [3], "segment_ids": [1], "positions": [0]},)
    assert fp.inspect.row_origins(fp.pipe(rows, fp.pack(4)), 0) == (Origin(rows.source, 0),)


def test_a_passenger_is_followed_from_the_file_to_the_batch(data_folder):
    tokenizer = fp.load_tokenizer(data_folder / "tokenizers" / "bert-base-uncased")
    dataset = fp.pipe(
        fp.read_csv(data_folder / "titanic" / "train.csv"),
        fp.template("A {Age} year old {Sex} travelling in class {Pclass}."),
        fp.tokenize(tokenizer, max_length=32),
        fp.shuffle(seed=0),
        batch(32),
        fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, label="Survived", carry=["PassengerId"])),
        fp.prefetch(2),
    )
    batches = list(dataset)
    assert [origin.row + 1 for origin in fp.inspect.row_origins(dataset, 20)] == batches[20]["PassengerId"].tolist()
    assert "text: 'A 22.0 year old male travelling in class 3.'" in repr(fp.inspect.trace_row(dataset, 0))
