"""Collators of ragged rows: columns are read once, of as many rows as there are, and batches are cut from them."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import GROUP, Choosing, as_view, at_place, check_ids, column_of, lists_of, numbers_of, ragged_of
from mlxfp.collators.padding import Side, common_length, counts_of, mask_end_to_end, pad_end_to_end, pad_rows, padded_length, places_of
from mlxfp.core.arrow.ragged import Ends, check_same_lengths
from mlxfp.core.arrow.types import is_text, value_type
from mlxfp.core.chunks import Example, Schema, no_rows
from mlxfp.core.examples import Examples

PaddedColumn = tuple[NDArray[Any], float]  # the numbers of all rows, end to end, and what is put on padding
Ids = NDArray[np.int32]
Cut = tuple[int, int, int]  # a batch: its first row, the one after its last, and what they are padded to

MASK = "attention_mask"
_view: Any = memoryview  # an array has a buffer; from that MLX takes two thirds of the time
_CELLS = 1 << 19  # values of a column that are laid out at once: measured on rows of 45 tokens, fewer cost more


@frozen(eq=False)
class Columns:
    """The columns of many rows, read and checked at once."""

    ends: Ends  # where the values of each row end: int64[N + 1]
    length: Callable[[int, int], int]  # what the rows from one number to another are padded to; raises where one is too long
    fit: Callable[[int], int | None]  # what rows are padded to of which the longest has so many values; None: it is too long
    ragged: Mapping[str, PaddedColumn]
    single: Mapping[str, Any]  # one value a row: arrays [N, ...], and Arrow columns of text
    side: Side

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """How many values each row has: int32[N, 1]."""
        return counts_of(self.ends)

    def batch(self, start: int, stop: int) -> dict[str, Any]:
        """Return the rows from number `start` to `stop`: ragged columns as [B, L], single ones as [B, ...], text as a tuple.

        Where no column is called so, `attention_mask` int32[B, L] is 1 on values and 0 on padding.
        """
        return self._batch(start, stop, self.length(start, stop))

    def batches(self, ends: Sequence[int]) -> Iterator[dict[str, Any] | None]:
        """Return what `batch` does for the rows between all these numbers, in turn; None where a row is too long."""
        longest = np.maximum.reduceat(self.counts[:, 0], ends[:-1]).tolist()
        fits = {most: self.fit(most) for most in set(longest)}
        together: list[Cut] = []  # small batches, laid out at once
        cells = 0
        for start, stop, most in zip(ends[:-1], ends[1:], longest, strict=True):
            length = fits[most]
            own = _CELLS if length is None else (stop - start) * length
            if together and cells + own > _CELLS:
                yield from self._small_batches(together)
                together, cells = [], 0
            if length is None:
                yield None
            else:
                together.append((start, stop, length))
                cells += own
        yield from self._small_batches(together)

    def _small_batches(self, cuts: list[Cut]) -> Iterator[dict[str, Any]]:
        """Return what `_batch` does for each of some neighbouring batches."""
        if len(cuts) < 2:
            yield from (self._batch(*cut) for cut in cuts)
            return
        first, last = cuts[0][0], cuts[-1][1]
        own, ends = slice(self.ends[first], self.ends[last]), self.ends[first : last + 1] - self.ends[first]
        starts, stops, lengths = np.array(cuts).T
        wide = np.repeat(lengths, stops - starts)
        flat = {name: pad_end_to_end(values[own], ends, wide, fill, self.side) for name, (values, fill) in self.ragged.items()}
        if MASK not in flat:
            flat[MASK] = mask_end_to_end(ends, wide, self.side)
        at = 0
        for start, stop, length in cuts:
            shape, after = (stop - start, length), at + (stop - start) * length
            batch: dict[str, Any] = {}
            for name, values in flat.items():
                batch[name] = mx.array(_view(values[at:after].reshape(shape)))
            at = after
            self._add_singles(batch, start, stop)
            yield batch

    def _batch(self, start: int, stop: int, length: int) -> dict[str, Any]:
        real = places_of(self.counts[start:stop], length, self.side)
        own = slice(self.ends[start], self.ends[stop])
        batch: dict[str, Any] = {name: _array(pad_rows(values[own], real, fill)) for name, (values, fill) in self.ragged.items()}
        if MASK not in batch:
            batch[MASK] = _array(real.astype(np.int32))
        self._add_singles(batch, start, stop)
        return batch

    def _add_singles(self, batch: dict[str, Any], start: int, stop: int) -> None:
        for name, values in self.single.items():
            some = values[start:stop]
            batch[name] = _array(some) if isinstance(some, np.ndarray) else tuple(some.to_pylist())


def _array(values: NDArray[Any]) -> mx.array:
    return mx.array(_view(values))


class Columnwise(Choosing):
    """A collator that makes one batch of all examples, or, when they are a whole chunk, cuts many from it."""

    __slots__ = ()

    @abstractmethod
    def read(self, examples: Examples) -> Columns:
        """Read and check all columns. Raises for any row what a batch with that row would raise."""

    def check(self, schema: Schema) -> None:
        """Raise `SchemaError` for columns that are not there, or of a type that has no place in a batch: before any row is read."""
        self.read(Examples(no_rows(schema)))

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Make one batch of all examples."""
        view = as_view(examples)
        return self.read(view).batch(0, len(view))


class Padded(Columnwise):
    """One with `lengths` and `pad_multiple`; `longest` and `padded` are what `shapes` asks it."""

    __slots__ = ()
    lengths: tuple[int, ...]
    pad_multiple: int
    vocab_size: int | None

    @property
    def longest(self) -> int | None:
        """The longest row that can be collated; None: any."""
        return self.lengths[-1] if self.lengths else None

    def padded(self, longest: int) -> int:
        """Return the length that a group is padded to whose longest row has so many values."""
        return next(each for each in self.lengths if each >= longest) if self.lengths else padded_length(longest, self.pad_multiple)

    def fit(self, longest: int) -> int | None:
        """Return what rows are padded to of which the longest has so many values; None where it is too long."""
        return None if self.longest is not None and longest > self.longest else self.padded(longest)

    def tokens(self, examples: Examples, wanted_by: str) -> tuple[Ids, Ends]:
        """Read the tokens: (ids of all rows, end to end; ends). Raises `DataError` for an id outside the vocabulary."""
        found = lists_of(examples, "input_ids", wanted_by)
        check_ids(examples, "input_ids", found, self.vocab_size, wanted_by)
        return found

    def common(self, examples: Examples, ends: Ends, wanted_by: str) -> Callable[[int, int], int]:
        """Return the function that says what some of the rows are padded to. It raises `DataError` for a row that is too long."""
        counts = ends[1:] - ends[:-1]

        def length(start: int, stop: int) -> int:
            at = partial(_at, examples, start, wanted_by)
            return common_length(counts[start:stop], at, lengths=self.lengths, pad_multiple=self.pad_multiple)

        return length


def _at(examples: Examples, start: int, wanted_by: str, place: int) -> str:
    return at_place(examples, "input_ids", start + place, wanted_by)


def aligned_values(examples: Examples, column: str, ends: Ends, wanted_by: str, *, integers: bool = False) -> NDArray[Any]:
    """Read a column of lists that has one number for each token, such as `token_type_ids`: the numbers of all rows, end to end."""
    values, own = (lists_of if integers else ragged_of)(examples, column, wanted_by)
    check_same_lengths(("input_ids", ends), (column, own), examples.chunk, wanted_by, of=GROUP)
    return values


def masks_of(examples: Examples, ends: Ends, wanted_by: str) -> dict[str, PaddedColumn]:
    """Read the attention masks of the rows, where they have some because `pad` stands before."""
    return {MASK: (aligned_values(examples, MASK, ends, wanted_by, integers=True), 0)} if MASK in examples.names else {}


def carried_columns(examples: Examples, names: Sequence[str], wanted_by: str) -> dict[str, Any]:
    """Read columns as they are carried into a batch: numbers, tensors and lists of one length as arrays [N, ...], text as it is."""
    return {name: _carried(examples, name, wanted_by) for name in names}


def _carried(examples: Examples, name: str, wanted_by: str) -> Any:
    column = column_of(examples, name, wanted_by)
    return column if is_text(value_type(column.type)) else numbers_of(examples, name, wanted_by)


def carried(examples: Examples, names: Sequence[str], wanted_by: str) -> dict[str, Any]:
    """Return columns as they go into a batch: text as a tuple of strings, numbers as an array [B], tensors and lists as [B, ...]."""
    columns = carried_columns(examples, names, wanted_by)
    return {name: mx.array(values) if isinstance(values, np.ndarray) else tuple(values.to_pylist()) for name, values in columns.items()}
