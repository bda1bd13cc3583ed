"""Which row of which source a row number stands for."""

from typing import Any

from attrs import frozen

from mlxfp.core.chunks import LEAF_BITS
from mlxfp.core.datasets import Dataset, Source
from mlxfp.core.nodes import leaves
from mlxfp.data.running.error_rows import unguarded


@frozen
class Origin:
    """A row of a source: `row` counts from 0 in what the source reads, over all its files.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> locate(from_examples([{"x": 1}, {"x": 2}]), 1)
    Origin(source=from_examples(2 rows), row=1)
    """

    source: Source
    row: int


def locate(dataset: Dataset[Any], number: int) -> Origin:
    """Find the source, and the row in it, that a number of `Examples.rows` stands for: where datasets are joined, it says which one.

    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.rows.mixing import concat
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> both = concat([from_examples([{"x": 1}, {"x": 2}]), from_examples([{"x": 3}])])
    >>> locate(both, next(iter(batch(3)(both))).rows[2])
    Origin(source=from_examples(1 rows), row=0)
    """
    leaf, row = divmod(int(number), 1 << LEAF_BITS)
    return Origin(unguarded(list(leaves(dataset))[leaf]), row)
