"""The law of plans: what runs gives what the pipeline as it was written gives."""

from typing import Any

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.core.execution import iterate
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import collect


def assert_plans_agree(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: the plan of a dataset gives the items, source rows and keys of the pipeline as it was written, and cursors that mean the same.

    A run that was started as the pipeline was written continues with the plan, and the other way round, after every item and through bytes.
    Hold stages and sources to it that state capabilities: `projection`, `columns_read`, `predicates`, `fuse_with_previous`, `restricted`.
    Takes time in the square of the number of items: give it a short dataset.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.columns import select_columns
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> assert_plans_agree(pipe(from_examples([{"x": 1, "y": 2}]), select_columns(["y"])))
    """
    written = unoptimized(dataset)
    expected = collect(written, epoch=epoch)
    assert_same(collect(dataset, epoch=epoch), expected, f"the plan of {dataset!r} gives the same as the pipeline as it was written")
    for begun, continued, how in ((written, dataset, "begun as written, continued as planned"), (dataset, written, "the other way round")):
        for place, (_, cursor) in enumerate(iterate(begun, epoch=epoch), 1):
            rest = expected[place:] if isinstance(expected, list) else expected.slice(place)
            found = collect(continued, Cursor.from_bytes(cursor.to_bytes()))
            assert_same(found, rest, f"resuming {dataset!r} after item {place - 1}, {how}, gives exactly the rest")
            assert next((item for item, _ in iterate(continued, cursor)), None) is not None or not len(rest)
