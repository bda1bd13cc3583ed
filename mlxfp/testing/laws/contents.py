"""The laws of what a batch holds, for collators that state it: padding, labels, columns that are carried, and dtypes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.named_arrays import dtype_name, named_parts
from mlxfp.core.nodes import brief
from mlxfp.testing.comparing import same
from mlxfp.testing.laws.collators import Collator, assert_mask_counts, batch_of, own_places, padded_side

__tracebackhide__ = True


def assert_pads_with(
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, array: str, value: float, mask: str | None = None
) -> None:
    """Law: where an example is padded to the shape of others, the array holds `value`; so it does where `mask` is 0.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2]}, {"input_ids": [3]}]
    >>> assert_pads_with(fp.collators.text(pad_id=9), examples, array="input_ids", value=9, mask="attention_mask")
    """
    batch = batch_of(collator, examples)
    rows = list(_array(batch, array, collator))
    owns = [_array(batch_of(collator, [example]), array, collator)[0] for example in examples]
    at_end = padded_side(rows, owns) != "start"
    for place, (row, own) in enumerate(zip(rows, owns, strict=True)):
        padding = np.ones(row.shape, bool)
        padding[own_places(row, own, at_end=at_end)] = False
        if mask is not None:
            padding |= _array(batch, mask, collator)[place] == 0
        wrong = np.asarray(row)[padding & (row != value)]
        assert not len(wrong), f"{array!r} of {brief(collator)} is padded with {value}, but example {place} with {wrong[0]}: {row.tolist()}"


def assert_labels_follow(  # noqa: PLR0913  # an array, and what it is made of
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, labels: str, tokens: str, shift: int, ignore: int
) -> None:
    """Law: the label at the place of a token is the token `shift` places after it, and `ignore` where there is none, as on padding.

    With `shift=1`, the labels are for a loss that compares them with the outputs at their place; with `shift=0`, for a model that shifts
    them itself, as those of transformers do. If the batch has an array of the name `tokens` and of the same shape, the tokens with a label
    must be at the place of the label. For examples that the collator does not cut.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]
    >>> assert_labels_follow(fp.collators.causal(pad_id=0), examples, labels="labels", tokens="input_ids", shift=1, ignore=-100)
    """
    batch = batch_of(collator, examples)
    found = _array(batch, labels, collator)
    given = [np.asarray(example[tokens], np.int64) for example in examples]
    inputs = batch.get(tokens)
    inputs = inputs if isinstance(inputs, np.ndarray) and inputs.shape == found.shape else None
    for side, less in (("right", 0), ("left", 0), ("left", shift)):
        starts = [0 if side == "right" else found.shape[1] - max(0, len(row) - less) for row in given]
        if all(
            same(label.tolist(), _labels(row, start, len(label), shift, ignore))
            and (inputs is None or inputs[place][start : start + len(row) - shift].tolist() == row[: max(0, len(row) - shift)].tolist())
            for place, (row, label, start) in enumerate(zip(given, found, starts, strict=True))
        ):
            return
    shown = [{"tokens": row.tolist(), labels: label.tolist()} for row, label in zip(given, found, strict=True)]
    if inputs is not None:
        shown = [{**each, tokens: row.tolist()} for each, row in zip(shown, inputs, strict=True)]
    raise AssertionError(
        f"{labels!r} of {brief(collator)} holds, at the place of a token of {tokens!r}, the one {shift} places after it, "
        f"and {ignore} where there is none, but the batch is {shown}"
    )


def assert_carries(collator: Collator, examples: Sequence[Mapping[str, Any]], *, array: str, column: str) -> None:
    """Law: the rows of an array are the values of a column, rounded to its dtype; of a list, at one end of the row.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2], "weight": 0.5}, {"input_ids": [3], "weight": 0.0}]
    >>> assert_carries(fp.collators.text(pad_id=0, carry=["weight"]), examples, array="weight", column="weight")
    """
    values = _array(batch_of(collator, examples), array, collator)
    for place, example in enumerate(examples):
        row, wanted = np.asarray(values[place]), np.asarray(example[column])
        wanted = wanted.astype(row.dtype) if row.dtype.kind == "f" else wanted
        ends = [row] if row.shape == wanted.shape or not wanted.ndim else [row[: len(wanted)], row[len(row) - len(wanted) :]]
        equal = any(end.shape == wanted.shape and np.array_equal(end, wanted, equal_nan=wanted.dtype.kind == "f") for end in ends)
        assert equal, f"{array!r} of {brief(collator)} holds {column!r} of example {place}, {wanted.tolist()}, but it is {row.tolist()}"


def assert_dtypes(collator: Collator, examples: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str]) -> None:
    """Law: arrays of a batch have the dtypes of these names, as in `{"input_ids": "int32"}`.

    >>> import mlxfp as fp
    >>> assert_dtypes(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}], {"input_ids": "int32", "attention_mask": "int32"})
    """
    parts = named_parts(collator(examples))
    for name, wanted in dtypes.items():
        _array(parts, name, collator)
        found = "text" if isinstance(parts[name], tuple) else dtype_name(parts[name])
        assert found == wanted, f"{name!r} of {brief(collator)} has the dtype {wanted}, but it is {found}"


def _array(batch: Mapping[str, Any], name: str, collator: Collator) -> NDArray[Any]:
    assert name in batch, f"{brief(collator)} gives {name!r}, but its batches have only {list(batch)}"
    array: NDArray[Any] = batch[name]
    return array


def _labels(tokens: NDArray[Any], start: int, width: int, shift: int, ignore: int) -> list[int]:
    """Return a row of labels for tokens that start at a place."""
    row = [ignore] * width
    for place, token in enumerate(tokens[shift:].tolist(), start):
        if 0 <= place < width:
            row[place] = token
    return row


def stated_laws(
    masks: Mapping[str, str] | None,
    padding: Mapping[str, float] | None,
    labels: Mapping[str, tuple[str, int, int]] | None,
    carries: Mapping[str, str] | None,
    dtypes: Mapping[str, str] | None,
) -> Iterator[Callable[..., None]]:
    """Yield the laws of what is stated about the arrays of a batch, as `check` takes it: functions of a collator and examples."""
    marks = {column: mask for mask, column in (masks or {}).items()}
    if dtypes:
        yield partial(assert_dtypes, dtypes=dtypes)
    for mask, column in (masks or {}).items():
        yield partial(assert_mask_counts, tokens=column, mask=mask)
    for array, value in (padding or {}).items():
        yield partial(assert_pads_with, array=array, value=value, mask=marks.get(array))
    for array, (tokens, shift, ignore) in (labels or {}).items():
        yield partial(assert_labels_follow, labels=array, tokens=tokens, shift=shift, ignore=ignore)
    for array, column in (carries or {}).items():
        yield partial(assert_carries, array=array, column=column)
