"""Collator for masked language models: the hidden tokens become labels."""

from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import ids_of, keys_of
from mlxfp.collators.cutting import MASK, OF_PACK, Columns, Padded, carried_columns, document_columns, side_columns
from mlxfp.collators.padding import Side, check_ids, check_padding
from mlxfp.core.arrow.ragged import Ends, places_within
from mlxfp.core.examples import Examples
from mlxfp.support.checks import as_strings, check_integer, check_positive, check_types, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import Keys, fold_in, fold_in_rows, fold_into_rows

Ids = NDArray[np.int32]


@explain_call
def masked(  # noqa: PLR0913  # ids of a vocabulary, and the arguments of `text`
    *,
    pad_id: int,
    mask_id: int,
    special_ids: Collection[int],
    vocab_size: int,
    seed: int,
    rate: float = 0.15,
    packed: bool = False,
    ignore_index: int = -100,
    length: int | None = None,
    lengths: Sequence[int] = (),
    pad_multiple: int = 1,
    side: Side = "right",
    type_ids: bool = False,
    carry: Sequence[str] = (),
) -> "_Masked":
    """Return the collator for masked language models. The collator hides tokens of `input_ids`, and the labels are the hidden tokens.

    Each token is chosen with probability `rate`, except `special_ids`, `pad_id` and `mask_id`. Of the chosen tokens, 80 % are replaced by
    `mask_id`, 10 % by a random non-special token, and 10 % stay unchanged (Devlin et al., "BERT", 2019, section 3.1).

    The batch is the same as for `text`, with `labels` int32[B, L]: the original id at chosen positions, `ignore_index` elsewhere.
    `packed=True` is for rows from `pack`: the batch also contains `segment_ids` and `positions` int32[B, L], 0 on padding.

    The choice depends on `seed`, the example and the epoch, but not on the batch, its padding or its order. For examples from outside a
    pipeline, the choice depends on `seed` and the tokens. Raises `DataError` for an id outside `vocab_size`, `SchemaError` for rows of
    `pack` without `packed=True`, and the errors of `text`.

    >>> collator = masked(pad_id=0, mask_id=1, special_ids={0, 1, 2}, vocab_size=30, seed=0, rate=0.3)
    >>> batch = collator([{"input_ids": [2, 10, 11, 12, 13, 14, 2]}, {"input_ids": [2, 20, 21, 2]}])
    >>> batch["input_ids"].tolist()
    [[2, 10, 11, 12, 1, 14, 2], [2, 20, 21, 2, 0, 0, 0]]
    >>> batch["labels"].tolist()
    [[-100, -100, -100, -100, 13, -100, -100], [-100, -100, -100, -100, -100, -100, -100]]
    """
    check_integer(seed=seed)
    check_ids(pad_id=pad_id, mask_id=mask_id, ignore_index=ignore_index)
    check_positive(vocab_size=vocab_size)
    check_types((int, float), rate=rate)
    if not 0 < rate <= 1:
        raise ArgumentError(f"rate must be above 0 and at most 1, got rate={rate!r}.")
    for name, ids in (("special_ids", special_ids), ("mask_id", [mask_id])):
        for number in ids:
            check_integer(**{f"an id of {name}": number})
            if not 0 <= number < vocab_size:
                raise ArgumentError(
                    f"{name} holds the id {number}, but the vocabulary has {vocab_size} tokens. "
                    f"Take {name} and vocab_size from the same tokenizer."
                )
    if len({*special_ids, pad_id, mask_id} & set(range(vocab_size))) == vocab_size:
        raise ArgumentError(f"All {vocab_size} ids of the vocabulary are special, so there is nothing to mask.")
    fixed = check_padding(length=length, lengths=lengths, pad_multiple=pad_multiple, side=side)
    carry = as_strings("carry", carry)
    choice = (pad_id, mask_id, frozenset(special_ids), vocab_size, seed, float(rate), packed)
    return _Masked(*choice, ignore_index, fixed, pad_multiple, side, type_ids, carry)


@frozen(repr=False)
class _Masked(Padded):
    pad_id: int
    mask_id: int
    special_ids: frozenset[int]
    vocab_size: int
    seed: int
    rate: float = 0.15
    packed: bool = False
    ignore_index: int = -100
    lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    side: Side = "right"
    type_ids: bool = False
    carry: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        return "input_ids", MASK, *(["token_type_ids"] if self.type_ids else []), *(OF_PACK if self.packed else []), *self.carry

    def read(self, examples: Examples) -> Columns:
        ids, ends = ids_of(examples, "input_ids", self.vocab_size, self.name)
        documents = document_columns(examples, ends, self.name, packed=self.packed)
        shown, labels = self._mask(ids, ends, keys_of(examples, ids, ends))
        tokens = {"input_ids": (shown, self.pad_id), "labels": (labels, self.ignore_index)}
        ragged = {**tokens, **side_columns(examples, ends, self.name, type_ids=self.type_ids), **documents}
        single = carried_columns(examples, self.carry, self.name, {*ragged, self.mask})
        return Columns(self, examples, ends, ragged, single)

    def _mask(self, ids: Ids, ends: Ends, keys: Keys) -> tuple[Ids, Ids]:
        """Return the masked tokens and the labels, int32[N] each, for the concatenated tokens of all rows."""
        lengths = np.diff(ends)
        position_keys = _position_keys(self.seed, 1 << int(lengths.max(initial=0)).bit_length())
        within = places_within(lengths)
        # The upper half of the random bits chooses the tokens to hide, the lower half chooses their replacements.
        tokens = fold_into_rows(np.repeat(keys, lengths) ^ position_keys[within], "token")
        chosen = np.flatnonzero((tokens >> _HALF < np.uint64(round(self.rate * 2**32))) & self._ordinary[ids])
        draws, hidden = (tokens[chosen] & _LOWER).astype(np.int64), ids[chosen]
        kinds, others = draws % 10, self._known[draws // 10 % len(self._known)]
        labels = np.full(len(ids), self.ignore_index, np.int32)
        labels[chosen] = hidden
        shown = ids.copy()
        shown[chosen] = np.where(kinds < 8, np.int32(self.mask_id), np.where(kinds < 9, others, hidden))
        return shown, labels

    @cached_property
    def _ordinary(self) -> NDArray[np.bool_]:
        """True for ids that may be masked: bool[vocab_size]."""
        return ~_table({*self.special_ids, self.mask_id, self.pad_id}, self.vocab_size)

    @cached_property
    def _known(self) -> Ids:
        """Sorted ids of all tokens that may be masked. A random replacement is one of these ids."""
        return np.flatnonzero(self._ordinary).astype(np.int32)


_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)


@lru_cache(maxsize=32)
def _position_keys(seed: int, count: int) -> Keys:
    """Return a random key for each token position of a row: uint64[count]."""
    return fold_in_rows(fold_in(0, "masked", seed), np.arange(count))


def _table(ids: Collection[int], vocab_size: int) -> NDArray[np.bool_]:
    table = np.zeros(vocab_size, np.bool_)
    table[[number for number in ids if 0 <= number < vocab_size]] = True  # skip a padding id outside the vocabulary
    return table
