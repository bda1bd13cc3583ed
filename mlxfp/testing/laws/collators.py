"""Laws of collators. A collator is a pure function from examples to a batch, in which no example changes the values of another example.

A batch is a dict of arrays, or any mapping, tuple or list of arrays of MLX, numpy, torch or JAX. MLX need not be installed. The arrays of
a tuple are named by index: "0", "1".
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from types import CellType, FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.named_arrays import named_arrays
from mlxfp.core.chunks import concat_chunks, from_rows, number_rows
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import brief
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, listed, suggest
from mlxfp.testing.comparing import assert_close, assert_same, is_close

__tracebackhide__ = True

_ROWS = "row i of an array must depend only on example i, so a collator must not sort or normalize over the group"

Collator = Callable[[Sequence[Mapping[str, Any]]], Any]


def batch_of(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collate examples and return the batch as a dict. Lists of texts become tuples, other values numpy arrays.

    An array of shape [T, B, ...] is transposed to [B, T, ...]. To find the axis B, the function also collates a list with each example
    twice. In the second batch, the axis B is twice as long.
    """
    count, batch = len(examples), unchanged_batch_of(collator, examples)
    unclear = [name for name, values in batch.items() if isinstance(values, np.ndarray) and values.ndim > 1 and values.shape[1] == count]
    if not unclear:
        return batch
    twice = unchanged_batch_of(collator, [*examples, *examples])
    time_first = [name for name in unclear if name in twice and twice[name].shape[:2] == (len(batch[name]), 2 * count)]
    return {name: np.moveaxis(values, 1, 0) if name in time_first else values for name, values in batch.items()}


def unchanged_batch_of(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collate examples and return a dict of the batch: texts as tuples, and arrays as numpy arrays with the axes in unchanged order."""
    try:
        return named_arrays(with_arrays(collator(examples)))
    except ArgumentTypeError as error:
        raise AssertionError(f"{brief(collator)} must return a dict of arrays. {error}") from None


def with_arrays(batch: Any) -> Any:
    """Return a batch with a 0-d numpy array in place of each Python number."""
    if isinstance(batch, Mapping):
        return {name: np.asarray(value) if isinstance(value, Real) else value for name, value in batch.items()}
    return tuple(np.asarray(value) if isinstance(value, Real) else value for value in batch) if isinstance(batch, tuple) else batch


def assert_pure_collator(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Check that a collator always gives the same batch for the same examples, and changes neither the examples nor earlier batches.

    Between two calls, the check collates fewer examples, the same examples in another order, and longer examples.

    >>> import mlxfp as fp
    >>> assert_pure_collator(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    examples_copy = copy.deepcopy(list(examples))
    batch = unchanged_batch_of(collator, examples)
    batch_copy = copy.deepcopy(batch)
    assert_same(list(examples), examples_copy, f"{brief(collator)} does not change its examples")
    collator(examples[:1])
    assert_same(batch, batch_copy, f"{brief(collator)} does not change earlier batches")
    assert_same(unchanged_batch_of(collator, examples), batch_copy, f"{brief(collator)} gives the same batch for the same examples")
    _collate_others(collator, examples)
    assert_same(batch, batch_copy, f"{brief(collator)} does not change earlier batches")
    assert_same(
        unchanged_batch_of(collator, examples),
        batch_copy,
        f"{brief(collator)} gives the same batch for the same examples after longer examples",
    )


def assert_keeps_no_state(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Check that a copy of a collator gives the same batch before and after collating other examples.

    The collator must not learn from earlier examples, for example by numbering words as they appear. A copy has its own attributes and
    closure. Global variables cannot be copied.

    >>> import mlxfp as fp
    >>> assert_keeps_no_state(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    fresh, used = copied(collator), copied(collator)
    _collate_others(used, examples)
    expected = unchanged_batch_of(fresh, copy.deepcopy(list(examples)))
    actual = unchanged_batch_of(used, copy.deepcopy(list(examples)))
    assert_same(actual, expected, f"{brief(collator)} gives the same batch after collating other examples")


def _collate_others(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    for others in ([*examples][::-1], [{name: _doubled(value) for name, value in example.items()} for example in examples]):
        with suppress(Exception):  # ignore errors, because a collator may reject lists of twice the length
            collator(copy.deepcopy(others))


def _doubled(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.concatenate([value, value]) if value.ndim == 1 else value
    return value + value if isinstance(value, list) else value


def copied(collator: Collator) -> Collator:
    """Return a deep copy of a collator, or the collator itself if copying fails. For a function, captured variables are copied too."""
    with suppress(Exception):
        if isinstance(collator, FunctionType):
            closure = tuple(CellType(copy.deepcopy(cell.cell_contents)) for cell in collator.__closure__ or ())
            defaults = copy.deepcopy((collator.__defaults__, collator.__kwdefaults__))
            copied_function = FunctionType(collator.__code__, collator.__globals__, collator.__name__, defaults[0], closure)
            copied_function.__kwdefaults__ = defaults[1]
            copied_function.__dict__.update(copy.deepcopy(collator.__dict__))
            return copied_function
        return copy.deepcopy(collator)
    return collator


def assert_list_and_view_agree(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Check that a collator returns the same batch for a list of dicts and for an `Examples` view of the same rows.

    >>> import mlxfp as fp
    >>> assert_list_and_view_agree(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    chunk = from_rows(examples, None, range(len(examples)))
    twice = number_rows(concat_chunks([chunk, chunk]), 0, 0)
    views = {
        "a view": Examples(chunk),
        "a slice": Examples(twice.slice(len(examples))),
        "a view with hidden columns": Examples(twice.slice(0, len(examples))),
    }
    for name, view in views.items():
        assert_close(
            batch_of(collator, view),
            batch_of(collator, list(view)),
            f"{brief(collator)} gives the same batch for {name} and for the list of its rows",
        )


def assert_permutes(collator: Collator, examples: Sequence[Mapping[str, Any]], order: Sequence[int]) -> None:
    """Check that a batch has one row per example. If the order of the examples changes, the rows must change in the same way.

    >>> import mlxfp as fp
    >>> assert_permutes(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}], [1, 0])
    """
    batch, permuted = batch_of(collator, examples), batch_of(collator, [examples[index] for index in order])
    for name, values in batch.items():
        shape = (len(values),) if isinstance(values, tuple) else tuple(values.shape)
        if not shape:
            assert_close(permuted[name], values, f"{name!r} of {brief(collator)} is the same for the order {list(order)} of the examples")
            continue
        assert shape[:1] == (len(examples),), (
            f"{name!r} of {brief(collator)} has a row for each of {len(examples)} examples, but its shape is {shape}. If the batch joins "
            "examples end to end, as graphs, check a function that cuts it into a list of texts: str of the part of each example"
        )
        actual, expected = list(permuted[name]), [values[index] for index in order]
        assert_close(actual, expected, f"{_ROWS}: {name!r} of {brief(collator)} follows the order {list(order)} of the examples")


def assert_an_example_stands_alone(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Check that the other examples in a batch change only the padding of an example.

    The padding must not depend on the values of other examples. All examples are padded on the same side: at the ends of the axes, or at
    the starts. At each position, all rows that are padded on the same axes have the same padding value. The law also checks a batch that
    contains each example twice.

    >>> import mlxfp as fp
    >>> assert_an_example_stands_alone(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    batch, twice = batch_of(collator, examples), batch_of(collator, [*examples, *examples])
    alone = [batch_of(collator, [example]) for example in examples]
    for index, single in enumerate(alone):
        assert single.keys() == batch.keys(), (
            f"{brief(collator)} gives {list(batch)} together, but {list(single)} for example {index} alone"
        )
    assert twice.keys() == batch.keys(), f"{brief(collator)} gives {list(batch)}, but {list(twice)} for each example twice"
    for name, values in batch.items():
        if isinstance(values, tuple):
            assert_same(values, tuple(single[name][0] for single in alone), f"{brief(collator)} carries {name!r} as it is")
            continue
        axes = {group[name].ndim for group in (batch, twice, *alone)}
        assert len(axes) == 1, f"{name!r} of {brief(collator)} has as many axes in a group as alone, but it has {sorted(axes)} axes"
        if values.ndim:
            rows, single_rows = list(values), [single[name][0] for single in alone]
            changed = _changed_in_group(rows, single_rows, at_end=True)
            assert padded_side(rows, single_rows) is not None, f"in {brief(collator)}, {name!r} of {changed}"
            assert_close(
                list(twice[name]),
                [*rows, *rows],
                f"{_ROWS}: {name!r} of {brief(collator)} is the same in a group that has each example twice",
            )


def padded_side(rows: list[NDArray[Any]], single_rows: list[NDArray[Any]]) -> str | None:
    """Return the side on which the rows of a batch are padded: "end" or "start".

    `single_rows` holds the same rows without padding, because each example was collated alone. Returns None if a padded row differs from
    its unpadded row by more than padding on one side.
    """
    return next((side for side in ("end", "start") if _changed_in_group(rows, single_rows, at_end=side == "end") is None), None)


def _changed_in_group(rows: list[NDArray[Any]], single_rows: list[NDArray[Any]], *, at_end: bool) -> str | None:
    """Describe the first row of a batch that differs from its row in `single_rows` by more than padding. Returns None if no row differs.

    `at_end=True` expects padding at the end of each axis, and `at_end=False` at the start.
    """
    padding: dict[Any, Any] = {}
    for index, (row, single) in enumerate(zip(rows, single_rows, strict=True)):
        if row.dtype != single.dtype or row.ndim != single.ndim or (np.array(row.shape) < single.shape).any():
            return f"example {index} is {row.dtype}{list(row.shape)} in a group, but {single.dtype}{list(single.shape)} alone"
        inner = example_slices(row, single, at_end=at_end)
        if not is_close(np.asarray(row[inner]), np.asarray(single)):
            return f"example {index} is {row[inner].tolist()} in a group, but {single.tolist()} alone"
        outside = np.ones(row.shape, bool)
        outside[inner] = False
        for position in map(tuple, np.argwhere(outside)):
            # Compare examples that end before the position on the same axes: in an attention mask [B, L, L], a query of the padding may
            # attend to tokens, but never to padding.
            key = position, tuple(not part.start <= number < part.stop for part, number in zip(inner, position, strict=True))
            if not is_close(padding.setdefault(key, row[position]), row[position]):
                return f"example {index} is padded with {row[position]} where another example is padded with {padding[key]}"
    return None


def example_slices(row: NDArray[Any], single: NDArray[Any], *, at_end: bool) -> tuple[slice, ...]:
    """Return the slices of a padded row that hold the values of the example.

    The padding is at the end if `at_end`, otherwise at the start.
    """
    return tuple(slice(0, size) if at_end else slice(full - size, full) for size, full in zip(single.shape, row.shape, strict=True))


def column_lists(examples: Sequence[Mapping[str, Any]], column: str, array: str) -> list[Any]:
    """Return the values of `column`: one list per example. Raises `ArgumentError`, with `array` in the message, for other values."""
    for index, (example, value) in enumerate(zip(examples, column_values(examples, column, array), strict=True)):
        if not isinstance(value, Sequence | np.ndarray):
            lists = [name for name, other in example.items() if isinstance(other, Sequence | np.ndarray) and not isinstance(other, str)]
            remedy = (
                f"Draw no missing values: use nullable=False for the field {column!r} of schema=, or examples= without None."
                if value is None
                else f"Name a column with lists: {listed(map(repr, lists))}."
            )
            raise ArgumentError(f"The law about {array} needs a list in {column!r}, got {value!r} in example {index}. {remedy}")
    return [example[column] for example in examples]


def column_values(examples: Sequence[Mapping[str, Any]], column: str, array: str) -> list[Any]:
    """Return the value of each example in `column`. Raise `ArgumentError`, with `array` in the message, for an unknown column."""
    for index, example in enumerate(examples):
        if column not in example:
            names = list(example)
            raise ArgumentError(
                f"The law about {array} reads the column {column!r}, which is missing in example {index}.{suggest(column, names)} "
                f"Name one of the columns of the examples: {listed(map(repr, names))}."
            )
    return [example[column] for example in examples]


def assert_mask_counts(collator: Collator, examples: Sequence[Mapping[str, Any]], *, tokens: str, mask: str) -> None:
    """Check that a mask is 1 for each value in the column `tokens`, and 0 at padding. In each row of the mask, the padding is on one side.

    For a truncated example, the whole row of the mask is 1. If the batch has an array with the name `tokens`, the shape of the array must
    begin with the shape of the mask. At positions with mask 0, the array must hold the same padding value everywhere. At positions with
    mask 1, the array must hold the tokens.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2]}, {"input_ids": []}]
    >>> assert_mask_counts(fp.collators.text(pad_id=0), examples, tokens="input_ids", mask="attention_mask")

    See also: `assert_carries`, which compares the tokens.
    """
    token_rows = column_lists(examples, tokens, f"the mask {mask!r}")
    batch = batch_of(collator, examples)
    assert mask in batch, f"{brief(collator)} gives the mask {mask!r}, but its batches have only {list(batch)}"
    marks = [row.tolist() for row in batch[mask]]
    counts = [min(len(tokens_of_row), len(row)) for tokens_of_row, row in zip(token_rows, marks, strict=True)]
    mask_parts = [([1] * count, [0] * (len(row) - count)) for count, row in zip(counts, marks, strict=True)]
    right, left = [real + padding for real, padding in mask_parts], [padding + real for real, padding in mask_parts]
    claim = f"{mask!r} of {brief(collator)} is 1 exactly on the {counts} values of {tokens!r}, but it is {marks}"
    assert marks in (right, left), claim
    values = batch.get(tokens)
    if not isinstance(values, np.ndarray) or values.ndim < 2:
        return
    assert values.shape[:2] == batch[mask].shape, f"{claim} where these have the shape {list(values.shape)}: truncate both alike"
    if values.ndim > 2:
        return
    outside = np.unique(values[batch[mask] == 0])  # at positions with mask 0, the array holds only the padding value
    assert len(outside) < 2, f"{claim} where these are {values.tolist()}"
    for row, mark, tokens_of_row in zip(values, batch[mask], token_rows, strict=True):
        padded, expected = (int(np.isin(np.asarray(some), outside).sum()) for some in (row[mark == 1], tokens_of_row))
        assert padded <= expected, f"{claim} where these are {values.tolist()}: {padded - expected} values of an example are padding"
