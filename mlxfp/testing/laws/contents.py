"""Laws of collators about the contents of a batch: padding values, labels, copied columns and dtypes, given as arguments of `check`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.named_arrays import dtype_name, named_parts
from mlxfp.core.nodes import brief
from mlxfp.support.errors import ArgumentError
from mlxfp.testing.comparing import same
from mlxfp.testing.laws.collators import (
    Collator,
    assert_mask_counts,
    batch_of,
    column_lists,
    column_values,
    example_slices,
    padded_side,
    with_arrays,
)

__tracebackhide__ = True


def assert_pads_with(
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, array: str, value: float, mask: str | None = None
) -> None:
    """Check that the padding in the array with the name `array` is `value`. Positions where the array `mask` is 0 must also hold `value`.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2]}, {"input_ids": [3]}]
    >>> assert_pads_with(fp.collators.text(pad_id=9), examples, array="input_ids", value=9, mask="attention_mask")
    """
    batch = batch_of(collator, examples)
    rows = list(_array(batch, array, collator))
    single_rows = [_array(batch_of(collator, [example]), array, collator)[0] for example in examples]
    at_end = padded_side(rows, single_rows) != "start"
    for index, (row, single) in enumerate(zip(rows, single_rows, strict=True)):
        padding = np.ones(row.shape, bool)
        padding[example_slices(row, single, at_end=at_end)] = False
        if mask is not None:
            padding |= _array(batch, mask, collator)[index] == 0
        wrong = np.asarray(row)[padding & (row != value)]
        assert not len(wrong), f"{array!r} of {brief(collator)} is padded with {value}, but example {index} with {wrong[0]}: {row.tolist()}"


def assert_labels_follow(  # noqa: PLR0913  # an array and its definition
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, labels: str, tokens: str, shift: int, ignore: int
) -> None:
    """Check that each label is the token `shift` positions later in the example. If there is no later token, the label must be `ignore`.

    `shift=1` suits a loss that compares labels and outputs at the same position. `shift=0` suits a model that shifts labels itself, such as
    transformers models. If the batch has an array `tokens` with the shape of the labels, a token and its label must have the same index in
    both arrays. The law applies to examples that the collator does not truncate.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]
    >>> assert_labels_follow(fp.collators.causal(pad_id=0), examples, labels="labels", tokens="input_ids", shift=1, ignore=-100)
    """
    token_rows = [np.asarray(row, np.int64) for row in column_lists(examples, tokens, f"the labels {labels!r}")]
    batch = batch_of(collator, examples)
    label_rows = _array(batch, labels, collator)
    inputs = batch.get(tokens)
    inputs = inputs if isinstance(inputs, np.ndarray) and inputs.shape == label_rows.shape else None
    for side, missing in (("right", 0), ("left", 0), ("left", shift)):
        starts = [0 if side == "right" else label_rows.shape[1] - max(0, len(row) - missing) for row in token_rows]
        if all(
            same(label.tolist(), _labels(row, start, len(label), shift, ignore))
            and (inputs is None or inputs[index][start : start + len(row) - shift].tolist() == row[: max(0, len(row) - shift)].tolist())
            for index, (row, label, start) in enumerate(zip(token_rows, label_rows, starts, strict=True))
        ):
            return
    shown = [{"tokens": row.tolist(), labels: label.tolist()} for row, label in zip(token_rows, label_rows, strict=True)]
    if inputs is not None:
        shown = [{**entry, tokens: row.tolist()} for entry, row in zip(shown, inputs, strict=True)]
    raise AssertionError(
        f"law broken: {brief(collator)} must set the label in {labels!r} to the token {shift} positions later in {tokens!r}, "
        f"or to {ignore} if there is no such token, but the arrays are {shown}"
    )


def assert_carries(collator: Collator, examples: Sequence[Mapping[str, Any]], *, array: str, column: str) -> None:
    """Check that an array of a batch holds the values of a column. Lists may be padded on one side.

    Fractions may be rounded to the dtype of the array. Integers must be exact, and finite numbers must not become infinite.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2], "weight": 0.5}, {"input_ids": [3], "weight": 0.0}]
    >>> assert_carries(fp.collators.text(pad_id=0, carry=["weight"]), examples, array="weight", column="weight")
    """
    copied = column_values(examples, column, f"the array {array!r}")
    values = _array(batch_of(collator, examples), array, collator)
    for index, value in enumerate(copied):
        row, expected = np.asarray(values[index]), np.asarray(value)
        exact, kept = expected, True
        if row.dtype.kind == "f":
            with np.errstate(over="ignore"):
                expected = exact.astype(row.dtype)
            if exact.dtype.kind in "iu":
                kept = exact.tolist() == expected.tolist()  # Python compares integers and floats exactly
            else:
                kept = np.array_equal(np.isinf(exact.astype(np.float64)), np.isinf(expected))
        ends = [row] if row.shape == expected.shape or not expected.ndim else [row[: len(expected)], row[len(row) - len(expected) :]]
        equal = any(end.shape == expected.shape and np.array_equal(end, expected, equal_nan=expected.dtype.kind == "f") for end in ends)
        problem = f"{array!r} of {brief(collator)} holds {column!r} of example {index}, {exact.tolist()}, but it is {row.tolist()}"
        if expected.dtype.kind == "U" and row.dtype.kind in "biuf":
            problem += (
                f". carries= compares the array with the text of the column. Name a column of numbers, or remove {array!r} from carries="
            )
        assert equal, problem
        assert kept, f"{problem}, because the dtype {row.dtype} cannot hold the value. Use a wider dtype"


def assert_dtypes(collator: Collator, examples: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str]) -> None:
    """Check that the arrays of a batch have the stated dtypes, for example `{"input_ids": "int32"}`.

    >>> import mlxfp as fp
    >>> assert_dtypes(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}], {"input_ids": "int32", "attention_mask": "int32"})
    """
    parts = named_parts(with_arrays(collator(examples)))
    for name, expected in dtypes.items():
        _array(parts, name, collator)
        actual = "text" if isinstance(parts[name], tuple) else dtype_name(parts[name])
        assert actual == expected, f"{name!r} of {brief(collator)} has the dtype {expected}, but it is {actual}"


def _array(batch: Mapping[str, Any], name: str, collator: Collator) -> NDArray[Any]:
    assert name in batch, f"{brief(collator)} gives {name!r}, but its batches have only {list(batch)}"
    array: NDArray[Any] = batch[name]
    return array


def _labels(tokens: NDArray[Any], start: int, width: int, shift: int, ignore: int) -> list[int]:
    """Return the expected labels of a row with `width` positions. The first token is at position `start`."""
    row = [ignore] * width
    for position, token in enumerate(tokens[shift:].tolist(), start):
        if 0 <= position < width:
            row[position] = token
    return row


def stated_laws(
    masks: Mapping[str, str] | None,
    padding: Mapping[str, float] | None,
    labels: Mapping[str, tuple[str, int, int]] | None,
    carries: Mapping[str, str] | None,
    dtypes: Mapping[str, str] | None,
) -> Iterator[Callable[..., None]]:
    """Yield the laws for the arguments `masks`, `padding`, `labels`, `carries` and `dtypes` of `check`.

    Each law is a function of a collator and examples. Raises `ArgumentError` for an entry of `labels` that is not a tuple of three values.
    """
    marks = {column: mask for mask, column in (masks or {}).items()}
    if dtypes:
        yield partial(assert_dtypes, dtypes=dtypes)
    for mask, column in (masks or {}).items():
        yield partial(assert_mask_counts, tokens=column, mask=mask)
    for array, value in (padding or {}).items():
        yield partial(assert_pads_with, array=array, value=value, mask=marks.get(array))
    definitions: Mapping[str, Any] = labels or {}
    for array, definition in definitions.items():
        if not isinstance(definition, tuple | list) or len(definition) != 3:
            raise ArgumentError(
                f"labels must map the name of an array to (token column, shift, fill value of positions without a label), got "
                f'{definition!r} for {array!r}. Write for example labels={{{array!r}: ("input_ids", 1, -100)}}.'
            )
        tokens, shift, ignore = definition
        yield partial(assert_labels_follow, labels=array, tokens=tokens, shift=shift, ignore=ignore)
    for array, column in (carries or {}).items():
        yield partial(assert_carries, array=array, column=column)
