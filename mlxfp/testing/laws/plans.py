"""The law of plans: the plan that runs gives what the pipeline as written gives."""

from typing import Any

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.core.execution import iterate
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import collect


def assert_plans_agree(dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: the plan of a dataset gives the same items, source rows and keys as the pipeline as written, and its cursors mean the same.

    A run that was started as written continues with the plan, and the other way round, after every item and through bytes. Check it for
    stages and sources that state capabilities: `projection`, `columns_read`, `predicates`, `fuse_with_previous`, `restricted`. The time
    grows with the square of the number of items: use a short dataset.

    >>> import mlxfp as fp
    >>> assert_plans_agree(fp.pipe(fp.from_examples([{"x": 1, "y": 2}]), fp.select_columns(["y"])))
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
