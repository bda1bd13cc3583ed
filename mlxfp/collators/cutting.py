"""Collators of ragged rows: columns are read once for many rows, and batches are cut from them."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import GROUP, Cutting, as_view, at_place, column_of, lists_of, numbers_of, ragged_of
from mlxfp.collators.padding import Side, fitting_length, mask_end_to_end, pad_end_to_end, pad_rows, places_of, too_long
from mlxfp.core.arrow.ragged import Ends, Ragged, check_same_lengths
from mlxfp.core.chunks import Example, Schema, no_rows
from mlxfp.core.examples import Examples
from mlxfp.support.arrow_types import is_text, value_type
from mlxfp.support.errors import DataError

PaddedColumn = tuple[NDArray[Any], float]  # the numbers of all rows, end to end, and the number for padding
Cut = tuple[int, int, int]  # a batch: its first row, the row after its last, and the length to pad to

MASK = "attention_mask"
_view: Any = memoryview  # MLX takes two thirds of the time to copy from a buffer as from the array itself
_CELLS = 1 << 19  # values of a column that are padded at once: measured on rows of 45 tokens, fewer are slower


@frozen(eq=False)
class Columns:
    """The columns of many rows, read and checked at once."""

    collator: "Padded"
    examples: Examples
    ends: Ends  # where the values of each row end: int64[N + 1]; the last of a row is left out if the collator has `spare`
    ragged: Mapping[str, PaddedColumn]
    single: Mapping[str, Any]  # one value a row: arrays [N, ...], and Arrow columns of text

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """How many values each row has in a batch: int32[N, 1]. 32 bits compare in half the time of 64."""
        counts: NDArray[np.int32] = np.maximum(0, np.diff(self.ends) - self.collator.spare).astype(np.int32)
        return counts[:, None]

    def batch(self, start: int, stop: int) -> dict[str, Any]:
        """Return the batch of the rows from `start` to `stop`: ragged columns as [B, L], single ones as [B, ...], text as a tuple.

        Unless there is a column `attention_mask`, the batch gets one, int32[B, L], 1 on values and 0 on padding.
        """
        counts = self.counts[start:stop, 0]
        length = self.collator.fit(int(counts.max()))
        if length is None:
            raise self.collator.too_long(self.examples, start + int(counts.argmax()), int(counts.max()))
        return self._batch(start, stop, length)

    def batches(self, ends: Sequence[int]) -> Iterator[dict[str, Any] | None]:
        """Yield the batches of the rows between each two neighbouring `ends`; None for a batch with a row that is too long."""
        longest = np.maximum.reduceat(self.counts[:, 0], ends[:-1]).tolist()
        fits = {most: self.collator.fit(most) for most in set(longest)}
        together: list[Cut] = []  # small batches, padded at once
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
        """Yield what `_batch` returns for each of some neighbouring batches."""
        if len(cuts) < 2:
            yield from (self._batch(*cut) for cut in cuts)
            return
        first, last = cuts[0][0], cuts[-1][1]
        own, counts = slice(self.ends[first], self.ends[last]), self.counts[first:last, 0].astype(np.int64)
        begins = self.ends[first:last] - self.ends[first]
        starts, stops, lengths = np.array(cuts).T
        wide = np.repeat(lengths, stops - starts)
        side = self.collator.side
        flat = {name: pad_end_to_end(Ragged(values[own], begins, counts), wide, fill, side) for name, (values, fill) in self.ragged.items()}
        if self.collator.mask not in flat:
            flat[self.collator.mask] = mask_end_to_end(counts, wide, side)
        shapes = [(stop - start, length) for start, stop, length in cuts]
        for (start, stop, _), *arrays in zip(cuts, *(_rectangles(values, shapes) for values in flat.values()), strict=True):
            batch: dict[str, Any] = {name: mx.array(_view(array)) for name, array in zip(flat, arrays, strict=True)}
            self._add_singles(batch, start, stop)
            yield batch

    def _batch(self, start: int, stop: int, length: int) -> dict[str, Any]:
        real = places_of(self.counts[start:stop], length, self.collator.side)
        kept = self._kept(start, stop)
        batch: dict[str, Any] = {name: _array(pad_rows(kept(values), real, fill)) for name, (values, fill) in self.ragged.items()}
        if self.collator.mask not in batch:
            batch[self.collator.mask] = _array(real.astype(np.int32))
        self._add_singles(batch, start, stop)
        return batch

    def _kept(self, start: int, stop: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Return what takes the values of some rows, end to end, without those that are left out."""
        own, ends = slice(self.ends[start], self.ends[stop]), self.ends[start : stop + 1] - self.ends[start]
        if not self.collator.spare:
            return lambda values: values[own]
        lengths = np.diff(ends)
        if lengths.min() == lengths.max() > 0:
            return lambda values: values[own].reshape(stop - start, -1)[:, :-1].reshape(-1)
        chosen = np.ones(ends[-1], bool)
        chosen[(ends[1:] - 1)[lengths > 0]] = False
        return lambda values: values[own][chosen]

    def _add_singles(self, batch: dict[str, Any], start: int, stop: int) -> None:
        for name, values in self.single.items():
            batch[name] = _as_carried(values[start:stop])


def _rectangles(values: NDArray[Any], shapes: Sequence[tuple[int, int]]) -> Iterable[NDArray[Any]]:
    """Cut numbers that stand end to end into arrays of these shapes."""
    if len(set(shapes)) == 1:
        return values.reshape(-1, *shapes[0])
    ends = accumulate((rows * length for rows, length in shapes), initial=0)
    return (values[first:stop].reshape(shape) for (first, stop), shape in zip(pairwise(ends), shapes, strict=True))


def _as_carried(values: Any) -> Any:
    return _array(values) if isinstance(values, np.ndarray) else tuple(values.to_pylist())


def _array(values: NDArray[Any]) -> mx.array:
    return mx.array(_view(values))


class Padded(Cutting):
    """A collator of token ids that can read the columns of many rows at once, from which `collate` then cuts many batches."""

    __slots__ = ()
    column = "input_ids"
    prefix = ""  # of the names of the padded arrays
    lengths: tuple[int, ...]
    pad_multiple: int
    side: Side
    spare = 0  # 1: the last token of a row is only a label, and left out

    @property
    def mask(self) -> str:
        """The name of the mask in a batch."""
        return f"{self.prefix}{MASK}"

    @abstractmethod
    def read(self, examples: Examples) -> Columns:
        """Read and check all columns; raise what a batch with one of the rows would raise."""

    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[dict[str, Any] | None]:
        """Read all columns, and cut batches from them."""
        return self.read(examples).batches(ends)

    def check(self, schema: Schema) -> None:
        """Raise `SchemaError` for a missing column, or one of a wrong type, before any row is read."""
        self.read(Examples(no_rows(schema)))

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Return one batch of all examples."""
        view = as_view(examples)
        return self.read(view).batch(0, len(view))

    @property
    def longest(self) -> int | None:
        """The length of the longest row that can be collated; None: any. `batch_shapes` uses this and `padded`."""
        return self.lengths[-1] + self.spare if self.lengths else None

    def padded(self, longest: int) -> int | None:
        """Return the length to pad to for a group whose longest row has `longest` tokens; None if it is too long."""
        return self.fit(max(0, longest - self.spare))

    def fit(self, longest: int) -> int | None:
        """Return the length to pad to if the longest row has `longest` values; None if it is too long."""
        return fitting_length(longest, self.lengths, self.pad_multiple)

    def too_long(self, examples: Examples, place: int, count: int) -> DataError:
        """Return the error for a row with too many values (`count`)."""
        return too_long(at_place(examples, self.column, place, self.name), count, self.lengths[-1])


def aligned_values(examples: Examples, column: str, ends: Ends, wanted_by: str, *, integers: bool = False) -> NDArray[Any]:
    """Read a column of lists that has one number for each token, such as `token_type_ids`: the numbers of all rows, end to end."""
    values, own = (lists_of if integers else ragged_of)(examples, column, wanted_by)
    check_same_lengths(("input_ids", ends), (column, own), examples.chunk, wanted_by, of=GROUP)
    return values


def side_columns(examples: Examples, ends: Ends, wanted_by: str, *, type_ids: bool) -> dict[str, PaddedColumn]:
    """Read the attention masks of the rows, if they have any because of an earlier `pad`, and with `type_ids` their token types."""
    names = ([MASK] if examples.chunk.schema.get_field_index(MASK) >= 0 else []) + (["token_type_ids"] if type_ids else [])
    return {name: (aligned_values(examples, name, ends, wanted_by, integers=True), 0) for name in names}


def carried_columns(examples: Examples, names: Sequence[str], wanted_by: str) -> dict[str, Any]:
    """Read the columns of `carry`: numbers, tensors and lists of one length as arrays [N, ...], text as an Arrow column."""
    columns = {name: column_of(examples, name, wanted_by) for name in names}
    texts = {name: column for name, column in columns.items() if is_text(value_type(column.type))}
    return {name: texts[name] if name in texts else numbers_of(examples, name, wanted_by) for name in names}


def carried(examples: Examples, names: Sequence[str], wanted_by: str) -> dict[str, Any]:
    """Return the columns of `carry` for a batch: text as a tuple of strings, numbers as an array [B], tensors and lists as [B, ...]."""
    return {name: _as_carried(values) for name, values in carried_columns(examples, names, wanted_by).items()}
