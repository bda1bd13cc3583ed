"""Views by number: sources whose row i is another row of the dataset that they hold."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import CHUNK_ROWS, RecordBatch
from mlxfp.core.datasets import Position, Wrapper, take_rows

Indices = NDArray[np.int64]


@frozen(repr=False)
class View(Wrapper):
    """A wrapper that is indexable where its dataset is, and is then read by number: it resumes at any row at once."""

    @abstractmethod
    def rows(self, indices: Indices, epoch: int) -> Indices:
        """Return which rows of the dataset the rows `indices` of this view are, int64[N]."""

    @abstractmethod
    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read a dataset that has no random access."""

    @property
    def indexable(self) -> bool:
        """Whether the dataset that is held is."""
        return self.dataset.indexable

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read by number where that is possible; the position is then the number of the next row."""
        return self._by_number(epoch, position or 0) if self.indexable else self.in_order(epoch, position)

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return the rows at `indices`, int64[N]."""
        return take_rows(self.dataset, epoch, self.rows(indices, epoch))

    def _by_number(self, epoch: int, first: int) -> Iterator[tuple[RecordBatch, int]]:
        count = self.exact_length() or 0
        for at in range(first, count, CHUNK_ROWS):
            stop = min(at + CHUNK_ROWS, count)
            yield self.take(epoch, np.arange(at, stop)), stop
