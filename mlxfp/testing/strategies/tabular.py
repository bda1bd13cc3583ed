"""Hypothesis strategies for tables with edge cases, examples, templates and tokenizers."""

import datetime as dt
import re
import string
from decimal import Decimal
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema, one_chunk, to_rows
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.support.arrow_types import TEXT_OF_JSON, is_tensor
from mlxfp.support.checks import check_not_negative
from mlxfp.support.errors import ArgumentError
from mlxfp.text.templates.templates import Template
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.text.tokenizers.training import Kind, train_tokenizer

Values = st.SearchStrategy[Any]

_ODD_TEXTS = ("", " ", "\0", "\n", "é\u0301", "\u202eabc", "\U0001f468\u200d\U0001f469", "NaN", "null", "{x}", '"a,b"', "[PAD]")
_ODD_FLOATS = (0.0, -0.0, 5e-324, 1e16, float("inf"), float("-inf"), float("nan"))
_LITERALS = ("", " ", ". ", ", ", "; ", " | ", "! ", "...\n", "\n", ".", "{{", "}}, ", " is ", "é,\t", "3.5 m")
_WORDS = ("the", "cat", "Cat", "sat", "satisfied", "42", "3.14", "é", "e\u0301", "naïve", "中文", "🙂", "un-do", "it's", "a_b", "x\ty")

_TEXTS: Values = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(_ODD_TEXTS)
_FLOATS: Values = st.floats() | st.sampled_from(_ODD_FLOATS)
# Maps the name of an Arrow type to a strategy for values. Arrow rounds times down to the unit of the type, and reads naive times as UTC.
_SIMPLE: dict[str, Values] = {
    "bool": st.booleans(),
    "halffloat": st.floats(width=16),
    "float": st.floats(width=32),
    "double": _FLOATS,
    "null": st.none(),
    **dict.fromkeys(["string", "large_string", "string_view"], _TEXTS),
    **dict.fromkeys(["binary", "large_binary", "binary_view"], st.binary(max_size=4)),
    str(TEXT_OF_JSON): st.sampled_from(["null", "0", '""', "[]", '{"a": [1.5, null]}']),
    "date32": st.dates(),
    "date64": st.dates(),
    "time32": st.times(),
    "time64": st.times(),
    "timestamp": st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)),  # noqa: DTZ001  # limits within 64 bits of nanoseconds
    "duration": st.timedeltas(dt.timedelta(-90_000), dt.timedelta(90_000)),
}

# Simple column types of random schemas.
_LEAVES = (
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.null(), pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC")),
    *(pa.decimal128(9, 2), pa.dictionary(pa.int32(), pa.string())),
)
_TENSORS = [
    *(pa.fixed_shape_tensor(kind, shape) for kind in (pa.uint8(), pa.float32()) for shape in ((2,), (1, 3))),
    # The permutation [0, 1] changes no axis. Types from `from_numpy_ndarray` have this explicit permutation.
    pa.fixed_shape_tensor(pa.float32(), (1, 2), permutation=[0, 1]),
    pa.fixed_shape_tensor(pa.int32(), (1, 2), permutation=[1, 0]),
]


def schemas(*, min_columns: int = 0, max_columns: int = 4) -> st.SearchStrategy[Schema]:
    """Return a strategy for Arrow schemas with any names and many types, from bool to lists of structs and fixed-shape tensors.

    >>> from hypothesis import find
    >>> find(schemas(), lambda schema: len(schema) > 0)
    : bool not null
    """
    check_not_negative(min_columns=min_columns, max_columns=max_columns)
    names = st.text(string.ascii_letters, max_size=2) | _TEXTS
    names = names.filter(lambda name: name not in HIDDEN)
    fields = st.builds(lambda name, kind, null: pa.field(name, kind, null or pa.types.is_null(kind)), names, _types(), st.booleans())
    return st.lists(fields, min_size=min_columns, max_size=max_columns, unique_by=lambda field: field.name).map(pa.schema)


@st.composite
def tables(draw: st.DrawFn, schema: Schema | None = None, *, min_columns: int = 0, min_rows: int = 0, max_rows: int = 8) -> pa.Table:
    """Return a strategy for Arrow tables of `schema`, or of any schema.

    The tables have edge cases: nulls, NaN, integer limits, empty strings, zero rows, zero columns. The chunks are random slices of longer
    arrays, so offsets and empty chunks occur.

    >>> from hypothesis import find
    >>> find(tables(pa.schema({"x": pa.int8()})), lambda table: table.num_rows > 1)["x"].to_pylist()
    [0, 0]
    """
    drawn = draw(schemas(min_columns=min_columns)) if schema is None else schema
    count = draw(st.integers(min_rows, max_rows))
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    columns = [_column(draw, field, before + count + after) for field in drawn]
    if columns:
        whole = pa.RecordBatch.from_arrays(columns, schema=drawn)
    else:
        whole = pa.RecordBatch.from_struct_array(pa.array([{}] * (before + count + after), pa.struct([])))
    return pa.Table.from_batches(draw(_cuts(whole.slice(before, count))))


def examples(schema: Schema | None = None, *, min_rows: int = 0, max_rows: int = 8) -> st.SearchStrategy[tuple[dict[str, Any], ...]]:
    """Return a strategy for sequences of examples, as accepted by `from_examples`: dicts of Python values and numpy arrays.

    >>> from hypothesis import find
    >>> find(examples(pa.schema({"x": pa.int8()})), lambda rows: len(rows) > 1 and rows[0]["x"] is not None)
    ({'x': 0}, {'x': 0})
    """
    drawn = (schemas() if schema is None else st.just(schema)).map(without_null_tensors)
    return drawn.flatmap(lambda kinds: tables(kinds, min_rows=min_rows, max_rows=max_rows)).map(
        lambda table: tuple(to_rows(one_chunk(table)))
    )


@st.composite
def templates(draw: st.DrawFn, schema: Schema) -> Template:
    """Return a strategy for templates. The fields of the templates are the columns of `schema` whose names are valid field names.

    >>> from hypothesis import find
    >>> find(templates(pa.schema({"x": pa.int8()})), lambda sentence: len(sentence.columns) > 0)
    Template(pattern='{x}', missing='', policy='say')
    """
    names = [name for name in schema.names if re.fullmatch(r"[^\W\d]\w*", name)]
    fields = st.builds("{{{}{}}}".format, st.sampled_from(names), st.sampled_from(["", "!r", "!s:>6"])) if names else st.nothing()
    pieces = draw(st.lists(fields | st.sampled_from(_LITERALS), max_size=6))
    return Template("".join(pieces), missing=draw(_TEXTS), policy=draw(st.sampled_from(["say", "drop", "raise"])))


@st.composite
def tokenizers(draw: st.DrawFn) -> Tokenizer:
    """Return a strategy for tokenizers trained on random words: byte-level BPE, WordPiece, Unigram.

    >>> from hypothesis import find
    >>> tokenizer = find(tokenizers(), lambda tokenizer: tokenizer.vocab_size < 50)
    >>> tokenizer.decode(tokenizer.encode("cat"))
    'cat'
    """
    kind: Kind = draw(st.sampled_from(["bpe", "wordpiece", "unigram"]))
    words = draw(st.lists(st.sampled_from(_WORDS) | st.text(st.characters(codec="utf-8"), max_size=5), max_size=8))
    rows = from_examples([{"text": " ".join(["cat", *words])}])  # training on spaces alone would fail, so the text contains `cat`
    size = draw(st.integers(300, 400))  # vocabulary size, large enough for all 256 bytes
    return train_tokenizer(rows, kind=kind, vocab_size=size, lowercase=draw(st.booleans()))


def without_null_tensors(schema: Schema) -> Schema:
    """Return the schema with tensor columns that are not nullable, because a null tensor has no Python value."""
    return pa.schema([pa.field(f.name, f.type, f.nullable and not isinstance(f.type, pa.FixedShapeTensorType)) for f in schema])


def for_functions(schema: Schema) -> Schema:
    """Remove columns of the Arrow type map, and make tensor columns not nullable. Functions that return their input keep this schema."""
    return without_null_tensors(pa.schema([field for field in schema if "map<" not in str(field.type)]))


def rechunkings(table: pa.Table) -> st.SearchStrategy[tuple[RecordBatch, ...]]:
    """Return a strategy that cuts the rows of `table` into chunks at random. The rows keep their order.

    There is at least one chunk, and chunks may be empty.

    >>> from hypothesis import find
    >>> cut = find(rechunkings(pa.table({"x": [1, 2, 3]})), lambda chunks: len(chunks) > 2)
    >>> [chunk.num_rows for chunk in cut]
    [0, 0, 3]
    """
    return _cuts(one_chunk(table))


def _cuts(chunk: RecordBatch) -> st.SearchStrategy[tuple[RecordBatch, ...]]:
    cuts = st.lists(st.integers(0, chunk.num_rows), max_size=4).map(sorted)
    return cuts.map(lambda positions: tuple(chunk.slice(a, b - a) for a, b in pairwise([0, *positions, chunk.num_rows])))


@cache
def _types() -> st.SearchStrategy[pa.DataType]:
    # leave out dictionaries, because pyarrow creates invalid dictionaries inside nested types
    inner = st.sampled_from([kind for kind in _LEAVES if not pa.types.is_dictionary(kind)])
    return st.sampled_from([*_LEAVES, *_TENSORS]) | st.recursive(inner, _nested, max_leaves=3)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    pairs = st.builds(pa.list_, inner, st.just(2))
    maps = inner.map(lambda kind: pa.map_(pa.string(), kind))
    fields = st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2)
    return inner.map(pa.list_) | fields.map(lambda chosen: pa.struct(list(chosen.items()))) | pairs | maps


def _column(draw: st.DrawFn, field: pa.Field, size: int) -> pa.Array:
    drawn = draw(st.lists(_slots(field), min_size=size, max_size=size))
    try:
        return _array(drawn, field.type)
    except pa.ArrowNotImplementedError as error:
        raise _unsupported(field.type, f"pyarrow cannot create a column of these values: {error}") from error


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of Python values, also of types that `pyarrow.array` does not support."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _array(values, kind.storage_type))
    if pa.types.is_dictionary(kind):
        encoded = _array(values, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered)
    return pa.array(values, kind)


def _slots(field: pa.Field) -> Values:
    """Return a strategy for the values of a field. Nulls occur if the field is nullable."""
    return _values(field.type) | st.none() if field.nullable else _values(field.type)


@cache
def _values(kind: pa.DataType) -> Values:
    """Return a strategy for the values of a type, without nulls at the top level.

    The result is cached, because hypothesis validates each new strategy.
    """
    if is_tensor(kind):
        storage = kind.storage_type
        return st.lists(_values(kind.value_type), min_size=storage.list_size, max_size=storage.list_size)
    if pa.types.is_map(kind):
        return st.lists(st.tuples(_values(kind.key_type), _slots(kind.item_field)), max_size=2)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: _slots(field) for field in kind})
    if hasattr(kind, "value_field"):
        least, most = (kind.list_size, kind.list_size) if pa.types.is_fixed_size_list(kind) else (0, 3)
        return st.lists(_slots(kind.value_field), min_size=least, max_size=most)
    return _simple_values(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _simple_values(kind: pa.DataType) -> Values:
    name = str(kind).partition("[")[0]
    if name in _SIMPLE:
        return _SIMPLE[name]
    if isinstance(kind, pa.BaseExtensionType):
        return _values(kind.storage_type)
    if pa.types.is_integer(kind):
        limits = np.iinfo(str(kind))
        return st.integers(limits.min, limits.max) | st.sampled_from([limits.min, limits.max, 0])
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(partial(_decimal, kind.scale))
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    raise _unsupported(kind, "no strategy draws values of this type")


def _decimal(scale: int, digits: int) -> Decimal:
    """Return `digits` divided by 10 ** `scale`, exactly."""
    return Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -scale))


def _unsupported(kind: pa.DataType, problem: str) -> ArgumentError:
    return ArgumentError(f"schema= has the type {kind}, but {problem}. Use another type, or pass examples= with rows of your own.")
