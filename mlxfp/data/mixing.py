"""Joining datasets: end to end, in turns, in proportion, and with themselves."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_choice, check_positive
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema, number_as, one_chunk, renumber
from mlxfp.core.cursors import Cursor, run, start
from mlxfp.core.datasets import Combinator, Dataset, Level, Position, Source, Wrapper, take_rows
from mlxfp.core.describing import length
from mlxfp.core.errors import ArgumentError, DataError, PipelineError, SchemaError
from mlxfp.core.parts import check_dataset

Item = TypeVar("Item")
Stop = Literal["first", "all", "restart"]

_EPOCHS_OF_FOREVER = 2**32  # epochs of one endless repeat: a repeat around it starts its next pass with other keys


def repeat(epochs: int | None) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Go through the dataset `epochs` times, or for ever with None; every epoch is shuffled and augmented anew.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": 1}, {"x": 2}]), repeat(2)))
    [{'x': 1}, {'x': 2}, {'x': 1}, {'x': 2}]
    """
    if epochs is not None:
        check_positive(epochs=epochs)
    return Combinator(_Repeat, {"epochs": epochs})


@frozen(repr=False)
class _Repeat(Wrapper):
    epochs: int | None

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        done, cursor = position or (0, None)
        passes = self.epochs or _EPOCHS_OF_FOREVER
        while done < passes:
            resumed, empty = cursor is not None, True
            with closing(run(self.dataset, start(epoch * passes + done, cursor))) as chunks:
                for chunk, cursor in chunks:
                    empty = False
                    yield chunk, (done, cursor)
            if empty and not resumed and self.epochs is None:
                raise DataError(f"repeat(None) would never end: an epoch of {self.dataset!r} has no items.")
            done, cursor = done + 1, None

    def length(self) -> int | None:
        count = Wrapper.length(self)
        return None if count is None or self.epochs is None else count * self.epochs
