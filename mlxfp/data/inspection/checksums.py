"""Golden hashes: the items of a pipeline as a short string, for tests."""

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
    """Hash the first `steps` items: names, types, shapes and values of everything in them, bit by bit; 32 hexadecimal digits.

    Hold a pipeline to it in a test of your own: if a change of code, data or a library changes what the model sees, the test says so. It
    depends on what comes out and not on how, so it is the same in every process, for other chunks, threads and versions of Python. Sums
    and other arithmetic in floats may differ in their last bits between kinds of machines. A dataset of fewer items is hashed whole.
    Raises `DataError` for one without any.

    >>> import mlxfp as fp
    >>> fp.inspect.checksum(fp.from_examples([{"x": 1, "name": "a"}, {"x": 2, "name": None}]), steps=2)
    '6014bf07b8ddd2ab3c64bfc6feafb408'

    See also: `fingerprint`, which hashes what a pipeline is; `diff`.
    """
    check_dataset(dataset, checksum)
    check_positive(steps=steps)
    read = _rows if dataset.level == "examples" else _items
    with closing(run(dataset, start(epoch, None))) as items:
        found = read((item for item, _ in items), steps)
    if not found:
        raise DataError(f"There is nothing to hash: no item came out of {dataset!r} in epoch {epoch}.")
    return fingerprint((dataset.level, found))


def _rows(chunks: Iterable[Any], steps: int) -> tuple[Any, ...]:
    """Return the first rows as one table, independent of chunk boundaries."""
    taken, left = [], steps
    for chunk in chunks:
        taken.append(visible(chunk.slice(0, left)))
        left -= taken[-1].num_rows
        if not left:
            break
    return (pa.Table.from_batches(taken),) if taken else ()


def _items(items: Iterable[Any], steps: int) -> tuple[Any, ...]:
    return tuple(_batch(item) if isinstance(item, dict) else fingerprint(visible(item)) for item in islice(items, steps))


def _batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, tuple) else _array(value) for name, value in batch.items()}


def _array(array: Any) -> str:
    """Hash dtype, shape and bytes of a NumPy or MLX array. A memoryview also reads bfloat16."""
    kind = str(array.dtype).rpartition(".")[2]
    return fingerprint((kind, tuple(array.shape), bytes(memoryview(array))))
