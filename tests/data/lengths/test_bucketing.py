"""The laws of groups by length: no row lost or doubled, budgets kept, one shape a bucket."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.ragged import ends_of
from mlxfp.core.execution import run as chunks_of
from mlxfp.core.execution import start
from mlxfp.data.lengths import bucketing
from mlxfp.data.lengths.index_plans import IndexPlan
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from tests.data.token_rows import Chunks, assert_obeys, chunkings, numbered, rows_of, run

Groups = list[list[int]]  # which rows each group has


def groups_of(chunks: Chunks, stage: Any) -> Groups:
    """Run rows through a stage and say which rows each group has."""
    return [fp.parts.source_rows(group).tolist() for group, _ in chunks_of(stage(from_chunks(chunks)), start(0, None))]


def budgets() -> st.SearchStrategy[dict[str, Any]]:
    """Make arguments of `batch_by_tokens` that have room for 12 tokens."""
    return st.fixed_dictionaries(
        {"tokens": st.integers(12, 40), "pad_multiple": st.sampled_from([1, 3, 4]), "max_size": st.none() | st.integers(1, 3)}
    )


def padded_size(lengths: list[int], pad_multiple: int) -> int:
    """Count the tokens of a group, padding included."""
    return len(lengths) * max(max(1, -(-length // pad_multiple)) * pad_multiple for length in lengths)


def assert_fills_the_budget(chunks: Chunks, asked: dict[str, Any]) -> None:
    """Law: groups hold the rows in order, stay within the budget, and end only where the next row would not fit."""
    lengths, groups = [len(row) for row in rows_of(chunks)], groups_of(chunks, fp.batch_by_tokens(**asked))
    assert [row for group in groups for row in group] == list(range(len(lengths)))

    def fits(rows: list[int]) -> bool:
        within = padded_size([lengths[row] for row in rows], asked["pad_multiple"]) <= asked["tokens"]
        return within and len(rows) <= (asked["max_size"] or len(rows))

    assert all(map(fits, groups))
    assert not any(fits([*group, group[-1] + 1]) for group in groups[:-1])


@given(chunkings(), budgets())
def test_groups_take_as_many_rows_as_the_budget_has_room_for(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_fills_the_budget(cut[0], asked)


@given(chunkings(), budgets())
def test_groups_by_tokens_obey_the_laws_of_stages(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_obeys(fp.batch_by_tokens(**asked), *cut)
    laws.assert_lazy(fp.batch_by_tokens(**asked), cut[0], ahead=1)


@st.composite
def buckets(draw: st.DrawFn) -> dict[str, Any]:
    """Make arguments of `bucket_by_length` that take rows of up to 12 tokens."""
    lengths = sorted({*draw(st.lists(st.integers(1, 11), max_size=3)), 12})
    budget = draw(st.sampled_from([{"size": 1}, {"size": 2}, {"size": 3}, {"tokens": 12}, {"tokens": 30}]))
    return {"lengths": lengths, "drop_last": draw(st.booleans()), **budget}


def expected(lengths: list[int], asked: dict[str, Any]) -> Groups:
    """Fill buckets row by row; at the end, fill groups with what is left, longest first."""
    bounds = asked["lengths"]
    sizes = {bound: asked.get("size") or asked["tokens"] // bound for bound in bounds}
    waiting: dict[int, list[int]] = {bound: [] for bound in bounds}
    groups: Groups = []
    for row, length in enumerate(lengths):
        bound = min(each for each in bounds if each >= length)
        waiting[bound].append(row)
        if len(waiting[bound]) == sizes[bound]:
            groups.append(waiting[bound])
            waiting[bound] = []
    left = sorted((row for rows in waiting.values() for row in rows), key=lambda row: (-lengths[row], row))
    while left:
        size = sizes[min(each for each in bounds if each >= lengths[left[0]])]
        groups += [left[:size]] if len(left) >= size or not asked["drop_last"] else []
        left = left[size:]
    return groups


def assert_buckets_as_a_loop(chunks: Chunks, asked: dict[str, Any]) -> None:
    found = groups_of(chunks, fp.bucket_by_length(**asked))
    assert found == expected([len(row) for row in rows_of(chunks)], asked)


@given(chunkings(), buckets())
def test_groups_are_those_that_a_loop_fills(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_buckets_as_a_loop(cut[0], asked)


@given(chunkings(), buckets())
def test_buckets_obey_the_laws_of_stages(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_obeys(fp.bucket_by_length(**asked), *cut)


def assert_one_shape_a_bucket(chunks: Chunks, asked: dict[str, Any]) -> None:
    """Law: every group but the last has the number of rows of the bucket that its longest row belongs to; no row is lost but at the end."""
    lengths, groups = [len(row) for row in rows_of(chunks)], groups_of(chunks, fp.bucket_by_length(**asked))
    sizes = {bound: asked.get("size") or asked["tokens"] // bound for bound in asked["lengths"]}
    full = [len(group) == sizes[min(each for each in sizes if each >= max(lengths[row] for row in group))] for group in groups]
    assert all(full if asked["drop_last"] else full[:-1])
    rows = sorted(row for group in groups for row in group)
    assert len(set(rows)) == len(rows)
    lost = len(lengths) - len(rows)
    assert lost < max(sizes.values()) if asked["drop_last"] else not lost


@given(chunkings(), buckets())
def test_every_group_has_the_shape_of_a_bucket(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_one_shape_a_bucket(cut[0], asked)


def test_the_law_catches_groups_that_forget_the_padding(monkeypatch: pytest.MonkeyPatch):
    chunks, asked = tuple(numbered([1, 4, 1, 1, 5, 2]).to_batches(max_chunksize=2)), {"tokens": 12, "pad_multiple": 4, "max_size": None}
    assert_fills_the_budget(chunks, asked)
    plain = bucketing._BatchByTokens._starts

    def without_padding(self: Any, rows: Any) -> Any:
        return plain(bucketing._BatchByTokens(self.tokens), rows)

    monkeypatch.setattr(bucketing._BatchByTokens, "_starts", without_padding)
    with pytest.raises(AssertionError):
        assert_fills_the_budget(chunks, asked)


def test_the_law_catches_a_last_group_that_is_lost(monkeypatch: pytest.MonkeyPatch):
    chunks, asked = tuple(numbered([1, 4, 1]).to_batches()), {"tokens": 12, "pad_multiple": 1, "max_size": None}
    monkeypatch.setattr(bucketing._BatchByTokens, "finish", lambda self, rest: ())
    with pytest.raises(AssertionError):
        assert_fills_the_budget(chunks, asked)


def _in_order_of_buckets(self: Any, rest: Any, chunk: Any) -> Any:
    """Give out the groups of a chunk bucket by bucket."""
    after, groups = STEP(self, rest, chunk)
    return after, sorted(groups, key=lambda group: group.column("input_ids").value_lengths().to_pylist())


def _each_bucket_for_itself(self: Any, lengths: Any) -> IndexPlan:
    """Return a short group of every bucket."""
    buckets = np.searchsorted(self.lengths, lengths)
    return IndexPlan(np.argsort(buckets, kind="stable"), ends_of(np.unique(buckets, return_counts=True)[1]))


STEP = bucketing._BucketByLength.step


def test_the_law_catches_groups_in_an_order_that_chunks_decide(monkeypatch: pytest.MonkeyPatch):
    table, stage = numbered([9, 9, 1, 1, 9, 9]), fp.bucket_by_length([4, 9], size=2)
    laws.assert_chunks_do_not_matter(stage, table.to_batches(), table.to_batches(max_chunksize=1))
    monkeypatch.setattr(bucketing._BucketByLength, "step", _in_order_of_buckets)
    with pytest.raises(AssertionError):
        laws.assert_chunks_do_not_matter(stage, table.to_batches(), table.to_batches(max_chunksize=1))


def test_the_law_catches_more_than_one_short_group(monkeypatch: pytest.MonkeyPatch):
    chunks, asked = tuple(numbered([9, 1, 1, 1, 9]).to_batches()), {"lengths": [4, 9], "size": 4, "drop_last": False}
    assert_one_shape_a_bucket(chunks, asked)
    monkeypatch.setattr(bucketing._BucketByLength, "_leftover_groups", _each_bucket_for_itself)
    with pytest.raises(AssertionError):
        assert_one_shape_a_bucket(chunks, asked)


def test_the_size_of_a_group_adapts_to_its_longest_row():
    assert [len(group) for group in run(fp.batch_by_tokens(12), [3, 3, 4, 6, 6, 12])] == [3, 2, 1]
    assert [len(group) for group in run(fp.batch_by_tokens(12, pad_multiple=4), [3, 3, 4, 6, 6, 12])] == [3, 1, 1, 1]
    assert [len(group) for group in run(fp.batch_by_tokens(12, max_size=2), [3, 3, 4, 6])] == [2, 2]


def test_a_bucket_comes_out_when_it_is_full_and_the_rest_at_the_end():
    chunks = tuple(numbered([2, 9, 3, 1, 8, 2, 9, 1]).to_batches())
    assert groups_of(chunks, fp.bucket_by_length([4, 9], size=3)) == [[0, 2, 3], [1, 4, 6], [5, 7]]
    assert groups_of(chunks, fp.bucket_by_length([4, 9], tokens=9)) == [[1], [0, 2], [4], [3, 5], [6], [7]]


def test_rows_that_are_left_fill_up_the_groups_of_longer_ones():
    chunks = tuple(numbered([2, 9, 3, 1]).to_batches())
    assert groups_of(chunks, fp.bucket_by_length([4, 9], size=4)) == [[1, 2, 0, 3]]
    assert groups_of(chunks, fp.bucket_by_length([4, 9], size=3, drop_last=True)) == [[0, 2, 3]]


@given(st.integers(0, 20), st.integers(1, 5), st.booleans())
def test_the_number_of_groups_is_known_where_all_have_one_size(count: int, size: int, drop_last: bool):
    dataset = fp.pipe(fp.from_table(numbered([1, 5] * count)), fp.bucket_by_length([2, 7], size=size, drop_last=drop_last))
    assert fp.length(dataset) == len(list(dataset))
    assert fp.length(fp.pipe(from_chunks(numbered([1, 5]).to_batches()), fp.bucket_by_length([2, 7], tokens=9))) is None


def test_fewer_rows_are_held_than_the_buckets_have_room_for():
    stage: Any = fp.bucket_by_length([2, 7, 20], tokens=20)
    assert stage.sizes == (10, 2, 1)
    assert "holds fewer than 13 rows" in stage.traits.notes()
    state = stage.start(0)
    for chunk, _ in chunks_of(fp.from_table(numbered([1, 2, 5, 20] * 30)), start(0, None)):
        state, _ = stage.step(state, chunk)
        assert state.num_rows < 13


def test_groups_keep_all_columns_and_the_table_may_go_on_behind_them():
    (group,) = run(fp.bucket_by_length([4], size=2), [1, 3])
    assert list(group) == [{"input_ids": [0], "mask": [True]}, {"input_ids": [1, 2, 3], "mask": [False, False, True]}]
    rows = fp.pipe(fp.from_table(numbered([1, 3, 4, 2])), fp.bucket_by_length([4], size=2), fp.skip(1))
    assert [len(row["input_ids"]) for group in rows for row in group] == [4, 2]


def test_stages_print_as_they_are_called():
    assert repr(fp.batch_by_tokens(8)) == "batch_by_tokens(tokens=8)"
    laws.assert_prints(fp.batch_by_tokens(8, pad_multiple=2, max_size=3, column="ids"), {"batch_by_tokens": fp.batch_by_tokens})  # type: ignore[arg-type]  # a stage at run time
    assert repr(fp.bucket_by_length([2, 4], size=3)) == "bucket_by_length(lengths=(2, 4), size=3)"
    laws.assert_prints(fp.bucket_by_length([2, 4], tokens=9, drop_last=True), {"bucket_by_length": fp.bucket_by_length})  # type: ignore[arg-type]  # a stage at run time


def test_a_row_that_does_not_fit_is_named():
    message = (
        r"batch_by_tokens: source row 2 takes 12 tokens with padding, more than the budget of tokens=10\. "
        r"Truncate with tokenize\(max_length=\.\.\.\), or increase tokens"
    )
    with pytest.raises(DataError, match=message):
        run(fp.batch_by_tokens(10, pad_multiple=4), [1, 8, 9])
    message = (
        r"bucket_by_length: source row 1 has 9 tokens, more than the last of the lengths, 8\. "
        r"Truncate with tokenize\(max_length=8\), or add a larger length"
    )
    with pytest.raises(DataError, match=message):
        run(fp.bucket_by_length([4, 8], size=2), [1, 9])


def test_columns_are_checked_before_any_row():
    rows = fp.from_examples([{"text": "a"}])
    for stage, name in ((fp.batch_by_tokens(9), "batch_by_tokens"), (fp.bucket_by_length([9], size=1), "bucket_by_length")):
        with pytest.raises(SchemaError, match=f"{name} needs the column 'input_ids', which is missing"):
            _ = stage(rows).resolved


def test_arguments_that_cannot_work_are_refused_at_once():
    with pytest.raises(ArgumentError, match="tokens must be at least 1"):
        fp.batch_by_tokens(0)
    with pytest.raises(ArgumentError, match="tokens=4 is too small for an example padded to pad_multiple=8"):
        fp.batch_by_tokens(4, pad_multiple=8)
    with pytest.raises(ArgumentError, match="max_size must be at least 1"):
        fp.batch_by_tokens(4, max_size=0)
    with pytest.raises(ArgumentError, match="bucket_by_length takes either size or tokens, got size=None and tokens=None"):
        fp.bucket_by_length([4])
    with pytest.raises(ArgumentError, match="bucket_by_length takes either size or tokens, got size=2 and tokens=8"):
        fp.bucket_by_length([4], size=2, tokens=8)
    with pytest.raises(ArgumentError, match=r"tokens=3 is too small for an example of 4 tokens, the last of lengths"):
        fp.bucket_by_length([2, 4], tokens=3)
    with pytest.raises(ArgumentError, match=r"lengths must contain at least one length to pad to, got \[\]"):
        fp.bucket_by_length([], size=1)
    with pytest.raises(ArgumentError, match=r"lengths must be in strictly ascending order, got \[4, 4\]"):
        fp.bucket_by_length([4, 4], size=1)
    with pytest.raises(ArgumentError, match=r"lengths\[0\] must be at least 1"):
        fp.bucket_by_length([0, 4], size=1)
    with pytest.raises(ArgumentTypeError, match=r"lengths\[1\] must be an int"):
        fp.bucket_by_length([1, 4.5], size=1)  # type: ignore[list-item]  # the mistake under test
