"""The collator for preference learning, from a chosen and a rejected answer to each prompt."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen

from mlxfp.collators.built_in import BuiltIn
from mlxfp.collators.columns import Choosing, Collator, as_view, at_place, ids_of
from mlxfp.collators.cutting import carried
from mlxfp.collators.padding import check_padding, fitting_length, pad_rows, real_places
from mlxfp.core.arrow.ragged import Ends, ends_of
from mlxfp.core.chunks import Example
from mlxfp.core.examples import Examples
from mlxfp.support.checks import as_strings, check_integer, check_positive, check_text, check_unique, explain_call
from mlxfp.support.errors import DataError
from mlxfp.text.encoding.framing import gather


@explain_call
def preference(  # noqa: PLR0913  # all have defaults but one, and are named
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
) -> Collator:
    """Make the collator for `losses.dpo`: token ids of a `prompt`, and of a `chosen` and a `rejected` answer to it.

    The batch holds `chosen_input_ids`, `chosen_attention_mask`, `chosen_labels`, and the same three of `rejected`, all int32[B, L]. They
    are what `causal` makes of the prompt with the answer behind it: `labels` are the tokens that follow, `ignore_index` on the prompt and
    on padding, which is on the right. So both answers are scored in one call of a model, of 2B rows. Columns in `carry` are added as by
    `text`, such as log-probabilities under a reference model, computed once.

    L is `length` if given; else the smallest of `lengths` that is enough for both answers of the group; else that of the longest, rounded
    up to `pad_multiple`. Raises `DataError` for a row that is longer, and for an id that is not below `vocab_size`, naming the row.

    >>> collator = preference(pad_id=0)
    >>> batch = collator([{"prompt": [5, 6], "chosen": [7, 8, 2], "rejected": [9, 2]}])
    >>> batch["chosen_input_ids"].tolist(), batch["chosen_labels"].tolist()
    ([[5, 6, 7, 8]], [[-100, 7, 8, 2]])
    >>> batch["rejected_input_ids"].tolist(), batch["rejected_labels"].tolist()
    ([[5, 6, 9, 0]], [[-100, 9, 2, -100]])

    See also: `losses.answer_log_probabilities`, which makes the columns of a reference model.
    """
    check_integer(pad_id=pad_id, ignore_index=ignore_index)
    columns = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    check_text(**columns)
    check_unique({"prompt, chosen and rejected": tuple(columns.values())})
    check_positive(**({} if vocab_size is None else {"vocab_size": vocab_size}))
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

    @property
    def uses(self) -> tuple[str, ...]:
        return self.prompt, self.chosen, self.rejected, *self.carry

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        prompts, prompt_ends = ids_of(view, self.prompt, self.vocab_size, _NAME)
        answers = {column: ids_of(view, column, self.vocab_size, _NAME) for column in (self.chosen, self.rejected)}
        counts = {column: np.diff(prompt_ends) + np.diff(ends) for column, (_, ends) in answers.items()}
        length = self._length(view, counts)
        batch: dict[str, Any] = {}
        for name, (ids, ends) in zip(("chosen", "rejected"), answers.values(), strict=True):
            batch |= {f"{name}_{part}": values for part, values in self._laid(prompts, prompt_ends, ids, ends, length).items()}
        return batch | carried(view, self.carry, _NAME)

    def _length(self, view: Examples, counts: dict[str, Any]) -> int:
        longest = max(int(each.max()) for each in counts.values()) - 1
        length = fitting_length(max(0, longest), self.lengths, self.pad_multiple)
        if length is None:
            column = next(column for column, each in counts.items() if each.max() == longest + 1)
            raise DataError(
                f"{at_place(view, column, int(counts[column].argmax()), _NAME)} has {longest + 1} tokens with its prompt, so {longest} "
                f"predictions, more than the length of {self.lengths[-1]}. Cut or leave out such rows, or pad to a larger length."
            )
        return length

    def _laid(self, prompts: Any, prompt_ends: Ends, ids: Any, ends: Ends, length: int) -> dict[str, mx.array]:
        """Join prompts and answers, and lay them out as inputs, a mask and labels, int32[B, length] each."""
        starts = np.stack([prompt_ends[:-1], len(prompts) + ends[:-1]], axis=1).ravel()
        lengths = np.stack([np.diff(prompt_ends), np.diff(ends)], axis=1)
        joined, rows = gather(np.concatenate([prompts, ids]), starts, lengths.ravel()), ends_of(lengths.sum(axis=1))
        real = real_places(rows, length + 1, "right")
        tokens = pad_rows(joined, real, self.pad_id)
        silent = ~real | (np.arange(length + 1) < lengths[:, :1])
        predicted = real[:, 1:].astype(np.int32)
        return {
            "input_ids": mx.array(np.where(real[:, 1:], tokens[:, :-1], np.int32(self.pad_id))),
            "attention_mask": mx.array(predicted),
            "labels": mx.array(np.where(silent, np.int32(self.ignore_index), tokens)[:, 1:]),
        }


_NAME = "collators.preference"
PREFERENCE = BuiltIn("preference", preference)
