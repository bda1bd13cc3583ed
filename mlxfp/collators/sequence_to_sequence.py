"""Collator for encoder-decoder models: the target serves as decoder input and as labels."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import Choosing, as_view, at_row, ids_of
from mlxfp.collators.cutting import MASK, check_not_packed, check_unpadded, side_columns, with_carried
from mlxfp.collators.padding import check_ids, pad_rows, padded_mask
from mlxfp.core.arrow.ragged import Ends
from mlxfp.core.chunks import Example, Schema
from mlxfp.core.examples import Examples
from mlxfp.support.checks import as_strings, check_positive, check_text, explain_call, not_none
from mlxfp.support.errors import ArgumentError


@explain_call
def seq2seq(  # noqa: PLR0913  # two texts with separate lengths
    *,
    pad_id: int,
    start_id: int,
    target: str = "labels",
    vocab_size: int | None = None,
    ignore_index: int = -100,
    length: int | None = None,
    target_length: int | None = None,
    pad_multiple: int = 1,
    carry: Sequence[str] = (),
) -> "_Seq2seq":
    """Return the collator for encoder-decoder models, for token ids in `input_ids` and in the column `target`.

    The batch contains `input_ids` and `attention_mask` int32[B, L] of the source. After `pad`, the mask is the column `attention_mask` of
    the rows. For the target, the batch contains `labels`,
    `decoder_input_ids` and `decoder_attention_mask` int32[B, T]. `labels` are the tokens of the target, with `ignore_index` on padding.
    `decoder_input_ids` are the same tokens after `start_id`, shifted right by one position, so the decoder sees only the tokens before each
    label (Sutskever et al., 2014).

    L and T are `length` and `target_length` if given, else the longest row lengths, rounded up to `pad_multiple`. Raises `DataError` for a
    row longer than `length` or `target_length`, and for an id outside `vocab_size`. The message names the row.

    >>> collator = seq2seq(pad_id=0, start_id=1)
    >>> batch = collator([{"input_ids": [5, 6], "labels": [7, 8, 2]}, {"input_ids": [5], "labels": [9, 2]}])
    >>> batch["decoder_input_ids"].tolist(), batch["labels"].tolist()
    ([[1, 7, 8], [1, 9, 0]], [[7, 8, 2], [9, 2, -100]])

    See also: `tokenize(..., column="summary", into="labels")`, which makes the second column.
    """
    check_ids(pad_id=pad_id, start_id=start_id, ignore_index=ignore_index)
    check_text(target=target)
    check_positive(pad_multiple=pad_multiple, **not_none(vocab_size=vocab_size, length=length, target_length=target_length))
    if pad_multiple != 1 and None not in (length, target_length):
        raise ArgumentError(f"Fixed lengths need no pad_multiple, got pad_multiple={pad_multiple}. Remove pad_multiple or a length.")
    fixed, target_fixed = (() if number is None else (number,) for number in (length, target_length))
    carry = as_strings("carry", carry)
    return _Seq2seq(pad_id, start_id, target, vocab_size, ignore_index, fixed, target_fixed, pad_multiple, carry)


@frozen(repr=False)
class _Seq2seq(Choosing):
    pad_id: int
    start_id: int
    target: str = "labels"
    vocab_size: int | None = None
    ignore_index: int = -100
    lengths: tuple[int, ...] = ()
    target_lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    carry: tuple[str, ...] = ()
    optional_columns = (MASK,)

    @property
    def uses(self) -> tuple[str, ...]:
        return "input_ids", MASK, self.target, *self.carry

    def check(self, schema: Schema) -> None:
        """Check the columns before any row is read.

        Raises `SchemaError` for a missing column. Also raises `SchemaError` for packed rows (rows of `pack`), because a batch would lose
        the columns `segment_ids` and `positions`.
        """
        super().check(schema)
        self._check_not_packed(schema.names)

    def _check_not_packed(self, columns: Sequence[str]) -> None:
        check_not_packed(columns, self.name, "Remove pack", self.carry)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        self._check_not_packed(view.names)
        ids, ends, real = self._arranged(view, "input_ids", self.lengths)
        masks = side_columns(view, ends, self.name, type_ids=False)
        mask = pad_rows(masks[MASK][0], real, 0) if masks else real
        labels, label_ends, real_labels = self._arranged(view, self.target, self.target_lengths)
        check_unpadded(view, self.target, (labels, label_ends), self.pad_id, self.name)
        decoder = np.full(real_labels.shape, self.start_id, np.int32)
        inputs = pad_rows(labels, real_labels, self.pad_id)[:, :-1]
        decoder[:, 1:] = np.where(inputs == self.ignore_index, np.int32(self.pad_id), inputs)
        batch = {
            "input_ids": mx.array(pad_rows(ids, real, self.pad_id)),
            "attention_mask": mx.array(mask.astype(np.int32)),
            "decoder_input_ids": mx.array(np.where(real_labels, decoder, np.int32(self.pad_id))),
            "decoder_attention_mask": mx.array(real_labels.astype(np.int32)),
            "labels": mx.array(pad_rows(labels, real_labels, self.ignore_index)),
        }
        return with_carried(batch, view, self.carry, self.name)

    def _arranged(self, view: Examples, column: str, lengths: tuple[int, ...]) -> tuple[NDArray[np.int32], Ends, NDArray[np.bool_]]:
        """Return the token ids of all rows, concatenated, the row bounds, and a mask bool[B, L]: True for tokens, False for padding."""
        ids, ends = ids_of(view, column, self.vocab_size, self.name)
        at = partial(at_row, view, column, wanted_by=self.name)
        return ids, ends, padded_mask(ends, at, lengths=lengths, pad_multiple=self.pad_multiple)
