"""Fingerprints: equal values have equal fingerprints in every process, and different values have different fingerprints.

Each part of a pipeline has a hash, so pipelines can be compared part by part. The hash of a function covers name, byte code,
constants, defaults, closure, the values of its globals, and called functions in user modules. Byte code and fingerprints change
between Python versions.
"""

import datetime as dt
import dis
import functools
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import toolz
from attrs import frozen

from mlxfp.core.chunks import one_chunk
from mlxfp.core.nodes import Pipeline, children, flat_parts
from mlxfp.support.arrow_types import decoded
from mlxfp.support.errors import FingerprintError

Identity = tuple[tuple[str, str], ...]  # pairs (text, fingerprint), one per part of a pipeline, in order

_ROWS_HASHED_AT_ONCE = 65_536
# Functions in files with these prefixes are installed code, mlxfp included. Fingerprints contain only the names of such functions.
# The prefix "<" matches built-in modules, for example "<frozen os>".
_INSTALLED = ("<", str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))

_GENERATED = ("<attrs generated", "<string>")  # start of `co_filename` in methods that attrs and dataclasses generate


def fingerprint(value: object) -> str:
    """Return 32 hexadecimal digits that identify a dataset, a stage or any plain value.

    Equal values have equal fingerprints in every process with the same version of Python. Raises `FingerprintError` for a value
    without stable content, such as an open file or an instance of a plain class. A class can define `__fingerprint__`, which returns a
    plain value to hash instead.

    >>> import mlxfp as fp
    >>> len({fp.inspect.fingerprint(stage) for stage in (fp.batch(32), fp.batch(32), fp.batch(64))})
    2
    """
    return _digest(value).hex()


def comparable(value: object) -> object:
    """Return the fingerprint of a value, so that a pickled copy compares equal. Return a value without a fingerprint unchanged."""
    try:
        return fingerprint(value)
    except FingerprintError:
        return value


def identify(dataset: Pipeline[Any]) -> Identity:
    """Return the text and fingerprint of every part of a pipeline, in order."""
    return tuple((repr(part), _part(part).hex()) for part in flat_parts(dataset))


@frozen
class Division:
    """Number of ranks and batch size of a pipeline. The fingerprint does not depend on the number of ranks."""

    shards: int  # number of ranks, or 0 if every rank processes all rows
    batch_rows: int  # number of rows in each batch of a rank, or 0 without batches of a fixed size
    fingerprint: str


def divide(dataset: Pipeline[Any]) -> Division:
    """Return the number of ranks and the batch size of a pipeline, with a fingerprint."""
    shares = [part.traits.share for part in flat_parts(dataset)]
    digests = [mark if share is None else _part(share.alone).hex() for share, (_, mark) in zip(shares, dataset.identity, strict=True)]
    known = [share for share in shares if share is not None]
    shards = next((share.shards for share in known if share.shards), 0)
    batch_rows = next((share.batch_rows for share in reversed(known) if share.batch_rows), 0)
    return Division(shards, batch_rows, fingerprint(tuple(digests)))


def difference(a: Identity, b: Identity) -> tuple[str, str] | None:
    """Compare two pipelines. Return the texts of the first sources or stages that differ, or None for equal pipelines."""
    for left, right in zip(a, b, strict=False):
        if left[1] != right[1]:
            return left[0], right[0] if left[0] != right[0] else f"{right[0]} with other content"
    if len(a) == len(b):
        return None
    longer = a if len(a) > len(b) else b
    extra = f"{longer[min(len(a), len(b))][0]} as part {min(len(a), len(b)) + 1}"
    return (extra, "nothing there") if longer is a else ("nothing there", extra)


def _part(part: Any) -> bytes:
    inner = children(part)
    if len(inner) != 1:
        return _digest(part)
    values = [(f.name, getattr(part, f.name)) for f in attrs.fields(type(part)) if f.eq]
    return _digest((_name(type(part)), [(name, value) for name, value in values if not isinstance(value, Pipeline)]))


def _digest(value: object, inside: tuple[int, ...] = ()) -> bytes:
    state = blake2b(digest_size=16)
    for piece in _pieces(value, inside):
        state.update(len(piece).to_bytes(8, "little"))  # hash the lengths, too, to distinguish ("ab", "c") from ("a", "bc")
        state.update(piece)
    return state.digest()


def _pieces(value: Any, inside: tuple[int, ...]) -> Iterator[bytes]:  # noqa: C901, PLR0912, PLR0915  # one case per kind of value
    """Yield bytes that identify a value. `inside` holds the ids of the functions being hashed, to end recursion."""
    match value:
        case None | bool() | int() | str() | types.EllipsisType():
            yield f"{type(value).__name__}:{value!r}".encode()
        case float() | complex():
            yield f"{type(value).__name__}:{value.hex() if isinstance(value, float) else value!r}".encode()
        case bytes() | bytearray():
            yield from (b"bytes", bytes(value))
        case tuple() | list():
            yield f"{'tuple' if isinstance(value, tuple) else 'list'}:{len(value)}".encode()
            for item in value:
                yield from _pieces(item, inside)
        case Mapping():
            yield f"mapping:{len(value)}".encode()
            yield from sorted(b"".join(_pieces(key, inside)) + b"=" + _digest(item, inside) for key, item in value.items())
        case set() | frozenset():
            yield f"set:{len(value)}".encode()
            yield from sorted(_digest(item, inside) for item in value)
        case dt.date() | dt.time() | dt.timedelta() | dt.tzinfo() | Decimal() | range() | slice():
            yield f"{type(value).__name__}:{value!r}".encode()
        case Enum():
            yield f"enum:{_name(type(value))}.{value.name}".encode()
        case PurePath():
            yield f"path:{value.as_posix()}".encode()
        case re.Pattern():
            yield f"pattern:{value.flags}:{value.pattern!r}".encode()
        case Pipeline():
            yield from (b"pipeline", *(_part(part) for part in flat_parts(value)))
        case _ if hasattr(type(value), "__fingerprint__"):
            yield _name(type(value)).encode()
            yield from _pieces(value.__fingerprint__(), inside)
        case np.ndarray() | np.generic() if value.dtype.kind != "O":
            yield from (f"numpy:{value.dtype.str}:{value.shape}".encode(), np.ascontiguousarray(value).tobytes())
        case np.dtype() | pa.DataType() | pa.Field():
            yield f"{type(value).__name__}:{value}".encode()
        case pa.Schema():
            yield from (b"schema", value.remove_metadata().serialize().to_pybytes())
        case pa.Table() | pa.RecordBatch() | pa.Array() | pa.ChunkedArray():
            yield b"arrow"
            yield from _arrow(value)
        case functools.partial() | toolz.curry():
            yield b"partial"
            yield from _pieces((value.func, value.args, dict(value.keywords)), inside)
        case types.MethodType():
            yield from (b"method", value.__func__.__qualname__.encode())
            yield from _pieces(value.__self__, inside)
        case types.FunctionType():
            yield from _function(value, inside)
        # Bound methods of built-in values, such as `[].append`.
        case types.BuiltinFunctionType() if not isinstance(value.__self__, types.ModuleType | type | None):
            yield f"method:{_name(value)}".encode()
            yield from _pieces(value.__self__, inside)
        case type():
            yield f"named:{_name(value)}".encode()
            yield from _class_body(value, inside)
        case types.BuiltinFunctionType() | types.MethodDescriptorType() | types.ModuleType() | np.ufunc():
            yield f"named:{_name(value)}".encode()
        case _ if isinstance(value, types.GenericAlias | types.UnionType) or type(value).__module__ == "typing":  # such as list[int]
            yield f"annotation:{value!r}".encode()
        case _ if attrs.has(type(value)) or is_dataclass(value):
            kind: Any = type(value)
            names = [f.name for f in attrs.fields(kind) if f.eq] if attrs.has(kind) else [f.name for f in fields(kind) if f.compare]
            yield _name(kind).encode()
            yield from _pieces([(name, getattr(value, name)) for name in names], inside)
            yield from _class_body(kind, inside)
        case _ if hasattr(value, "__wrapped__"):  # lru_cache and similar wrappers
            yield _name(type(value)).encode()
            yield from _pieces(value.__wrapped__, inside)
        case _:
            raise FingerprintError(
                f"A value of type {type(value).__name__} has no fingerprint: {value!r:.80}. Use a frozen attrs class or "
                "dataclass, define a method __fingerprint__ that returns an identifying plain value, or create the value inside the "
                "function that uses the value."
            )


def _function(function: types.FunctionType, inside: tuple[int, ...]) -> Iterator[bytes]:
    yield f"function:{_name(function)}".encode()
    if id(function) in inside:
        return
    inside = (*inside, id(function))
    if "__fingerprint__" in vars(function):
        yield from _pieces(vars(function)["__fingerprint__"], inside)
        return
    try:
        yield from _code(function.__code__, inside)
        cells = [_cell(cell) for cell in function.__closure__ or ()]
        yield from _pieces((function.__defaults__, function.__kwdefaults__, cells), inside)
        for name in _global_names(function.__code__):
            yield f"global:{name}".encode()
            value = function.__globals__.get(name)
            yield from _pieces(value, inside)
            if isinstance(value, types.ModuleType):
                yield from _helpers(value, function.__code__, inside)
    except FingerprintError as error:
        name = function.__qualname__
        error.add_note(
            f"the value is used by the function {name}. Alternatively, set a version of the function: {name}.__fingerprint__ = 'v1'."
        )
        raise


def _class_body(kind: type, inside: tuple[int, ...]) -> Iterator[bytes]:
    """Hash the methods and attributes of a class of the user, so that an edited class has another fingerprint."""
    for owner in kind.__mro__:
        file = getattr(sys.modules.get(owner.__module__), "__file__", None) or ""
        if owner.__module__ == "builtins" or file.startswith(_INSTALLED[1:]) or id(owner) in inside:
            continue
        within = (*inside, id(owner))
        for name, member in sorted(vars(owner).items()):
            function = getattr(member, "__func__", None) or getattr(member, "fget", None) or getattr(member, "func", None) or member
            if not isinstance(function, types.FunctionType):
                if not name.startswith("__"):
                    with suppress(FingerprintError):  # such as a lock or a slot
                        yield b"".join([f"attribute:{name}".encode(), *_pieces(member, within)])
            elif not function.__code__.co_filename.startswith((*_INSTALLED[1:], *_GENERATED)):
                yield f"method:{name}".encode()
                try:
                    yield b"".join(_pieces(function, within))
                except FingerprintError:  # if the method uses a value without a fingerprint, hash only the code of the method
                    yield from _code(function.__code__, inside)


def _helpers(module: types.ModuleType, code: types.CodeType, inside: tuple[int, ...]) -> Iterator[bytes]:
    """Hash the functions of `module` that `code` may call as attributes, as in `module.clean(x)`. Hash installed functions by name."""
    for name in _attribute_names(code):
        value = vars(module).get(name)
        if isinstance(value, types.FunctionType) and not value.__code__.co_filename.startswith(_INSTALLED):
            yield f"attribute:{name}".encode()
            yield from _pieces(value, inside)
        elif isinstance(value, types.ModuleType) and value.__name__.startswith(f"{module.__name__}."):  # package.module.function
            yield from _helpers(value, code, inside)


def _attribute_names(code: types.CodeType) -> list[str]:
    nested = (name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _attribute_names(constant))
    return sorted({*code.co_names, *nested})


def _cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a closure cell is empty until the variable has a value
        return "empty cell"


def _code(code: types.CodeType, inside: tuple[int, ...]) -> Iterator[bytes]:
    yield from (code.co_code, repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant, inside)
        else:
            yield from _pieces(constant, inside)


def _global_names(code: types.CodeType) -> list[str]:
    """Return the names of the globals that a function reads. `co_names` would include attribute names."""
    direct = (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    nested = (name for constant in code.co_consts if isinstance(constant, types.CodeType) for name in _global_names(constant))
    return sorted({*direct, *nested})


def _arrow(value: Any) -> Iterator[bytes]:
    """Yield bytes of Arrow data. Equal rows give equal bytes for any chunking and slicing."""
    if isinstance(value, pa.Array | pa.ChunkedArray):
        value = pa.table({"": value})
    table = pa.Table.from_batches([value]) if isinstance(value, pa.RecordBatch) else value
    yield from (table.schema.remove_metadata().serialize().to_pybytes(), str(table.num_rows).encode())
    for first in range(0, table.num_rows, _ROWS_HASHED_AT_ONCE):
        for column in one_chunk(table.slice(first, _ROWS_HASHED_AT_ONCE)).columns:
            yield from _column(column)


def _column(column: pa.Array) -> Iterator[bytes]:
    """Yield bytes that represent the values of a column. Equal values give equal bytes, with or without dictionary encoding."""
    column = decoded(column)
    kind = column.type
    yield f"{len(column)}:{column.null_count}".encode()
    if column.null_count:
        yield np.packbits(column.is_null().to_numpy(zero_copy_only=False)).tobytes()
        column = column.drop_null()
    if isinstance(kind, pa.BaseExtensionType):
        yield from _column(column.storage)
    elif pa.types.is_struct(kind):
        for part in column.flatten():
            yield from _column(part)
    elif pa.types.is_map(kind):
        ends = column.offsets.to_numpy()
        yield np.diff(ends).tobytes()
        for part in (column.keys, column.items):
            yield from _column(part.slice(ends[0], ends[-1] - ends[0]))
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):  # all list types
        yield pc.list_value_length(column).to_numpy().astype(np.int64).tobytes()
        yield from _column(column.flatten())
    elif pa.types.is_floating(kind):
        values = column.to_numpy()
        yield np.where(np.isnan(values), np.nan, values).astype(values.dtype).tobytes()
    else:
        # The column is copied, because a slice also holds the values outside the slice.
        plain = column.take(pa.array(range(len(column)), pa.int64()))
        yield pa.record_batch([plain], [""]).serialize().to_pybytes()


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None) or value.__name__}"
