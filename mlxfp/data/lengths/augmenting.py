"""Stages that drop fields and tokens at random.

The random numbers depend on epoch, row and position, not on chunks, shards or threads.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.ragged import Ends, places_within, to_lists
from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.stages import RowWise, Traits
from mlxfp.data.lengths.tokens import aligned_schema, read_aligned, read_tokens
from mlxfp.support.arrow_types import is_tensor
from mlxfp.support.checks import as_strings, check_columns, check_integer, check_text, check_types, check_unique, explain_call
from mlxfp.support.errors import ArgumentError, SchemaError
from mlxfp.support.randomness import Keys, fold_in_rows, fold_into_rows, uniform


@explain_call
def drop_fields(rate: float, columns: Sequence[str], *, seed: int) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Replace each value in `columns` by null, independently with probability `rate`, for training on tables.

    A later stage `template` treats these nulls like other missing values. A model thus learns not to depend on a single field.

    Raises `SchemaError` for a missing column, and for a column of fixed-shape tensors, which cannot contain nulls.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 22, "sex": "f", "label": 1}] * 3)
    >>> [tuple(row.values()) for row in fp.pipe(rows, fp.drop_fields(0.5, ["age", "sex"], seed=0))]
    [(None, None, 1), (None, 'f', 1), (22, None, 1)]

    See also: `template(seed=)`, which writes fields in random order; `drop_tokens`.
    """
    check_integer(seed=seed)
    return _DropFields(_rate(rate), as_strings("columns", columns, empty=False), seed)


@explain_call
def drop_tokens(
    rate: float, *, seed: int, keep: Collection[int] = (), column: str = "input_ids", aligned: Sequence[str] = ()
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Remove each token with probability `rate`, for training (word dropout: Iyyer et al., "Deep Unordered Composition", 2015).

    Ids in `keep` are never removed. For example, `keep=tokenizer.special_ids` keeps special tokens. A row without such ids may lose all its
    tokens. Columns in `aligned` are lists with one value per token, such as `token_type_ids`, and lose the same positions.

    Raises `SchemaError` unless all columns contain lists and `column` contains lists of integers. Raises `DataError` for a row with missing
    lists or lists of different lengths.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1, 5, 6, 7, 8, 2]}])
    >>> [row["input_ids"] for row in fp.pipe(rows, fp.drop_tokens(0.5, seed=0, keep=[1, 2]))]
    [[1, 6, 2]]

    See also: `map(seed=)` for noise of your own; `collators.masked`, which hides tokens and creates labels.
    """
    check_integer(seed=seed)
    check_text(column=column)
    names = as_strings("aligned", aligned)
    check_unique({"column and aligned": (column, *names)})
    return _DropTokens(_rate(rate), seed, _ids(keep), column, names)


@frozen(repr=False)
class _DropFields(RowWise):
    rate: float
    columns: tuple[str, ...]
    seed: int

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, [name for name in schema.names if name not in HIDDEN], "drop_fields")
        for name in self.columns:
            kind = schema.field(name).type
            if is_tensor(kind):
                raise SchemaError(
                    f"drop_fields: column {name!r} of type {kind} cannot hold nulls. Choose other columns, or use map(seed=)."
                )
            schema = set_field(schema, name, kind)
        return schema

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, draws=True, columns_read=self.columns, longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        keys = fold_into_rows(row_keys(chunk), "drop_fields", self.seed)
        for name in self.columns:
            dropped = uniform(fold_into_rows(keys, name)) < self.rate
            # `take` returns null at a null index, whatever the type of the column.
            kept = pa.array(np.arange(chunk.num_rows), mask=dropped)
            chunk = set_column(chunk, name, chunk.column(name).take(kept))
        return chunk


@frozen(repr=False)
class _DropTokens(RowWise):
    rate: float
    seed: int
    keep: tuple[int, ...] = ()
    column: str = "input_ids"
    aligned: tuple[str, ...] = ()

    def schema(self, schema: Schema) -> Schema:
        return aligned_schema(schema, self.column, self.aligned, "drop_tokens")

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, draws=True, columns_read=(self.column, *self.aligned), longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        tokens, ends = read_tokens(chunk, self.column, "drop_tokens")
        keys = fold_into_rows(row_keys(chunk), "drop_tokens", self.seed)
        kept = ~_chosen(tokens, ends, keys, self.rate, self.keep)
        new_ends = np.concatenate([[0], np.cumsum(kept)])[ends]
        for name in self.aligned:
            values = read_aligned(chunk, name, (self.column, ends), "drop_tokens").filter(pa.array(kept))
            chunk = set_column(chunk, name, to_lists(values, new_ends))
        return set_column(chunk, self.column, to_lists(tokens[kept], new_ends))


def _chosen(tokens: NDArray[np.int32], ends: Ends, keys: Keys, rate: float, keep: Sequence[int]) -> NDArray[np.bool_]:
    """Return a mask of the chosen tokens, bool[T]. Each token is chosen with probability `rate`, unless its id is in `keep`.

    The random number of a token is derived from the row key and the position.
    """
    lengths = np.diff(ends)
    chosen: NDArray[np.bool_] = uniform(fold_in_rows(np.repeat(keys, lengths), places_within(lengths))) < rate
    return chosen & ~np.isin(tokens, keep) if keep else chosen


def _rate(rate: Any) -> float:
    check_types((int, float), rate=rate)
    if not 0 <= rate <= 1:
        raise ArgumentError(f"rate must be from 0 to 1, got {rate}.")
    return float(rate)


def _ids(keep: Collection[int]) -> tuple[int, ...]:
    unique = tuple(dict.fromkeys(keep))
    check_integer(**{f"keep[{index}]": number for index, number in enumerate(unique)})
    if unique and not 0 <= min(unique) <= max(unique) < 2**31:
        raise ArgumentError(f"keep must be ids from 0 to {2**31 - 1}, got {min(unique)} to {max(unique)}.")
    return unique
