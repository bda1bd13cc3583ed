"""Packing and grouping by index: the same items as on a stream, with a length, random access and shuffling afterwards."""

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.datasets import with_hooks
from mlxfp.core.nodes import children
from mlxfp.core.running.steps import Hooks
from mlxfp.core.sources import take_task
from mlxfp.data.lengths.index_plans import Planned
from mlxfp.support.errors import PipelineError
from mlxfp.testing import laws
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.probing import from_chunks
from tests.data.lengths.test_packing import settings
from tests.data.token_rows import chunkings

LENGTHS = [3, 0, 7, 12, 1, 5, 2, 9, 4, 4, 6, 1, 8, 3, 2]
DOCUMENTS = fp.from_examples([{"input_ids": list(range(count)), "number": number} for number, count in enumerate(LENGTHS)])
STREAM = fp.filter(lambda row: True)(DOCUMENTS)


@frozen(eq=False)
class Logged(Hooks):
    """Hooks that log the number of rows of each task of a source without inner datasets."""

    log: list[int] = field(kw_only=True)

    def source(self, source):
        calls = super().source(source)
        return calls if children(source) else evolve(calls, task=self.task)

    def task(self, epoch, indices):
        self.log.append(len(indices))
        return take_task(DOCUMENTS.source, epoch, indices)


@given(chunkings(longest=15), settings())
def test_rows_by_index_are_the_rows_of_a_stream(cut, asked):
    stage = fp.pack(**asked, aligned=["mask"])
    by_index = collect(stage(fp.from_table(pa.Table.from_batches(cut[0]))), epoch=2)
    streamed = collect(stage(from_chunks(cut[0])), epoch=2)
    assert by_index.equals(streamed)


def numbers(group):
    """Return the numbers of the documents of a group."""
    return group.column("number").to_pylist()


@st.composite
def buckets(draw):
    """Make arguments of `bucket_by_length` for rows of up to 15 tokens."""
    size = draw(st.integers(1, 4))
    return {"drop_last": draw(st.booleans()), **({"tokens": 15 * size} if draw(st.booleans()) else {"size": size})}


@given(chunkings(longest=15), buckets())
def test_groups_by_index_are_the_groups_of_a_stream(cut, asked):
    stage = fp.bucket_by_length([2, 7, 15], **asked)
    by_index, streamed = stage(fp.from_table(pa.Table.from_batches(cut[0]))), stage(from_chunks(cut[0]))
    assert [list(group) for group in by_index] == [list(group) for group in streamed]
    assert len(by_index) == sum(1 for _ in streamed)
    assert list(fp.pipe(by_index, fp.unbatch())) == list(fp.pipe(streamed, fp.unbatch()))


@pytest.mark.parametrize("asked", [{"size": 4}, {"size": 4, "drop_last": True}, {"tokens": 24}], ids=["size", "drop_last", "tokens"])
def test_groups_have_random_access_and_can_be_shuffled_and_divided(asked):
    groups = fp.pipe(DOCUMENTS, fp.bucket_by_length([4, 12], **asked))
    shuffled = fp.pipe(groups, fp.shuffle(seed=1))
    assert numbers(shuffled[1]) == numbers(list(shuffled)[1])
    assert [numbers(group) for group in shuffled[1:3]] == [numbers(group) for group in shuffled][1:3]
    assert sorted(numbers(group) for group in shuffled) == sorted(numbers(group) for group in groups)
    divided = [numbers(group) for index in range(2) for group in fp.pipe(shuffled, fp.shard(index, 2))]
    assert sorted(divided) == sorted(numbers(group) for group in groups)
    assert [weight for group in fp.pipe(groups, fp.shard(1, 2, ends="pad")) for weight in set(group.column("weight").to_pylist())].count(
        0
    ) == len(groups) % 2
    for dataset in (groups, shuffled, fp.pipe(groups, fp.shard(1, 2)), fp.pipe(groups, fp.skip(1)), fp.pipe(shuffled, fp.map(dict))):
        assert len(dataset) == len(list(dataset))
        laws.assert_resumable(dataset)
        laws.assert_value(dataset)
        laws.assert_repeatable(dataset, epoch=1)
        laws.assert_plans_agree(dataset)


def test_rows_of_shuffled_groups_have_random_access():
    rows = fp.pipe(DOCUMENTS, fp.bucket_by_length([4, 12], tokens=24), fp.shuffle(seed=1), fp.unbatch())
    assert numbers(collect(rows, epoch=0)) != numbers(collect(rows, epoch=1))
    laws.assert_random_access(rows, np.array([0, 2, 1, 2]))
    laws.assert_resumable(rows)
    laws.assert_value(rows)
    laws.assert_plans_agree(fp.pipe(rows, fp.batch(3)))


def test_a_group_with_random_access_reads_only_its_own_rows():
    groups, log = fp.pipe(DOCUMENTS, fp.bucket_by_length([4, 12], size=4)), []
    with_log = with_hooks(groups, lambda inner: Logged(log=log))
    fp.length(with_log)
    log.clear()
    assert numbers(with_log[1]) == numbers(groups[1])
    assert sum(log) == 4


def test_streams_of_groups_are_not_shuffled():
    with pytest.raises(PipelineError, match=r"shuffle\(seed=0\) takes examples, got groups from bucket_by_length"):
        fp.pipe(STREAM, fp.bucket_by_length([4, 12], size=4), fp.shuffle(seed=0))
    with pytest.raises(PipelineError, match=r"shard\(index=0, count=2\) takes examples, got groups from batch"):
        fp.pipe(DOCUMENTS, fp.batch(4), fp.shard(0, 2))


@pytest.mark.parametrize("method", ["best_fit", "split"])
def test_packed_rows_obey_the_laws_of_random_access(method):
    packed = fp.pipe(DOCUMENTS, fp.pack(8, method=method))
    for dataset in (packed, fp.pipe(packed, fp.shuffle(seed=0)), fp.pipe(packed, fp.shard(1, 2, ends="pad"))):
        assert len(dataset) == len(list(dataset))
        laws.assert_random_access(dataset, np.array([0, 2, 1, 2]))
        laws.assert_resumable(dataset)
        laws.assert_value(dataset)
        laws.assert_repeatable(dataset, epoch=1)
        laws.assert_plans_agree(fp.pipe(dataset, fp.batch(3)))


def test_packed_and_shuffled_rows_continue_on_other_ranks():
    rows = fp.pipe(fp.from_examples(list(DOCUMENTS) * 4), fp.pack(8), fp.shuffle(seed=0))
    laws.assert_elastic(lambda index, count: fp.pipe(rows, fp.shard(index, count), fp.batch(6 // count)), [1, 3], [1, 2, 3])


def test_shuffled_groups_continue_on_other_ranks():
    groups = fp.pipe(fp.from_examples(list(DOCUMENTS) * 4), fp.bucket_by_length([4, 12], size=6), fp.shuffle(seed=0))
    for rows in (fp.pipe(groups, fp.unbatch()), fp.pipe(groups, fp.map(dict), fp.unbatch())):
        laws.assert_elastic(lambda index, count, rows=rows: fp.pipe(rows, fp.shard(index, count), fp.batch(6 // count)), [1, 3], [1, 2, 3])


def test_the_lengths_of_stored_rows_are_known(tmp_path):
    fp.write(DOCUMENTS, tmp_path / "written")
    known = [
        DOCUMENTS,
        fp.read_arrow(tmp_path / "written"),
        fp.pipe(STREAM, fp.load()),
        fp.pipe(STREAM, fp.cache(tmp_path / "cache")),
        fp.pipe(DOCUMENTS, fp.drop_columns(["number"]), fp.take(9)),
        fp.pipe(DOCUMENTS, fp.split([0.5, 0.5], seed=0))[0],
        fp.concat([DOCUMENTS, DOCUMENTS]),
    ]
    for dataset in known:
        assert fp.pipe(dataset, fp.bucket_by_length([12], size=2)).indexable
        assert isinstance(fp.pipe(dataset, fp.pack(8)).source, Planned)
        assert fp.pipe(dataset, fp.pack(8)).indexable
    for dataset in (STREAM, fp.pipe(DOCUMENTS, fp.shuffle(seed=0)), fp.pipe(DOCUMENTS, fp.map(dict)), fp.concat([DOCUMENTS, STREAM])):
        assert not fp.pipe(dataset, fp.pack(8)).indexable
        assert not fp.pipe(dataset, fp.bucket_by_length([12], size=2)).indexable


def test_batches_of_packed_rows_declare_their_shapes():
    batches = fp.pipe(DOCUMENTS, fp.pack(8), fp.batch(2, drop_last=True), fp.collate(fp.collators.causal(pad_id=0, packed=True, length=8)))
    assert fp.inspect.batch_shapes(batches) == fp.inspect.batch_shapes(
        fp.pipe(STREAM, fp.pack(8), fp.batch(2, drop_last=True), fp.collate(fp.collators.causal(pad_id=0, packed=True, length=8)))
    )


def test_a_plan_holds_at_most_32_bytes_for_a_document():
    lengths = np.random.default_rng(0).integers(1, 513, 10_000)
    plan = fp.pack(512).plan(lengths)
    assert sum(values.nbytes for values in (plan.documents, plan.firsts, plan.sizes, plan.ends)) <= 32 * len(lengths)
    assert plan.sizes.sum() == lengths.sum()
    groups = fp.bucket_by_length([128, 512], size=8).plan(lengths)
    assert groups.documents.nbytes + groups.ends.nbytes <= 32 * len(lengths)
