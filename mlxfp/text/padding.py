"""Lists of ids filled up to one length."""

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
    """Fill every row of a column of lists with `pad_id`, up to `length`.

    Adds the column `mask` (list<int32>): 1 for values of the row, 0 for padding; None adds no mask. Pad each further column of the same
    rows, such as `token_type_ids`, with another `pad` and its own `pad_id`. Existing columns of these names are replaced.

    Raises `SchemaError` when the pipeline is built unless the column holds lists of numbers; `DataError` for a row that is longer than
    `length` or missing: `tokenize(max_length=...)` cuts rows, `pad` does not.

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
        raise ArgumentError(f"mask={mask!r} cannot name the column of the mask; choose another name, or None for no mask.")
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
            raise SchemaError(f"pad needs lists of numbers in column {self.column!r}, got {kind}. Make ids of text with tokenize first.")
        try:
            pa.scalar(self.pad_id, kind.value_type)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise SchemaError(
                f"pad_id={self.pad_id} does not fit column {self.column!r} of {kind}: {error}. Choose another one."
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
        lengths, places = np.diff(ends)[:, None], np.arange(self._length)
        if (lengths > self._length).any():
            place = int(np.argmax(lengths > self._length))
            raise DataError(
                f"pad(length={self._length}) got {lengths[place, 0]} values in column {self.column!r} of {row_at(chunk, place)}. "
                f"Cut rows with tokenize(max_length={self._length}), or leave them out with filter."
            )
        real = places < lengths if self.side == "right" else places >= self._length - lengths
        numbers = values.to_numpy(zero_copy_only=False)
        filled = np.full(real.shape, self.pad_id, numbers.dtype)
        filled[real] = numbers
        full = np.arange(len(filled) + 1) * self._length
        out = set_column(chunk, self.column, to_lists(filled.ravel(), full))
        return out if self.mask is None else set_column(out, self.mask, to_lists(real.astype(np.int32).ravel(), full))
