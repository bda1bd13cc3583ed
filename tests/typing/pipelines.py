"""What type checkers infer through `pipe`; `make check` holds them to it. Nothing here runs."""

from collections.abc import Iterator
from typing import Any, assert_type

from mlxfp.collators import text
from mlxfp.collators.collating import collate
from mlxfp.core.chunks import Example
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.examples import Examples
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import compose, pipe
from mlxfp.core.stages import Batch
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.lengths.bucketing import bucket_by_length
from mlxfp.data.rows.columns import select_columns
from mlxfp.data.rows.map_filter import filter, map, take
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples

rows = from_examples([{"x": 1}])
assert_type(rows, Dataset[Example])
assert_type(pipe(rows, shuffle(seed=0), filter(lambda row: row["x"] > 0)), Dataset[Example])
assert_type(pipe(rows, map(dict), select_columns(["x"]), take(3), repeat(2)), Dataset[Example])
groups = pipe(rows, shuffle(seed=0), batch(32))
assert_type(groups, Dataset[Examples])
assert_type(pipe(groups, unbatch()), Dataset[Example])
assert_type(pipe(rows, bucket_by_length([8], size=4), shuffle(seed=0), shard(0, 2)), Dataset[Examples])
batches = pipe(rows, repeat(3), batch(32), collate(text(pad_id=0)), prefetch(2), take(3))
assert_type(batches, Dataset[Batch])
recipe = compose(batch(32), collate(text(pad_id=0)))
assert_type(pipe(rows, recipe), Dataset[Batch])

# Up to eight functions have a type; with more, the first eight are checked and the result is Any.
eight = pipe(rows, take(9), take(8), take(7), take(6), take(5), take(4), take(3), batch(2))
assert_type(eight, Dataset[Examples])
nine = pipe(rows, take(9), take(8), take(7), take(6), take(5), take(4), take(3), batch(2), unbatch())
assert_type(nine, Any)
long_recipe = compose(take(9), take(8), take(7), take(6), take(5), take(4), batch(2), collate(text(pad_id=0)))
assert_type(pipe(rows, long_recipe), Dataset[Batch])


def items() -> Iterator[tuple[Batch, Cursor]]:
    """Infer what `iterate` yields."""
    for item, cursor in iterate(batches):
        assert_type(item, dict[str, Any])
        assert_type(cursor, Cursor)
        yield item, cursor


stages = [take(3), take(2)]
pipe(rows, *stages)  # a list of stages: any number of them


def misplaced() -> None:
    """Put stages where they cannot be. If a checker accepts one of these, the unused ignore is reported."""
    pipe(rows, collate(text(pad_id=0)))  # type: ignore[arg-type]  # collate without batch
    pipe(groups, filter(bool))  # type: ignore[arg-type]  # filter after batch
    pipe(batches, shuffle(seed=0))  # type: ignore[arg-type]  # shuffle after collate
    pipe(batches, batch(2))  # type: ignore[arg-type]  # batch after collate
    pipe([1, 2], batch(2))  # type: ignore[arg-type]  # not a dataset
    again = filter(bool)
    pipe(groups, again, again, again, again, again, again, again, again, again)  # type: ignore[arg-type]  # the first of nine functions
