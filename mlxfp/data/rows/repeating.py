"""Repetition of a dataset over several epochs."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import attrs
from attrs import frozen

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.datasets import Combinator, Dataset, Wrapper
from mlxfp.core.execution import run, start
from mlxfp.core.running.steps import NO_HOOKS
from mlxfp.core.sources import InTable, Position, Source, SourceTraits, warn_redrawn
from mlxfp.support.checks import check_positive, explain_call, not_none
from mlxfp.support.errors import DataError

Item = TypeVar("Item")

# Upper bound for the number of epochs of an endless `repeat`. No run reaches this number.
# In nested repeats, inner epoch i of outer epoch e has the number e * FOREVER + i, so no number occurs twice.
FOREVER = 2**32


@explain_call
def repeat(epochs: int | None) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Repeat the dataset for `epochs` epochs, or endlessly with `epochs=None`. Each epoch is shuffled and augmented differently.

    Warns (`RuntimeWarning`) if the epochs have different rows because `take`, `skip` or `select` follows a `shuffle`.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.repeat(2)))
    [{'x': 1}, {'x': 2}, {'x': 1}, {'x': 2}]
    """
    check_positive(**not_none(epochs=epochs))
    return Combinator(_repeat, {"epochs": epochs})


def _repeat(dataset: Dataset[Any], epochs: int | None) -> Source:
    if epochs != 1:
        warn_redrawn(dataset, stacklevel=5)  # The warning points to the line that calls `pipe`.
    return _Repeat(dataset, epochs)


@frozen(repr=False)
class _Repeat(Wrapper):
    epochs: int | None

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, keeps_rows=True, endless=self.epochs is None or self.dataset.endless, in_table=self._in_table)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        done, cursor = position or (0, None)
        passes = self.epochs or FOREVER
        while done < passes:
            resumed, empty = cursor is not None, True
            with closing(run(self.dataset, start(epoch * passes + done, cursor))) as chunks:
                for chunk, cursor in chunks:
                    empty = False
                    yield chunk, (done, cursor)
            if empty and not resumed and self.epochs is None:
                raise DataError(f"repeat(None) would never end: an epoch of {self.dataset!r} has no items.")
            done, cursor = done + 1, None

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        done, cursor = after
        return done, cursor.back(chunk.num_rows)

    def _in_table(self) -> InTable | None:
        plan = self.dataset.plan
        table = None if plan.steps or self.dataset.hooks != NO_HOOKS else plan.source.traits.in_table()
        if table is None or table.source is None:
            return None
        return attrs.evolve(table, source=attrs.evolve(self, dataset=Dataset(table.source)))

    def size(self, count: int) -> int | None:
        return None if self.epochs is None else count * self.epochs
