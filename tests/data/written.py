"""Writing files for tests, compressed as their suffix says, and reading them in blocks of any size."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from mlxfp.core.datasets import Dataset

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:]),  # several members, as some tools write
    ".zst": lambda data: pa.compress(data[:5], "zstd", asbytes=True) + pa.compress(data[5:], "zstd", asbytes=True),
}


def write(path: Path, data: str | bytes) -> Path:
    """Write a file and return its path."""
    packing = path.suffix if path.suffix in PACKINGS else ""
    path.write_bytes(PACKINGS[packing](data.encode() if isinstance(data, str) else data))
    return path


def blocked(dataset: Dataset[Any], size: int) -> Dataset[Any]:
    """Read the same files in blocks of another size."""
    source: Any = dataset.source
    return Dataset(attrs.evolve(source, block_size=size))
