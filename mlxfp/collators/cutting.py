"""Collators for rows of different lengths. The columns of many rows are read in one step, then padded batch by batch."""

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import GROUP, Cutting, as_view, at_row, column_of, lists_of, numbers_of, ragged_of
from mlxfp.collators.padding import Side, fitting_length, mask_end_to_end, mask_of_counts, pad_end_to_end, pad_rows, too_long
from mlxfp.core.arrow.ragged import Ends, Ragged, check_same_lengths, row_of
from mlxfp.core.chunks import Example, Schema, no_rows
from mlxfp.core.examples import Examples
from mlxfp.support.arrow_types import is_list_like, is_text, value_type
from mlxfp.support.errors import DataError, SchemaError

PaddedColumn = tuple[NDArray[Any], float]  # concatenated values of all rows, and the padding value
Cut = tuple[int, int, int]  # (first row, end row, padded length) of a batch; the end row is exclusive

MASK = "attention_mask"
OF_PACK = "segment_ids", "positions"  # columns of `pack`
_view: Any = memoryview  # MLX copies a memoryview in two thirds of the time that a NumPy array takes.
_CELLS = 1 << 19  # Maximum number of values per column in a padding call. Smaller calls are slower (measured on rows of 45 tokens).


@frozen(eq=False)
class Columns:
    """Values of many rows, read and checked in one step. The method `batch` pads a range of these rows."""

    collator: "Padded"
    examples: Examples
    ends: Ends  # index of the first value of each row, followed by the number of values: int64[N + 1]
    ragged: Mapping[str, PaddedColumn]
    single: Mapping[str, Any]  # columns with one value per row: arrays [N, ...], or Arrow columns of text

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """Number of values per row in a batch: int32[N, 1]. Comparisons in 32 bits take half the time of 64 bits."""
        counts: NDArray[np.int32] = np.maximum(0, np.diff(self.ends) - self.collator.spare).astype(np.int32)
        return counts[:, None]

    def batch(self, start: int, stop: int) -> dict[str, Any]:
        """Return the batch of the rows from `start` to `stop`: ragged columns as [B, L], single values as [B, ...], text as a tuple.

        If no column has the name of the mask, the batch gets a mask int32[B, L], 1 on values and 0 on padding.
        """
        counts = self.counts[start:stop, 0]
        length = self.collator.fit(int(counts.max()))
        if length is None:
            raise self.collator.too_long(self.examples, start + int(counts.argmax()), int(counts.max()))
        return self._batch(start, stop, length)

    def batches(self, ends: Sequence[int]) -> Iterator[dict[str, Any] | None]:
        """Yield a batch for each group of consecutive rows, or None for a group with a row that is too long.

        Group `i` consists of the rows from `ends[i]` to `ends[i + 1]` (exclusive).
        """
        longest = np.maximum.reduceat(self.counts[:, 0], ends[:-1]).tolist()
        fits = {most: self.collator.fit(most) for most in set(longest)}
        together: list[Cut] = []  # Small batches are collected, and then padded together in one step.
        cells = 0
        for start, stop, most in zip(ends[:-1], ends[1:], longest, strict=True):
            length = fits[most]
            added = _CELLS if length is None else (stop - start) * length
            if together and cells + added > _CELLS:
                yield from self._small_batches(together)
                together, cells = [], 0
            if length is None:
                yield None
            else:
                together.append((start, stop, length))
                cells += added
        yield from self._small_batches(together)

    def _small_batches(self, cuts: list[Cut]) -> Iterator[dict[str, Any]]:
        """Yield one batch for each row range in `cuts`. The ranges are adjacent. All rows are padded in one step, which is faster."""
        if len(cuts) < 2:
            yield from (self._batch(*cut) for cut in cuts)
            return
        first, last = cuts[0][0], cuts[-1][1]
        selected, counts = slice(self.ends[first], self.ends[last]), self.counts[first:last, 0].astype(np.int64)
        begins = self.ends[first:last] - self.ends[first]
        starts, stops, lengths = np.array(cuts).T
        wide = np.repeat(lengths, stops - starts)
        side = self.collator.side
        flat = {
            name: pad_end_to_end(Ragged(values[selected], begins, counts), wide, fill, side) for name, (values, fill) in self.ragged.items()
        }
        if self.collator.mask not in flat:
            flat[self.collator.mask] = mask_end_to_end(counts, wide, side)
        shapes = [(stop - start, length) for start, stop, length in cuts]
        for (start, stop, _), *arrays in zip(cuts, *(_rectangles(values, shapes) for values in flat.values()), strict=True):
            batch: dict[str, Any] = {name: mx.array(_view(array)) for name, array in zip(flat, arrays, strict=True)}
            self._add_singles(batch, start, stop)
            yield batch

    def _batch(self, start: int, stop: int, length: int) -> dict[str, Any]:
        real = mask_of_counts(self.counts[start:stop], length, self.collator.side)
        kept = self._kept(start, stop)
        batch: dict[str, Any] = {name: _array(pad_rows(kept(values), real, fill)) for name, (values, fill) in self.ragged.items()}
        if self.collator.mask not in batch:
            batch[self.collator.mask] = _array(real.astype(np.int32))
        self._add_singles(batch, start, stop)
        return batch

    def _kept(self, start: int, stop: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Return a function that takes the values of all rows, and returns the values from row `start` to row `stop` (exclusive).

        If `spare` is 1, labels are next tokens. The function then leaves out the last token of each row, because a last token has no label.
        """
        selected, ends = slice(self.ends[start], self.ends[stop]), self.ends[start : stop + 1] - self.ends[start]
        if not self.collator.spare:
            return lambda values: values[selected]
        lengths = np.diff(ends)
        if lengths.min() == lengths.max() > 0:
            return lambda values: values[selected].reshape(stop - start, -1)[:, :-1].reshape(-1)
        chosen = np.ones(ends[-1], bool)
        chosen[(ends[1:] - 1)[lengths > 0]] = False
        return lambda values: values[selected][chosen]

    def _add_singles(self, batch: dict[str, Any], start: int, stop: int) -> None:
        for name, values in self.single.items():
            batch[name] = _as_carried(values[start:stop])


def _rectangles(values: NDArray[Any], shapes: Sequence[tuple[int, int]]) -> Iterable[NDArray[Any]]:
    """Split concatenated numbers into arrays of the given shapes."""
    if len(set(shapes)) == 1:
        return values.reshape(-1, *shapes[0])
    ends = accumulate((rows * length for rows, length in shapes), initial=0)
    return (values[first:stop].reshape(shape) for (first, stop), shape in zip(pairwise(ends), shapes, strict=True))


def _as_carried(values: Any) -> Any:
    return _array(values) if isinstance(values, np.ndarray) else tuple(values.to_pylist())


def _array(values: NDArray[Any]) -> mx.array:
    return mx.array(_view(values))


class Padded(Cutting):
    """Collator that pads rows of token ids. The columns of many rows are read in one step, then padded batch by batch."""

    __slots__ = ()
    column = "input_ids"
    prefix = ""  # prefix of the names of the padded arrays
    lengths: tuple[int, ...]
    pad_multiple: int
    side: Side
    carry: tuple[str, ...]
    packed: bool | None = None  # True if the stage `pack` made the rows, otherwise False. None: the collator accepts no packed rows.
    spare = 0  # 1 if the last token of a row is used only as a label, else 0

    @property
    def mask(self) -> str:
        """Name of the mask in a batch."""
        return f"{self.prefix}{MASK}"

    @abstractmethod
    def read(self, examples: Examples) -> Columns:
        """Read all columns of the examples, and check all values."""

    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[dict[str, Any] | None]:
        """Read all columns at once, and yield a batch for each group. Group `i` consists of the rows from `ends[i]` to `ends[i + 1]`."""
        return self.read(examples).batches(ends)

    def check(self, schema: Schema) -> None:
        """Check the columns before any row is read.

        Raises `SchemaError` for a missing column and for a wrong type, and for packed rows, as `__call__` does.
        """
        self.read(Examples(no_rows(schema)))
        self._check_not_packed(schema.names)

    def _check_not_packed(self, columns: Sequence[str]) -> None:
        """Raise `SchemaError` for rows of `pack` if the batch would lose the columns `segment_ids` and `positions`."""
        if not self.packed:
            short = self.name.removeprefix("collators.")
            remedy = "Use causal, masked or tokens with packed=True" if self.packed is None else f"Write {short}(..., packed=True)"
            check_not_packed(columns, self.name, remedy, self.carry)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Return a single batch of all examples."""
        view = as_view(examples)
        self._check_not_packed(view.names)
        return self.read(view).batch(0, len(view))

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens in a row, or None for any number. `batch_shapes` computes the possible shapes from this maximum."""
        return self.lengths[-1] + self.spare if self.lengths else None

    def padded(self, longest: int) -> int | None:
        """Return the padded length of a group whose longest row has `longest` tokens, or None if this row is too long."""
        return self.fit(max(0, longest - self.spare))

    def fit(self, longest: int) -> int | None:
        """Return the padded length of a group whose longest row has `longest` values, or None if this row is too long."""
        return fitting_length(longest, self.lengths, self.pad_multiple)

    def too_long(self, examples: Examples, row: int, count: int) -> DataError:
        """Return the error for a row with `count` values, more than the maximum."""
        return too_long(at_row(examples, self.column, row, self.name), count, self.lengths[-1])


def aligned_values(examples: Examples, column: str, ends: Ends, wanted_by: str, *, integers: bool = False) -> NDArray[Any]:
    """Return the concatenated values of a column with one number per token, such as `token_type_ids`."""
    values, column_ends = (lists_of if integers else ragged_of)(examples, column, wanted_by)
    check_same_lengths(("input_ids", ends), (column, column_ends), examples.chunk, wanted_by, of=GROUP)
    return values


def document_columns(examples: Examples, ends: Ends, wanted_by: str, *, packed: bool) -> dict[str, PaddedColumn]:
    """Return the values of the columns `segment_ids` and `positions`. Return an empty dict if `packed` is False."""
    return {name: (aligned_values(examples, name, ends, wanted_by, integers=True), 0) for name in OF_PACK if packed}


def check_not_packed(columns: Sequence[str], wanted_by: str, remedy: str, carry: Sequence[str]) -> None:
    """Raise `SchemaError` for rows of `pack`, unless `carry` contains at least one of the columns `segment_ids` and `positions`."""
    if set(columns).issuperset(OF_PACK) and not set(carry).intersection(OF_PACK):
        raise SchemaError(
            f"{wanted_by} would lose the columns 'segment_ids' and 'positions' of pack, so tokens would attend to other documents. "
            f"{remedy}, or remove the columns with drop_columns(['segment_ids', 'positions']) before batch."
        )


def side_columns(examples: Examples, ends: Ends, wanted_by: str, *, type_ids: bool) -> dict[str, PaddedColumn]:
    """Return the column `attention_mask` if the rows have such a column. If `type_ids` is True, also return `token_type_ids`."""
    names = ([MASK] if examples.chunk.schema.get_field_index(MASK) >= 0 else []) + (["token_type_ids"] if type_ids else [])
    return {name: (aligned_values(examples, name, ends, wanted_by, integers=True), 0) for name in names}


def check_unpadded(examples: Examples, column: str, lists: tuple[NDArray[Any], Ends], pad_id: int, wanted_by: str) -> None:
    """Raise `DataError` if the column `attention_mask` marks the padding of `column`, unless the column is `input_ids`."""
    index = examples.chunk.schema.get_field_index(MASK)
    if column == "input_ids" or index < 0 or not is_list_like(examples.chunk.schema.field(index).type):
        return
    (ids, ends), (mask, mask_ends) = lists, ragged_of(examples, MASK, wanted_by)
    if np.array_equal(ends, mask_ends) and not mask.all() and (ids[mask == 0] == pad_id).all():
        row = row_of(ends, int(np.argmin(mask)))
        raise DataError(
            f"{at_row(examples, column, row, wanted_by)} has padding from pad, but {wanted_by} uses no mask of pad for this column, "
            f"so a model would use the padding as tokens. Remove pad(..., column={column!r}), because the collator pads each batch."
        )


def carried_columns(examples: Examples, names: Sequence[str], wanted_by: str, arrays: Container[str]) -> dict[str, Any]:
    """Return the columns `names` of the rows, for the argument `carry` of a collator. `arrays` names the other arrays of the batch.

    Text stays an Arrow column. Other values become arrays [N, ...]. Raises `SchemaError` for a column with a name in `arrays`.
    """
    for name in names:
        if name in arrays:
            raise SchemaError(
                f"{wanted_by} makes an array with the name of a column: got {name!r} in carry. Rename the column before batch with "
                f"rename_columns({{{name!r}: {name + '_column'!r}}})."
            )
    columns = {name: column_of(examples, name, wanted_by) for name in names}
    texts = {name: column for name, column in columns.items() if is_text(value_type(column.type))}
    return {name: texts[name] if name in texts else numbers_of(examples, name, wanted_by) for name in names}


def with_carried(batch: dict[str, Any], examples: Examples, names: Sequence[str], wanted_by: str) -> dict[str, Any]:
    """Add the columns of `carry` to a batch: text as a tuple of strings, numbers as an array [B], tensors and lists as [B, ...]."""
    return batch | {name: _as_carried(values) for name, values in carried_columns(examples, names, wanted_by, batch).items()}
