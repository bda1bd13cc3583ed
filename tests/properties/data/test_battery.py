"""One battery of laws for every stage and every source in memory: a new member joins with one line."""

import atexit
from collections.abc import Callable
from functools import partial
from shutil import rmtree
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.chunks import Example, RecordBatch, to_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.pipelines import compose
from mlxfp.core.stages import RowWise, seeded
from mlxfp.data.lengths.augmenting import drop_fields, drop_tokens
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.lengths.bucketing import batch_by_tokens, bucket_by_length
from mlxfp.data.lengths.cropping import crop_waveforms
from mlxfp.data.lengths.packing import pack
from mlxfp.data.lengths.windowing import windows
from mlxfp.data.rows.columns import drop_columns, rename_columns, select_columns
from mlxfp.data.rows.filtering import filter_by
from mlxfp.data.rows.map_filter import filter, flat_map, map, map_chunks, skip, take
from mlxfp.data.rows.mixing import concat, interleave, mix
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.selecting import select, split
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.error_rows import on_error
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.hf_datasets import from_hf
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
from mlxfp.data.sources.torch_datasets import from_torch
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings, tables

Transform = Callable[[Dataset[Any]], Dataset[Any]]

TOKENS = pa.list_(pa.field("item", pa.int32(), nullable=False))
COLUMNS = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("input_ids", TOKENS),
        pa.field("tensor", pa.fixed_shape_tensor(pa.float32(), (1, 2))),
    ]
)
EVERYTHING = 1000  # rows of look-ahead where a stage says that it reads all
FOLDER = mkdtemp(prefix="mlxfp-battery-")
SHUFFLE = shuffle(seed=0)
AHEAD = prefetch(2, workers=2)
atexit.register(rmtree, FOLDER)


@frozen
class Double:
    """Functions of rows are values here, so that the pipelines are."""

    by: int = 2

    def __call__(self, row: Example) -> Example:
        return {"number": row["number"] % 1000 * self.by, "text": row["text"]}


@frozen
class Draw:
    low: int = 0

    def __call__(self, row: Example, random: np.random.Generator) -> Example:
        return {"number": int(random.integers(self.low, 1000))}


@frozen
class Divisible:
    by: int = 2

    def __call__(self, row: Example) -> bool:
        return bool(row["number"] % self.by == 0)


@frozen
class Times:
    modulus: int = 3

    def __call__(self, row: Example) -> list[Example]:
        return [{"number": row["number"], "copy": copy} for copy in range(row["number"] % self.modulus)]


@frozen
class OneColumn:
    name: str = "text"

    def __call__(self, chunk: RecordBatch) -> RecordBatch:
        return chunk.select([self.name])


@frozen
class FailsOn:
    divisor: int = 3

    def __call__(self, row: Example) -> Example:
        return {"number": row["number"] // (row["number"] % self.divisor)}


def halves(join: Callable[[list[Dataset[Any]]], Dataset[Any]]) -> Transform:
    """Join two halves of a dataset again."""
    return lambda dataset: join([pipe_half(dataset, 0), pipe_half(dataset, 1)])


def pipe_half(dataset: Dataset[Any], index: int) -> Dataset[Any]:
    return filter(Divisible(2))(dataset) if index else shard(index, 2)(dataset)


def mixed(stop: Any, *weights: float) -> Callable[[list[Dataset[Any]]], Dataset[Any]]:
    return partial(mix, weights=weights or (2, 1), stop=stop)


def part(index: int, *fractions: float, seed: int = 0, **options: Any) -> Transform:
    return lambda dataset: split(fractions, seed=seed, **options)(dataset)[index]


NUMBERS = pa.schema({"number": pa.int64()})
MAPPED = pa.schema({"number": pa.int64(), "text": pa.string()})
COPIED = pa.schema({"number": pa.int64(), "copy": pa.int64()})


@frozen
class Member:
    """A stage, and one that does something else. `ahead`: rows of look-ahead, None where the order of rows is another one."""

    name: str
    stage: Transform
    other: Transform
    ahead: int | None = 0
    replays: bool = True  # False: a source that holds a dataset, whose items are the chunks of its own


# fmt: off
MEMBERS = [
    Member("map", map(Double(), schema=MAPPED), map(Double(3), schema=MAPPED)),
    Member("map, inferred", map(Double()), map(Double(3))),
    Member("map, random", map(Draw(), seed=0), map(Draw(), seed=1)),
    Member("map of groups", compose(batch(2), map(Double(), schema=MAPPED)), compose(batch(3), map(Double(), schema=MAPPED))),
    Member("map_chunks", map_chunks(OneColumn()), map_chunks(OneColumn("value"))),
    Member("filter", filter(Divisible()), filter(Divisible(3))),
    Member("filter_by", filter_by([("number", ">", 1), ("text", "!=", "b")]), filter_by([("number", ">", 1)])),
    Member("flat_map", flat_map(Times(), schema=COPIED), flat_map(Times(2), schema=COPIED)),
    Member("take", take(3), take(2), replays=False),
    Member("take of groups", compose(batch(2), take(2)), compose(batch(2), take(1)), replays=False),
    Member("skip", skip(2), skip(1), replays=False),
    Member("skip of groups", compose(batch(2), skip(1)), compose(batch(2), skip(2)), replays=False),
    Member("select_columns", select_columns(["text", "number"]), select_columns(["number", "text"])),
    Member("drop_columns", drop_columns(["text"]), drop_columns(["value"])),
    Member("rename_columns", rename_columns({"text": "number", "number": "text"}), rename_columns({"text": "t"})),
    Member("shuffle", shuffle(seed=0), shuffle(seed=1), ahead=None, replays=False),
    Member("shuffle, buffered", shuffle(seed=0, buffer=3), shuffle(seed=0, buffer=2), ahead=3),
    Member("repeat", repeat(2), repeat(3), ahead=None, replays=False),
    Member("repeat of groups", compose(batch(2), repeat(2)), compose(batch(2), repeat(3)), ahead=None, replays=False),
    Member("prefetch", compose(prefetch(2), take(9)), compose(prefetch(2), take(8)), ahead=EVERYTHING, replays=False),
    Member("prefetch, workers", compose(map(Double()), AHEAD, take(9)), compose(map(Double(3)), AHEAD, take(9)), EVERYTHING, replays=False),
    Member("prefetch of groups", compose(batch(2), prefetch(1)), compose(batch(3), prefetch(1)), ahead=EVERYTHING, replays=False),
    Member("batch", batch(2), batch(3)),
    Member("batch, whole", batch(3, drop_last=True), batch(3)),
    Member("unbatch", compose(batch(2), unbatch()), batch(2), ahead=1),
    Member("batch_by_tokens", batch_by_tokens(9), batch_by_tokens(8), ahead=1),
    Member("bucket_by_length", bucket_by_length([2, 9], size=2), bucket_by_length([1, 9], size=2), ahead=None),
    Member("windows", windows(3, stride=2, separator=0), windows(3, separator=0), ahead=None),
    Member("pack", pack(4, open_rows=2), pack(4, open_rows=1), ahead=None),
    Member("pack, split", pack(4, method="split"), pack(4), ahead=None),
    Member("drop_fields", drop_fields(0.5, ["text", "value"], seed=0), drop_fields(0.5, ["text", "value"], seed=1)),
    Member("drop_tokens", drop_tokens(0.5, seed=0), drop_tokens(0.5, seed=1)),
    Member("crop_waveforms", crop_waveforms(2, column="input_ids"), crop_waveforms(1, column="input_ids")),
    Member("crop_waveforms, random", crop_waveforms(2, seed=0, column="input_ids"), crop_waveforms(2, seed=1, column="input_ids")),
    Member("shard", shard(1, 2), shard(0, 2), replays=False),
    Member("shard, padded", shard(1, 2, ends="pad"), shard(1, 3, ends="pad"), ahead=None, replays=False),
    Member("split", part(0, 0.5, 0.5), part(1, 0.5, 0.5), replays=False),
    Member("split, grouped", part(0, 0.5, 0.5, group="text"), part(1, 0.5, 0.5, group="text"), ahead=None, replays=False),
    Member("load", compose(filter(Divisible()), load()), compose(filter(Divisible(3)), load()), ahead=None, replays=False),
    Member("load and shuffle", compose(filter(Divisible()), load(), SHUFFLE), compose(load(), SHUFFLE), ahead=None, replays=False),
    Member("cache", compose(filter(Divisible()), cache(FOLDER)), compose(filter(Divisible(3)), cache(FOLDER)), ahead=None, replays=False),
    Member("on_error", compose(map(FailsOn(), schema=NUMBERS), on_error("skip")), on_error("skip")),
    Member("concat", halves(concat), halves(interleave), ahead=None, replays=False),
    Member("interleave", halves(interleave), halves(concat), ahead=None, replays=False),
    Member("mix", halves(mixed("all")), halves(mixed("all", 1, 2)), ahead=None, replays=False),
    Member("mix, first", halves(mixed("first")), halves(interleave), ahead=None, replays=False),
]
SOURCES: dict[str, Callable[[pa.Table], Dataset[Any]]] = {
    "from_table": from_table,
    "from_table, views": lambda table: from_table(table.slice(1)),
    "from_examples": lambda table: from_examples(rows_of(table), schema=table.schema),
    "from_iterable": lambda table: from_iterable(rows_of(table), schema=table.schema),
    "from_iterable, inferred": lambda table: from_iterable([{"number": row["number"]} for row in rows_of(table)]),
    "from_torch": lambda table: from_torch(rows_of(table), schema=table.schema),
    "from_hf": lambda table: from_hf(SimpleNamespace(data=table, _indices=None)),
    "from_hf, chosen": lambda table: from_hf(SimpleNamespace(data=table, _indices=numbered(table)[1:])),
    "from_chunks": lambda table: from_chunks(table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]),
}
# fmt: on


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return [row for chunk in table.to_batches() for row in to_rows(chunk)]


def numbered(table: pa.Table) -> pa.Table:
    return pa.table({"indices": pa.array(range(table.num_rows), pa.uint64())})


SIX_ROWS = pa.table(
    {
        "number": range(6),
        "value": [0.5, float("nan"), -0.0, 1.0, 2.0, 3.0],
        "text": ["a", "b", "", "a", "b", "c"],
        "input_ids": pa.array([[1, 2], [], [3], [4, 5, 6], [7], [8, 9]], TOKENS),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((6, 1, 2), np.float32)),
    }
)
COMPLETE = pa.schema([field.with_nullable(nullable=False) for field in COLUMNS])
every_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


@every_member
def test_every_stage_obeys_the_laws_of_values(member: Member):
    dataset, other = member.stage(from_table(SIX_ROWS)), member.other(from_table(SIX_ROWS))
    laws.assert_value(dataset)
    laws.assert_told_apart(dataset, other)
    laws.assert_refused(dataset, other)
    laws.assert_refused(other, dataset)


@every_member
@given(data=st.data())
def test_every_stage_obeys_the_laws_of_stages_and_cursors(member: Member, data: st.DataObject):
    table, epoch = data.draw(tables(COMPLETE)), data.draw(st.integers(0, 2))
    chunks, others = data.draw(rechunkings(table)), data.draw(rechunkings(table))
    dataset = member.stage(from_chunks(chunks))
    laws.assert_built_lazily(member.stage, chunks)
    laws.assert_repeatable(dataset, epoch=epoch)
    laws.assert_described(dataset, epoch=epoch)
    laws.assert_pure_stages(dataset, epoch=epoch)
    laws.assert_chunks_do_not_matter(member.stage, chunks, others, epoch=epoch)
    laws.assert_resumable(dataset, epoch=epoch)
    if member.ahead is not None:
        laws.assert_lazy(member.stage, chunks, ahead=member.ahead, epoch=epoch)
    if member.replays:
        laws.assert_replay_is_bounded(member.stage, chunks, epoch=epoch)


@every_member
def test_every_stage_looks_at_no_more_columns_than_it_says(member: Member):
    dataset = member.stage(from_table(SIX_ROWS))
    for name in schema(dataset).names:
        laws.assert_plans_agree(select_columns([name])(dataset))


@every_member
def test_every_stage_has_the_traits_of_its_class_and_seed(member: Member):
    for stage in member.stage(from_table(SIX_ROWS)).stages:
        assert stage.traits.row_wise == isinstance(stage, RowWise)
        assert stage.traits.draws == seeded(stage)


def _has_rows_by_index(member: Member) -> bool:
    dataset = member.stage(from_table(SIX_ROWS))
    return dataset.indexable and dataset.level == "examples"


@pytest.mark.parametrize("member", [each for each in MEMBERS if _has_rows_by_index(each)], ids=lambda member: member.name)
@given(data=st.data())
def test_every_stage_with_random_access_obeys_its_laws(member: Member, data: st.DataObject):
    table, epoch = data.draw(tables(COMPLETE)), data.draw(st.integers(0, 2))
    dataset = member.stage(from_table(table))
    laws.assert_described(dataset, epoch=epoch)
    laws.assert_resumable(dataset, epoch=epoch)
    count = len(laws.collect(dataset, epoch=epoch))
    indices = data.draw(st.lists(st.integers(0, count - 1), max_size=2 * count)) if count else []
    laws.assert_random_access(dataset, np.array(indices, np.int64), epoch=epoch)


@every_source
@given(data=st.data())
def test_every_source_obeys_the_laws_of_sources(make: Callable[[pa.Table], Dataset[Any]], data: st.DataObject):
    table, epoch = data.draw(tables(COMPLETE)), data.draw(st.integers(0, 2))
    dataset = make(table)
    laws.assert_reads(dataset.source, epoch=epoch)
    laws.assert_value(dataset)
    laws.assert_repeatable(dataset, epoch=epoch)
    laws.assert_described(dataset, epoch=epoch)
    laws.assert_resumable(dataset, epoch=epoch)
    if dataset.indexable and table.num_rows > 1:
        indices = data.draw(st.lists(st.integers(0, table.num_rows - 2)))
        laws.assert_random_access(dataset, np.array(indices, np.int64), epoch=epoch)


@pytest.mark.parametrize("member", [member for member in MEMBERS if member.name.startswith("shuffle")], ids=lambda member: member.name)
@pytest.mark.parametrize("make", [from_table, lambda table: from_chunks(table.to_batches(max_chunksize=5))], ids=["table", "stream"])
def test_every_shuffle_is_a_permutation(member: Member, make: Callable[[pa.Table], Dataset[Any]]):
    buffer = {"buffer": 3} if "buffered" in member.name else {}
    laws.assert_shuffles(lambda seed: shuffle(seed=seed, **buffer), make(pa.table({"x": range(30)})))


@pytest.mark.parametrize(
    "stage", [shuffle(seed=0), skip(2), take(3), shard(1, 2), shard(0, 3, ends="drop"), shard(2, 3, ends="pad")], ids=repr
)
@given(table=tables(COMPLETE))
def test_rows_by_number_are_the_rows_of_the_stream(stage: Transform, table: pa.Table):
    chunks = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    laws.assert_same_items(stage(from_table(table)), stage(from_chunks(chunks)), epoch=1)


@given(table=tables(COMPLETE), depth=st.integers(1, 3), place=st.integers(1, 9))
def test_prefetching_changes_nothing_errors_included(table: pa.Table, depth: int, place: int):
    rows = pipe_half(from_table(table), 1)
    laws.assert_transparent(prefetch(depth), rows)
    laws.assert_transparent(prefetch(depth), batch(2)(map(FailsOn(place), schema=NUMBERS)(from_table(table))))


def test_select_takes_rows_by_number():
    rows = from_table({"x": range(9)})
    dataset = select([3, 0, 3])(rows)
    laws.assert_value(dataset)
    laws.assert_resumable(dataset)
    laws.assert_random_access(dataset, np.array([2, 0]))
    laws.assert_told_apart(dataset, select([3, 0, 2])(rows))
    laws.assert_refused(dataset, select([3, 0, 2])(rows))
