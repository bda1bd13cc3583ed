"""Writing files for tests, compressed as their suffix says, reading them in blocks of any size, and schemas of files with columns."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from hypothesis import strategies as st

from mlxfp.core.datasets import Dataset

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:]),  # several members, as some tools write
    ".zst": lambda data: pa.compress(data[:5], "zstd", asbytes=True) + pa.compress(data[5:], "zstd", asbytes=True),
}

_KINDS = {
    "n": pa.int64(),
    "x": pa.float32(),
    "yes": pa.bool_(),
    "t": pa.string(),
    "big": pa.large_string(),
    "raw": pa.binary(),
    "word": pa.dictionary(pa.int32(), pa.string()),
    "ids": pa.list_(pa.int32()),
    "at": pa.struct({"a": pa.string(), "b": pa.list_(pa.float64())}),
    "image": pa.fixed_shape_tensor(pa.uint8(), (2, 3)),
    "on": pa.timestamp("ms", "UTC"),
    "none": pa.null(),
}
_FIELDS = st.sampled_from(sorted(_KINDS)).flatmap(
    lambda name: st.builds(lambda nullable: pa.field(name, _KINDS[name], nullable or name == "none"), st.booleans())
)
SCHEMAS = st.lists(_FIELDS, min_size=1, max_size=4, unique_by=lambda field: field.name).map(pa.schema)


def write(path: Path, data: str | bytes) -> Path:
    """Write a file and return its path."""
    packing = path.suffix if path.suffix in PACKINGS else ""
    path.write_bytes(PACKINGS[packing](data.encode() if isinstance(data, str) else data))
    return path


def blocked(dataset: Dataset[Any], size: int) -> Dataset[Any]:
    """Read the same files in blocks of another size."""
    source: Any = dataset.source
    return Dataset(attrs.evolve(source, block_size=size))


def in_chunks(dataset: Dataset[Any], rows: int) -> Dataset[Any]:
    """Read the same Parquet or Arrow files in chunks of another size."""
    source: Any = dataset.source
    return Dataset(attrs.evolve(source, chunk_rows=rows))


def plain(table: pa.Table) -> pa.Table:
    """Leave out what a source does not state: which columns are never null."""
    return pa.table(table.columns, pa.schema([(field.name, field.type) for field in table.schema])).combine_chunks()
