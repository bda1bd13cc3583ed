"""Interface of engines: other packages that compute the same ids as the `tokenizers` package, but faster.

To add an engine, add a file with an `EngineKind` and an entry in `ENGINES` of `choosing`.
"""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

Flat = tuple[NDArray[np.int32], NDArray[np.int64]]  # Concatenated ids of all texts, and the id offset of each text, int64[N + 1].


class Engine(Protocol):
    """A tokenizer of another package. Thread-safe."""

    def encode(self, texts: pa.StringArray) -> Flat:
        """Return the ids of each text without special tokens. The texts must not contain nulls."""


@frozen
class EngineKind:
    """Package that encodes texts, with a factory of engines. `build` takes the JSON of a tokenizer and may raise any error."""

    name: str  # of the package
    build: Callable[[str], Engine]

    @property
    def version(self) -> str | None:
        """Installed version, or None."""
        try:
            return version(self.name)
        except PackageNotFoundError:
            return None
