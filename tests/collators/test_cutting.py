"""Batches cut from columns that are read once: the same as those made group by group."""

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.collators import cutting
from mlxfp.core.datasets import unoptimized
from mlxfp.core.nodes import children
from mlxfp.support.errors import DataError
from mlxfp.testing.comparing import same
from mlxfp.testing.laws import assert_plans_agree

COLLATORS = {
    "text": fp.collators.text(pad_id=0, label="y", carry=["name"], vocab_size=50),
    "text to lengths": fp.collators.text(pad_id=0, lengths=[4, 9], carry=["x"], label="y", label_kind="value"),
    "text on the left": fp.collators.text(pad_id=0, side="left", pad_multiple=4),
    "text, several labels": fp.collators.text(pad_id=0, label="ys"),
    "causal": fp.collators.causal(pad_id=0, vocab_size=50, carry=["name"]),
    "causal to a length": fp.collators.causal(pad_id=0, length=8),
    "causal, packed": fp.collators.causal(pad_id=0, packed=True),
    "masked, packed": fp.collators.masked(pad_id=0, mask_id=1, special_ids=[2], vocab_size=50, seed=3, rate=0.5, packed=True),
    "masked": fp.collators.masked(pad_id=0, mask_id=1, special_ids=[2], vocab_size=50, seed=3, rate=0.5),
}
GROUPINGS = {
    "batch": fp.batch(3),
    "batch, whole": fp.batch(4, drop_last=True),
    "by tokens": fp.batch_by_tokens(20),
    "buckets": fp.bucket_by_length([4, 9], size=2),
}


def rows_of(lengths, *, ids=50, labels=2):
    rng = np.random.default_rng(len(lengths))
    return [
        {
            "input_ids": rng.integers(3, ids, length).astype(np.int32),
            "segment_ids": np.sort(rng.integers(1, 3, length)).astype(np.int32),
            "positions": np.arange(length, dtype=np.int32),
            "y": int(rng.integers(labels)),
            "ys": [1, 0],
            "x": float(place),
            "name": f"row {place}",
        }
        for place, length in enumerate(lengths)
    ]


def without_unused(name, rows):
    """Rename columns of `pack` for collators that refuse to drop the columns."""
    return rows if "packed" in name else fp.pipe(rows, fp.rename_columns({"positions": "places"}))


def one_by_one(dataset):
    """Run every stage as it is written."""
    return unoptimized(dataset)


def cut(dataset):
    """Run the last two stages as one, as every iteration does."""
    assert dataset.plan.steps[-1].text == ", ".join(map(repr, dataset.stages[-2:]))
    return dataset


def items_and_error(dataset):
    items = []
    try:
        for item in dataset:
            items.append(item)  # noqa: PERF402  # those before an error are kept
    except DataError as error:
        return items, (str(error), [note for note in error.__notes__ if "collating" in note])
    return items, None


def assert_cut_alike(dataset):
    (found, error), (expected, known) = items_and_error(cut(dataset)), items_and_error(one_by_one(dataset))
    assert error == known
    assert same(found, expected)


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("name", COLLATORS)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=30), size=st.integers(1, 31))
def test_batches_are_those_of_the_groups_one_by_one(name, grouping, lengths, size):
    dataset = fp.pipe(
        without_unused(name, fp.from_table(table_of(rows_of(lengths), size))), GROUPINGS[grouping], fp.collate(COLLATORS[name])
    )
    assert_cut_alike(dataset)


@pytest.mark.parametrize("name", COLLATORS)
@given(lengths=st.lists(st.integers(0, 40), min_size=20, max_size=40), cells=st.sampled_from([1, 30, 200, 1000]))
def test_however_many_batches_are_laid_out_at_once(name, lengths, cells):
    with patch.object(cutting, "_CELLS", cells):
        assert_cut_alike(
            fp.pipe(without_unused(name, fp.from_table(table_of(rows_of(lengths), 40))), fp.batch(3), fp.collate(COLLATORS[name]))
        )


@pytest.mark.parametrize("grouping", GROUPINGS)
@given(data=st.data())
def test_cursors_mean_the_same_and_columns_that_no_collator_uses_are_not_read(grouping, data):
    lengths = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=9))
    some = st.sampled_from(
        [
            fp.shuffle(seed=1),
            fp.shuffle(seed=1, buffer=3),
            fp.rename_columns({"x": "z", "name": "x"}),
            fp.filter_by([("y", "==", 1)]),
            fp.repeat(2),
        ]
    )
    before = data.draw(st.lists(some, max_size=2, unique_by=repr))
    collator = data.draw(st.sampled_from([fp.collators.text(pad_id=0), fp.collators.text(pad_id=0, label="y"), COLLATORS["masked"]]))
    rows = without_unused("text", fp.from_table(table_of(rows_of(lengths), data.draw(st.integers(1, 9)))))
    dataset = fp.pipe(rows, *before, GROUPINGS[grouping], fp.collate(collator))
    assert_plans_agree(dataset)
    wanted = {"input_ids", *(["y"] if getattr(collator, "label", None) or any("filter_by" in repr(stage) for stage in before) else [])}
    if not any("buffer" in repr(stage) for stage in before):
        assert set(innermost(dataset.plan.source).schema().names) == wanted


def innermost(source):
    while children(source):
        (dataset,) = children(source)
        source = dataset.plan.source
    return source


def table_of(rows, size):
    table = pa.Table.from_pylist(rows).cast(schema())
    return pa.concat_tables([table.slice(at, size) for at in range(0, len(rows), size)])


def schema():
    ids = pa.list_(pa.int32())
    kinds = {"input_ids": ids, "segment_ids": ids, "positions": ids, "y": pa.int64(), "ys": pa.list_(pa.int64()), "x": pa.float64()}
    return pa.schema([*kinds.items(), ("name", pa.string())])


MISTAKES = {
    "an id outside the vocabulary": ("input_ids", [3, 51]),
    "a row without tokens": ("input_ids", None),
    "a row that is too long": ("input_ids", [3] * 12),
    "a label that is missing": ("y", None),
    "labels of another length": ("ys", [1]),
    "a name that is missing": ("name", None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", COLLATORS)
@given(place=st.integers(0, 19))
def test_a_mistake_is_named_when_its_group_comes(name, mistake, place):
    rows = rows_of([4] * 20)
    column, value = MISTAKES[mistake]
    rows[place][column] = value
    assert_cut_alike(fp.pipe(without_unused(name, fp.from_iterable(rows, schema=schema())), fp.batch(3), fp.collate(COLLATORS[name])))


def test_rows_that_only_differ_between_groups_are_no_mistake():
    rows = [row | {"ys": [1] * (1 + place // 2)} for place, row in enumerate(rows_of([2] * 6))]
    dataset = fp.pipe(
        without_unused("text", fp.from_iterable(rows, schema=schema())), fp.batch(2), fp.collate(fp.collators.text(pad_id=0, label="ys"))
    )
    assert [item["labels"].shape for item in cut(dataset)] == [(2, 1), (2, 2), (2, 3)]
    assert_cut_alike(dataset)


def test_the_comparison_catches_batches_of_other_rows():
    dataset = fp.pipe(
        without_unused("text", fp.from_iterable(rows_of([4] * 8), schema=schema())), fp.batch(2), fp.collate(fp.collators.text(pad_id=0))
    )
    expected, shifted = list(one_by_one(dataset)), list(cut(dataset))[1:]
    assert not same(shifted, expected[:-1])


def test_groups_say_where_they_are_cut():
    chunk = pa.record_batch({"x": list(range(10))})
    state, cuts = fp.batch(4).cut(None, chunk)
    assert [(rows.num_rows, list(pairwise(ends))) for rows, ends in cuts] == [(8, [(0, 4), (4, 8)])]
    assert state.column("x").to_pylist() == [8, 9]
