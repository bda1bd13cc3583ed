"""Lists of ids filled up to one length."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from mlxfp.core.checks import check_choice, check_columns, check_integer, check_positive, check_text, check_types
from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, set_column, set_field
from mlxfp.core.datasets import Dataset, RowWise
from mlxfp.core.errors import ArgumentError, DataError, SchemaError
from mlxfp.text.encoding.framing import Side, gather
from mlxfp.text.templates.columns import name_row, read_ragged, to_lists


def pad(
    length: int, *, pad_id: int, column: str = "input_ids", side: Side = "right", mask: str | None = "attention_mask"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Fill every row of a column of lists with `pad_id`, up to `length`.

    Adds the column `mask` (list<int32>): 1 for values of the row, 0 for padding; None adds no mask. Pad each further column of the same
    rows, such as `token_type_ids`, with another `pad` and its own `pad_id`. Existing columns of these names are replaced.

    Raises `SchemaError` when the pipeline is built unless the column holds lists of numbers; `DataError` for a row that is longer than
    `length` or missing: `tokenize(max_length=...)` cuts rows, `pad` does not.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"input_ids": [5, 6]}, {"input_ids": [7, 8, 9]}])
    >>> [row["input_ids"] for row in pipe(rows, pad(4, pad_id=0, side="left"))]
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
        if not _holds_numbers(kind):
            raise SchemaError(f"pad needs lists of numbers in column {self.column!r}, got {kind}. Make ids of text with tokenize first.")
        try:
            pa.scalar(self.pad_id, kind.value_type)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise SchemaError(
                f"pad_id={self.pad_id} does not fit column {self.column!r} of {kind}: {error}. Choose another one."
            ) from error
        out = set_field(schema, self.column, pa.list_(kind.value_type))
        return out if self.mask is None else set_field(out, self.mask, pa.list_(pa.int32()))

    def looks_at(self) -> tuple[str, ...]:
        return (self.column,)

    def longest(self, tokens: int | None) -> int | None:
        return self._length if self.column == "input_ids" else tokens

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        column = chunk.column(self.column)
        rows = column.cast(pa.list_(column.type.value_type)) if pa.types.is_fixed_size_list(column.type) else column
        self._check_rows(rows, chunk)
        ragged = read_ragged(rows)
        places = np.arange(self._length)
        short = ragged.lengths[:, None]
        real = places < short if self.side == "right" else places >= self._length - short
        filled = np.full(real.shape, self.pad_id, ragged.values.dtype)
        filled[real] = gather(ragged.values, ragged.starts, ragged.lengths)
        full = np.full(len(filled), self._length)
        out = set_column(chunk, self.column, to_lists(filled.ravel(), full))
        return out if self.mask is None else set_column(out, self.mask, to_lists(real.astype(np.int32).ravel(), full))

    def _check_rows(self, rows: pa.Array, chunk: RecordBatch) -> None:
        lengths = pc.list_value_length(rows).fill_null(-1).to_numpy()
        wrong = (lengths < 0) | (lengths > self._length)
        if wrong.any():
            place = int(np.argmax(wrong))
            found = f"has {lengths[place]} values" if lengths[place] >= 0 else "is missing"
            raise DataError(
                f"pad(length={self._length}) got a row of column {self.column!r} that {found}: {name_row(chunk, place)}. "
                f"Cut rows with tokenize(max_length={self._length}), or leave them out with filter."
            )
        if rows.flatten().null_count:
            place = next(place for place in range(len(rows)) if rows.slice(place, 1).flatten().null_count)
            raise DataError(f"pad got a missing value inside column {self.column!r}, {name_row(chunk, place)}. Fill it with map first.")


def _holds_numbers(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)))
