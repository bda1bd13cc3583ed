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

from mlxfp.collators.collating import collate
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import explain, known_length, length
from mlxfp.core.execution import iterate, read_all
from mlxfp.core.identity import fingerprint
from mlxfp.core.pipelines import compose, pipe
from mlxfp.core.sources import Source, SourceTraits
from mlxfp.data.inspection.checksums import checksum
from mlxfp.data.inspection.column_stats import column_stats
from mlxfp.data.inspection.previews import preview
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import filter, map, skip, take
from mlxfp.data.rows.mixing import concat, interleave, mix
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.selecting import select, split
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples, from_iterable
from mlxfp.data.sources.parquet_files import read_parquet
from mlxfp.support.errors import ArgumentTypeError, MissingFileError, PipelineError
from mlxfp.testing.strategies import pipelines
from mlxfp.training.loop.fitting import fit, last
from mlxfp.training.losses import mse
from mlxfp.training.optimization.optimizers import adamw
from mlxfp.training.steps.state import train_state
from mlxfp.training.steps.steps import train_step

ROWS = from_examples([{"x": i} for i in range(10)])
SCHEMA = pa.schema({"x": pa.int64()})


@frozen(repr=False)
class Forever(Source):
    """A user's source that says that it has no end."""

    traits = SourceTraits(endless=True)

    def schema(self):
        return SCHEMA

    def read(self, epoch, position):
        while True:
            yield pa.record_batch({"x": [1]}), 0


ENDLESS = {
    "repeat": pipe(ROWS, repeat(None)),
    "mix": mix([ROWS, ROWS], [1, 2]),
    "mix of one": mix([ROWS, ROWS], [1, 0]),
    "mix, all": mix([ROWS, repeat(None)(ROWS)], [1, 2], stop="all"),
    "mix, first": mix([repeat(None)(ROWS), repeat(None)(ROWS)], [1, 2], stop="first"),
    "interleave": interleave([ROWS, repeat(None)(ROWS)]),
    "concat": concat([ROWS, repeat(None)(ROWS)]),
    "of a user": Dataset(Forever()),
    "behind others": pipe(
        ROWS, repeat(None), filter(bool), map(dict, schema=SCHEMA), prefetch(1), skip(2), repeat(2), shuffle(seed=0, buffer=3)
    ),
    "a part": pipe(ROWS, repeat(None), split([0.5, 0.5], seed=0))[0],
}
ENDING = {
    "rows": ROWS,
    "take": pipe(ROWS, repeat(None), take(3)),
    "mix, first": mix([ROWS, repeat(None)(ROWS)], [1, 2], stop="first"),
    "mix, weight 0": mix([ROWS, repeat(None)(ROWS)], [1, 0], stop="all"),
    "not known": from_iterable(lambda: iter([{"x": 1}])),
}
READERS: dict[str, Callable[[Dataset[Any]], Any]] = {
    "load": load(),
    "load of groups": compose(batch(2), load()),
    "cache": cache("nowhere"),
    "cache of groups": compose(batch(2), cache("nowhere")),
    "shuffle": shuffle(seed=0),
    "select": select([1]),
    "stratified split": split([0.5, 0.5], seed=0, stratify="x"),
    "a row by number": lambda dataset: dataset[3],
    "concat": lambda dataset: concat([dataset, ROWS]),
    "column_stats": lambda dataset: column_stats(dataset, ["x"]),
    "any other reader": lambda dataset: list(read_all(dataset)),
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
    assert list(pipe(dataset, load(), shuffle(seed=0))) != []


def test_the_message_names_the_part_without_an_end():
    with pytest.raises(PipelineError) as caught:
        pipe(ROWS, repeat(None), filter(bool), load())
    assert str(caught.value).startswith("load() needs finite data, but repeat(epochs=None) is endless, in pipe(from_examples(10 rows), ")


@pytest.mark.parametrize("dataset", ENDLESS.values(), ids=ENDLESS)
def test_what_reads_the_beginning_works_without_an_end(dataset):
    assert preview(dataset, count=1)
    assert checksum(dataset, steps=2)
    assert len(list(islice(pipe(dataset, batch(2)), 3))) == 3
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
    missing = read_parquet(tmp_path / "missing.parquet")
    with pytest.raises(ArgumentTypeError, match=r"The length of pipe\(read_parquet\(.*\) cannot be computed: .*missing.parquet"):
        len(missing)
    with pytest.raises(MissingFileError):
        list(missing)


def test_a_dataset_is_iterated_asynchronously_and_not_awaited():
    async def collected():
        return [row async for row in pipe(ROWS, filter(lambda row: row["x"] < 3), prefetch(1))]

    async def awaited():
        await ROWS

    assert asyncio.run(collected()) == [{"x": 0}, {"x": 1}, {"x": 2}]
    with pytest.raises(ArgumentTypeError, match=r"A dataset cannot be awaited, got await on .*Iterate: `async for item in dataset`"):
        asyncio.run(awaited())


# Other rows in each epoch: https://github.com/google/grain/issues/1200

REDRAWN = {
    "take": compose(shuffle(seed=0), take(8)),
    "skip": compose(shuffle(seed=0), skip(8)),
    "select": compose(shuffle(seed=0), select(range(8))),
    "a buffer": compose(shuffle(seed=0, buffer=3), take(8)),
    "in between": compose(shuffle(seed=0), filter(lambda row: True), prefetch(1), take(8), map(dict, schema=SCHEMA), batch(2)),
    "of groups": compose(shuffle(seed=0), batch(2), take(3)),
    "of a mixture": compose(lambda rows: mix([shuffle(seed=0)(rows), rows], [1, 1], stop="all"), take(3)),
}
SAME = {
    "take": take(8),
    "take, shuffle": compose(take(8), shuffle(seed=0)),
    "shuffle, load, take": compose(shuffle(seed=0), load(), take(8)),
    "split": lambda rows: pipe(rows, shuffle(seed=0), split([0.8, 0.2], seed=0))[0],
    "meant": compose(shuffle(seed=0), take(8, redraw=True)),
    "meant, of others": compose(shuffle(seed=0), skip(1, redraw=True), select([1, 2], redraw=True)),
}


def rows_of_epochs(dataset):
    return [{row["x"] for row, _ in iterate(dataset, epoch=epoch)} for epoch in range(4)]


@pytest.mark.parametrize("stage", REDRAWN.values(), ids=REDRAWN)
def test_other_rows_in_each_epoch_are_pointed_out(stage):
    dataset = pipe(ROWS, stage)
    assert dataset.redraws
    assert "after a shuffle: other rows in each epoch; use split for disjoint parts" in explain(dataset)
    list(dataset)  # one epoch is no reason to warn
    for read in (repeat(2), repeat(None), lambda dataset: iterate(dataset, epoch=1), lambda dataset: mix([dataset], [1])):
        with pytest.warns(RuntimeWarning, match=r"Each epoch has other rows in .* use split or train_valid_test, .*pass redraw=True"):
            read(dataset)


@pytest.mark.parametrize("stage", SAME.values(), ids=SAME)
def test_the_same_rows_in_each_epoch_and_what_is_meant_are_no_reason_to_warn(stage):
    dataset = pipe(ROWS, stage)
    assert not dataset.redraws
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epochs = rows_of_epochs(dataset)
        pipe(dataset, repeat(2))
    if "redraw=True" not in repr(dataset):
        assert epochs[0] == epochs[1] == epochs[2]


def test_parts_cut_by_place_behind_a_shuffle_leak_which_is_why_it_warns():
    train, valid = (pipe(ROWS, shuffle(seed=0), part) for part in (take(8, redraw=True), skip(8, redraw=True)))
    assert set.union(*rows_of_epochs(train)) & rows_of_epochs(valid)[0]


def test_training_for_several_epochs_points_it_out():
    model, optimizer = nn.Linear(1, 1), adamw(0.1)
    step = train_step(model, lambda model, batch: mse(model(batch["x"]), batch["x"]), optimizer)
    to_batch = collate(lambda group: {"x": mx.array([[float(row["x"])] for row in group])})
    batches = pipe(ROWS, shuffle(seed=0), take(6), batch(3), to_batch)
    last(fit(step, train_state(model, optimizer), batches, epochs=1))
    last(fit(step, train_state(model, optimizer), batches, steps=2))
    for several in ({"epochs": 2}, {"steps": 3}):
        with pytest.warns(RuntimeWarning, match="Each epoch has other rows") as caught:
            events = fit(step, train_state(model, optimizer), batches, **several)  # before anything is trained
        assert [warning.filename for warning in caught] == [__file__]
        last(events)  # and not again


def test_a_run_of_epochs_over_data_without_an_end_is_refused():
    model, optimizer = nn.Linear(1, 1), adamw(0.1)
    step = train_step(model, lambda model, batch: mse(model(batch["x"]), batch["x"]), optimizer)
    to_batch = collate(lambda group: {"x": mx.array([[float(row["x"])] for row in group])})
    endless = pipe(ROWS, repeat(None), batch(3), to_batch)
    for several in ({}, {"epochs": 2}):
        with pytest.raises(PipelineError, match=r"A run of epochs=[12] never ends, because its data have no end: .* with steps="):
            fit(step, train_state(model, optimizer), endless, **several)
    assert last(fit(step, train_state(model, optimizer), endless, steps=5, epochs=1)).step == 5


def test_the_warning_points_to_the_line_that_reads_several_epochs():
    for read in (lambda: pipe(ROWS, shuffle(seed=0), take(3), repeat(2)), lambda: iterate(pipe(ROWS, shuffle(seed=0), take(3)), epoch=1)):
        with pytest.warns(RuntimeWarning, match="Each epoch has other rows") as caught:
            read()
        assert [warning.filename for warning in caught] == [__file__]


def test_that_it_is_meant_changes_no_fingerprint():
    plain, meant = pipe(ROWS, take(3)), pipe(ROWS, take(3, redraw=True))
    assert plain == meant
    assert fingerprint(plain) == fingerprint(meant)
    _, cursor = next(iterate(plain))
    assert [row["x"] for row, _ in iterate(meant, cursor)] == [1, 2]
