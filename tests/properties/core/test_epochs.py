"""What is known of epochs before they are read: data without an end is refused, other rows in each epoch are pointed out."""

import asyncio
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

import mlx.core as mx
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from mlx import nn

import mlxfp as fp
from mlxfp.core.describing import explain, known_length, length
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentTypeError, MissingFileError, PipelineError
from mlxfp.testing.strategies import pipelines

ROWS = fp.from_examples([{"x": i} for i in range(10)])
SCHEMA = pa.schema({"x": pa.int64()})


@frozen(repr=False)
class Forever(fp.Source):
    """A user's source that says that it has no end."""

    traits = fp.parts.SourceTraits(endless=True)

    def schema(self):
        return SCHEMA

    def read(self, epoch, position):
        while True:
            yield pa.record_batch({"x": [1]}), 0


ENDLESS = {
    "repeat": fp.pipe(ROWS, fp.repeat(None)),
    "mix": fp.mix([ROWS, ROWS], [1, 2]),
    "mix of one": fp.mix([ROWS, ROWS], [1, 0]),
    "mix, all": fp.mix([ROWS, fp.repeat(None)(ROWS)], [1, 2], stop="all"),
    "mix, first": fp.mix([fp.repeat(None)(ROWS), fp.repeat(None)(ROWS)], [1, 2], stop="first"),
    "interleave": fp.interleave([ROWS, fp.repeat(None)(ROWS)]),
    "concat": fp.concat([ROWS, fp.repeat(None)(ROWS)]),
    "of a user": fp.Dataset(Forever()),
    "behind others": fp.pipe(
        ROWS,
        fp.repeat(None),
        fp.filter(bool),
        fp.map(dict, schema=SCHEMA),
        fp.prefetch(1),
        fp.skip(2),
        fp.repeat(2),
        fp.shuffle(seed=0, buffer=3),
    ),
    "a part": fp.pipe(ROWS, fp.repeat(None), fp.split([0.5, 0.5], seed=0))[0],
}
ENDING = {
    "rows": ROWS,
    "take": fp.pipe(ROWS, fp.repeat(None), fp.take(3)),
    "mix, first": fp.mix([ROWS, fp.repeat(None)(ROWS)], [1, 2], stop="first"),
    "mix, weight 0": fp.mix([ROWS, fp.repeat(None)(ROWS)], [1, 0], stop="all"),
    "not known": fp.from_iterable(lambda: iter([{"x": 1}])),
}
READERS: dict[str, Callable[[fp.Dataset[Any]], Any]] = {
    "load": fp.load(),
    "load of groups": fp.compose(batch(2), fp.load()),
    "cache": fp.cache("nowhere"),
    "cache of groups": fp.compose(batch(2), fp.cache("nowhere")),
    "shuffle": fp.shuffle(seed=0),
    "select": fp.select([1]),
    "stratified split": fp.split([0.5, 0.5], seed=0, stratify="x"),
    "a row by number": lambda dataset: dataset[3],
    "concat": lambda dataset: fp.concat([dataset, ROWS]),
    "column_stats": lambda dataset: fp.inspect.column_stats(dataset, ["x"]),
    "any other reader": lambda dataset: list(fp.parts.read_all(dataset)),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("dataset", ENDLESS.values(), ids=ENDLESS)
def test_what_reads_a_whole_epoch_refuses_data_without_an_end(dataset, reader):
    assert dataset.endless
    with pytest.raises(PipelineError, match=r"needs finite data, but .* is endless, in .*Put take\(count\)"):
        reader(dataset)


@pytest.mark.parametrize("dataset", ENDING.values(), ids=ENDING)
def test_data_that_has_an_end_or_may_have_one_is_loaded(dataset):
    assert not dataset.endless
    assert list(fp.pipe(dataset, fp.load(), fp.shuffle(seed=0))) != []


def test_the_message_names_the_part_without_an_end():
    with pytest.raises(PipelineError) as caught:
        fp.pipe(ROWS, fp.repeat(None), fp.filter(bool), fp.load())
    assert str(caught.value).startswith("load() needs finite data, but repeat(epochs=None) is endless, in pipe(from_examples(10 rows), ")


@pytest.mark.parametrize("dataset", ENDLESS.values(), ids=ENDLESS)
def test_what_reads_the_beginning_works_without_an_end(dataset):
    assert fp.inspect.preview(dataset, count=1)
    assert fp.inspect.checksum(dataset, steps=2)
    assert len(list(islice(fp.pipe(dataset, batch(2)), 3))) == 3
    assert "endless" in explain(dataset)
    assert length(dataset) is None
    with pytest.raises(ArgumentTypeError, match=r"An endless dataset has no length: .*Add take\(count\) to the pipeline"):
        len(dataset)


@given(pipelines())
def test_the_length_of_a_dataset_is_the_number_of_items_or_a_sentence(dataset):
    count = sum(1 for _ in dataset)
    assert bool(dataset)
    if known_length(dataset) is None:
        with pytest.raises(ArgumentTypeError, match=r"Count the items with sum\(1 for _ in dataset\)"):
            len(dataset)
    else:
        assert len(dataset) == count


def test_a_list_of_what_cannot_be_read_fails_as_a_loop_does(tmp_path):
    missing = fp.read_parquet(tmp_path / "missing.parquet")
    with pytest.raises(ArgumentTypeError, match=r"The length of pipe\(read_parquet\(.*\) cannot be computed: .*missing.parquet"):
        len(missing)
    with pytest.raises(MissingFileError):
        list(missing)


def test_a_dataset_is_iterated_asynchronously_and_not_awaited():
    async def collected():
        return [row async for row in fp.pipe(ROWS, fp.filter(lambda row: row["x"] < 3), fp.prefetch(1))]

    async def awaited():
        await ROWS

    assert asyncio.run(collected()) == [{"x": 0}, {"x": 1}, {"x": 2}]
    with pytest.raises(ArgumentTypeError, match=r"A dataset cannot be awaited, got await on .*Iterate: `async for item in dataset`"):
        asyncio.run(awaited())


# Other rows in each epoch: https://github.com/google/grain/issues/1200

REDRAWN = {
    "take": fp.compose(fp.shuffle(seed=0), fp.take(8)),
    "skip": fp.compose(fp.shuffle(seed=0), fp.skip(8)),
    "select": fp.compose(fp.shuffle(seed=0), fp.select(range(8))),
    "a buffer": fp.compose(fp.shuffle(seed=0, buffer=3), fp.take(8)),
    "in between": fp.compose(
        fp.shuffle(seed=0), fp.filter(lambda row: True), fp.prefetch(1), fp.take(8), fp.map(dict, schema=SCHEMA), batch(2)
    ),
    "of groups": fp.compose(fp.shuffle(seed=0), batch(2), fp.take(3)),
    "of a mixture": fp.compose(lambda rows: fp.mix([fp.shuffle(seed=0)(rows), rows], [1, 1], stop="all"), fp.take(3)),
}
SAME = {
    "take": fp.take(8),
    "take, shuffle": fp.compose(fp.take(8), fp.shuffle(seed=0)),
    "shuffle, load, take": fp.compose(fp.shuffle(seed=0), fp.load(), fp.take(8)),
    "split": lambda rows: fp.pipe(rows, fp.shuffle(seed=0), fp.split([0.8, 0.2], seed=0))[0],
    "meant": fp.compose(fp.shuffle(seed=0), fp.take(8, redraw=True)),
    "meant, of others": fp.compose(fp.shuffle(seed=0), fp.skip(1, redraw=True), fp.select([1, 2], redraw=True)),
}


def rows_of_epochs(dataset):
    return [{row["x"] for row, _ in fp.iterate(dataset, epoch=epoch)} for epoch in range(4)]


@pytest.mark.parametrize("stage", REDRAWN.values(), ids=REDRAWN)
def test_other_rows_in_each_epoch_are_pointed_out(stage):
    dataset = fp.pipe(ROWS, stage)
    assert dataset.redraws
    assert "after a shuffle: other rows in each epoch; use split for disjoint parts" in explain(dataset)
    list(dataset)  # one epoch is no reason to warn
    for read in (fp.repeat(2), fp.repeat(None), lambda dataset: fp.iterate(dataset, epoch=1), lambda dataset: fp.mix([dataset], [1])):
        with pytest.warns(RuntimeWarning, match=r"Each epoch has other rows in .* use split or train_valid_test, .*pass redraw=True"):
            read(dataset)


@pytest.mark.parametrize("stage", SAME.values(), ids=SAME)
def test_the_same_rows_in_each_epoch_and_what_is_meant_are_no_reason_to_warn(stage):
    dataset = fp.pipe(ROWS, stage)
    assert not dataset.redraws
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epochs = rows_of_epochs(dataset)
        fp.pipe(dataset, fp.repeat(2))
    if "redraw=True" not in repr(dataset):
        assert epochs[0] == epochs[1] == epochs[2]


def test_parts_cut_by_place_behind_a_shuffle_leak_which_is_why_it_warns():
    train, valid = (fp.pipe(ROWS, fp.shuffle(seed=0), part) for part in (fp.take(8, redraw=True), fp.skip(8, redraw=True)))
    assert set.union(*rows_of_epochs(train)) & rows_of_epochs(valid)[0]


def test_training_for_several_epochs_points_it_out():
    model, optimizer = nn.Linear(1, 1), fp.optimizers.adamw(0.1)
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"]), optimizer)
    to_batch = fp.collate(lambda group: {"x": mx.array([[float(row["x"])] for row in group])})
    batches = fp.pipe(ROWS, fp.shuffle(seed=0), fp.take(6), batch(3), to_batch)
    fp.last(fp.fit(step, fp.train_state(model, optimizer), batches, epochs=1))
    fp.last(fp.fit(step, fp.train_state(model, optimizer), batches, steps=2))
    for several in ({"epochs": 2}, {"steps": 3}):
        with pytest.warns(RuntimeWarning, match="Each epoch has other rows") as caught:
            events = fp.fit(step, fp.train_state(model, optimizer), batches, **several)  # before anything is trained
        assert [warning.filename for warning in caught] == [__file__]
        fp.last(events)  # and not again


def test_a_run_of_epochs_over_data_without_an_end_is_refused():
    model, optimizer = nn.Linear(1, 1), fp.optimizers.adamw(0.1)
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"]), optimizer)
    to_batch = fp.collate(lambda group: {"x": mx.array([[float(row["x"])] for row in group])})
    endless = fp.pipe(ROWS, fp.repeat(None), batch(3), to_batch)
    for several in ({}, {"epochs": 2}):
        with pytest.raises(PipelineError, match=r"A run of epochs=[12] never ends, because its data have no end: .* with steps="):
            fp.fit(step, fp.train_state(model, optimizer), endless, **several)
    assert fp.last(fp.fit(step, fp.train_state(model, optimizer), endless, steps=5, epochs=1)).step == 5


def test_the_warning_points_to_the_line_that_reads_several_epochs():
    for read in (
        lambda: fp.pipe(ROWS, fp.shuffle(seed=0), fp.take(3), fp.repeat(2)),
        lambda: fp.iterate(fp.pipe(ROWS, fp.shuffle(seed=0), fp.take(3)), epoch=1),
    ):
        with pytest.warns(RuntimeWarning, match="Each epoch has other rows") as caught:
            read()
        assert [warning.filename for warning in caught] == [__file__]


def test_that_it_is_meant_changes_no_fingerprint():
    plain, meant = fp.pipe(ROWS, fp.take(3)), fp.pipe(ROWS, fp.take(3, redraw=True))
    assert plain == meant
    assert fp.inspect.fingerprint(plain) == fp.inspect.fingerprint(meant)
    _, cursor = next(fp.iterate(plain))
    assert [row["x"] for row, _ in fp.iterate(meant, cursor)] == [1, 2]
