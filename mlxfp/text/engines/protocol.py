"""What an engine is: another package that gives the ids of the `tokenizers` package, faster, and how to make one of a tokenizer's JSON.

A new engine is one more file with an `EngineKind`, and one entry of `ENGINES` in `choosing`.
"""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

Flat = tuple[NDArray[np.int32], NDArray[np.int64]]  # the ids of all texts end to end, and where those of each text end: int64[N + 1]


class Engine(Protocol):
    """A tokenizer of another package. Safe to use from several threads."""

    def encode(self, texts: pa.StringArray) -> Flat:
        """Return the ids of each text, without special tokens. The texts hold no nulls."""


@frozen
class EngineKind:
    """A package that encodes, and how to make an engine of the JSON of a tokenizer; `build` raises any error for one it does not take."""

    name: str  # of the package
    build: Callable[[str], Engine]

    @property
    def version(self) -> str | None:
        """The version that is installed."""
        try:
            return version(self.name)
        except PackageNotFoundError:
            return None
