"""Exact comparison of pipeline outputs and of the states inside a pipeline."""

from collections.abc import Iterator
from struct import pack
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.examples import Examples
from mlxfp.support.arrow_types import is_list_like

__tracebackhide__ = True  # pytest omits the functions of this module from tracebacks

_MLX = "mlx.core"  # module name instead of an import, because comparing rows must not import MLX


def same(a: object, b: object) -> bool:  # noqa: C901, PLR0911  # one case per kind of value
    """Return True if two values are exactly equal.

    The comparison includes types, dtypes, shapes, lengths and column order, and ignores the chunks, offsets and metadata of Arrow data. NaN
    equals NaN, 0.0 differs from -0.0, and 1 differs from True and 1.0. MLX arrays are compared by their bytes. Never raises for values of
    pipelines.

    >>> same([float("nan")], [float("nan")]), same({"x": 0.0}, {"x": -0.0}), same(1, True)
    (True, False, False)

    See also: `difference`, which describes the first difference.
    """
    if type(a) is not type(b):
        return False
    match a, b:
        case (float(), float()):
            return pack("<d", a) == pack("<d", b) or (a != a and b != b)
        case (dict(), dict()):
            return a.keys() == b.keys() and all(same(value, b[name]) for name, value in a.items())
        case (list() | tuple(), list() | tuple()):
            return len(a) == len(b) and all(map(same, a, b))
        case (np.ndarray() | np.generic(), np.ndarray() | np.generic()):
            return _same_numbers(np.asarray(a), np.asarray(b))
        case (pa.RecordBatch() | pa.Table(), pa.RecordBatch() | pa.Table()):
            return bool(a.schema.equals(b.schema) and a.num_rows == b.num_rows) and all(map(same, a.columns, b.columns))
        case (pa.ChunkedArray(), pa.ChunkedArray()):
            return _same_arrays(_one_array(a), _one_array(b))
        case (pa.Array(), pa.Array()):
            return _same_arrays(a, b)
        case (Examples(), Examples()):
            return same(a.chunk, b.chunk)
    if type(a).__module__ == _MLX and hasattr(a, "dtype"):
        return bool(a.dtype == b.dtype and a.shape == b.shape) and bytes(memoryview(a)) == bytes(memoryview(b))  # type: ignore[arg-type, attr-defined]  # mx.array
    if attrs.has(type(a)):
        return same(_fields(a), _fields(b))
    return bool(a == b)


def difference(a: object, b: object) -> str | None:
    """Return a description of the first difference between two values, or None if the values are equal.

    >>> difference([{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 3}])
    '[1].x: 2, not 3'
    """
    if same(a, b):
        return None
    path, left, right = _first_difference(_as_containers(a), _as_containers(b), "")
    shown = (f"{left!r:.200}", f"{right!r:.200}")
    if shown[0] == shown[1] or type(left) is not type(right):
        shown = (f"{type(left).__name__} {shown[0]}", f"{type(right).__name__} {shown[1]}")
    return f"{path.lstrip('.') or 'all'}: {shown[0]}, not {shown[1]}"


def assert_same(actual: object, expected: object, claim: str) -> None:
    """Raise `AssertionError` with `claim` and the first difference unless both values are exactly equal."""
    __tracebackhide__ = True  # hides this function in the tracebacks of pytest and IPython
    location = difference(actual, expected)
    assert location is None, f"{claim}, but the results differ at {location}"


def is_close(a: Any, b: Any) -> bool:
    """Return True if two arrays, or lists of arrays, are equal up to the rounding of their float dtype.

    Rounding is allowed because the last digits of sums and matrix products depend on the number of rows. Values of other types must
    be equal.

    >>> is_close(np.array([0.1 + 0.2]), np.array([0.3])), is_close(np.array([1]), np.array([2]))
    (True, False)
    """
    if isinstance(a, dict | list | tuple):
        parts = list(_parts(a, b)) if type(a) is type(b) and len(a) == len(b) else [("", 0, 1)]
        return same(a, b) or all(is_close(left, right) for _, left, right in parts)
    if same(a, b) or not (isinstance(a, np.ndarray | np.generic) and isinstance(b, np.ndarray | np.generic)):
        return same(a, b)
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind != "f":
        return False
    finite = np.abs(np.asarray(b)[np.isfinite(b)])
    # tolerance for a sum of some hundred products; float16 has only three digits
    tolerance = min(100 * float(np.finfo(a.dtype).eps), 0.004)
    return np.allclose(a, b, rtol=tolerance, atol=tolerance * float(finite.max(initial=0)), equal_nan=True)


def assert_close(actual: object, expected: object, claim: str) -> None:
    """Raise `AssertionError` with `claim` and the first difference if two values differ by more than rounding."""
    __tracebackhide__ = True  # hides this function in the tracebacks of pytest and IPython
    if not is_close(actual, expected):
        assert_same(actual, expected, claim)


def _same_numbers(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "O":
        return all(map(same, a.reshape(-1), b.reshape(-1)))
    if a.dtype.kind == "c":
        return _same_numbers(a.real, b.real) and _same_numbers(a.imag, b.imag)
    if a.dtype.kind == "f":
        return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())
    return a.tobytes() == b.tobytes()


def _same_arrays(a: pa.Array, b: pa.Array) -> bool:  # noqa: PLR0911  # one case per Arrow type
    kind = a.type
    if kind != b.type or len(a) != len(b) or not a.is_null().equals(b.is_null()):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return _same_arrays(a.storage, b.storage)
    if a.null_count:
        a, b = a.drop_null(), b.drop_null()
    if pa.types.is_floating(kind):
        return _same_numbers(a.to_numpy(zero_copy_only=False), b.to_numpy(zero_copy_only=False))
    if pa.types.is_struct(kind):
        return all(map(_same_arrays, a.flatten(), b.flatten()))
    if is_list_like(kind):
        return bool(a.value_lengths().equals(b.value_lengths())) and _same_arrays(a.flatten(), b.flatten())
    if pa.types.is_dictionary(kind):
        return _same_arrays(a.dictionary_decode(), b.dictionary_decode())
    return same(a.to_pylist(), b.to_pylist()) if kind.num_fields else bool(a.equals(b))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def _as_containers(value: Any) -> Any:
    """Convert arrays, tables and attrs values to dicts and lists. Other values are returned unchanged."""
    match value:
        case Examples():
            return _as_containers(value.chunk)
        case pa.RecordBatch() | pa.Table():
            return {"schema": str(value.schema.remove_metadata()), "rows": value.to_pylist()}
        case pa.Array() | pa.ChunkedArray():
            return {"type": str(value.type), "values": value.to_pylist()}
    return _fields(value) if attrs.has(type(value)) else value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in attrs.fields(type(value)) if field.eq}


def _first_difference(a: Any, b: Any, path: str) -> tuple[str, Any, Any]:
    """Return the path of the first difference, with the value in `a` and the value in `b`."""
    for name, left, right in _parts(a, b):
        if not same(left, right):
            return _first_difference(_as_containers(left), _as_containers(right), path + name)
    return path, a, b


def _parts(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, left, right) for each element of two dicts or two sequences."""
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        yield from ((f".{name}", a[name], b[name]) for name in a)
    elif isinstance(a, list | tuple) and type(a) is type(b):
        yield from ((f"[{index}]", left, right) for index, (left, right) in enumerate(zip(a, b, strict=False)))
        yield ".length", len(a), len(b)
