"""The laws of collators: pure functions from examples to batches, in which examples do not affect each other.

A batch is a dict of arrays, or any mapping, tuple or list of them, of MLX, numpy, torch or JAX. MLX need not be installed. In a tuple, the
name of an array is its place: "0", "1".
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import CellType, FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.named_arrays import named_arrays
from mlxfp.core.chunks import concat_chunks, from_rows, number_rows
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import brief
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.testing.comparing import assert_same, same

__tracebackhide__ = True

Collator = Callable[[Sequence[Mapping[str, Any]]], Any]


def batch_of(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collate examples; return the arrays of the batch by name, as numpy arrays, and its texts as tuples."""
    batch = collator(examples)
    try:
        return named_arrays(batch)
    except ArgumentTypeError as error:
        raise AssertionError(f"{brief(collator)} returns arrays by name. {error}") from None


def assert_pure_collator(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: the same examples give the same arrays, whatever was collated in between, and neither examples nor old batches are changed.

    In between, fewer examples, all of them in another order, and longer ones are collated.

    >>> import mlxfp as fp
    >>> assert_pure_collator(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    kept = copy.deepcopy(list(examples))
    batch = batch_of(collator, examples)
    found = copy.deepcopy(batch)
    assert_same(list(examples), kept, f"{brief(collator)} leaves its examples as they were")
    collator(examples[:1])
    assert_same(batch, found, f"{brief(collator)} leaves a batch as it was when it collates others")
    assert_same(batch_of(collator, examples), found, f"{brief(collator)} gives the same batch for the same examples")
    _collate_others(collator, examples)
    assert_same(batch, found, f"{brief(collator)} leaves a batch as it was when it collates others")
    assert_same(batch_of(collator, examples), found, f"{brief(collator)} gives the same batch for the same examples, after longer ones too")


def assert_keeps_no_state(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: a copy of a collator that has collated others gives the batch that a fresh copy gives.

    So nothing is learned from the examples that are seen first, such as numbers for the words in their order. A copy has its own attributes
    and closure; global variables cannot be copied.

    >>> import mlxfp as fp
    >>> assert_keeps_no_state(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    fresh, used = copied(collator), copied(collator)
    _collate_others(used, examples)
    expected = batch_of(fresh, copy.deepcopy(list(examples)))
    found = batch_of(used, copy.deepcopy(list(examples)))
    assert_same(found, expected, f"{brief(collator)} gives the same batch whatever it collated before")


def _collate_others(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    for others in ([*examples][::-1], [_longer(example) for example in examples]):
        with suppress(Exception):  # it may refuse longer ones
            collator(copy.deepcopy(others))


def _longer(example: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _twice(value) for name, value in example.items()}


def _twice(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.concatenate([value, value]) if value.ndim == 1 else value
    return value + value if isinstance(value, list) else value


def copied(collator: Collator) -> Collator:
    """Copy a collator with what it keeps, if it can be copied."""
    with suppress(Exception):
        if isinstance(collator, FunctionType):
            closure = tuple(CellType(copy.deepcopy(cell.cell_contents)) for cell in collator.__closure__ or ())
            kept = copy.deepcopy((collator.__defaults__, collator.__kwdefaults__))
            made = FunctionType(collator.__code__, collator.__globals__, collator.__name__, kept[0], closure)
            made.__kwdefaults__ = kept[1]
            made.__dict__.update(copy.deepcopy(collator.__dict__))
            return made
        return copy.deepcopy(collator)
    return collator


def assert_list_and_view_agree(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: a list of dicts and a view of a record batch give the same batch, also where the view is a slice of a larger chunk.

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
        assert_same(
            batch_of(collator, view),
            batch_of(collator, list(view)),
            f"{brief(collator)} gives the same batch for {name} and for the list of its rows",
        )


def assert_permutes(collator: Collator, examples: Sequence[Mapping[str, Any]], order: Sequence[int]) -> None:
    """Law: a batch has a row for each example, and examples in another order give the same rows in that order.

    >>> import mlxfp as fp
    >>> assert_permutes(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}], [1, 0])
    """
    batch, permuted = batch_of(collator, examples), batch_of(collator, [examples[place] for place in order])
    for name, values in batch.items():
        shape = (len(values),) if isinstance(values, tuple) else tuple(values.shape)
        assert shape[:1] == (len(examples),), (
            f"{name!r} of {brief(collator)} has a row for each of {len(examples)} examples, but its shape is {shape}. If the batch joins "
            "examples end to end, as graphs, check a function that cuts it into a list of texts: str of the part of each example"
        )
        found, expected = list(permuted[name]), [values[place] for place in order]
        assert_same(found, expected, f"{name!r} of {brief(collator)} follows the order {list(order)} of the examples")


def assert_an_example_stands_alone(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: an example has the same values in a group as alone, and its padding does not depend on the values of the others.

    Padding is at the ends of the axes, or at their starts, for all examples; at each place of an array it has one value, also in a group
    with each example twice.

    >>> import mlxfp as fp
    >>> assert_an_example_stands_alone(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    batch, twice = batch_of(collator, examples), batch_of(collator, [*examples, *examples])
    alone = [batch_of(collator, [example]) for example in examples]
    for place, single in enumerate(alone):
        assert single.keys() == batch.keys(), (
            f"{brief(collator)} gives {list(batch)} together, but {list(single)} for example {place} alone"
        )
    assert twice.keys() == batch.keys(), f"{brief(collator)} gives {list(batch)}, but {list(twice)} for each example twice"
    for name, values in batch.items():
        if isinstance(values, tuple):
            assert_same(values, tuple(single[name][0] for single in alone), f"{brief(collator)} carries {name!r} as it is")
        else:
            rows, owns = list(values), [single[name][0] for single in alone]
            changed = _changed_in_group(rows, owns, at_end=True)
            assert padded_side(rows, owns) is not None, f"in {brief(collator)}, {name!r} of {changed}"
            assert_same(
                list(twice[name]),
                [*rows, *rows],
                f"{name!r} of {brief(collator)} is the same in a group that has each example twice",
            )


def padded_side(rows: list[NDArray[Any]], owns: list[NDArray[Any]]) -> str | None:
    """Return at which side, "end" or "start", the rows of a group are padded, so that the rest is what they are alone; None for neither."""
    return next((side for side in ("end", "start") if _changed_in_group(rows, owns, at_end=side == "end") is None), None)


def _changed_in_group(rows: list[NDArray[Any]], owns: list[NDArray[Any]], *, at_end: bool) -> str | None:
    """Say which row differs from the same example alone, where padding is at the ends, or at the starts."""
    padding: dict[Any, Any] = {}
    for place, (row, own) in enumerate(zip(rows, owns, strict=True)):
        if row.dtype != own.dtype or row.ndim != own.ndim or (np.array(row.shape) < own.shape).any():
            return f"example {place} is {row.dtype}{list(row.shape)} in a group, but {own.dtype}{list(own.shape)} alone"
        kept = own_places(row, own, at_end=at_end)
        if not same(np.asarray(row[kept]), np.asarray(own)):
            return f"example {place} is {row[kept].tolist()} in a group, but {own.tolist()} alone"
        outside = np.ones(row.shape, bool)
        outside[kept] = False
        for where in map(tuple, np.argwhere(outside)):
            if not same(padding.setdefault(where, row[where]), row[where]):
                return f"example {place} is padded with {row[where]} where another example is padded with {padding[where]}"
    return None


def own_places(row: NDArray[Any], own: NDArray[Any], *, at_end: bool) -> tuple[slice, ...]:
    """Return the part of a row in a group that is as large as the row of the example alone: padding is at the end, or at the start."""
    return tuple(slice(0, size) if at_end else slice(full - size, full) for size, full in zip(own.shape, row.shape, strict=True))


def assert_padding_is_inert(collator: Collator, examples: Sequence[Mapping[str, Any]], *, mask: str = "attention_mask") -> None:
    """Law: padding an example to the length of longer ones changes neither its real tokens nor its other values.

    `mask` names the array of the batch, int[B, L], that is 1 on real tokens; an array whose second axis has the same length holds one value
    for each token. In a batch without that array nothing is padding, so everything must be the same.

    >>> import mlxfp as fp
    >>> assert_padding_is_inert(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])

    See also: `assert_an_example_stands_alone`, which needs no mask and checks the padding too.
    """
    batch = batch_of(collator, examples)
    for place, example in enumerate(examples):
        alone = batch_of(collator, [example])
        assert alone.keys() == batch.keys(), f"{brief(collator)} gives {list(batch)} together, but {list(alone)} for example {place} alone"
        for name in alone:
            found, expected = _real(batch, name, place, mask), _real(alone, name, 0, mask)
            assert_same(found, expected, f"{name!r} of example {place} is the same in a group as alone, in {brief(collator)}")


def assert_mask_counts(collator: Collator, examples: Sequence[Mapping[str, Any]], *, tokens: str, mask: str) -> None:
    """Law: the mask is 1 on as many places as the example has values in the column `tokens`, all on one side, and 0 on padding.

    If the batch has an array of the name and shape of the tokens, it must have one value wherever the mask is 0: that of padding.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2]}, {"input_ids": []}]
    >>> assert_mask_counts(fp.collators.text(pad_id=0), examples, tokens="input_ids", mask="attention_mask")

    See also: `assert_mask_is_exact` for collators that keep the tokens as they are.
    """
    batch = batch_of(collator, examples)
    assert mask in batch, f"{brief(collator)} gives the mask {mask!r}, but its batches have only {list(batch)}"
    marks = [row.tolist() for row in batch[mask]]
    counts = [len(example[tokens]) for example in examples]
    ones = [([1] * count, [0] * (len(row) - count)) for count, row in zip(counts, marks, strict=True)]
    right, left = [real + padding for real, padding in ones], [padding + real for real, padding in ones]
    assert marks in (right, left), f"{mask!r} of {brief(collator)} is 1 exactly on the {counts} values of {tokens!r}, but it is {marks}"
    values = batch.get(tokens)
    if isinstance(values, np.ndarray) and values.shape == batch[mask].shape:
        outside = np.unique(values[batch[mask] == 0])  # which is padding: one value
        assert len(outside) < 2, (
            f"{mask!r} of {brief(collator)} is 1 exactly on the values of {tokens!r}, but it is {marks} where these are {values.tolist()}"
        )


def assert_mask_is_exact(
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, tokens: str = "input_ids", mask: str = "attention_mask"
) -> None:
    """Law: the mask is 1 exactly on the real tokens, and these are the tokens of the example, in order.

    >>> import mlxfp as fp
    >>> assert_mask_is_exact(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": []}])
    """
    batch = batch_of(collator, examples)
    for place, example in enumerate(examples):
        values = batch[mask][place].tolist()
        assert set(values) <= {0, 1}, f"{mask!r} of {brief(collator)} is 0 or 1, but example {place} has {values}"
        found, expected = [int(token) for token in _real(batch, tokens, place, mask)], list(map(int, example[tokens]))
        assert same(found, expected), (
            f"{mask!r} of {brief(collator)} is 1 exactly on the tokens {expected} of example {place}, but on {found}"
        )


def _real(batch: dict[str, Any], name: str, place: int, mask: str) -> Any:
    """Return the values of one example in a batch; of an array with one value for each token, only those of real tokens."""
    values = batch[name]
    if mask not in batch or isinstance(values, tuple) or values.ndim < 2 or values.shape[1] != batch[mask].shape[1]:
        return values[place]
    return [value for value, real in zip(values[place].tolist(), batch[mask][place].tolist(), strict=True) if real]
