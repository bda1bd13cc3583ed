"""Elastic cursors: every pipeline that `shard` accepts continues on another number of ranks."""

import json

import pytest
from attrs import frozen

from mlxfp.collators.collating import collate
from mlxfp.collators.plain import default
from mlxfp.core.datasets import Dataset, Wrapper, to_table
from mlxfp.core.describing import explain, schema
from mlxfp.core.execution import iterate, run, start
from mlxfp.core.pipelines import compose, pipe
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.lengths.bucketing import bucket_by_length
from mlxfp.data.lengths.packing import pack
from mlxfp.data.rows.map_filter import filter, map, skip, take
from mlxfp.data.rows.mixing import concat, interleave, mix
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.selecting import split
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import load
from mlxfp.data.running.error_rows import on_error
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.running.writing import write
from mlxfp.data.sources.arrow_files import read_arrow
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.data.sources.json_files import read_jsonl
from mlxfp.support.errors import CursorMismatchError
from mlxfp.testing.laws import assert_elastic
from mlxfp.testing.probing import from_chunks

RANKS = [1, 2, 3]
MANY_RANKS = [1, 2, 3, 4, 8]
GLOBAL = 24  # rows of a global batch
COUNT = 170
ROWS = [{"x": i, "input_ids": [i] * (i % 7 + 1)} for i in range(COUNT)]
TABLE = from_examples(ROWS)
STREAM = from_chunks(to_table(TABLE).to_batches(max_chunksize=7))


def odd(row):
    return row["x"] % 3 > 0


def failing(row):
    if row["x"] % 97 == 5:
        raise ValueError("a broken row")
    return row


def assert_continues(rows, *, after=(), ends="uneven", ranks=RANKS):
    """Check the law for rows divided between ranks."""

    def make_pipeline(index, count):
        return pipe(rows, shard(index, count, ends=ends), batch(GLOBAL // count), *after)

    assert_elastic(make_pipeline, [1, 5], ranks)


BEFORE = {
    "a stream": STREAM,
    "a table": TABLE,
    "a shuffled table": pipe(TABLE, shuffle(seed=0)),
    "a shuffle with a buffer": pipe(STREAM, shuffle(seed=0, buffer=50)),
    "a filter": pipe(STREAM, filter(odd)),
    "a filter behind an exact shuffle": pipe(TABLE, shuffle(seed=0), filter(odd)),
    "a mixture of streams": mix([STREAM, pipe(STREAM, filter(odd))], [0.7, 0.3], stop="all"),
    "interleaved streams": interleave([STREAM, TABLE]),
    "repeated streams": pipe(STREAM, shuffle(seed=0, buffer=20), repeat(2)),
    "a repeated shuffle": pipe(TABLE, shuffle(seed=0), repeat(2)),
    "buckets": pipe(STREAM, bucket_by_length([3, 7], size=8), unbatch()),
    "packed rows": pipe(STREAM, pack(8, open_rows=4)),
    "skipped rows": pipe(STREAM, map(failing, schema=schema(STREAM)), on_error("skip", max_rate=1.0)),
    "a prefetch": pipe(STREAM, prefetch(2)),
    "a filter with workers": pipe(STREAM, filter(odd), prefetch(4, workers=2)),
    "joined streams": concat([STREAM, pipe(STREAM, filter(odd))]),
    "the first rows of a stream": pipe(STREAM, filter(odd), take(100)),
    "the later rows of a stream": pipe(STREAM, filter(odd), skip(20)),
    "a part of a stream": pipe(STREAM, split([0.8, 0.2], seed=0))[0],
    "several wrappers": pipe(STREAM, prefetch(2), filter(odd), repeat(2), prefetch(2), shuffle(seed=0, buffer=20)),
    "buckets of a table": pipe(TABLE, bucket_by_length([3, 7], size=24), shuffle(seed=0), unbatch()),
    "buckets of a shuffled table": pipe(TABLE, shuffle(seed=0), bucket_by_length([3, 7], size=8), unbatch()),
    "packed rows of a shuffled table": pipe(TABLE, shuffle(seed=0), pack(8, open_rows=4)),
    "loaded rows": pipe(STREAM, load(), shuffle(seed=0)),
}


@pytest.mark.parametrize("rows", BEFORE.values(), ids=BEFORE)
def test_runs_continue_on_other_ranks(rows):
    assert_continues(rows)


@pytest.mark.parametrize("name", ["a stream", "a shuffled table", "a shuffle with a buffer", "packed rows"])
def test_runs_continue_on_many_ranks(name):
    assert_continues(BEFORE[name], ranks=MANY_RANKS)


def test_an_exact_shuffle_of_a_stream_continues_on_other_ranks_and_names_the_way_to_read_less():
    """The permutation needs all rows, so the stream is read again. `explain` and the documentation say what to change."""
    rows = pipe(STREAM, shuffle(seed=0))
    _, cursor = list(iterate(pipe(rows, shard(1, 2), batch(GLOBAL // 2))))[2]
    for index in range(3):
        batches = pipe(rows, shard(index, 3), batch(GLOBAL // 3))
        assert [list(group) for group, _ in iterate(batches, cursor)] == [list(group) for group in batches][3:]
    assert "gathers all rows in memory, and again when resumed; load() before it keeps them" in explain(rows)
    with pytest.raises(AssertionError, match=r"reads at most \d+ rows again, one chunk of each source and one global batch, but it read"):
        assert_continues(rows)


@pytest.mark.parametrize("ends", ["uneven", "drop", "pad"])
@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
def test_every_treatment_of_the_end_continues_on_other_ranks(rows, ends):
    assert_continues(rows, ends=ends)


@pytest.mark.parametrize(
    "after",
    [(collate(default()),), (prefetch(2),), (map(failing), prefetch(4, workers=2)), (take(5),), (skip(3),)],
    ids=["collate", "prefetch", "workers", "take", "skip"],
)
@pytest.mark.parametrize("rows", [pipe(STREAM, filter(odd)), pipe(TABLE, shuffle(seed=0))], ids=["a stream", "a table"])
def test_stateless_stages_behind_batches_continue_on_other_ranks(rows, after):
    rows = pipe(rows, filter(lambda row: row["x"] % 97 != 5)) if len(after) == 2 else rows
    assert_continues(rows, after=after)


@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
def test_repeated_batches_continue_on_other_ranks(rows):
    assert_continues(pipe(rows, take(144)), after=(repeat(2),))


@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
def test_a_prefetch_and_a_map_between_shard_and_batch_continue_on_other_ranks(rows):
    def make_pipeline(index, count):
        return pipe(rows, shard(index, count), prefetch(2), map(dict), batch(GLOBAL // count))

    assert_elastic(make_pipeline, [1, 5], RANKS)


def test_lines_and_written_files_continue_on_other_ranks(tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    assert_continues(pipe(read_jsonl(lines), filter(odd)))
    write(TABLE, tmp_path / "written", rows_per_file=50)
    assert_continues(pipe(read_arrow(tmp_path / "written"), shuffle(seed=0)))


@frozen(repr=False)
class Rereading(Wrapper):
    """Source that reads its dataset from the beginning to each position."""

    def read(self, epoch, position):
        for number, (chunk, _) in enumerate(run(self.dataset, start(epoch, None)), 1):
            if number > (position or 0):
                yield chunk, number


def test_the_law_counts_the_rows_read_again():
    with pytest.raises(AssertionError, match=r"reads at most 31 rows again, one chunk of each source and one global batch, but it read"):
        assert_continues(Dataset(Rereading(STREAM)))


def test_the_law_compares_global_batches():
    with pytest.raises(AssertionError, match=r"2 ranks read the global batches of 1 ranks, but batch 0 has other rows"):
        assert_elastic(lambda index, count: pipe(TABLE, skip(count), shard(index, count), batch(24 // count)), [1], [1, 2])


REFUSED = {
    "pack": (
        lambda count: (pack(8), batch(GLOBAL // count)),
        r"pack\(length=8\) follows shard.* Put pack\(length=8\) before shard, or start 2 ranks",
    ),
    "filter": (lambda count: (filter(odd), batch(GLOBAL // count)), r"Put filter\(predicate=odd\) before shard"),
    "shuffle": (lambda count: (shuffle(seed=0, buffer=9), batch(GLOBAL // count)), r"Put shuffle.* before shard"),
    "repeat": (lambda count: (repeat(2), batch(GLOBAL // count)), r"Put repeat\(epochs=2\) before shard"),
    "unbatch": (lambda count: (batch(GLOBAL // count), unbatch()), r"Put unbatch\(\) before shard"),
    "buckets": (
        lambda count: (bucket_by_length([7], size=8),),
        r"no batch\(size\) after shard.* Put pack or bucket_by_length before shard",
    ),
}


@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
@pytest.mark.parametrize(("after", "message"), REFUSED.values(), ids=REFUSED)
def test_batches_that_depend_on_the_ranks_are_refused(rows, after, message):
    _, cursor = next(iterate(pipe(rows, shard(0, 2), compose(*after(2)))))
    with pytest.raises(CursorMismatchError, match=message):
        iterate(pipe(rows, shard(0, 4), compose(*after(4))), cursor)
