"""The laws of shapes: a plan pads as little as any, and the shapes that are stated are all that come out."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch
from mlxfp.data.lengths import shape_planning as shaping
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.lengths.shape_planning import ShapePlan, batch_shapes, group_sizes, shape_plan
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, PipelineError
from tests.data.token_rows import numbered, row_lengths

# ---- plans


def padded(lengths: Sequence[int], chosen: Sequence[int]) -> int:
    """Count the tokens of rows that are padded to the smallest of the chosen lengths that is enough."""
    return sum(min(each for each in chosen if each >= length) for length in lengths)


def assert_plan_pads_least(lengths: list[int], shapes: int, pad_multiple: int) -> None:
    """Law: no choice of as many lengths pads less; checked against all of them."""
    plan = shape_plan(lengths, shapes=shapes, pad_multiple=pad_multiple)
    assert len(plan.lengths) <= shapes
    assert list(plan.lengths) == sorted({each for each in plan.lengths if each % pad_multiple == 0})
    multiples = range(pad_multiple, max(*lengths, 1) + pad_multiple, pad_multiple)
    choices = (choice for count in range(1, shapes + 1) for choice in combinations(multiples, count) if choice[-1] >= max(lengths))
    least = min(padded(lengths, choice) for choice in choices)
    assert padded(lengths, plan.lengths) == least
    assert plan.padding == pytest.approx((least - sum(lengths)) / least)


rows = st.lists(st.integers(0, 14), min_size=1, max_size=12)


@given(rows, st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_no_other_lengths_pad_less_than_those_of_the_plan(lengths: list[int], shapes: int, pad_multiple: int):
    assert_plan_pads_least(lengths, shapes, pad_multiple)


def _evenly(distinct: Any, below: Any, shapes: int) -> Any:
    return np.unique(distinct[np.linspace(0, len(distinct) - 1, shapes + 1).astype(int)[1:]])


def _one_fewer(distinct: Any, below: Any, shapes: int) -> Any:
    return PLAN(distinct, below, max(1, shapes - 1))


PLAN = shaping._least_padded


@pytest.mark.parametrize("broken", [_evenly, _one_fewer])
def test_the_law_catches_a_plan_that_pads_more(monkeypatch: pytest.MonkeyPatch, broken: Any):
    case = [1, 1, 1, 1, 2, 9, 10, 14], 3, 1
    assert_plan_pads_least(*case)
    monkeypatch.setattr(shaping, "_least_padded", broken)
    with pytest.raises(AssertionError):
        assert_plan_pads_least(*case)


@given(rows, st.integers(1, 6))
def test_a_plan_with_one_length_more_pads_no_more(lengths: list[int], shapes: int):
    assert shape_plan(lengths, shapes=shapes + 1).padding <= shape_plan(lengths, shapes=shapes).padding


def test_as_many_shapes_as_lengths_pad_nothing():
    assert shape_plan([5, 3, 5, 8], shapes=3) == ShapePlan((3, 5, 8), 0.0)
    assert shape_plan(np.array([5, 3], np.uint8), shapes=8) == ShapePlan((3, 5), 0.0)
    assert shape_plan((length for length in [0, 0]), pad_multiple=4) == ShapePlan((4,), 1.0)


def test_a_plan_for_thousands_of_lengths_is_still_exact():
    lengths = np.random.default_rng(0).integers(1, 3000, 20_000)
    plan = shape_plan(lengths, shapes=4)
    assert plan.lengths[-1] == lengths.max()
    nudged = [tuple(each + (1 if place == at else 0) for at, each in enumerate(plan.lengths)) for place in range(3)]
    assert all(padded(lengths.tolist(), plan.lengths) <= padded(lengths.tolist(), other) for other in nudged)


def test_plans_of_nothing_are_refused():
    with pytest.raises(ArgumentError, match=r"shape_plan needs the lengths of at least one row, integers of at least 0, got array\(\["):
        shape_plan([])
    with pytest.raises(ArgumentError, match="integers of at least 0"):
        shape_plan([3, -1])
    with pytest.raises(ArgumentError, match="integers of at least 0"):
        shape_plan([1.5])  # type: ignore[list-item]  # the mistake under test
    with pytest.raises(ArgumentError, match="shapes must be at least 1"):
        shape_plan([1], shapes=0)


# ---- shapes


def found(dataset: Any) -> set[tuple[int, int]]:
    """Run a pipeline and collect the shapes of its batches."""
    return {batch["input_ids"].shape for batch in dataset}


groupings = st.one_of(
    st.builds(fp.batch_by_tokens, st.integers(16, 40), pad_multiple=st.sampled_from([1, 4]), max_size=st.none() | st.integers(1, 3)),
    st.builds(fp.bucket_by_length, st.just([3, 7, 13]), size=st.integers(1, 3), drop_last=st.booleans()),
    st.builds(fp.bucket_by_length, st.just([3, 7, 13]), tokens=st.integers(13, 30), drop_last=st.booleans()),
)
collators = st.one_of(
    st.builds(fp.collators.causal, pad_id=st.just(0), length=st.just(15)),
    st.builds(fp.collators.causal, pad_id=st.just(0), lengths=st.sampled_from([(2, 6, 12), (4, 15), (13,)])),
    st.builds(fp.collators.causal, pad_id=st.just(0), pad_multiple=st.sampled_from([1, 4, 8])),
)
alone = fp.drop_columns(["segment_ids", "positions"])  # collators without packed=True refuse these columns
before = st.sampled_from(
    [
        fp.compose(),
        fp.repeat(2),
        fp.windows(9),
        fp.windows(5, stride=2),
        fp.compose(fp.pack(12), alone),
        fp.compose(fp.pack(6, method="split"), alone),
        fp.take(3),
    ]
)


@given(row_lengths(), before, groupings, collators)
def test_every_shape_that_comes_out_was_stated(lengths: list[int], first: Any, grouping: Any, collator: Any):
    dataset = fp.pipe(fp.from_table(numbered(lengths)), first, grouping, fp.collate(collator))
    assert found(dataset) <= set(batch_shapes(dataset))


def test_the_law_catches_groups_that_keep_a_shape_to_themselves(monkeypatch: pytest.MonkeyPatch):
    dataset = fp.pipe(fp.from_table(numbered([3, 3, 3])), fp.bucket_by_length([3], size=2), fp.collate(fp.collators.causal(pad_id=0)))
    assert found(dataset) <= set(batch_shapes(dataset))
    monkeypatch.setattr("mlxfp.data.lengths.bucketing.group_sizes", lambda size, count, *, drop_last: (size,))
    assert not found(dataset) <= set(batch_shapes(dataset))


def test_full_buckets_alone_have_one_shape_each():
    group = fp.bucket_by_length([5, 9, 17], tokens=40, drop_last=True)
    dataset = fp.pipe(fp.from_table(numbered([4, 9, 17, 3] * 20)), group, fp.collate(fp.collators.causal(pad_id=0, lengths=[4, 8, 16])))
    assert batch_shapes(dataset) == ((2, 16), (4, 8), (8, 4)) == tuple(sorted(found(dataset)))


def test_lengths_that_do_not_fit_the_buckets_show_as_more_shapes():
    table, group = fp.from_table(numbered([4] * 9)), fp.bucket_by_length([4, 8], size=3, drop_last=True)
    assert batch_shapes(fp.pipe(table, group, fp.collate(fp.collators.causal(pad_id=0, lengths=[3, 7])))) == ((3, 3), (3, 7))
    assert batch_shapes(fp.pipe(table, group, fp.collate(fp.collators.causal(pad_id=0, lengths=[4, 8])))) == ((3, 4), (3, 8))
    assert batch_shapes(fp.pipe(table, group, fp.collate(fp.collators.causal(pad_id=0, lengths=[2, 6, 9])))) == ((3, 2), (3, 6), (3, 9))


def test_the_last_group_is_known_where_the_number_of_rows_is():
    assert group_sizes(4, 12, drop_last=False) == (4,)
    assert group_sizes(4, 3, drop_last=False) == (3,)
    assert group_sizes(4, 0, drop_last=False) == ()
    assert group_sizes(4, None, drop_last=True) == (4,)
    assert group_sizes(4, None, drop_last=False) == (4, 1, 2, 3)
    stages = fp.bucket_by_length([9], size=4), fp.collate(fp.collators.causal(pad_id=0, length=8))
    assert batch_shapes(fp.pipe(fp.from_table(numbered([5] * 6)), *stages)) == ((2, 8), (4, 8))
    assert batch_shapes(fp.pipe(fp.from_table(numbered([5] * 6)), fp.windows(9), *stages)) == ((1, 8), (2, 8), (3, 8), (4, 8))


def test_rows_of_windows_and_packs_have_a_length():
    group, collator = fp.bucket_by_length([100], size=2, drop_last=True), fp.collate(fp.collators.causal(pad_id=0, pad_multiple=4))
    assert batch_shapes(fp.pipe(fp.from_table(numbered([9])), fp.windows(9), group, collator)) == ((2, 4), (2, 8))
    assert batch_shapes(fp.pipe(fp.from_table(numbered([9])), fp.pack(5), group, collator)) == ((2, 4),)


def test_batches_of_tokenized_rows_have_the_lengths_that_their_multiple_allows():
    rows = fp.from_examples([{"text": "a cat " * count} for count in (1, 2, 5, 3, 2, 9)])
    ids = fp.tokenize(fp.train_tokenizer(rows, kind="wordpiece", vocab_size=20), max_length=8)
    dataset = fp.pipe(
        rows,
        ids,
        fp.shuffle(seed=0, buffer=2),
        fp.select_columns(["input_ids"]),
        batch(4),
        fp.collate(fp.collators.text(pad_id=0, pad_multiple=4)),
    )
    assert found(dataset) <= set(batch_shapes(dataset)) == {(4, 4), (4, 8), (2, 4), (2, 8)}
    kept = fp.pipe(
        rows,
        ids,
        fp.filter(lambda row: True),
        batch(4, drop_last=True),
        unbatch(),
        batch(3),
        fp.collate(fp.collators.text(pad_id=0, lengths=[6, 9])),
    )
    assert batch_shapes(kept) == ((1, 6), (1, 9), (2, 6), (2, 9), (3, 6), (3, 9))


def test_joined_datasets_have_the_shapes_of_each():
    table = fp.from_table(numbered([2, 2, 9]))
    group = fp.bucket_by_length([16], size=2, drop_last=True)
    short, long = (fp.pipe(table, fp.windows(length), group) for length in (5, 9))
    collator = fp.collate(fp.collators.causal(pad_id=0, pad_multiple=4))
    assert batch_shapes(fp.pipe(fp.concat([short, long]), collator)) == ((2, 4), (2, 8))
    assert batch_shapes(fp.concat([fp.pipe(short, collator), fp.pipe(long, fp.collate(fp.collators.causal(pad_id=0, length=12)))])) == (
        (2, 4),
        (2, 12),
    )
    rows = fp.pipe(fp.concat([fp.pipe(table, fp.windows(5)), fp.pipe(table, fp.windows(9))]), group, collator)
    assert batch_shapes(rows) == ((2, 4), (2, 8))
    assert batch_shapes(fp.pipe(fp.concat([fp.pipe(table, fp.windows(5)), table]), group, collator)) == ((2, 4), (2, 8), (2, 12), (2, 16))


@frozen(repr=False)
class _Pairs(fp.Stage):
    """A stage of a user's, which makes groups of two."""

    emits = "groups"

    def step(self, state: Any, chunk: RecordBatch) -> Any:
        return state, (chunk.slice(at, 2) for at in range(0, chunk.num_rows, 2))


@frozen(repr=False)
class _SameBatches(fp.Stage):
    """A stage of a user's, which passes batches on."""

    accepts = frozenset({"batches"})

    def step(self, state: Any, batch: Any) -> Any:
        return state, (batch,)


@frozen(repr=False)
class _Told(_Pairs):
    traits = fp.parts.Traits(groups=lambda count: (shaping.Groups((1, 2)),))


def test_parts_that_do_not_declare_shapes_are_run():
    table, group = fp.from_table(numbered([2, 3, 4])), fp.bucket_by_length([8], size=2)
    ours: Any = _Pairs()
    assert batch_shapes(fp.pipe(table, ours, fp.collate(fp.collators.causal(pad_id=0, length=4)))) == ((1, 4), (2, 4))
    assert batch_shapes(fp.pipe(table, ours, fp.collate(lambda rows: {"input_ids": mx.zeros((len(rows), 5))}))) == ((1, 5), (2, 5))
    padded = fp.pipe(table, group, fp.collate(fp.collators.causal(pad_id=0, length=4)))
    assert batch_shapes(_SameBatches()(padded)) == batch_shapes(padded) == ((1, 4), (2, 4))
    with pytest.raises(
        PipelineError, match=r"batch_shapes needs an array input_ids \[B, L\] in every batch, got none from .*<lambda>\. Rename"
    ):
        batch_shapes(fp.pipe(table, group, fp.collate(lambda examples: {})))
    with pytest.raises(PipelineError, match=r"batch_shapes needs finite data, .*Put take\(count\) before batch_shapes"):
        batch_shapes(fp.pipe(table, fp.repeat(None), ours, fp.collate(fp.collators.causal(pad_id=0, length=4))))


def test_batch_shapes_is_for_batches():
    table, group = fp.from_table(numbered([2, 3])), fp.bucket_by_length([4], size=2)
    with pytest.raises(
        PipelineError, match=r"batch_shapes needs batches, but the last stage bucket_by_length\(.* yields groups\. Add a stage collate"
    ):
        batch_shapes(fp.pipe(table, group))
    with pytest.raises(ArgumentTypeError, match="shapes works on a dataset, got int"):
        batch_shapes(3)  # type: ignore[arg-type]  # the mistake under test
    told: Any = _Told()
    assert batch_shapes(fp.pipe(table, told, fp.collate(fp.collators.causal(pad_id=0, length=4)))) == ((1, 4), (2, 4))


def test_shapes_without_end_say_what_to_do():
    told: Any = _Told()
    message = (
        r"These batches can have infinitely many shapes: rows can have any length, and causal\(pad_id=0, pad_multiple=8\) pads to "
        r"the longest row\. Use length= or lengths= of the collator, or tokenize\(max_length=\)"
    )
    with pytest.raises(PipelineError, match=message):
        batch_shapes(fp.pipe(fp.from_table(numbered([2])), told, fp.collate(fp.collators.causal(pad_id=0, pad_multiple=8))))


def test_the_rows_of_a_function_of_a_user_are_measured():
    told: Any = _Told()
    longer = fp.map(lambda row: {"input_ids": row["input_ids"] * 2})
    collator = fp.collate(fp.collators.causal(pad_id=0, pad_multiple=4))
    assert batch_shapes(fp.pipe(fp.from_table(numbered([2])), fp.windows(5), told, collator)) == ((1, 4), (2, 4))
    for stages in ((fp.windows(5), longer, told), (fp.windows(5), told, longer)):
        assert batch_shapes(fp.pipe(fp.from_table(numbered([2])), *stages, collator)) == ((1, 4), (2, 4))
        assert batch_shapes(fp.pipe(fp.from_table(numbered([5])), *stages, collator)) == ((1, 4), (1, 8), (1, 12), (2, 4), (2, 8), (2, 12))


def test_lengths_of_another_column_say_nothing():
    table = fp.from_table(numbered([2]).append_column("other", numbered([2])["input_ids"]))
    collator = fp.collate(fp.collators.causal(pad_id=0))
    for stage in (fp.batch_by_tokens(9, column="other"), fp.bucket_by_length([9], size=2, column="other")):
        with pytest.raises(PipelineError, match="infinitely many shapes"):
            batch_shapes(fp.pipe(table, stage, collator))
    told: Any = _Told()
    for rows in (fp.windows(5, column="other"), fp.pack(5, column="other")):
        with pytest.raises(PipelineError, match="infinitely many shapes"):
            batch_shapes(fp.pipe(table, rows, told, collator))
