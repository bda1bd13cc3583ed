"""Padding ragged rows to a rectangle with whole-column numpy."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import Ends, at_place, check_aligned, check_ids, lists_of
from mlxfp.core.checks import check_choice, check_positive
from mlxfp.core.errors import ArgumentError, DataError
from mlxfp.core.examples import Examples
from mlxfp.core.parts import Part
from mlxfp.data.shaping import check_lengths

Side = Literal["left", "right"]

_MASK = "attention_mask"


@frozen
class Tokens:
    """The token ids of a group, and where they go."""

    column: str
    ids: NDArray[np.int32]  # of all rows, end to end
    ends: Ends
    real: NDArray[np.bool_]  # [B, L]: where the ids go, in order; the other places are padding

    def padded(self, fill: int) -> mx.array:
        """Return the ids as int32[B, L], `fill` on padding."""
        return mx.array(pad_rows(self.ids, self.real, fill))

    def mask(self) -> mx.array:
        """Return int32[B, L], 1 on tokens and 0 on padding."""
        return mx.array(self.real.astype(np.int32))


def tokens_of(  # noqa: PLR0913  # a column, and how to pad it
    examples: Examples,
    column: str,
    wanted_by: str,
    *,
    vocab_size: int | None = None,
    lengths: tuple[int, ...] = (),
    pad_multiple: int = 1,
    side: Side = "right",
) -> Tokens:
    """Read a column of token ids, to be padded as `common_length` says.

    Raises `DataError` for a row that is too long, and for an id that is not below `vocab_size`.
    """
    ids, ends = lists_of(examples, column, wanted_by)
    check_ids(examples, column, (ids, ends), vocab_size, wanted_by)
    at = partial(at_place, examples, column, wanted_by=wanted_by)
    common = common_length(ends[1:] - ends[:-1], at, lengths=lengths, pad_multiple=pad_multiple)
    return Tokens(column, ids, ends, real_places(ends, common, side))


def beside_tokens(examples: Examples, tokens: Tokens, column: str, wanted_by: str) -> mx.array:
    """Return a column of lists that goes with the tokens, such as `token_type_ids`: int32[B, L], 0 on padding."""
    values, ends = lists_of(examples, column, wanted_by)
    check_aligned(examples, (tokens.column, tokens.ends), (column, ends), wanted_by)
    return mx.array(pad_rows(values, tokens.real, 0))


def mask_of(examples: Examples, tokens: Tokens, wanted_by: str) -> mx.array:
    """Return the attention mask, int32[B, L]: that of the rows where they have one, because `pad` stands before, else 1 on every token."""
    return beside_tokens(examples, tokens, _MASK, wanted_by) if _MASK in examples.names else tokens.mask()


class Padded(Part):
    """A collator with `lengths` and `pad_multiple`; these members are what `shapes` asks it."""

    __slots__ = ()
    lengths: tuple[int, ...]
    pad_multiple: int

    @property
    def longest(self) -> int | None:
        """The longest row that can be collated; None: any."""
        return self.lengths[-1] if self.lengths else None

    def padded(self, longest: int) -> int:
        """Return the length that a group is padded to whose longest row has so many values."""
        return next(each for each in self.lengths if each >= longest) if self.lengths else padded_length(longest, self.pad_multiple)


def check_padding(*, length: int | None, pad_multiple: int, side: str = "right", lengths: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the fixed lengths that the arguments which collators share say to pad to, none if to the longest row; raise if they cannot."""
    check_positive(pad_multiple=pad_multiple, **({} if length is None else {"length": length}))
    check_choice(("left", "right"), side=side)
    if length is not None and pad_multiple != 1:
        raise ArgumentError(f"A fixed length needs no pad_multiple, got length={length} and pad_multiple={pad_multiple}. Give one of them.")
    if not len(lengths):
        return () if length is None else (length,)
    check_lengths(lengths)
    if length is not None or pad_multiple != 1:
        raise ArgumentError(f"lengths={list(lengths)} say what to pad to. Leave out length and pad_multiple.")
    return tuple(lengths)


def common_length(rows: NDArray[np.int64], at: Callable[[int], str], *, lengths: tuple[int, ...], pad_multiple: int) -> int:
    """Return the length of all rows after padding, whose lengths before it are `rows`.

    That is the first of `lengths` that is enough; without any, the longest row's, rounded up to `pad_multiple`. Raises `DataError` for a
    row that is longer than the last of `lengths`; `at` says where row number i is.
    """
    longest = int(rows.max())
    if not lengths:
        return padded_length(longest, pad_multiple)
    if longest > lengths[-1]:
        raise DataError(
            f"{at(int(rows.argmax()))} has {longest} values, more than the length of {lengths[-1]} to pad to. "
            f"Cut the rows before batch, as tokenize(max_length={lengths[-1]}) does, or pad to a larger length."
        )
    return next(each for each in lengths if each >= longest)


def padded_length(longest: int, multiple: int) -> int:
    """Round the longest length up to a multiple; at least one multiple, so no array is empty.

    >>> padded_length(33, 32), padded_length(0, 8)
    (64, 8)
    """
    return max(1, -(-longest // multiple)) * multiple


def real_places(ends: Ends, length: int, side: Side) -> NDArray[np.bool_]:
    """Return where rows that end at `ends` int64[B + 1] have values after padding: bool[B, length].

    >>> real_places(np.array([0, 1, 3]), 3, "right").astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    lengths = (ends[1:] - ends[:-1]).astype(np.int32)[:, None]  # 32 bits compare in half the time of 64
    places = np.arange(length, dtype=np.int32)
    real: NDArray[np.bool_] = places < lengths if side == "right" else places >= length - lengths
    return real


def pad_rows(values: NDArray[Any], real: NDArray[np.bool_], fill: float) -> NDArray[Any]:
    """Lay out the values of all rows, end to end, at the real places: [B, length, ...] of the values' dtype, `fill` elsewhere.

    >>> pad_rows(np.array([5, 6, 7]), np.array([[True, False], [True, True]]), 0).tolist()
    [[5, 0], [6, 7]]
    """
    out = np.full((*real.shape, *values.shape[1:]), fill, values.dtype)
    out[real] = values
    return out
