"""Groups of examples. A group is an immutable sequence of rows, and each row is a mapping from column names to values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import HIDDEN, KEY, Example, RecordBatch, Schema, source_rows, to_rows, visible
from mlxfp.core.notebooks.rows import examples_html
from mlxfp.core.notebooks.tokens import Decoder
from mlxfp.support.checks import resolve_index
from mlxfp.support.errors import ArgumentTypeError, unknown_name
from mlxfp.support.terminal import COLUMNS, printed


class Row(dict[str, Any]):
    """Dict with the values and attributes of one example. A collator makes the same batch from a list of `Row` dicts as from a group.

    `schema` is the Arrow schema of the columns. `number` is the row index in the source, or -1 if unknown. `key` is the random key of the
    row, or None if unknown. A `Row` equals a plain dict with the same values. A changed copy, as in `{**row, "x": 1}`, is a plain dict.
    """

    __slots__ = ("key", "number", "schema")
    schema: Schema
    number: int
    key: int | None


@frozen(repr=False, eq=False)
class Examples(Sequence[Example]):
    """A group of examples: an immutable view of one record batch, as a sequence of mappings.

    >>> group = Examples(pa.record_batch({"x": [1, 2]}))
    >>> group[1], len(group), group.column("x").to_pylist()
    ({'x': 2}, 2, [1, 2])
    """

    chunk: RecordBatch
    decoders: Mapping[str, Decoder] = field(factory=dict)  # tokenizers for the display in notebooks, by column name

    def __reduce__(self) -> tuple[type["Examples"], tuple[RecordBatch]]:
        """Pickle the rows without `decoders`, because tokenizers can be large."""
        return Examples, (self.chunk,)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names."""
        return tuple(name for name in self.chunk.schema.names if name not in HIDDEN)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Source row index of each example: int64[N], -1 if unknown."""
        return source_rows(self.chunk)

    def column(self, name: str) -> pa.Array:
        """Return a column as an Arrow array. Raises `UnknownNameError` for an unknown column name."""
        index = self.chunk.schema.get_field_index(name)
        if index < 0:
            raise unknown_name("column", name, self.names)
        return self.chunk.column(index)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> "Examples": ...
    def __getitem__(self, index: int | slice) -> "Example | Examples":
        """Return one example as a dict, or a view for a slice. Raises `RowIndexError` for an index out of range."""
        if isinstance(index, str):
            raise ArgumentTypeError(f"Examples are indexed by position, got [{index!r}]. For a whole column write .column({index!r}).")
        if isinstance(index, slice):
            return Examples(self.chunk.take(pa.array(range(len(self))[index], pa.int64())), self.decoders)
        return _rows(self.chunk.slice(resolve_index(index, len(self), "examples", self), 1))[0]

    def __iter__(self) -> Iterator[Example]:
        """Yield the examples as dicts."""
        return iter(_rows(self.chunk))

    def __len__(self) -> int:
        return int(self.chunk.num_rows)

    def __eq__(self, other: object) -> bool:
        return bool(visible(self.chunk).equals(visible(other.chunk))) if isinstance(other, Examples) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash of the column names and the number of rows, because a hash of all values would be slow."""
        return hash((self.names, len(self)))

    def __repr__(self) -> str:
        more = [f"{len(self.names) - COLUMNS:,} more"] if len(self.names) > COLUMNS else []
        return f"Examples({len(self)} x {', '.join([*map(printed, self.names[:COLUMNS]), *more])})"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        return examples_html(self, self.decoders)


def _rows(chunk: RecordBatch) -> list[Row]:
    rows, schema = [Row(values) for values in to_rows(chunk)], visible(chunk).schema
    keys = chunk.column(KEY).to_pylist() if KEY in chunk.schema.names else [None] * len(rows)
    for row, number, key in zip(rows, source_rows(chunk).tolist(), keys, strict=True):
        row.schema, row.number, row.key = schema, number, key
    return rows
