"""Stage `pad`, which pads list columns to a fixed length."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from attrs import frozen
from toolz import identity

from mlxfp.core.arrow.ragged import check_values, column_without_nulls, read_lists, to_lists
from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.row_names import row_at
from mlxfp.core.stages import RowWise, Traits
from mlxfp.support.arrow_types import is_list_like, is_number
from mlxfp.support.checks import check_choice, check_columns, check_integer, check_positive, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.text.encoding.framing import Side


@explain_call
def pad(
    length: int, *, pad_id: int, column: str = "input_ids", side: Side = "right", mask: str | None = "attention_mask"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Pad each row of a list column to `length` with `pad_id`.

    Adds the column `mask` (list<int32>): 1 for values, 0 for padding. `mask=None` adds no mask. Pad further columns of the same rows,
    such as `token_type_ids`, with a separate `pad` stage and a suitable `pad_id`. Existing columns with the same names are replaced.

    Raises `SchemaError` at construction of the pipeline if the column does not contain lists of numbers. Raises `DataError` if a row is
    null or longer than `length`, because `pad` never truncates. Truncate rows with `tokenize(max_length=...)`.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [5, 6]}, {"input_ids": [7, 8, 9]}])
    >>> [row["input_ids"] for row in fp.pipe(rows, fp.pad(4, pad_id=0, side="left"))]
    [[0, 0, 5, 6], [0, 7, 8, 9]]

    See also: `collators.text`, which pads each batch to its own longest row.
    """
    check_positive(length=length)
    check_integer(pad_id=pad_id)
    check_text(column=column)
    check_choice(("right", "left"), side=side)
    check_types((str, type(None)), mask=mask)
    if mask in (*HIDDEN, column, ""):
        raise ArgumentError(
            f"mask={mask!r} is empty, reserved or the name of the padded column. Choose another name, or mask=None for no mask."
        )
    return _Pad(length, pad_id=pad_id, column=column, side=side, mask=mask)


@frozen(repr=False)
class _Pad(RowWise):
    _length: int
    pad_id: int
    column: str = "input_ids"
    side: Side = "right"
    mask: str | None = "attention_mask"

    def schema(self, schema: Schema) -> Schema:
        check_columns([self.column], [name for name in schema.names if name not in HIDDEN], "pad")
        kind = schema.field(self.column).type
        if not (is_list_like(kind) and is_number(kind.value_type)):
            raise SchemaError(f"pad needs lists of numbers in column {self.column!r}, got {kind}. Convert text to ids with tokenize first.")
        try:
            pa.scalar(self.pad_id, kind.value_type)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise SchemaError(
                f"pad_id={self.pad_id} does not fit column {self.column!r} of {kind}: {error}. Choose another pad_id."
            ) from error
        out = set_field(schema, self.column, pa.list_(kind.value_type))
        return out if self.mask is None else set_field(out, self.mask, pa.list_(pa.int32()))

    @property
    def traits(self) -> Traits:
        longest_row = (lambda tokens: self._length) if self.column == "input_ids" else identity
        return Traits(row_wise=True, columns_read=(self.column,), longest_row=longest_row)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        values, ends = read_lists(column_without_nulls(chunk, self.column, "pad"))
        check_values((values, ends), chunk, self.column, "pad")
        lengths, positions = np.diff(ends)[:, None], np.arange(self._length)
        if (lengths > self._length).any():
            row = int(np.argmax(lengths > self._length))
            raise DataError(
                f"pad(length={self._length}) got {lengths[row, 0]} values in column {self.column!r} of {row_at(chunk, row)}. "
                f"Truncate rows with tokenize(max_length={self._length}), or remove long rows with filter."
            )
        real = positions < lengths if self.side == "right" else positions >= self._length - lengths
        numbers = values.to_numpy(zero_copy_only=False)
        filled = np.full(real.shape, self.pad_id, numbers.dtype)
        filled[real] = numbers
        full = np.arange(len(filled) + 1) * self._length
        out = set_column(chunk, self.column, to_lists(filled.ravel(), full))
        return out if self.mask is None else set_column(out, self.mask, to_lists(real.astype(np.int32).ravel(), full))
