"""The laws of collators: pure functions from examples to batches, in which examples do not affect each other."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.chunks import concat_chunks, from_rows, number_rows
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import brief
from mlxfp.testing.comparing import assert_same, same

Collator = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


def assert_pure_collator(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: the same examples give the same dict of arrays, also after other examples were collated, and are not changed.

    >>> import mlxfp as fp
    >>> assert_pure_collator(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    kept = copy.deepcopy(list(examples))
    batch = collator(examples)
    assert isinstance(batch, dict), f"{brief(collator)} returns a dict of arrays, but it is {type(batch).__name__}: {batch!r:.200}"
    for name, values in batch.items():
        assert isinstance(values, tuple) or hasattr(values, "dtype"), (
            f"{name!r} of {brief(collator)} is an array, or a tuple of texts, but it is {type(values).__name__}: {values!r:.200}"
        )
    assert_same(list(examples), kept, f"{brief(collator)} leaves its examples as they were")
    collator(examples[:1])
    assert_same(collator(examples), batch, f"{brief(collator)} gives the same batch for the same examples")


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
        assert_same(collator(view), collator(list(view)), f"{brief(collator)} gives the same batch for {name} and for the list of its rows")


def assert_permutes(collator: Collator, examples: Sequence[Mapping[str, Any]], order: Sequence[int]) -> None:
    """Law: a batch has a row for each example, and examples in another order give the same rows in that order.

    >>> import mlxfp as fp
    >>> assert_permutes(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}], [1, 0])
    """
    batch, permuted = collator(examples), collator([examples[place] for place in order])
    for name, values in batch.items():
        shape = (len(values),) if isinstance(values, tuple) else tuple(values.shape)
        assert shape[:1] == (len(examples),), (
            f"{name!r} of {brief(collator)} has a row for each of {len(examples)} examples, but its shape is {shape}"
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
    batch, twice = collator(examples), collator([*examples, *examples])
    alone = [collator([example]) for example in examples]
    for place, single in enumerate(alone):
        assert single.keys() == batch.keys(), (
            f"{brief(collator)} gives {list(batch)} together, but {list(single)} for example {place} alone"
        )
    assert twice.keys() == batch.keys(), f"{brief(collator)} gives {list(batch)}, but {list(twice)} for each example twice"
    for name, values in batch.items():
        if isinstance(values, tuple):
            assert_same(values, tuple(single[name][0] for single in alone), f"{brief(collator)} carries {name!r} as it is")
        else:
            rows, owns = list(_numpy(values)), [_numpy(single[name])[0] for single in alone]
            sides = [_changed_in_group(rows, owns, at_end=at_end) for at_end in (True, False)]
            assert None in sides, f"in {brief(collator)}, {name!r} of {sides[0]}"
            assert_same(
                list(_numpy(twice[name])),
                [*rows, *rows],
                f"{name!r} of {brief(collator)} is the same in a group that has each example twice",
            )


def _numpy(values: Any) -> NDArray[Any]:
    from mlxfp.evaluation.metrics.totals import to_numpy

    return np.asarray(values) if isinstance(values, np.ndarray) else to_numpy(values)  # which knows bfloat16


def _changed_in_group(rows: list[NDArray[Any]], owns: list[NDArray[Any]], *, at_end: bool) -> str | None:
    """Say which row differs from the same example alone, where padding is at the ends, or at the starts."""
    padding: dict[Any, Any] = {}
    for place, (row, own) in enumerate(zip(rows, owns, strict=True)):
        if row.dtype != own.dtype or row.ndim != own.ndim or (np.array(row.shape) < own.shape).any():
            return f"example {place} is {row.dtype}{list(row.shape)} in a group, but {own.dtype}{list(own.shape)} alone"
        kept = tuple(slice(0, size) if at_end else slice(full - size, full) for size, full in zip(own.shape, row.shape, strict=True))
        if not same(np.asarray(row[kept]), np.asarray(own)):
            return f"example {place} is {row[kept].tolist()} in a group, but {own.tolist()} alone"
        outside = np.ones(row.shape, bool)
        outside[kept] = False
        for where in map(tuple, np.argwhere(outside)):
            if not same(padding.setdefault(where, row[where]), row[where]):
                return f"example {place} is padded with {row[where]} where another example is padded with {padding[where]}"
    return None


def assert_padding_is_inert(collator: Collator, examples: Sequence[Mapping[str, Any]], *, mask: str = "attention_mask") -> None:
    """Law: padding an example to the length of longer ones changes neither its real tokens nor its other values.

    `mask` names the array of the batch, int[B, L], that is 1 on real tokens; an array whose second axis has the same length holds one value
    for each token. In a batch without that array nothing is padding, so everything must be the same.

    >>> import mlxfp as fp
    >>> assert_padding_is_inert(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])

    See also: `assert_an_example_stands_alone`, which needs no mask and checks the padding too.
    """
    batch = collator(examples)
    for place, example in enumerate(examples):
        alone = collator([example])
        assert alone.keys() == batch.keys(), f"{brief(collator)} gives {list(batch)} together, but {list(alone)} for example {place} alone"
        for name in alone:
            found, expected = _real(batch, name, place, mask), _real(alone, name, 0, mask)
            assert_same(found, expected, f"{name!r} of example {place} is the same in a group as alone, in {brief(collator)}")


def assert_mask_counts(collator: Collator, examples: Sequence[Mapping[str, Any]], *, tokens: str, mask: str) -> None:
    """Law: the mask is 1 on as many places as the example has values in the column `tokens`, all on one side, and 0 on padding.

    >>> import mlxfp as fp
    >>> examples = [{"input_ids": [1, 2]}, {"input_ids": []}]
    >>> assert_mask_counts(fp.collators.text(pad_id=0), examples, tokens="input_ids", mask="attention_mask")

    See also: `assert_mask_is_exact` for collators that keep the tokens as they are.
    """
    batch = collator(examples)
    assert mask in batch, f"{brief(collator)} gives the mask {mask!r}, but its batches have only {list(batch)}"
    marks = [row.tolist() for row in batch[mask]]
    counts = [len(example[tokens]) for example in examples]
    ones = [([1] * count, [0] * (len(row) - count)) for count, row in zip(counts, marks, strict=True)]
    right, left = [real + padding for real, padding in ones], [padding + real for real, padding in ones]
    assert marks in (right, left), f"{mask!r} of {brief(collator)} is 1 exactly on the {counts} values of {tokens!r}, but it is {marks}"


def assert_mask_is_exact(
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, tokens: str = "input_ids", mask: str = "attention_mask"
) -> None:
    """Law: the mask is 1 exactly on the real tokens, and these are the tokens of the example, in order.

    >>> import mlxfp as fp
    >>> assert_mask_is_exact(fp.collators.text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": []}])
    """
    batch = collator(examples)
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
