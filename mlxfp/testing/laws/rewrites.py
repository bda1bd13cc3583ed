"""The law of rewriting: a pipeline that runs faster is still the one that was written."""

from typing import Any

from mlxfp.core.cursors import Cursor, iterate
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import known_length, schema
from mlxfp.core.optimizing import optimize, plain
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import collect


def assert_rewrites_change_nothing(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: what `optimize` makes of a dataset gives the same items, source rows and keys, and its cursors mean the same.

    A run that was started as the pipeline is written continues rewritten, and the other way round, after every item and through bytes. Hold
    stages and sources to it that say something about themselves for `optimize`: `looks_at`, `choice`, `requires`, `restricted`.
    Takes time in the square of the number of items: give it a short dataset.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.columns import select_columns
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> assert_rewrites_change_nothing(pipe(from_examples([{"x": 1, "y": 2}]), select_columns(["y"])))
    """
    written, faster = plain(dataset), optimize(dataset)
    expected = collect(written, epoch=epoch)
    for said, as_written in (
        (faster.identity, dataset.identity),
        (repr(faster), repr(dataset)),
        (faster.level, dataset.level),
        (known_length(faster), known_length(dataset)),
        (schema(faster), schema(dataset)),
    ):
        assert said == as_written, f"{dataset!r} says of itself\n{as_written}\nbut rewritten\n{said}"
    assert_same(collect(faster, epoch=epoch), expected, f"{dataset!r} gives the same when it is rewritten")
    for begun, continued, how in ((written, faster, "begun as written, continued rewritten"), (faster, written, "the other way round")):
        for place, (_, cursor) in enumerate(iterate(begun, epoch=epoch), 1):
            rest = expected[place:] if isinstance(expected, list) else expected.slice(place)
            found = collect(continued, Cursor.from_bytes(cursor.to_bytes()))
            assert_same(found, rest, f"resuming {dataset!r} after item {place - 1}, {how}, gives exactly the rest")
            assert next((item for item, _ in iterate(continued, cursor)), None) is not None or not len(rest)
