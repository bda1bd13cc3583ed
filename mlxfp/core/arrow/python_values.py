"""Values of Arrow columns as Python values. A date, a time or a duration that Python cannot hold raises an error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlxfp.support.arrow_types import decoded, has_times, in_unit, is_tensor, parts_of, type_code
from mlxfp.support.errors import DataError

_FAILURES = (ValueError, OverflowError, KeyError)  # KeyError is raised for an unknown time zone


def to_values(column: pa.Array, name: str, numbers: Sequence[int] | NDArray[np.int64]) -> list[Any]:
    """Return a column as Python values. Fixed-shape tensors become numpy arrays.

    Raises `DataError` for a date, a time or a duration that Python cannot hold. `numbers` are the source rows for error messages.
    """
    if is_tensor(column.type):
        arrays = iter(column.drop_null().to_numpy_ndarray())
        return [next(arrays) if valid else None for valid in column.is_valid().to_pylist()]
    try:
        values: list[Any] = column.to_pylist()
    except _FAILURES:
        values = []
    if len(values) == len(column) and not (has_times(column.type) and _drops_nanoseconds(column)):
        return values
    index = next(index for index in range(len(column)) if _fault(column.slice(index, 1)) is not None)
    problem, wanted = _fault(column.slice(index, 1)) or ("", None)
    value = " ".join(str(column.slice(index, 1)).strip("[]\n").split())
    new = f"chunk.set_column(chunk.schema.get_field_index({name!r}), {name!r}, chunk[{name!r}].cast({type_code(wanted)}, safe=False))"
    raise DataError(
        f"{problem}: got {value:.80}, in the column {name!r} of row {numbers[index]}. Convert the column before this stage: "
        f"fp.map_chunks(lambda chunk: {new})."
    )


def _drops_nanoseconds(column: pa.Array) -> bool:
    """Return True if a column contains a time of day with nanoseconds, which Python's `time` cannot hold."""
    column = decoded(column)
    if column.type == pa.time64("ns"):
        return bool(pc.any(pc.not_equal(column.cast(pa.time64("us"), safe=False).cast(column.type), column)).as_py())
    return any(map(_drops_nanoseconds, parts_of(column)))


def _fault(column: pa.Array) -> tuple[str, pa.DataType] | None:
    """Check a column with one value. If Python cannot hold the value, return the reason, and a type to which the user can cast."""
    kind = column.type
    try:
        column.to_pylist()
    except OverflowError:
        numbers = (pa.int32() if kind.bit_width == 32 else pa.int64()) if pa.types.is_temporal(kind) else pa.string()
        return "Python has only the years 1 to 9999 and durations of at most 999,999,999 days", numbers
    except _FAILURES as error:
        if "Nanosecond" in str(error):
            return "Python has no nanoseconds without pandas", in_unit(kind, "us")
        return f"Python does not know the time zone {getattr(kind, 'tz', None)!r}", pa.timestamp(getattr(kind, "unit", "us"), "UTC")
    return ("Python has no time of day with nanoseconds", in_unit(kind, "us")) if _drops_nanoseconds(column) else None
