"""Padding of ragged rows to rectangles, with NumPy on whole columns."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.gathering import Pieces
from mlxfp.core.arrow.ragged import Ends, Ragged
from mlxfp.core.chunks import Indices
from mlxfp.data.lengths.shape_planning import check_lengths
from mlxfp.support.checks import check_choice, check_integer, check_positive, not_none
from mlxfp.support.errors import ArgumentError, DataError

Side = Literal["left", "right"]


def check_ids(**values: int) -> None:
    """Raise an error unless every value is a 32-bit integer, as the ids and labels of batches are."""
    check_integer(**values)
    for name, value in values.items():
        if not -(2**31) <= value < 2**31:
            raise ArgumentError(f"{name} must be a 32-bit integer, as the ids of a batch are, got {name}={value!r:.40}.")


def check_padding(*, length: int | None, pad_multiple: int, side: str = "right", lengths: Sequence[int] = ()) -> tuple[int, ...]:
    """Check the common padding arguments of collators, and return the allowed padded lengths.

    An empty tuple means that each batch is padded to the length of its longest row.
    """
    check_positive(pad_multiple=pad_multiple, **not_none(length=length))
    check_choice(("left", "right"), side=side)
    if length is not None and pad_multiple != 1:
        raise ArgumentError(
            f"A fixed length needs no pad_multiple, got length={length} and pad_multiple={pad_multiple}. Remove one of these arguments."
        )
    if not len(lengths):
        return () if length is None else (length,)
    check_lengths(lengths)
    if length is not None or pad_multiple != 1:
        raise ArgumentError(f"lengths={list(lengths)} already gives all padded lengths. Remove length and pad_multiple.")
    return tuple(lengths)


def padded_mask(
    ends: Ends, at: Callable[[int], str], *, lengths: tuple[int, ...], pad_multiple: int, cut: str | None = None
) -> NDArray[np.bool_]:
    """Return a mask, bool[B, length]: True for values, and False for padding.

    Raises `DataError` for a row that is too long. The message begins with `at(row)`. `cut` is the code of a call that shortens rows.
    """
    rows = np.diff(ends)
    length = fitting_length(int(rows.max()), lengths, pad_multiple)
    if length is None:
        raise too_long(at(int(rows.argmax())), int(rows.max()), lengths[-1], cut)
    return real_mask(ends, length, "right")


@lru_cache(maxsize=1024)
def fitting_length(longest: int, lengths: tuple[int, ...], pad_multiple: int) -> int | None:
    """Return the first of `lengths` that is at least `longest`, or None. Without `lengths`, round `longest` up to `pad_multiple`."""
    return next((length for length in lengths if length >= longest), None) if lengths else padded_length(longest, pad_multiple)


def too_long(at: str, count: int, most: int, cut: str | None = None) -> DataError:
    """Return the error for a row with `count` values, more than `most`. `cut` is the code of a call that shortens rows."""
    return DataError(
        f"{at} has {count} values, more than the padded length of {most}. "
        f"Cut the rows before batch with {cut or f'tokenize(max_length={most})'}, or pad to a larger length."
    )


def padded_length(longest: int, multiple: int) -> int:
    """Round `longest` up to a multiple of `multiple`. The result is at least `multiple`, because batches need non-empty arrays."""
    return max(1, -(-longest // multiple)) * multiple


def real_mask(ends: Ends, length: int, side: Side) -> NDArray[np.bool_]:
    """Return the mask of values (True) and padding (False), bool[B, length], for row bounds int64[B + 1]."""
    return mask_of_counts((ends[1:] - ends[:-1]).astype(np.int32)[:, None], length, side)


def mask_of_counts(counts: NDArray[np.int32], length: int, side: Side) -> NDArray[np.bool_]:
    """Return a mask, bool[B, length]: True for values, and False for padding. Row `i` has `counts[i, 0]` values."""
    positions = _positions(length)
    real: NDArray[np.bool_] = positions < counts if side == "right" else positions >= length - counts
    return real


@lru_cache(maxsize=64)
def _positions(length: int) -> NDArray[np.int32]:
    return np.arange(length, dtype=np.int32)


def pad_rows(values: NDArray[Any], real: NDArray[np.bool_], fill: float) -> NDArray[Any]:
    """Return a padded array [B, length, ...]: `values`, row by row, where the mask `real` is True, and `fill` elsewhere."""
    shape = (*real.shape, *values.shape[1:])
    if len(values) == real.size:  # no row is padded
        return values.reshape(shape)
    if fill:
        out = np.empty(shape, values.dtype)
        out.fill(fill)  # For small arrays, `np.full` takes twice as long as `np.empty` with `fill`.
    else:
        out = np.zeros(shape, values.dtype)
    out[real] = values
    return out


def pad_even(values: NDArray[Any], length: int, fill: float, side: Side) -> NDArray[Any]:
    """Pad equally long rows [B, N] to [B, length]. If no padding is needed, return the rows unchanged, possibly as a view."""
    rows, size = values.shape
    if size == length:
        return values
    out = np.full((rows, length), fill, values.dtype)
    out[:, slice(size) if side == "right" else slice(length - size, None)] = values
    return out


@lru_cache(maxsize=64)
def mask_even(rows: int, size: int, length: int, side: Side) -> NDArray[np.int32]:
    """Return the mask of the rows padded by `pad_even`, int32[rows, length]: 1 for values, 0 for padding."""
    return pad_even(np.ones((rows, size), np.int32), length, 0, side)


def pad_end_to_end(rows: Ragged, lengths: Indices, fill: float, side: Side) -> NDArray[Any]:
    """Pad row `i` to the length `lengths[i]`, and return the concatenated rows.

    The padded rows must have fewer than 2 GB together. For many small batches, one call is three times as fast as calls of `pad_rows`.
    """
    values, counts, width = rows.values, rows.lengths, rows.values.dtype.itemsize
    missing = lengths - counts
    if not missing.any() and counts.sum() == len(values):  # No row needs padding, and `values` has no values of other rows.
        return values
    padding = _halves(values.dtype, fill, fill, _power(missing))
    pieces, after = Pieces(2 * len(counts)), int(side == "right")
    pieces.put(slice(1 - after, None, 2), pa.py_buffer(np.ascontiguousarray(values)), rows.starts * width, counts * width)
    pieces.put(slice(after, None, 2), pa.py_buffer(padding), np.zeros_like(missing), missing * width)
    return np.frombuffer(pieces.joined()[1], values.dtype)


def mask_end_to_end(counts: Indices, lengths: Indices, side: Side) -> NDArray[np.int32]:
    """Return the mask of the rows padded by `pad_end_to_end`, int32[sum of lengths]: 1 for values, 0 for padding."""
    if np.array_equal(counts, lengths):
        return np.ones(counts.sum(), np.int32)
    first = counts if side == "right" else lengths - counts  # number of leading ones (or zeros, with left padding) in each mask row
    most = _power(lengths)
    halves, width = _halves(np.dtype(np.int32), side == "right", side == "left", most), np.dtype(np.int32).itemsize
    pieces = Pieces(len(counts))  # `halves` holds ones followed by zeros, or zeros followed by ones. Each mask row is a slice of `halves`.
    pieces.put(slice(None), pa.py_buffer(halves), (most - first) * width, lengths * width)
    return np.frombuffer(pieces.joined()[1], np.int32)


def _power(numbers: NDArray[np.int64]) -> int:
    """Return the smallest power of two that is at least the maximum of `numbers`."""
    return 1 << max(0, int(numbers.max()) - 1).bit_length()


@lru_cache(maxsize=64)
def _halves(dtype: np.dtype[Any], first: float, second: float, size: int) -> NDArray[Any]:
    return np.repeat(np.array([first, second], dtype), size)
