"""Batches of columns whose rows have one size: gathered batch by batch, they are those of the stages as they were written."""

import pickle
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.datasets import unoptimized
from mlxfp.data import row_views
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing.comparing import same
from mlxfp.testing.laws import assert_plans_agree

NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
BEFORE = {
    "nothing": [],
    "shuffle": [fp.shuffle(seed=1)],
    "load, shuffle": [fp.load(), fp.shuffle(seed=1)],
    "select": [fp.select([3, 0, 0, 2])],
    "shuffle, take, skip": [fp.shuffle(seed=1), fp.take(9, redraw=True), fp.skip(2, redraw=True)],
    "split, shuffle": [lambda data: fp.split([0.7, 0.3], seed=0)(data)[0], fp.shuffle(seed=2)],
    "shuffle, repeat": [fp.shuffle(seed=1), fp.repeat(2)],
    "shuffle of some": [fp.filter_by([("label", "<", 3)]), fp.shuffle(seed=0)],
    "shuffle by a buffer": [fp.shuffle(seed=0, buffer=4)],
}


def late(dataset):
    """Whether the rows are gathered batch by batch."""
    return any("gather the rows" in line for line in dataset.plan.rewrites)


@st.composite
def columns(draw, rows):
    """Draw columns of numbers and tensors of any dtype, as numpy arrays."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    found = {"label": rng.integers(0, 4, rows)}
    for name in draw(st.lists(st.sampled_from("abc"), max_size=2, unique=True)):
        shape = draw(st.sampled_from([(), (1,), (3,), (2, 3), (2, 2, 3)]))
        found[name] = rng.integers(0, 100, (rows, *shape)).astype(draw(st.sampled_from(NUMBERS)))
    return found


def in_pieces(made, sizes):
    """Cut a table to chunks of these sizes, and the rest."""
    ends = [0, *np.minimum(np.cumsum(sizes), len(made)), len(made)]
    return pa.concat_tables([made.slice(first, stop - first) for first, stop in pairwise(ends)])


@pytest.mark.parametrize("before", BEFORE)
@given(data=st.data())
def test_batches_and_cursors_are_those_of_the_stages_as_written(before, data):
    made = fp.from_table(data.draw(columns(data.draw(st.integers(4, 14))))).source.table
    pieces = in_pieces(made, data.draw(st.lists(st.integers(1, 6), max_size=3)))
    grouping = fp.batch(data.draw(st.integers(1, 6)), drop_last=data.draw(st.booleans()))
    dataset = fp.pipe(fp.from_table(pieces), *BEFORE[before], grouping, fp.collate(fp.collators.default()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_views, "CHUNK_ROWS", data.draw(st.sampled_from([1, 5, 4096])))
        assert_plans_agree(dataset, epoch=data.draw(st.integers(0, 1)))


@pytest.mark.parametrize("before", ["shuffle", "load, shuffle", "select", "shuffle, take, skip", "split, shuffle", "shuffle, repeat"])
def test_rows_of_a_table_in_memory_are_gathered_batch_by_batch(before):
    rows = fp.from_table({"x": np.zeros((12, 2), np.float32), "label": np.arange(12)})
    assert late(fp.pipe(rows, *BEFORE[before], fp.batch(4), fp.collate(fp.collators.default())))


def test_rows_that_a_stage_changes_or_that_others_watch_are_not():
    rows = fp.pipe(fp.from_table({"x": np.zeros((12, 2), np.float32)}), fp.shuffle(seed=0))
    batches = fp.pipe(rows, fp.batch(4), fp.collate(fp.collators.default()))
    assert late(batches)
    assert not late(unoptimized(batches))
    assert not late(fp.pipe(rows, fp.map(lambda row: {"y": 1}), fp.batch(4), fp.collate(fp.collators.default())))
    assert not late(fp.pipe(rows, fp.batch(4), fp.collate(lambda group: {"x": mx.array(len(group))})))
    assert not late(fp.pipe(fp.from_table({"x": ["a", "b"]}), fp.shuffle(seed=0), fp.batch(2), fp.collate(fp.collators.default())))


@pytest.mark.parametrize(
    "collator",
    [
        fp.collators.vision(label="label", classes=4),
        fp.collators.vision(label="label", normalization=fp.collators.NORMALIZATIONS["mnist"], carry=["weight"]),
        fp.collators.vision(mode="rgb", size=(3, 5)),
        fp.collators.vision(label="weight", label_kind="value"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_images_are_those_of_the_stages_as_written(collator, kind):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (11, 4, 6)).astype(kind) / (1 if kind is np.uint8 else np.float32(255))
    rows = fp.from_table({"image": images.astype(kind), "label": rng.integers(0, 4, 11), "weight": rng.random(11)})
    for dataset in (rows, fp.pipe(rows, fp.shuffle(seed=0))):
        batches = fp.pipe(dataset, fp.batch(4), fp.collate(collator))
        assert late(batches) == (dataset is not rows)
        assert_plans_agree(batches)


OF_TOKENS = {
    "plain": fp.collators.causal(pad_id=7, vocab_size=100),
    "to a length": fp.collators.causal(pad_id=7, length=9),
    "on the left": fp.collators.causal(pad_id=7, pad_multiple=4, side="left", ignore_index=-1),
    "every column": fp.collators.default(),
    "every column, padded": fp.collators.default(pad_id=-1, pad_multiple=4),
}
LISTS = {
    "lists": pa.list_(pa.int32()),
    "lists of 64 bits": pa.large_list(pa.int64()),
    "lists of bytes": pa.list_(pa.uint8()),
    "lists of one size": pa.list_(pa.int32(), 5),
}


@pytest.mark.parametrize("kind", LISTS)
@settings(max_examples=10)
@given(name=st.sampled_from([*OF_TOKENS]), data=st.data())
def test_tokens_are_those_of_the_stages_as_written(kind, name, data):
    even = kind == "lists of one size" or data.draw(st.booleans())
    lengths = [5 if kind == "lists of one size" else data.draw(st.integers(1, 9))] * 12 if even else range(12 - 3)
    rows = [[(3 * place + token) % 50 for token in range(length)] for place, length in enumerate(lengths)]
    made = in_pieces(pa.table({"input_ids": pa.array(rows, LISTS[kind])}), data.draw(st.lists(st.integers(1, 6), max_size=2)))
    dataset = fp.pipe(fp.from_table(made), fp.shuffle(seed=0), fp.batch(data.draw(st.integers(1, 6))), fp.collate(OF_TOKENS[name]))
    assert late(dataset)
    assert_plans_agree(dataset)


def test_tokens_with_other_columns_are_not_gathered_batch_by_batch():
    rows = fp.pipe(fp.from_table({"input_ids": [[1, 2], [3, 4]], "other": [[True, False]] * 2}), fp.shuffle(seed=0), fp.batch(2))
    assert late(fp.pipe(rows, fp.collate(fp.collators.causal(pad_id=0))))
    assert not late(fp.pipe(rows, fp.collate(fp.collators.causal(pad_id=0, prompt_mask="other"))))


MISTAKES = {
    "an id outside the vocabulary": (
        {"input_ids": [[1, 2], [3, 4], [5, 6], [7, 12], [1, 1], [2, 2]]},
        fp.collators.causal(pad_id=0, vocab_size=10),
    ),
    "a list of numbers beyond 32 bits": ({"x": [[1, 2], [3, 4], [5, 6], [7, 2**40], [1, 1], [2, 2]]}, fp.collators.default()),
    "ids beyond 32 bits": ({"input_ids": [[1, 2], [3, 4], [5, 6], [7, 2**40], [1, 1], [2, 2]]}, fp.collators.causal(pad_id=0)),
    "rows that are too long": ({"input_ids": [[1, 2, 3, 4]] * 6}, fp.collators.causal(pad_id=0, length=2)),
    "a null": ({"x": pa.array([1, 2, 3, None, 5, 6])}, fp.collators.default()),
    "a number beyond 32 bits": ({"x": np.array([0, 1, 2, 2**40, 4, 5])}, fp.collators.default()),
    "a float beyond 32 bits": ({"x": np.array([0, 1, 2, 1e300, 4, 5])[:, None]}, fp.collators.default()),
    "a class outside": (
        {"image": np.zeros((6, 2, 2), np.uint8), "label": np.array([0, 1, 0, 7, 1, 0])},
        fp.collators.vision(label="label", classes=2),
    ),
    "half a class": ({"image": np.zeros((6, 2, 2), np.uint8), "label": np.array([0, 1, 0, 0.5, 1, 0])}, fp.collators.vision(label="label")),
    "an image without pixels as numbers": ({"image": np.zeros((6, 2, 2), np.int16)}, fp.collators.vision()),
    "images of five channels": ({"image": np.zeros((6, 2, 2, 5), np.uint8)}, fp.collators.vision()),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_when_its_group_comes(mistake):
    held, collator = MISTAKES[mistake]
    dataset = fp.pipe(fp.from_table(held), fp.select([0, 1, 2, 3, 4, 5]), fp.batch(2), fp.collate(collator))
    assert late(dataset)
    (found, error), (expected, known) = outcome(dataset), outcome(unoptimized(dataset))
    assert same(found, expected)
    assert error == known
    assert known is not None


def outcome(dataset):
    items = []
    try:
        for item in dataset:
            items.append(item)  # noqa: PERF402  # those before an error are kept
    except (DataError, SchemaError) as error:
        return items, (type(error), str(error), [note for note in error.__notes__ if "collating" in note])
    return items, None


def test_batches_keep_their_values_though_the_memory_they_are_gathered_in_is_used_again():
    rows = fp.pipe(
        fp.from_table({"x": np.arange(48).reshape(12, 4).astype(np.float32), "y": np.arange(12, dtype=np.int32)}), fp.select(range(12))
    )
    batches = list(fp.pipe(rows, fp.batch(4), fp.collate(fp.collators.default())))
    assert [item["y"].tolist() for item in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert np.array_equal(np.concatenate([np.array(item["x"]) for item in batches]), np.arange(48).reshape(12, 4))


def test_a_dataset_that_has_run_can_be_pickled():
    dataset = fp.pipe(
        fp.from_table({"x": np.arange(12, dtype=np.int32)}), fp.shuffle(seed=0), fp.batch(4), fp.collate(fp.collators.default())
    )
    items = list(dataset)
    assert late(dataset)
    assert same(list(pickle.loads(pickle.dumps(dataset))), items)


def test_columns_of_files_are_left_out_as_before(tmp_path):
    pq.write_table(pa.table({"x": range(6), "y": range(6)}), tmp_path / "a.parquet")
    dataset = fp.pipe(
        fp.read_parquet(tmp_path / "a.parquet"),
        fp.shuffle(seed=0),
        fp.select_columns(["x"]),
        fp.batch(2),
        fp.collate(fp.collators.default()),
    )
    assert not late(dataset)
    assert_plans_agree(dataset)
    rows = fp.pipe(
        fp.read_parquet(tmp_path / "a.parquet"),
        fp.load(),
        fp.select_columns(["x"]),
        fp.shuffle(seed=0),
        fp.batch(2),
        fp.collate(fp.collators.default()),
    )
    assert [set(item) for item in rows] == [{"x"}] * 3
    assert_plans_agree(rows)


def test_two_runs_of_one_dataset_have_memory_of_their_own():
    rows = fp.pipe(fp.from_table({"x": np.arange(24, dtype=np.int32)}), fp.shuffle(seed=0))
    dataset = fp.pipe(rows, fp.batch(4), fp.collate(fp.collators.default()))
    both = [(a["x"].tolist(), b["x"].tolist()) for (a, _), (b, _) in zip(fp.iterate(dataset), fp.iterate(dataset, epoch=1), strict=True)]
    assert both == list(zip(*([i["x"].tolist() for i, _ in fp.iterate(dataset, epoch=epoch)] for epoch in (0, 1)), strict=True))
    assert same(list(fp.pipe(dataset, fp.prefetch(2))), list(dataset))


def test_data_that_is_loaded_is_not_read_to_make_a_plan():
    def never(row):
        raise AssertionError(row)

    rows = fp.pipe(fp.from_examples([{"x": 1}] * 6), fp.map(never, schema=pa.schema({"x": pa.int64()})), fp.load(), fp.shuffle(seed=0))
    assert late(fp.pipe(rows, fp.batch(2), fp.collate(fp.collators.default())))


def test_a_table_without_rows_gives_no_batches():
    dataset = fp.pipe(
        fp.from_table(pa.table({"x": pa.array([], pa.int32())})), fp.shuffle(seed=0), fp.batch(2), fp.collate(fp.collators.default())
    )
    assert late(dataset)
    assert list(dataset) == []


@settings(max_examples=15)
@given(st.lists(st.integers(1, 9), max_size=5), st.sampled_from([1, 1000, 20_000]), st.integers(1, 7))
def test_rows_of_many_chunks_are_gathered_for_several_batches(sizes, width, size):
    values = np.arange(200 * width, dtype=np.int32).reshape(200, width)  # up to 16 MB, of which 1 MB is gathered at once
    table = in_pieces(pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(values)}), sizes)
    dataset = fp.pipe(fp.from_table(table), fp.shuffle(seed=0), fp.batch(size), fp.collate(fp.collators.default()))
    assert late(dataset)
    assert same(list(dataset), list(unoptimized(dataset)))
