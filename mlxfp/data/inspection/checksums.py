"""Checksums of the items of a pipeline, for use in tests."""

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import Any

import pyarrow as pa

from mlxfp.core.chunks import visible
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import run, start
from mlxfp.core.identity import fingerprint
from mlxfp.core.nodes import check_dataset
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import DataError


def checksum(dataset: Dataset[Any], *, steps: int, epoch: int = 0) -> str:
    """Return a hash of the first `steps` items: names, types, shapes and values, bit by bit. The hash has 32 hexadecimal digits.

    Use the hash in a test to notice when code, data or a library changes the model input. The hash depends only on the items, so it is
    the same in every process and for all chunk sizes, threads and Python versions. Floating-point sums may differ in the last bits
    between types of machines. A shorter dataset is hashed completely. Raises `DataError` for a dataset without items.

    >>> import mlxfp as fp
    >>> fp.inspect.checksum(fp.from_examples([{"x": 1, "name": "a"}, {"x": 2, "name": None}]), steps=2)
    '6014bf07b8ddd2ab3c64bfc6feafb408'

    See also: `fingerprint`, which hashes what a pipeline is; `diff`.
    """
    check_dataset(dataset, checksum)
    check_positive(steps=steps)
    read = _rows if dataset.level == "examples" else _items
    with closing(run(dataset, start(epoch, None))) as items:
        content = read((item for item, _ in items), steps)
    if not content:
        raise DataError(f"checksum needs at least one item: no item came out of {dataset!r} in epoch {epoch}.")
    return fingerprint((dataset.level, content))


def _rows(chunks: Iterable[Any], steps: int) -> tuple[Any, ...]:
    """Return the first `steps` rows of a dataset as a table, or all rows of a shorter dataset."""
    batches, remaining = [], steps
    for chunk in chunks:
        batches.append(visible(chunk.slice(0, remaining)))
        remaining -= batches[-1].num_rows
        if not remaining:
            break
    return (pa.Table.from_batches(batches),) if batches else ()


def _items(items: Iterable[Any], steps: int) -> tuple[Any, ...]:
    return tuple(_batch(item) if isinstance(item, dict) else fingerprint(visible(item)) for item in islice(items, steps))


def _batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, tuple) else _array(value) for name, value in batch.items()}


def _array(array: Any) -> str:
    """Return a hash of dtype, shape and bytes of a NumPy or MLX array. The bytes are read with memoryview, because NumPy lacks bfloat16."""
    kind = str(array.dtype).rpartition(".")[2]
    return fingerprint((kind, tuple(array.shape), bytes(memoryview(array))))
