"""Collator for preference learning, with a chosen and a rejected answer per prompt."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen

from mlxfp.collators.columns import Choosing, as_view, at_row, ids_of
from mlxfp.collators.cutting import MASK, check_unpadded, with_carried
from mlxfp.collators.padding import check_ids, check_padding, fitting_length, pad_rows, real_mask
from mlxfp.core.arrow.ragged import Ends, ends_of
from mlxfp.core.chunks import Example
from mlxfp.core.examples import Examples
from mlxfp.support.checks import as_strings, check_positive, check_text, check_unique, explain_call, not_none
from mlxfp.support.errors import DataError
from mlxfp.text.encoding.framing import gather


@explain_call
def preference(  # noqa: PLR0913  # keyword-only, all but one with defaults
    *,
    pad_id: int,
    prompt: str = "prompt",
    chosen: str = "chosen",
    rejected: str = "rejected",
    vocab_size: int | None = None,
    ignore_index: int = -100,
    length: int | None = None,
    lengths: Sequence[int] = (),
    pad_multiple: int = 1,
    carry: Sequence[str] = (),
) -> "_Preference":
    """Return the collator for `losses.dpo`. Each row has token ids of a `prompt` and of two answers, `chosen` and `rejected`.

    The batch contains `chosen_input_ids`, `chosen_attention_mask`, `chosen_labels`, and the same arrays for `rejected`, all int32[B, L].
    Each row contains the prompt, then the answer, then padding. As in `causal`, a label is the id of the next token, or `ignore_index` if
    the next token is in the prompt or in the padding. A single call of a model with 2B rows can score both answers.

    Columns in `carry` are added to the batch under their names, for example precomputed log-probabilities of a reference model.

    If `length` is given, L is `length`. If `lengths` is given, L is the smallest of `lengths` that fits all rows of the batch. Otherwise, L
    is the largest number of labels in a row, rounded up to `pad_multiple`. Raises `DataError` for a longer row, and for an id outside
    `vocab_size`. The message names the row.

    >>> collator = preference(pad_id=0)
    >>> batch = collator([{"prompt": [5, 6], "chosen": [7, 8, 2], "rejected": [9, 2]}])
    >>> batch["chosen_input_ids"].tolist(), batch["chosen_labels"].tolist()
    ([[5, 6, 7, 8]], [[-100, 7, 8, 2]])
    >>> batch["rejected_input_ids"].tolist(), batch["rejected_labels"].tolist()
    ([[5, 6, 9, 0]], [[-100, 9, 2, -100]])

    See also: `losses.answer_log_probabilities`, which makes the columns of a reference model.
    """
    check_ids(pad_id=pad_id, ignore_index=ignore_index)
    columns = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    check_text(**columns)
    check_unique({"prompt, chosen and rejected": tuple(columns.values())})
    check_positive(**not_none(vocab_size=vocab_size))
    fixed = check_padding(length=length, lengths=lengths, pad_multiple=pad_multiple)
    return _Preference(pad_id, prompt, chosen, rejected, vocab_size, ignore_index, fixed, pad_multiple, as_strings("carry", carry))


@frozen(repr=False)
class _Preference(Choosing):
    pad_id: int
    prompt: str = "prompt"
    chosen: str = "chosen"
    rejected: str = "rejected"
    vocab_size: int | None = None
    ignore_index: int = -100
    lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    carry: tuple[str, ...] = ()
    optional_columns = (MASK,)

    @property
    def uses(self) -> tuple[str, ...]:
        return self.prompt, self.chosen, self.rejected, MASK, *self.carry

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        prompts, prompt_ends = ids_of(view, self.prompt, self.vocab_size, self.name)
        answers = {column: ids_of(view, column, self.vocab_size, self.name) for column in (self.chosen, self.rejected)}
        for column, lists in {self.prompt: (prompts, prompt_ends), **answers}.items():
            check_unpadded(view, column, lists, self.pad_id, self.name)
        counts = {column: np.diff(prompt_ends) + np.diff(ends) for column, (_, ends) in answers.items()}
        length = self._length(view, counts)
        batch: dict[str, Any] = {}
        for name, (ids, ends) in zip(("chosen", "rejected"), answers.values(), strict=True):
            batch |= {f"{name}_{part}": values for part, values in self._arranged(prompts, prompt_ends, ids, ends, length).items()}
        return with_carried(batch, view, self.carry, self.name)

    def _length(self, view: Examples, counts: dict[str, Any]) -> int:
        longest = max(int(lengths.max()) for lengths in counts.values()) - 1
        length = fitting_length(max(0, longest), self.lengths, self.pad_multiple)
        if length is None:
            column = next(column for column, lengths in counts.items() if lengths.max() == longest + 1)
            raise DataError(
                f"{at_row(view, column, int(counts[column].argmax()), self.name)} has {longest + 1} tokens including the prompt, so "
                f"{longest} predictions, more than the padded length of {self.lengths[-1]}. Shorten or remove such rows, or "
                "pad to a larger length."
            )
        return length

    def _arranged(self, prompts: Any, prompt_ends: Ends, ids: Any, ends: Ends, length: int) -> dict[str, mx.array]:
        """Join prompts and answers. Return inputs, mask and labels, int32[B, length] each."""
        starts = np.stack([prompt_ends[:-1], len(prompts) + ends[:-1]], axis=1).ravel()
        lengths = np.stack([np.diff(prompt_ends), np.diff(ends)], axis=1)
        joined, rows = gather(np.concatenate([prompts, ids]), starts, lengths.ravel()), ends_of(lengths.sum(axis=1))
        real = real_mask(rows, length + 1, "right")
        tokens = pad_rows(joined, real, self.pad_id)
        silent = ~real | (np.arange(length + 1) < lengths[:, :1])
        predicted = real[:, 1:].astype(np.int32)
        return {
            "input_ids": mx.array(np.where(real[:, 1:], tokens[:, :-1], np.int32(self.pad_id))),
            "attention_mask": mx.array(predicted),
            "labels": mx.array(np.where(silent, np.int32(self.ignore_index), tokens)[:, 1:]),
        }
