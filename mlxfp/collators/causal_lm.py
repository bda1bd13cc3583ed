"""Collator for causal language models, which predict each token from earlier tokens."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from mlxfp.collators.columns import Arrays, Numbers, at_row, ids_in, ids_of, names_of
from mlxfp.collators.cutting import (
    MASK,
    OF_PACK,
    Columns,
    Padded,
    PaddedColumn,
    aligned_values,
    carried_columns,
    document_columns,
    side_columns,
)
from mlxfp.collators.padding import Side, check_ids, check_padding, mask_even, pad_even
from mlxfp.core.arrow.ragged import Ends, row_of
from mlxfp.core.chunks import Schema
from mlxfp.core.examples import Examples
from mlxfp.data.lengths.tokens import prompt_masks
from mlxfp.support.arrow_types import is_list_like
from mlxfp.support.checks import as_strings, check_columns, check_positive, check_text, explain_call, not_none
from mlxfp.support.errors import DataError


@explain_call
def causal(  # noqa: PLR0913  # keyword-only, all but one with defaults
    *,
    pad_id: int,
    prompt_mask: str | None = None,
    packed: bool = False,
    vocab_size: int | None = None,
    ignore_index: int = -100,
    length: int | None = None,
    lengths: Sequence[int] = (),
    pad_multiple: int = 1,
    side: Side = "right",
    carry: Sequence[str] = (),
) -> "_Causal":
    """Return the collator for causal language models, for token ids in `input_ids`.

    A row of n tokens gives n - 1 predictions. `input_ids` int32[B, L] contains all tokens except the last; `labels` int32[B, L] contains
    all tokens except the first, so each label is the next token. `attention_mask` int32[B, L] is 1 on tokens and 0 on padding. After `pad`,
    the mask is the column `attention_mask` of the rows.

    Labels are `ignore_index` on padding and on prompt tokens. `prompt_mask` names a column of lists, true (or not 0) on the tokens of the
    prompt. `packed=True` is for rows from `pack`: the batch also contains `segment_ids` and `positions` int32[B, L] (0 on padding), and no
    token is predicted from another document. Columns in `carry` are added to the batch, as in `text`.

    L is `length` if given, else the smallest sufficient length in `lengths`, else the largest number of predictions, rounded up to
    `pad_multiple`. Rows may have up to `length` + 1 tokens: `windows(L + 1, stride=L)` fills a batch of length L exactly. Raises
    `DataError` for a longer row, an id outside `vocab_size`, columns with lists of different lengths, and a mask of `chat` without
    `prompt_mask`. Raises `SchemaError` for rows of `pack` without `packed=True`.

    >>> collator = causal(pad_id=0, prompt_mask="prompt")
    >>> batch = collator([{"input_ids": [5, 6, 7, 8], "prompt": [1, 1, 0, 0]}, {"input_ids": [5, 9], "prompt": [0, 0]}])
    >>> batch["input_ids"].tolist(), batch["labels"].tolist()
    ([[5, 6, 7], [5, 0, 0]], [[-100, 7, 8], [9, -100, -100]])

    See also: `windows` and `pack`, which make the rows.
    """
    check_ids(pad_id=pad_id, ignore_index=ignore_index)
    check_text(**not_none(prompt_mask=prompt_mask))
    check_positive(**not_none(vocab_size=vocab_size))
    fixed = check_padding(length=length, lengths=lengths, pad_multiple=pad_multiple, side=side)
    return _Causal(pad_id, prompt_mask, packed, vocab_size, ignore_index, fixed, pad_multiple, side, as_strings("carry", carry))


_PROMPT = "prompt"  # mask of `chat`


@frozen(repr=False)
class _Causal(Padded):
    pad_id: int
    prompt_mask: str | None = None
    packed: bool = False
    vocab_size: int | None = None
    ignore_index: int = -100
    lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    side: Side = "right"
    carry: tuple[str, ...] = ()
    spare = 1
    optional_columns = (_PROMPT,)

    @property
    def uses(self) -> tuple[str, ...]:
        return "input_ids", MASK, *(OF_PACK if self.packed else []), *names_of(self.prompt_mask or _PROMPT), *self.carry

    def check(self, schema: Schema) -> None:
        if self.prompt_mask is not None:
            check_columns([self.prompt_mask], schema.names, self.name)
        super().check(schema)

    def read(self, examples: Examples) -> Columns:
        self._check_unused_mask(examples)
        ids, ends = ids_of(examples, "input_ids", self.vocab_size, self.name)
        labels = np.roll(ids, -1)  # The label of each token is the next token. The meaningless last label of a row is removed later.
        ragged: dict[str, PaddedColumn] = {"input_ids": (ids, self.pad_id)}
        if self.prompt_mask is not None:
            np.putmask(labels[:-1], self._prompt(examples, self.prompt_mask, ends)[1:] != 0, self.ignore_index)
        documents = document_columns(examples, ends, self.name, packed=self.packed)
        if documents:
            segments, _ = documents["segment_ids"]
            np.putmask(labels[:-1], segments[:-1] != segments[1:], self.ignore_index)
        ragged |= documents
        if masks := side_columns(examples, ends, self.name, type_ids=False):
            real, _ = masks[MASK]
            np.putmask(labels[:-1], (real[1:] == 0) | (real[:-1] == 0), self.ignore_index)
        ragged |= masks
        ragged["labels"] = (labels, self.ignore_index)
        return Columns(self, examples, ends, ragged, carried_columns(examples, self.carry, self.name, {*ragged, self.mask}))

    def _prompt(self, examples: Examples, column: str, ends: Ends) -> Numbers:
        """Return the values of the mask of prompts. Raise `DataError` for NaN, which is neither 0 nor another number."""
        values = aligned_values(examples, column, ends, self.name)
        if np.isnan(values).any():
            index = int(np.argmax(np.isnan(values)))
            row = row_of(ends, index)
            raise DataError(
                f"{at_row(examples, column, row, self.name)} holds nan for token {index - ends[row]}, but a mask has only true and "
                "false, or numbers. Replace nan with map."
            )
        return values

    def _check_unused_mask(self, examples: Examples) -> None:
        """Raise `DataError` if `chat` has marked prompt tokens, but no argument of the collator names the mask."""
        if self.prompt_mask is not None or _PROMPT in self.carry or not prompt_masks(examples.chunk.schema):
            return
        if pc.any(pc.list_flatten(examples.column(_PROMPT))).as_py():
            raise DataError(
                f"{self.name} would ignore the mask {_PROMPT!r} (lists of true and false), so a model would also be trained on prompts. "
                f"Write causal(..., prompt_mask={_PROMPT!r}), or remove the column with drop_columns([{_PROMPT!r}]) before batch."
            )

    def arrays(self, schema: Schema) -> Arrays | None:
        kind = schema.field("input_ids").type
        alone = not (self.packed or self.prompt_mask or self.carry or prompt_masks(schema) or MASK in schema.names)
        if not (alone and is_list_like(kind) and pa.types.is_integer(kind.value_type)):
            return None
        length = cache(self._even_length)  # `cache` avoids repeated function calls, which dominate the time of a small batch.

        def inputs(ids: Numbers) -> Numbers:
            shifted = ids_in(ids, self.vocab_size)[:, :-1]  # `shifted` is a view, not a copy, because MLX reads both equally fast.
            return pad_even(shifted, length(shifted.shape[1]), self.pad_id, self.side)

        def labels(ids: Numbers) -> Numbers:
            shifted = ids[:, 1:].astype(np.int32, copy=False)
            return pad_even(shifted, length(shifted.shape[1]), self.ignore_index, self.side)

        def mask(ids: Numbers) -> Numbers:
            rows, size = ids.shape
            return mask_even(rows, size - 1, length(size - 1), self.side)

        return {"input_ids": ("input_ids", inputs), "labels": ("input_ids", labels), self.mask: ("input_ids", mask)}

    def _even_length(self, size: int) -> int:
        length = self.fit(size)
        if length is None:
            # Users never see this message: `collate` repeats the call for each group, and then raises the error of `too_long`.
            raise DataError("The rows are too long.")
        return length

    def too_long(self, examples: Examples, row: int, count: int) -> DataError:
        return DataError(
            f"{at_row(examples, 'input_ids', row, self.name)} has {count + 1} tokens, so {count} predictions, "
            f"more than the padded length of {self.lengths[-1]}. "
            f"Cut rows with tokenize(max_length={self.longest}) or windows, or pad to a larger length."
        )
