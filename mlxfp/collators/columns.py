"""Functions that convert the columns of a group of rows to NumPy arrays.

Every collator reads columns with these functions. Arrow data and a list of dicts therefore give the same batch and the same error messages.
Integers become int32, and floats become float32. Only tensors keep smaller types, such as uint8 for images.
Decimals are rounded to float32. Integers are never rounded: an integer that does not fit raises an error.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.exact_casts import largest_exact
from mlxfp.core.arrow.ragged import Ends, check_values, column_without_nulls, places_within, read_lists, row_of
from mlxfp.core.chunks import HIDDEN, KEY, ROW, Example, from_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.examples import Examples, Row
from mlxfp.core.nodes import Part
from mlxfp.core.row_names import file_of, row_at
from mlxfp.core.stages import RowWise
from mlxfp.support.arrow_types import is_list_like, is_number, is_tensor, is_text, value_type
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import ArgumentTypeError, DataError, SchemaError
from mlxfp.support.randomness import Keys, fold_in_rows, fold_into_rows

Collator = Callable[[Sequence[Example]], dict[str, Any]]
Numbers = NDArray[Any]
Batch = dict[str, Any]
Arrays = Mapping[str, tuple[str, Callable[[Numbers], Numbers]]]
_EXACT = largest_exact(pa.float32())
GROUP = "group"  # noun in error messages for the rows that a collator receives


class Prepared(NamedTuple):
    """A collator in two parts: `stages` prepare columns in workers, and `collator` makes batches from the prepared columns."""

    columns: tuple[str, ...]
    stages: tuple[RowWise, ...]  # stages for workers, from modules without MLX, because workers never import MLX
    collator: Collator


class Choosing(Part):
    """Collator with declared columns."""

    __slots__ = ()
    optional_columns: tuple[str, ...] = ()  # columns in `uses` that may be missing

    @property
    @abstractmethod
    def uses(self) -> tuple[str, ...] | None:
        """Columns that affect the batch or error messages; None: all columns."""

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"collators.{type(self).__name__.lstrip('_').lower()}"

    def check(self, schema: pa.Schema) -> None:
        """Raise `SchemaError` if the schema lacks a column of the collator, before any row is read."""
        needed = [name for name in self.uses or () if name not in self.optional_columns]
        check_columns(needed, schema.names, self.name, label=getattr(self, "label", None))

    def prepared(self, schema: pa.Schema) -> Prepared | None:
        """Return the stages that workers can run for this collator. Return None if workers would save little time."""
        return None


class Cutting(Choosing):
    """Collator that reads the columns of many groups in one step, and then makes a batch of each group."""

    __slots__ = ()

    @abstractmethod
    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[dict[str, Any] | None]:
        """Yield a batch for each group of consecutive rows. Yield None for a group that needs a separate call of `collate`.

        Group `i` consists of the rows from `ends[i]` to `ends[i + 1]` (exclusive).
        """

    def arrays(self, schema: pa.Schema) -> Arrays | None:
        """Return a mapping from the name of each array of a batch to the source column and the conversion function.

        Return None if an array needs several columns. A function converts the rows of many groups in one call. If the call raises an
        `MlxfpError`, each group is converted separately, so that the error names the invalid row.
        """
        return None

    def finished(self, batch: Batch) -> Batch:
        """Apply the MLX operations of the collator, and evaluate the arrays, because another thread cannot evaluate lazy arrays."""
        return batch


def check_group(examples: Sequence[Example]) -> None:
    """Raise an error unless `examples` is a non-empty group of rows: a view (`Examples`), or a list of mappings.

    A pipeline without `collate` passes the whole dataset instead of a group.
    """
    if isinstance(examples, Dataset):
        raise ArgumentTypeError(
            f"A collator takes a group of rows, got a dataset: {examples!r:.200}. Wrap the collator in the pipeline: fp.collate(collator)."
        )
    if isinstance(examples, Mapping) or not hasattr(examples, "__len__"):
        raise ArgumentTypeError(
            f"A collator takes a list of rows, got {type(examples).__name__}: {examples!r:.60}. For a single row, pass [row]."
        )
    if not len(examples):
        raise DataError("A collator needs at least one example, got an empty group.")
    for index, example in enumerate(() if isinstance(examples, Examples) else examples):
        if not isinstance(example, Mapping):
            raise ArgumentTypeError(
                f"A collator takes mappings, got {type(example).__name__} at index {index} of the group: {example!r:.60}."
            )


def as_view(examples: Sequence[Example]) -> Examples:
    """Return a non-empty group as a view (`Examples`). A list of mappings is converted to Arrow.

    A `Row` of a view keeps column types, source row and key. If the list also has other mappings, column types are inferred from all
    mappings.
    """
    check_group(examples)
    if isinstance(examples, Examples):
        return examples
    rows = [example if isinstance(example, Row) else None for example in examples]
    numbers = [index if row is None else row.number for index, row in enumerate(rows)]
    chunk = from_rows(examples, _shared_schema(rows), numbers)
    if any(row is not None for row in rows):
        known = pa.array([-1 if row is None else row.number for row in rows], pa.int64())
        keys = pa.array([None if row is None else row.key for row in rows], pa.uint64())
        chunk = chunk.append_column(ROW, known).append_column(KEY, keys)
    return Examples(chunk)


def column_of(examples: Examples, name: str, wanted_by: str, *, label: str | None = None) -> pa.Array:
    """Return a column. Raises `DataError` for the first row without a value."""
    if name in HIDDEN or examples.chunk.schema.get_field_index(name) < 0:
        check_columns([name], examples.names, wanted_by, label=label)
    if label is None:
        return column_without_nulls(examples.chunk, name, wanted_by, of=GROUP)
    remedy = "Call fp.filter to remove the row, or remove label= from the collator for rows without labels."
    return column_without_nulls(examples.chunk, name, wanted_by, of=GROUP, remedy=remedy)


def names_of(*columns: str | None) -> tuple[str, ...]:
    """Return all names except None."""
    return tuple(name for name in columns if name is not None)


def at_row(examples: Examples, name: str, row: int, wanted_by: str) -> str:
    """Return the beginning of an error message about a value in one row of a group, with the file of the row if known."""
    return f"{wanted_by}: column {name!r} of {row_at(examples.chunk, row, of=GROUP)}{file_of(examples.chunk, name, row)}"


def ragged_of(examples: Examples, name: str, wanted_by: str) -> tuple[Numbers, Ends]:
    """Return a column of number lists, or of tensors with one axis, as a pair (concatenated values, row bounds).

    The values are int32, float32 or bool; the row bounds are int64[B + 1].
    """
    column = column_of(examples, name, wanted_by)
    if not (is_list_like(column.type) or is_tensor(column.type, axes=1)):
        cure = " Put tokenize before batch." if name == "input_ids" else " Convert it to lists with map."
        cure = cure if is_text(value_type(column.type)) else ""
        raise SchemaError(f"{wanted_by}: column {name!r} must hold lists of numbers, got {column.type}.{cure}")
    values, ends = read_lists(column)
    if pa.types.is_null(values.type):  # If a list of mappings has only empty lists in a column, the type of the column is null.
        values = values.cast(pa.int32())
    check_values((values, ends), examples.chunk, name, wanted_by, of=GROUP)
    if not is_number_or_bool(values.type):
        raise SchemaError(f"{wanted_by}: column {name!r} must hold lists of numbers, got {column.type}.")
    return _to_32_bits(values.to_numpy(zero_copy_only=False), lambda at: at_row(examples, name, row_of(ends, at), wanted_by)), ends


def vectors_of(examples: Examples, name: str, wanted_by: str) -> tuple[Numbers, Ends]:
    """Return the vectors of all rows as one array [number of vectors, vector size], and the row bounds, int64[B + 1].

    Rows are lists of vectors, or tensors with two axes. Vectors become int32 or float32, but 8-bit and 16-bit tensors keep their type.
    """
    column = column_of(examples, name, wanted_by)
    if is_tensor(column.type, axes=2):
        plain = column.to_numpy_ndarray()
        small = narrow(plain, lambda at: at_row(examples, name, at * len(plain) // plain.size, wanted_by))
        return small.reshape(-1, plain.shape[2]), np.arange(len(plain) + 1) * plain.shape[1]
    if not (is_list_like(column.type) and is_list_like(column.type.value_type) and is_number(column.type.value_type.value_type)):
        raise SchemaError(
            f"{wanted_by}: column {name!r} must hold lists of lists of numbers, got {column.type}. Create the column with log_mel."
        )
    vectors, ends = read_lists(column)
    check_values((vectors, ends), examples.chunk, name, wanted_by, of=GROUP)
    values, vector_ends = read_lists(vectors)
    check_values((values, vector_ends[ends]), examples.chunk, name, wanted_by, of=GROUP)
    sizes = np.diff(vector_ends)
    size = int(sizes[0]) if len(sizes) else getattr(vectors.type, "list_size", 1)
    differing = np.flatnonzero(sizes != size)
    if len(differing):
        row = row_of(ends, int(differing[0]))
        raise DataError(
            f"{at_row(examples, name, row, wanted_by)} has a vector of {sizes[differing[0]]} values, but the first vector of the group "
            f"has {size}. Create all vectors with the same log_mel."
        )
    plain = _to_32_bits(values.to_numpy(zero_copy_only=False), lambda at: at_row(examples, name, row_of(ends, at // size), wanted_by))
    return plain.reshape(-1, size), ends


def lists_of(examples: Examples, name: str, wanted_by: str) -> tuple[NDArray[np.int32], Ends]:
    """Return a column of integer lists as (values int32[sum of lengths], bounds int64[B + 1])."""
    values, ends = ragged_of(examples, name, wanted_by)
    if values.dtype != np.int32:
        kind, stage = examples.column(name).type, "pack" if name in ("segment_ids", "positions") else "tokenize"
        raise SchemaError(f"{wanted_by}: column {name!r} must hold lists of integers, got {kind}. Put {stage} before batch.")
    return values, ends


def numbers_of(examples: Examples, name: str, wanted_by: str) -> Numbers:
    """Return a column of numbers as int32[B], float32[B] or bool[B], and a column of equally long lists as [B, length].

    Fixed-shape tensors become [B, ...] of their dtype; 64-bit dtypes become 32-bit. Raises `DataError` for lists of different lengths.
    """
    column = column_of(examples, name, wanted_by)
    if is_tensor(column.type):
        plain = column.to_numpy_ndarray()
        return narrow(plain, lambda at: at_row(examples, name, at * len(plain) // plain.size, wanted_by))
    if is_list_like(column.type):
        values, ends = ragged_of(examples, name, wanted_by)
        lengths = np.diff(ends)
        first = int(lengths[0]) if len(lengths) else 0
        differing = np.flatnonzero(lengths != first)
        if len(differing):
            raise DataError(
                f"{at_row(examples, name, int(differing[0]), wanted_by)} has {lengths[differing[0]]} values, but the first row of the "
                f"group has {first}. All rows need the same length: pad the rows before batch."
            )
        return values.reshape(len(lengths), first)
    if pa.types.is_null(column.type):  # If all rows of a column are null, the schema of the pipeline is inferred from a group without rows.
        column = column.cast(pa.int32())
    if not is_number_or_bool(column.type):
        cure = " Convert its values to numbers with map." if is_text(value_type(column.type)) else ""
        raise SchemaError(f"{wanted_by}: column {name!r} must hold numbers, got {column.type}.{cure}")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return _to_32_bits(column.to_numpy(zero_copy_only=False), lambda at: at_row(examples, name, at, wanted_by))


def keys_of(examples: Examples, values: Numbers, ends: Ends) -> Keys:
    """Return the random key of each example, uint64[B]. Outside a pipeline, keys depend on the values and are equal in each epoch."""
    index = examples.chunk.schema.get_field_index(KEY)
    column = None if index < 0 else examples.chunk.column(index)
    if column is not None and not column.null_count:
        keys: Keys = column.to_numpy()
        return keys
    lengths = np.diff(ends)
    value_keys = fold_in_rows(fold_into_rows(values.astype(np.uint64), "value"), places_within(lengths))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(value_keys)])
    content_keys = fold_in_rows(sums[ends[1:]] - sums[ends[:-1]], lengths)
    if column is None:
        return content_keys
    return np.where(column.is_null().to_numpy(zero_copy_only=False), content_keys, column.fill_null(0).to_numpy())


def ids_of(examples: Examples, name: str, vocab_size: int | None, wanted_by: str) -> tuple[NDArray[np.int32], Ends]:
    """Return token ids, as `lists_of` does. Raises `DataError` with the position of the first id outside `vocab_size`."""
    ids, ends = lists_of(examples, name, wanted_by)
    if vocab_size is None or _in_vocabulary(ids, vocab_size):
        return ids, ends
    index = int(np.flatnonzero((ids < 0) | (ids >= vocab_size))[0])
    row = row_of(ends, index)
    raise DataError(
        f"{at_row(examples, name, row, wanted_by)} has the id {ids[index]} at position {index - ends[row]}, outside the vocabulary of size "
        f"{vocab_size}. Use the vocab_size of the tokenizer that created the column: tokenizer.vocab_size."
    )


def ids_in(ids: Numbers, vocab_size: int | None) -> Numbers:
    """Return token ids of equally long rows as int32[N, length]. Raises `DataError` for an id outside `vocab_size`.

    The message names neither the row nor the position of the id. Use `ids_of` for a message with both.
    """
    small = ids if ids.dtype == np.int32 else _to_32_bits(ids, unnamed)
    if vocab_size is not None and not _in_vocabulary(small, vocab_size):
        raise DataError(f"An id is outside the vocabulary of {vocab_size} tokens.")
    return small


def _in_vocabulary(ids: Numbers, vocab_size: int) -> bool:
    # A single comparison is enough: as unsigned numbers, negative ids are larger than the size of any vocabulary.
    return not ids.size or int(ids.view(np.uint32).max()) < vocab_size


def narrow(plain: Numbers, at: Callable[[int], str]) -> Numbers:
    """Convert 64-bit numbers to 32 bits, the precision of MLX.

    Raises `DataError` for a number out of range. The message begins with `at(index)`, where `index` is the flat index of the number.
    """
    if plain.dtype == np.float64:
        with np.errstate(over="ignore"):
            small = plain.astype(np.float32)
        refuse(np.isinf(small) & np.isfinite(plain), plain, at, "beyond 32-bit floats. Scale it before batch")
        return small
    return _int32(plain, at) if plain.dtype.kind in "iu" and plain.dtype.itemsize == 8 else plain


def as_floats(plain: Numbers, at: Callable[[int], str]) -> Numbers:
    """Convert numbers of 32 bits or less to float32. Raises `DataError` for an integer beyond 2**24, which float32 may round."""
    if plain.dtype.kind in "iu" and plain.dtype.itemsize > 2:
        reason = f"beyond {_EXACT:,} (2**24), so 32-bit floats round such integers. Scale the numbers, or convert to floats with map"
        refuse((plain > _EXACT) | (plain < -_EXACT), plain, at, reason)
    return plain.astype(np.float32, copy=False)


def fixed_numbers(kind: pa.DataType) -> Callable[[Numbers], Numbers] | None:
    """Return a function that converts rows of equal size to an array. Return None for column types whose rows can differ in size.

    The array equals the result of `numbers_of`. Errors of the function do not name the row, while errors of `numbers_of` do.
    """
    if is_tensor(kind):
        in_order = list(kind.permutation or ()) == sorted(kind.permutation or ())
        return partial(_tensors, tuple(kind.shape)) if in_order else None
    listed = pa.types.is_fixed_size_list(kind) and is_number(kind.value_type)
    if not (is_number(kind) or listed):
        return None
    return identity if (kind.value_type if listed else kind) in (pa.int32(), pa.float32()) else partial(_to_32_bits, at=unnamed)


def unnamed(index: int) -> str:
    """Return the start of an error message about a number in an unknown row, for example "value 3"."""
    return f"value {index}"


def _tensors(shape: tuple[int, ...], values: Numbers) -> Numbers:
    return narrow(values if len(shape) == 1 else values.reshape(len(values), *shape), unnamed)


def is_number_or_bool(kind: pa.DataType) -> bool:
    """Return True for a column of numbers or booleans."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_number(inner) or bool(pa.types.is_boolean(inner))


def _shared_schema(rows: Sequence[Row | None]) -> pa.Schema | None:
    """Return the schema of all rows. Return None if the schemas of rows differ, or if the keys of a row differ from its schema."""
    first = rows[0]
    if first is None:
        return None
    names, schema = set(first.schema.names), first.schema
    same = (row is not None and row.keys() == names and (row.schema is schema or row.schema.equals(schema)) for row in rows)
    return schema if all(same) else None


def _to_32_bits(plain: Numbers, at: Callable[[int], str]) -> Numbers:
    """Convert integers to int32 and floats to float32."""
    if plain.dtype.kind in "iu":
        return plain.astype(np.int32, copy=False) if plain.dtype.itemsize < 4 else _int32(plain, at)
    return narrow(plain, at).astype(np.float32, copy=False) if plain.dtype.kind == "f" else plain


def _int32(plain: Numbers, at: Callable[[int], str]) -> Numbers:
    small = plain.astype(np.int32, copy=False)
    if small is not plain and not (small == plain).all():
        refuse(small != plain, plain, at, "beyond 32-bit integers. Renumber such values before batch")
    return small


def refuse(wrong: NDArray[np.bool_], plain: Numbers, at: Callable[[int], str], reason: str) -> None:
    """Raise `DataError` for the first number marked in `wrong`. The message names the location of the number."""
    if wrong.any():
        first = int(np.argmax(wrong))
        location, value = at(first), plain.flat[first]
        raise DataError(f"{location} holds {value}, {reason}.")
