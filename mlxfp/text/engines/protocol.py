"""Interface of engines. An engine is a package that computes the same ids as the `tokenizers` package, but faster.

To add an engine, add a file with an `EngineKind`, and an entry in `ENGINES` of the module `choosing`.
"""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

Flat = tuple[NDArray[np.int32], NDArray[np.int64]]  # concatenated ids of all texts, and the offset of each text in the ids, int64[N + 1]


class Engine(Protocol):
    """Encoder from text to ids, provided by a package that is faster than `tokenizers`. Engines are thread-safe."""

    def encode(self, texts: pa.StringArray) -> Flat:
        """Return the ids of each text without special tokens. The texts must not contain nulls."""


@frozen
class EngineKind:
    """Package that provides an engine. `build` creates the engine from the JSON of a tokenizer and may raise any error."""

    name: str  # name of the package
    build: Callable[[str], Engine]

    @property
    def version(self) -> str | None:
        """Installed version of the package, or None if not installed."""
        try:
            return version(self.name)
        except PackageNotFoundError:
            return None
