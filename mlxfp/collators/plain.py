"""Default collator for columns of any type, without required arguments."""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.collators.columns import (
    Arrays,
    Numbers,
    as_view,
    column_of,
    fixed_numbers,
    is_number_or_bool,
    numbers_of,
    ragged_of,
    vectors_of,
)
from mlxfp.collators.padding import check_ids, mask_even, pad_even, pad_rows, padded_length, real_mask
from mlxfp.collators.stacking import Stacking
from mlxfp.core.chunks import HIDDEN, Example, Schema
from mlxfp.core.examples import Examples
from mlxfp.support.arrow_types import is_list_like, is_tensor, is_text, value_type
from mlxfp.support.checks import check_positive, explain_call
from mlxfp.support.errors import SchemaError


@explain_call
def default(*, pad_id: int = 0, pad_multiple: int = 1) -> "_Default":
    """Return a collator that puts every column into the batch: numbers and tensors are stacked, lists are padded.

    Numbers become [B] and fixed-shape tensors [B, ...]. Integers become int32, floats float32; tensors keep smaller types. Decimals
    are rounded to float32, about seven digits; an integer beyond 32 bits raises an error. Text becomes a tuple of B strings.

    Lists of numbers become [B, L] and lists of vectors [B, L, F], with `pad_id` on padding. A second array `<column>_mask` int32[B, L] is 1
    on values and 0 on padding. L is the length of the longest row, rounded up to `pad_multiple`.

    A column of integer lists named `labels` has a label per token. Its padding is -100, which the losses ignore, because a padding of 0
    would be trained as class 0.

    The arrays depend only on the column types, so all batches have the same arrays. Raises `SchemaError` for columns of other types, and
    for examples without columns.

    >>> batch = default()([{"x": [1, 2], "y": 0.5, "name": "a"}, {"x": [3], "y": 1.5, "name": "b"}])
    >>> batch["x"].tolist(), batch["x_mask"].tolist(), batch["y"].tolist(), batch["name"]
    ([[1, 2], [3, 0]], [[1, 1], [1, 0]], [0.5, 1.5], ('a', 'b'))

    >>> default()([{"input_ids": [5, 6], "labels": [0, 1]}, {"input_ids": [7], "labels": [1]}])["labels"].tolist()
    [[0, 1], [1, -100]]

    See also: `tokens`, which also checks labels per token; `text`, `vision` and `audio`, for columns with a known meaning.
    """
    check_ids(pad_id=pad_id)
    check_positive(pad_multiple=pad_multiple)
    return _Default(pad_id, pad_multiple)


@frozen(repr=False)
class _Default(Stacking):
    pad_id: int = 0
    pad_multiple: int = 1
    uses = None

    def arrays(self, schema: Schema) -> Arrays | None:
        fields = [field for field in schema if field.name not in HIDDEN]
        entries = [pair for field in fields for pair in self._arrays(field)]
        arrays = {name: (column, make) for name, column, make in entries}
        return arrays if arrays and len(arrays) == len(entries) and all(make for *_, make in entries) else None

    def _arrays(self, field: pa.Field) -> Iterator[tuple[str, str, Any]]:
        """Yield (array name, column name, conversion function) for each array of a column.

        The function needs rows of equal length. The function is None if the column type, for example text, has no conversion.
        """
        if not is_list_like(field.type):
            yield field.name, field.name, fixed_numbers(field.type)
            return
        fill = self._fill(field.name, field.type)
        numbers = None if is_list_like(field.type.value_type) else fixed_numbers(field.type.value_type)
        yield field.name, field.name, numbers and (lambda values: pad_even(numbers(values), self._width(values), fill, "right"))
        yield f"{field.name}_mask", field.name, lambda values: mask_even(*values.shape, self._width(values), "right")

    def _fill(self, name: str, kind: pa.DataType) -> int:
        return _IGNORED if name == "labels" and pa.types.is_integer(kind.value_type) else self.pad_id

    def _width(self, values: Numbers) -> int:
        return padded_length(values.shape[1], self.pad_multiple)

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        names = dict.fromkeys(view.names)
        if not names:
            raise SchemaError(f"{self.name} needs at least one column, got examples without columns.")
        batch: dict[str, Any] = {}
        for name in names:
            arrays = self._column(view, name)
            clash = next((key for key in arrays if key != name and key in names), None)
            if clash is not None:
                raise SchemaError(f"{self.name}: the mask of column {name!r} would replace the column {clash!r}. Rename {clash!r}.")
            batch |= arrays
        return batch

    def _column(self, view: Examples, name: str) -> dict[str, Any]:
        kind = view.column(name).type
        if is_text(value_type(kind)):
            return {name: tuple(column_of(view, name, self.name).to_pylist())}
        if is_tensor(kind) or is_number_or_bool(kind):
            return {name: mx.array(numbers_of(view, name, self.name))}
        if not is_list_like(kind):
            raise SchemaError(
                f"{self.name} takes numbers, text, tensors and lists of numbers, got {kind} in column {name!r}. "
                f"Convert the column to one of these types before batch, or remove the column with drop_columns([{name!r}])."
            )
        values, ends = vectors_of(view, name, self.name) if is_list_like(kind.value_type) else ragged_of(view, name, self.name)
        real = real_mask(ends, padded_length(int(np.diff(ends).max()), self.pad_multiple), "right")
        return {name: mx.array(pad_rows(values, real, self._fill(name, kind))), f"{name}_mask": mx.array(real.astype(np.int32))}


_IGNORED = -100  # label of positions that losses and metrics ignore
