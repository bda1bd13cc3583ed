"""The collator for encoder-decoder models: the source, and the target twice, as inputs and as labels."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen

from mlxfp.collators.columns import Collator, as_view, column_names
from mlxfp.collators.padding import pad_rows, tokens_of
from mlxfp.collators.texts import carried
from mlxfp.core.checks import check_integer, check_positive, check_text
from mlxfp.core.chunks import Example
from mlxfp.core.errors import ArgumentError
from mlxfp.core.parts import Part


def seq2seq(  # noqa: PLR0913  # two texts, each with its length
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
) -> Collator:
    """Make the collator for encoder-decoder models, from token ids in `input_ids` and in the column `target`.

    The batch holds `input_ids` and `attention_mask` int32[B, L] of the source, and of the target `labels`, `decoder_input_ids` and
    `decoder_attention_mask` int32[B, T]. `labels` are the target's tokens, `ignore_index` on padding; `decoder_input_ids` are the same
    shifted right behind `start_id`, so at each place the decoder has seen the tokens before the label (Sutskever et al., 2014).

    L and T are `length` and `target_length` if given, else the longest rows rounded up to `pad_multiple`. Raises `DataError` for a row
    that is longer, and for an id that is not below `vocab_size`, naming the example.

    >>> collator = seq2seq(pad_id=0, start_id=1)
    >>> batch = collator([{"input_ids": [5, 6], "labels": [7, 8, 2]}, {"input_ids": [5], "labels": [9, 2]}])
    >>> batch["decoder_input_ids"].tolist(), batch["labels"].tolist()
    ([[1, 7, 8], [1, 9, 0]], [[7, 8, 2], [9, 2, -100]])

    See also: `tokenize(..., column="summary", into="labels")`, which makes the second column.
    """
    check_integer(pad_id=pad_id, start_id=start_id, ignore_index=ignore_index)
    check_text(target=target)
    sizes = {"vocab_size": vocab_size, "length": length, "target_length": target_length}
    check_positive(pad_multiple=pad_multiple, **{name: size for name, size in sizes.items() if size is not None})
    if pad_multiple != 1 and None not in (length, target_length):
        raise ArgumentError(f"Fixed lengths need no pad_multiple, got pad_multiple={pad_multiple}. Leave it or a length out.")
    fixed, target_fixed = (() if each is None else (each,) for each in (length, target_length))
    carry = column_names(carry=carry)
    return _Seq2seq(pad_id, start_id, target, vocab_size, ignore_index, fixed, target_fixed, pad_multiple, carry)


@frozen(repr=False)
class _Seq2seq(Part):
    pad_id: int
    start_id: int
    target: str = "labels"
    vocab_size: int | None = None
    ignore_index: int = -100
    lengths: tuple[int, ...] = ()
    target_lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    carry: tuple[str, ...] = ()

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        source = tokens_of(view, "input_ids", _NAME, vocab_size=self.vocab_size, lengths=self.lengths, pad_multiple=self.pad_multiple)
        target = tokens_of(
            view, self.target, _NAME, vocab_size=self.vocab_size, lengths=self.target_lengths, pad_multiple=self.pad_multiple
        )
        decoder = np.full(target.real.shape, self.start_id, np.int32)
        decoder[:, 1:] = pad_rows(target.ids, target.real, self.pad_id)[:, :-1]
        batch = {
            "input_ids": source.padded(self.pad_id),
            "attention_mask": source.mask(),
            "decoder_input_ids": mx.array(np.where(target.real, decoder, np.int32(self.pad_id))),
            "decoder_attention_mask": target.mask(),
            "labels": target.padded(self.ignore_index),
        }
        return batch | carried(view, self.carry, _NAME)


_NAME = "collators.seq2seq"
