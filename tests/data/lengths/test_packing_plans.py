"""Packing by index: the same rows as on a stream, with a length, random access and shuffling after packing."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from mlxfp.collators.causal_lm import causal
from mlxfp.collators.collating import collate
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.packing import pack
from mlxfp.data.lengths.packing_plans import PackedRows
from mlxfp.data.lengths.shape_planning import batch_shapes
from mlxfp.data.rows.columns import drop_columns
from mlxfp.data.rows.map_filter import filter, map, take
from mlxfp.data.rows.mixing import concat
from mlxfp.data.rows.selecting import split
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.writing import write
from mlxfp.data.sources.arrow_files import read_arrow
from mlxfp.data.sources.in_memory import from_examples, from_table
from mlxfp.testing import laws
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.probing import from_chunks
from tests.data.lengths.test_packing import settings
from tests.data.token_rows import chunkings

LENGTHS = [3, 0, 7, 12, 1, 5, 2, 9, 4, 4, 6, 1, 8, 3, 2]
DOCUMENTS = from_examples([{"input_ids": list(range(count)), "number": number} for number, count in enumerate(LENGTHS)])
STREAM = filter(lambda row: True)(DOCUMENTS)


@given(chunkings(longest=15), settings())
def test_rows_by_index_are_the_rows_of_a_stream(cut, asked):
    stage = pack(**asked, aligned=["mask"])
    by_index = collect(stage(from_table(pa.Table.from_batches(cut[0]))), epoch=2)
    streamed = collect(stage(from_chunks(cut[0])), epoch=2)
    assert by_index.equals(streamed)


@pytest.mark.parametrize("method", ["best_fit", "first_fit", "split"])
def test_packed_rows_obey_the_laws_of_random_access(method):
    packed = pipe(DOCUMENTS, pack(8, method=method))
    for dataset in (packed, pipe(packed, shuffle(seed=0)), pipe(packed, shard(1, 2, ends="pad"))):
        assert len(dataset) == len(list(dataset))
        laws.assert_random_access(dataset, np.array([0, 2, 1, 2]))
        laws.assert_resumable(dataset)
        laws.assert_value(dataset)
        laws.assert_repeatable(dataset, epoch=1)
        laws.assert_plans_agree(pipe(dataset, batch(3)))


def test_packed_and_shuffled_rows_continue_on_other_ranks():
    rows = pipe(from_examples(list(DOCUMENTS) * 4), pack(8), shuffle(seed=0))
    laws.assert_elastic(lambda index, count: pipe(rows, shard(index, count), batch(6 // count)), [1, 3], [1, 2, 3])


def test_the_lengths_of_stored_rows_are_known(tmp_path):
    write(DOCUMENTS, tmp_path / "written")
    known = [
        DOCUMENTS,
        read_arrow(tmp_path / "written"),
        pipe(STREAM, load()),
        pipe(STREAM, cache(tmp_path / "cache")),
        pipe(DOCUMENTS, drop_columns(["number"]), take(9)),
        pipe(DOCUMENTS, split([0.5, 0.5], seed=0))[0],
        concat([DOCUMENTS, DOCUMENTS]),
    ]
    for dataset in known:
        assert isinstance(pipe(dataset, pack(8)).source, PackedRows)
        assert pipe(dataset, pack(8)).indexable
    for dataset in (STREAM, pipe(DOCUMENTS, shuffle(seed=0)), pipe(DOCUMENTS, map(dict)), concat([DOCUMENTS, STREAM])):
        assert not pipe(dataset, pack(8)).indexable


def test_batches_of_packed_rows_declare_their_shapes():
    batches = pipe(DOCUMENTS, pack(8), batch(2, drop_last=True), collate(causal(pad_id=0, packed=True, length=8)))
    assert batch_shapes(batches) == batch_shapes(
        pipe(STREAM, pack(8), batch(2, drop_last=True), collate(causal(pad_id=0, packed=True, length=8)))
    )


def test_a_plan_holds_at_most_32_bytes_for_a_document():
    lengths = np.random.default_rng(0).integers(1, 513, 10_000)
    plan = pack(512).plan(lengths)
    assert sum(values.nbytes for values in (plan.documents, plan.firsts, plan.sizes, plan.ends)) <= 32 * len(lengths)
    assert plan.sizes.sum() == lengths.sum()
