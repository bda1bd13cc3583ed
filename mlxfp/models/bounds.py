"""Checks of ids and labels. MLX does not check indices: an invalid index reads arbitrary memory or crashes the process.

Code calls `checked` before an array of ids indexes a table. Three cases are possible:

- Eager mode: the array has values, and `checked` tests the values.
- The array is an argument of a compiled function. During the compilation, the array has no values, so `checked` only records the range of
  valid ids. Before each later call, `holds` tests the argument, in a few microseconds and without device time.
- A compiled function computes the array: no test is possible. `checked` returns False, and the code sets the results to NaN.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.support.errors import DataError

# Message parts for an invalid index: the number of valid indices, and a remedy. The keys are the values of `Bound.table`.
_TABLES = {
    "tokens": (
        "the model has {size:,} tokens",
        "Use the tokenizer of the model, or create the model with vocab_size=tokenizer.vocab_size.",
    ),
    "positions": ("the model has {size:,} positions", "Cut the rows, or create the model with a larger max_position_embeddings."),
    "token types": ("the model has {size:,} token types", "Number the types from 0, or create the model with a larger type_vocab_size."),
    "documents": (
        "longest={size} allows documents of {size:,} tokens",
        "Increase longest to the length of the longest document, or cut the documents before pack: tokenize(..., max_length={size}).",
    ),
    "rows": ("an embedding of the model has {size:,} rows", "Use the tokenizer of the model, or create a larger embedding."),
    "classes": ("the model has {size:,} outputs", "Number the classes from 0, and create the model with one output per class."),
}

_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


@frozen
class Bound:
    """Range of valid numbers in an array of ids or labels.

    If `size` is a number, ids and labels are indices of a table, such as the rows of an embedding: integers from 0 to `size` - 1.
    `size=None` is for yes-or-no labels: 0, 1, or a probability between 0 and 1. The number `ignored` is valid in both cases.

    >>> Bound("classes", 2).outside(np.array([[0, 1], [3, 0]]), None)
    (1, 0)
    """

    table: str
    size: int | None
    ignored: int | None = None

    def outside(self, numbers: NDArray[Any], weights: NDArray[Any] | None) -> tuple[int, ...] | None:
        """Return the position of the first invalid id or label, else None. Examples with weight 0 in `weights`, [B], are not checked."""
        if not numbers.size:
            return None
        wrong = ~((numbers >= 0) & (numbers <= 1)) if self.size is None else numbers.view(_UNSIGNED[numbers.itemsize]) >= self.size
        if self.ignored is not None:
            wrong &= numbers != self.ignored
        if weights is not None:
            wrong &= (weights != 0).reshape(*weights.shape, *(1,) * (wrong.ndim - weights.ndim))
        first = int(wrong.argmax())
        return tuple(map(int, np.unravel_index(first, wrong.shape))) if wrong.flat[first] else None


class BoundError(DataError):
    """Error for an invalid id or label in an array.

    `index` is the position of the invalid number in the array, and `rows` the number of rows of the array. `source` describes the source
    row in the data, if known.

    >>> print(BoundError("input_ids", 5216, (3, 7), 32, Bound("tokens", 5000)))
    input_ids holds 5216 at row 3, position 7, and the model has 5,000 tokens: 0 to 4,999. Use the tokenizer of the model, ...
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self, name: str, value: float, index: tuple[int, ...], rows: int, bound: Bound, source: str = ""
    ) -> None:
        """Create the error."""
        super().__init__(name, value, index, rows, bound, source)
        self.name, self.value, self.index, self.rows, self.bound, self.source = name, value, index, rows, bound, source

    def __str__(self) -> str:
        row, *rest = self.index or (0,)
        inside = f", position {', '.join(map(str, rest))}" if rest else ""
        where = f"row {row}{inside}{f' ({self.source})' if self.source else ''}"
        if self.bound.size is None:
            return (
                f"{self.name} holds {self.value:g} at {where}, but labels of yes-or-no questions must be 0, 1 or a probability. "
                "Use cross_entropy for more than two classes, mse for numbers."
            )
        known, cure = _TABLES[self.bound.table]
        ignored = "" if self.bound.ignored is None else f" ({self.bound.ignored} is ignored)"
        return (
            f"{self.name} holds {self.value} at {where}, and {known.format(size=self.bound.size)}: 0 to {self.bound.size - 1:,}{ignored}. "
            f"{cure.format(size=self.bound.size)}"
        )

    def with_source(self, source: str) -> "BoundError":
        """Return a copy of the error with `source`, a description of the source row, in the message."""
        return BoundError(self.name, self.value, self.index, self.rows, self.bound, source)


# Recorded checks of a function. The dict is used as an ordered set: only the keys have a meaning.
# A key has three items: argument index of the ids, range of valid ids, argument index of the example weights (None without weights).
Bounds = dict[tuple[int, Bound, int | None], None]


# While MLX traces a function: the argument index of each array, by the `id()` of the array, and the recorded checks.
# The arrays must stay alive during tracing, because Python reuses the `id()` of a deleted object.
_TRACE: ContextVar[tuple[dict[int, int], Bounds] | None] = ContextVar("trace", default=None)


def checked(numbers: mx.array, bound: Bound, *, weights: mx.array | None = None) -> bool:
    """Check ids or labels before a function uses them as indices. Return False if the check is impossible.

    - In eager mode, return True for valid numbers, and raise `BoundError` for an invalid number.
    - If `numbers` is an argument of a function that is being compiled, return True. Later, `holds` checks the values before each call.
    - If a function that is being compiled computes `numbers`, return False.

    Examples with weight 0 in `weights`, [B], are not checked.

    >>> checked(mx.array([0, 4]), Bound("tokens", 5))
    True
    """
    indices, bounds = _TRACE.get() or ({}, {})
    if (index := indices.get(id(numbers))) is not None:
        weighted = indices.get(id(weights))
        if weights is None or weighted is not None:
            bounds[index, bound, weighted] = None
            return True
    return _look(numbers, bound, weights, lambda: ["The array of ids" if bound.table != "classes" else "The array of labels"], 0)


@contextmanager
def tracing(arrays: Sequence[mx.array], bounds: Bounds) -> Iterator[None]:
    """Add the checks in a `with` block to `bounds`. In the block, MLX traces a function with the arguments `arrays`."""
    token = _TRACE.set(({id(array): index for index, array in enumerate(arrays)}, bounds))
    try:
        yield
    finally:
        _TRACE.reset(token)


def is_tracing() -> bool:
    """Return True inside a training step or another function that mlxfp compiles."""
    return _TRACE.get() is not None


def holds(bounds: Bounds, arrays: Sequence[mx.array], names: Callable[[], Sequence[str]]) -> bool:
    """Check ids and labels before a call of a compiled function. Raises `BoundError`, which names the argument, for an invalid number.

    `arrays` are the arguments of the call, and `bounds` their valid ranges. Returns True after a complete check. While another function is
    being compiled, the arrays have no values, and the result is False.
    """
    for index, bound, weighted in bounds:
        numbers = arrays[index]
        if _known_inside(numbers, bound):
            continue
        if not _look(numbers, bound, None if weighted is None else arrays[weighted], names, index):
            return False
    return True


def _known_inside(array: mx.array, bound: Bound) -> bool:
    """Return True if a fast test shows that all numbers are valid. False means unknown. Runs before every training step."""
    try:
        numbers = np.asarray(array)
        positive = numbers.view(_UNSIGNED[numbers.itemsize])  # negative ids become large unsigned ids: one comparison finds all invalid ids
        if positive.item(positive.argmax()) < bound.size:
            return True
    except (ValueError, TypeError):  # `_look` tests traced, empty and bfloat16 arrays, and all arrays of a bound with size=None
        return False
    ignored, size = bound.ignored, bound.size
    if ignored is None or 0 <= ignored < size or numbers.dtype != np.int32:  # type: ignore[operator]  # as above
        return False
    return bool(np.count_nonzero(positive >= size) == np.count_nonzero(numbers == ignored))


def _look(numbers: mx.array, bound: Bound, weights: mx.array | None, names: Callable[[], Sequence[str]], argument: int) -> bool:
    values = _values(numbers)
    if values is None:
        return False
    index = bound.outside(values, None)
    if index is not None and weights is not None:
        if (weighted := _values(weights)) is None:
            return False
        index = bound.outside(values, weighted)
    if index is not None:
        raise BoundError(names()[argument], values[index].item(), index, len(values) if values.ndim else 1, bound)
    return True


def _values(array: mx.array) -> NDArray[Any] | None:
    """Return the values of an array, without a copy if possible. Return None for traced arrays, which have no values."""
    try:
        return np.asarray(array)
    except ValueError as error:
        if "[eval]" in str(error):
            return None
        if array.dtype != mx.bfloat16:  # NumPy has no bfloat16
            raise
    return _values(array.astype(mx.float32))
