"""The laws of sources: positions, schemas, lengths and random access."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.chunks import no_rows, visible
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import take_rows
from mlxfp.core.sources import Source
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import collect, through_bytes


def assert_reads(source: Source, *, epoch: int = 0) -> None:
    """Law: reading from the position after a chunk gives exactly the chunks that follow it, and reading again gives the same.

    From the last position, nothing is read. All chunks have the stated schema, their rows or items add up to the stated length, and
    positions can be written to bytes.

    >>> import mlxfp as fp
    >>> assert_reads(fp.from_examples([{"x": 1}]).source)
    """
    read = list(source.read(epoch, None))
    chunks = [chunk for chunk, _ in read]
    for chunk in () if source.level == "batches" else chunks:
        assert visible(chunk).schema.equals(source.schema()), (
            f"{source!r} states the schema\n{source.schema()}\nbut reads a chunk with\n{chunk.schema}"
        )
    assert_same(_joined(source, source.read(epoch, None)), _joined(source, read), f"reading {source!r} twice gives the same")
    for place, (_, position) in enumerate(read, 1):
        for again in (position, through_bytes(position)):
            claim = f"reading {source!r} from position {again!r} gives what follows chunk {place - 1}"
            assert_same(_joined(source, source.read(epoch, again)), _joined(source, read[place:]), claim)
    count = sum(chunk.num_rows for chunk in chunks) if source.level == "examples" else len(chunks)
    for stated in (source.length(), source.exact_length()):
        assert stated in (None, count), f"{source!r} states the length {stated}, but reads {count}"


def assert_random_access(dataset: Dataset[Any], indices: NDArray[np.int64], *, epoch: int = 0) -> None:
    """Law: the rows taken by number, int64[N], are those that iterating gives at these places, hidden columns included.

    >>> import mlxfp as fp
    >>> assert_random_access(fp.from_examples([{"x": 1}, {"x": 2}]), np.array([1, 0, 1]))
    """
    assert dataset.indexable, f"{dataset!r} has random access"
    taken = pa.Table.from_batches([take_rows(dataset, epoch, indices)])
    iterated = collect(dataset, epoch=epoch)
    expected = iterated.take(pa.array(indices))
    assert_same(
        taken.select(expected.column_names), expected, f"taking the rows {indices.tolist()} of {dataset!r} gives the rows of iterating"
    )


def _joined(source: Source, read: Iterable[tuple[Any, Any]]) -> Any:
    """Join chunks of examples, whose boundaries mean nothing; groups and batches are compared one by one."""
    chunks = [chunk for chunk, _ in read]
    return pa.Table.from_batches(chunks or [no_rows(source.schema())]) if source.level == "examples" else chunks
