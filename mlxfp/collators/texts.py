"""The text collator: token lists to padded batches."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.collators.columns import as_view, column_of, lists_of, numbers_of, where
from mlxfp.collators.padding import Side, pad_rows, padded_length, real_places
from mlxfp.core.checks import check_choice, check_integer, check_positive, check_text, check_unique
from mlxfp.core.chunks import Example
from mlxfp.core.errors import ArgumentError, DataError
from mlxfp.core.examples import Examples

Collator = Callable[[Sequence[Example]], dict[str, Any]]


def text(  # noqa: PLR0913  # all have defaults but one, and are named
    *,
    pad_id: int,
    label: str | None = None,
    label_kind: Literal["class", "value"] = "class",
    length: int | None = None,
    pad_multiple: int = 1,
    side: Side = "right",
    type_ids: bool = False,
    carry: Sequence[str] = (),
) -> Collator:
    """Make the collator for tokenized text: the columns that `tokenize` makes become one padded batch.

    The batch holds `input_ids` int32[B, L] and `attention_mask` int32[B, L] (1 on tokens, 0 on padding); with `type_ids`,
    `token_type_ids` int32[B, L] (0 on padding); with `label`, `labels` int32[B] for `label_kind="class"` or float32[B] for "value"; and
    the columns in `carry` under their own names: numbers [B], tensors [B, ...], text as a tuple of B strings.

    L is `length` if given, else the longest row rounded up to `pad_multiple`: MLX compiles a step for each shape, so few shapes are fast.
    Raises `DataError` for a row longer than `length`, a null, and a class label that is not a whole number, naming the example.

    >>> collator = text(pad_id=0, label="y")
    >>> batch = collator([{"input_ids": [5, 6, 7], "y": 1}, {"input_ids": [8], "y": 0}])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist(), batch["labels"].tolist()
    ([[5, 6, 7], [8, 0, 0]], [[1, 1, 1], [1, 0, 0]], [1, 0])
    """
    check_integer(pad_id=pad_id)
    check_positive(pad_multiple=pad_multiple, **({} if length is None else {"length": length}))
    check_choice(("left", "right"), side=side)
    check_choice(("class", "value"), label_kind=label_kind)
    check_text(**({} if label is None else {"label": label}))
    if length is not None and pad_multiple != 1:
        raise ArgumentError(f"A fixed length needs no pad_multiple, got length={length} and pad_multiple={pad_multiple}. Give one of them.")
    if isinstance(carry, str):
        raise ArgumentError(f"carry must be a list of column names, got the string {carry!r}. Write [{carry!r}].")
    check_unique({"carry": carry})
    return _Text(pad_id, label, label_kind, length, pad_multiple, side, type_ids, tuple(carry))


@frozen
class _Text:
    pad_id: int
    label: str | None
    label_kind: str
    length: int | None
    pad_multiple: int
    side: Side
    type_ids: bool
    carry: tuple[str, ...]

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        ids, ends = lists_of(view, "input_ids", _NAME)
        real = real_places(ends, self._length(view, ends), self.side)
        batch = {"input_ids": mx.array(pad_rows(ids, real, self.pad_id)), "attention_mask": mx.array(real.astype(np.int32))}
        if self.type_ids:
            types, type_ends = lists_of(view, "token_type_ids", _NAME)
            _check_aligned(view, ends, type_ends)
            batch["token_type_ids"] = mx.array(pad_rows(types, real, 0))
        if self.label is not None:
            batch["labels"] = mx.array(_labels(view, self.label, self.label_kind))
        return batch | {name: carried(view, name) for name in self.carry}

    def _length(self, view: Examples, ends: np.ndarray[Any, Any]) -> int:
        lengths = ends[1:] - ends[:-1]
        longest = int(lengths.max())
        if self.length is None:
            return padded_length(longest, self.pad_multiple)
        if longest > self.length:
            raise DataError(
                f"{_NAME}: {where(view, int(lengths.argmax()))} has {longest} tokens, more than length={self.length}. "
                f"Truncate with tokenize(max_length={self.length}), or leave length out."
            )
        return self.length


_NAME = "collators.text"


def carried(examples: Examples, name: str) -> Any:
    """Return a column as it goes into a batch: text as a tuple of strings, numbers as an array [B], tensors as [B, ...]."""
    if name in examples.names and _is_text(examples.column(name).type):
        return tuple(column_of(examples, name, _NAME).to_pylist())
    return mx.array(numbers_of(examples, name, _NAME))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or (pa.types.is_dictionary(kind) and _is_text(kind.value_type)))


def _labels(examples: Examples, name: str, kind: str) -> np.ndarray[Any, Any]:
    plain = numbers_of(examples, name, _NAME)
    if kind == "value":
        return plain.astype(np.float32)
    whole = plain.astype(np.int32)
    wrong = np.flatnonzero(whole != plain)
    if len(wrong):
        raise DataError(
            f"{_NAME}: the class label in column {name!r} of {where(examples, int(wrong[0]))} is {plain[wrong[0]]}, not a whole number. "
            'For regression, give label_kind="value".'
        )
    return whole


def _check_aligned(examples: Examples, ends: np.ndarray[Any, Any], type_ends: np.ndarray[Any, Any]) -> None:
    differing = np.flatnonzero(ends != type_ends)
    if len(differing):
        raise DataError(f"{_NAME}: input_ids and token_type_ids of {where(examples, int(differing[0]) - 1)} have different lengths.")
