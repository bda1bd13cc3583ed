"""Elastic cursors: every pipeline that `shard` accepts continues on another number of ranks."""

import json

import pytest
from attrs import frozen

import mlxfp as fp
from mlxfp.core.execution import iterate, run, start
from mlxfp.support.errors import CursorMismatchError
from mlxfp.testing.laws import assert_elastic
from mlxfp.testing.probing import from_chunks

RANKS = [1, 2, 3]
MANY_RANKS = [1, 2, 3, 4, 8]
GLOBAL = 24  # rows of a global batch
COUNT = 170
ROWS = [{"x": i, "input_ids": [i] * (i % 7 + 1)} for i in range(COUNT)]
TABLE = fp.from_examples(ROWS)
STREAM = from_chunks(fp.to_table(TABLE).to_batches(max_chunksize=7))


def odd(row):
    return row["x"] % 3 > 0


def failing(row):
    if row["x"] % 97 == 5:
        raise ValueError("a broken row")
    return row


def assert_continues(rows, *, after=(), ends="uneven", ranks=RANKS):
    """Check the law for rows divided between ranks."""

    def make_pipeline(index, count):
        return fp.pipe(rows, fp.shard(index, count, ends=ends), fp.batch(GLOBAL // count), *after)

    assert_elastic(make_pipeline, [1, 5], ranks)


BEFORE = {
    "a stream": STREAM,
    "a table": TABLE,
    "a shuffled table": fp.pipe(TABLE, fp.shuffle(seed=0)),
    "a shuffle with a buffer": fp.pipe(STREAM, fp.shuffle(seed=0, buffer=50)),
    "a filter": fp.pipe(STREAM, fp.filter(odd)),
    "a filter behind an exact shuffle": fp.pipe(TABLE, fp.shuffle(seed=0), fp.filter(odd)),
    "a mixture of streams": fp.mix([STREAM, fp.pipe(STREAM, fp.filter(odd))], [0.7, 0.3], stop="all"),
    "interleaved streams": fp.interleave([STREAM, TABLE]),
    "repeated streams": fp.pipe(STREAM, fp.shuffle(seed=0, buffer=20), fp.repeat(2)),
    "a repeated shuffle": fp.pipe(TABLE, fp.shuffle(seed=0), fp.repeat(2)),
    "buckets": fp.pipe(STREAM, fp.bucket_by_length([3, 7], size=8), fp.unbatch()),
    "packed rows": fp.pipe(STREAM, fp.pack(8, open_rows=4)),
    "skipped rows": fp.pipe(STREAM, fp.map(failing, schema=fp.schema(STREAM)), fp.on_error("skip", max_rate=1.0)),
    "a prefetch": fp.pipe(STREAM, fp.prefetch(2)),
    "a filter with workers": fp.pipe(STREAM, fp.filter(odd), fp.prefetch(4, workers=2)),
    "joined streams": fp.concat([STREAM, fp.pipe(STREAM, fp.filter(odd))]),
    "the first rows of a stream": fp.pipe(STREAM, fp.filter(odd), fp.take(100)),
    "the later rows of a stream": fp.pipe(STREAM, fp.filter(odd), fp.skip(20)),
    "a part of a stream": fp.pipe(STREAM, fp.split([0.8, 0.2], seed=0))[0],
    "several wrappers": fp.pipe(STREAM, fp.prefetch(2), fp.filter(odd), fp.repeat(2), fp.prefetch(2), fp.shuffle(seed=0, buffer=20)),
    "buckets of a table": fp.pipe(TABLE, fp.bucket_by_length([3, 7], size=24), fp.shuffle(seed=0), fp.unbatch()),
    "buckets of a shuffled table": fp.pipe(TABLE, fp.shuffle(seed=0), fp.bucket_by_length([3, 7], size=8), fp.unbatch()),
    "packed rows of a shuffled table": fp.pipe(TABLE, fp.shuffle(seed=0), fp.pack(8, open_rows=4)),
    "loaded rows": fp.pipe(STREAM, fp.load(), fp.shuffle(seed=0)),
}


@pytest.mark.parametrize("rows", BEFORE.values(), ids=BEFORE)
def test_runs_continue_on_other_ranks(rows):
    assert_continues(rows)


@pytest.mark.parametrize("name", ["a stream", "a shuffled table", "a shuffle with a buffer", "packed rows"])
def test_runs_continue_on_many_ranks(name):
    assert_continues(BEFORE[name], ranks=MANY_RANKS)


def test_an_exact_shuffle_of_a_stream_continues_on_other_ranks_and_names_the_way_to_read_less():
    """The permutation needs all rows, so the stream is read again. `explain` and the documentation say what to change."""
    rows = fp.pipe(STREAM, fp.shuffle(seed=0))
    _, cursor = list(iterate(fp.pipe(rows, fp.shard(1, 2), fp.batch(GLOBAL // 2))))[2]
    for index in range(3):
        batches = fp.pipe(rows, fp.shard(index, 3), fp.batch(GLOBAL // 3))
        assert [list(group) for group, _ in iterate(batches, cursor)] == [list(group) for group in batches][3:]
    assert "gathers all rows in memory, and again when resumed; load() before it keeps them" in fp.explain(rows)
    with pytest.raises(AssertionError, match=r"reads at most \d+ rows again, one chunk of each source and one global batch, but it read"):
        assert_continues(rows)


@pytest.mark.parametrize("ends", ["uneven", "drop", "pad"])
@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
def test_every_treatment_of_the_end_continues_on_other_ranks(rows, ends):
    assert_continues(rows, ends=ends)


@pytest.mark.parametrize(
    "after",
    [(fp.collate(fp.collators.default()),), (fp.prefetch(2),), (fp.map(failing), fp.prefetch(4, workers=2)), (fp.take(5),), (fp.skip(3),)],
    ids=["collate", "prefetch", "workers", "take", "skip"],
)
@pytest.mark.parametrize("rows", [fp.pipe(STREAM, fp.filter(odd)), fp.pipe(TABLE, fp.shuffle(seed=0))], ids=["a stream", "a table"])
def test_stateless_stages_behind_batches_continue_on_other_ranks(rows, after):
    rows = fp.pipe(rows, fp.filter(lambda row: row["x"] % 97 != 5)) if len(after) == 2 else rows
    assert_continues(rows, after=after)


@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
def test_repeated_batches_continue_on_other_ranks(rows):
    assert_continues(fp.pipe(rows, fp.take(144)), after=(fp.repeat(2),))


@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
def test_a_prefetch_and_a_map_between_shard_and_batch_continue_on_other_ranks(rows):
    def make_pipeline(index, count):
        return fp.pipe(rows, fp.shard(index, count), fp.prefetch(2), fp.map(dict), fp.batch(GLOBAL // count))

    assert_elastic(make_pipeline, [1, 5], RANKS)


def test_lines_and_written_files_continue_on_other_ranks(tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    assert_continues(fp.pipe(fp.read_jsonl(lines), fp.filter(odd)))
    fp.write(TABLE, tmp_path / "written", rows_per_file=50)
    assert_continues(fp.pipe(fp.read_arrow(tmp_path / "written"), fp.shuffle(seed=0)))


@frozen(repr=False)
class Rereading(fp.parts.Wrapper):
    """Source that reads its dataset from the beginning to each position."""

    def read(self, epoch, position):
        for number, (chunk, _) in enumerate(run(self.dataset, start(epoch, None)), 1):
            if number > (position or 0):
                yield chunk, number


def test_the_law_counts_the_rows_read_again():
    with pytest.raises(AssertionError, match=r"reads at most 31 rows again, one chunk of each source and one global batch, but it read"):
        assert_continues(fp.Dataset(Rereading(STREAM)))


def test_the_law_compares_global_batches():
    with pytest.raises(AssertionError, match=r"2 ranks read the global batches of 1 ranks, but batch 0 has other rows"):
        assert_elastic(lambda index, count: fp.pipe(TABLE, fp.skip(count), fp.shard(index, count), fp.batch(24 // count)), [1], [1, 2])


REFUSED = {
    "pack": (
        lambda count: (fp.pack(8), fp.batch(GLOBAL // count)),
        r"pack\(length=8\) follows shard.* Put pack\(length=8\) before shard, or start 2 ranks",
    ),
    "filter": (lambda count: (fp.filter(odd), fp.batch(GLOBAL // count)), r"Put filter\(predicate=odd\) before shard"),
    "shuffle": (lambda count: (fp.shuffle(seed=0, buffer=9), fp.batch(GLOBAL // count)), r"Put shuffle.* before shard"),
    "repeat": (lambda count: (fp.repeat(2), fp.batch(GLOBAL // count)), r"Put repeat\(epochs=2\) before shard"),
    "unbatch": (lambda count: (fp.batch(GLOBAL // count), fp.unbatch()), r"Put unbatch\(\) before shard"),
    "buckets": (
        lambda count: (fp.bucket_by_length([7], size=8),),
        r"no batch\(size\) after shard.* Put pack or bucket_by_length before shard",
    ),
}


@pytest.mark.parametrize("rows", [STREAM, TABLE], ids=["a stream", "a table"])
@pytest.mark.parametrize(("after", "message"), REFUSED.values(), ids=REFUSED)
def test_batches_that_depend_on_the_ranks_are_refused(rows, after, message):
    _, cursor = next(iterate(fp.pipe(rows, fp.shard(0, 2), fp.compose(*after(2)))))
    with pytest.raises(CursorMismatchError, match=message):
        iterate(fp.pipe(rows, fp.shard(0, 4), fp.compose(*after(4))), cursor)
