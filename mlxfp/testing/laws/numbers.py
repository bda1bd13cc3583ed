"""Laws of the numbers in batches: no integer overflows, and the shapes of arrays do not depend on the values of numbers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.nodes import brief
from mlxfp.testing.laws.collators import Collator, batch_of

__tracebackhide__ = True

_LONGEST = 8  # number of bytes of the widest integer dtype


def assert_keeps_integers(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Check that the dtypes of a batch are wide enough for the integers in the columns of `examples`.

    To find the array of a column, the law collates an example twice. All integers of the column are 1 in the first call, and 2 in the
    second call. The array of the column contains 1 in the first batch, and 2 in the second batch.

    A float16 array must not contain inf or nan for a finite number above 65504. The array of the column is the array with the name of
    the column, or an array that contains 1 and then 2. Arrays of scaled numbers do not break the law.

    >>> import mlxfp as fp
    >>> assert_keeps_integers(fp.collators.text(pad_id=0), [{"input_ids": [1, 70_000]}])
    """
    for example in map(dict, examples):
        batch = batch_of(collator, [example])
        arrays = {name: array for name, array in batch.items() if isinstance(array, np.ndarray) and array.ndim}
        for name in (name for name, array in arrays.items() if _is_narrow(array)):
            row, floats = arrays[name][0], arrays[name].dtype == np.float16
            limits: Any = np.finfo(row.dtype) if floats else np.iinfo(row.dtype)
            least, most = int(limits.min), int(limits.max)
            for column, value in example.items() if not floats or not np.isfinite(row).all() else ():
                values = _numbers(value, Real if floats else Integral)
                wrong = [number for number in values if -inf < number < least or most < number < inf]
                if wrong and ((floats and name == column) or _holds(collator, example, column, name)):
                    raise AssertionError(
                        f"{name!r} of {brief(collator)} holds the {'numbers' if floats else 'integers'} of {column!r}, but its dtype "
                        f"{row.dtype} cannot hold {wrong[0]}: {values} became {row.tolist()}. Use a wider dtype"
                    )


def _is_narrow(array: NDArray[Any]) -> bool:
    return array.dtype == np.float16 or (array.dtype.kind in "iu" and array.dtype.itemsize < _LONGEST)


def _numbers(value: Any, kind: type) -> list[Any]:
    """Return the numbers in `value`, which is a single number or a flat list. Return an empty list if any number has another class."""
    values = value.tolist() if isinstance(value, np.ndarray) and value.ndim else value if isinstance(value, list) else [value]
    return values if all(isinstance(number, kind) for number in values) else []


def _holds(collator: Collator, example: Mapping[str, Any], column: str, name: str) -> bool:
    """Return True if the array with the given name holds the integers of a column.

    All integers of the column are replaced by 1, and then by 2. The array must contain 1, and then 2.
    """
    with suppress(Exception):  # a collator may raise an error for the integers 1 and 2
        rows = [_row_with(collator, example, column, number)[name][0] for number in (1, 2)]
        return all((row == number).any() for row, number in zip(rows, (1, 2), strict=True)) and bool((rows[0] != rows[1]).any())
    return False


def _row_with(collator: Collator, example: Mapping[str, Any], column: str, number: int) -> dict[str, NDArray[Any]]:
    value = example[column]
    constant = [number] * len(value) if isinstance(value, list) else np.full_like(value, number) if np.ndim(value) else number
    return batch_of(collator, [{**example, column: constant}])


def assert_shapes_ignore_numbers(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Check that the shapes of an example's arrays depend on the lengths of its lists and texts, not on its numbers.

    A one-hot array that is as wide as the largest label of a batch breaks the law. The law replaces each number of an example by the number
    in the same column of another example. Numbers that are the length of a list or text are not replaced.

    >>> import mlxfp as fp
    >>> assert_shapes_ignore_numbers(fp.collators.text(pad_id=0, label="y"), [{"input_ids": [1], "y": 0}, {"input_ids": [2], "y": 3}])
    """
    numbers = [name for name, value in examples[0].items() if isinstance(value, Real) and not _are_lengths(examples, name)]
    for index, example in enumerate(map(dict, examples)) if numbers else ():
        shapes = _shapes(collator, example)
        for name in numbers:
            other = examples[index - 1].get(name)
            changed = shapes
            with suppress(Exception):  # a collator may raise an error for a combination of values
                changed = _shapes(collator, {**example, name: other})
            differing = next((array for array in shapes if changed.get(array) != shapes[array]), None)
            assert differing is None, (
                f"the shape of {differing!r} of {brief(collator)} does not depend on the number {name!r}, but {example[name]} gives "
                f"{shapes[differing]} and {other} gives {changed.get(differing)}. Pass the number of classes to the collator"
            )


def _are_lengths(examples: Sequence[Mapping[str, Any]], name: str) -> bool:
    lengths = [{len(value) for value in example.values() if isinstance(value, list | str | bytes | np.ndarray)} for example in examples]
    return all(example.get(name) in some for example, some in zip(examples, lengths, strict=True))


def _shapes(collator: Collator, example: Mapping[str, Any]) -> dict[str, list[int]]:
    batch = batch_of(collator, [example])
    return {name: list(np.shape(values)) for name, values in batch.items() if isinstance(values, np.ndarray)}
