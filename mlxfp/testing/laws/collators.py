"""The laws of collators: pure functions from examples to batches, in which an example never sees its neighbours."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlxfp.core.chunks import concat_chunks, from_rows, number_rows
from mlxfp.core.examples import Examples
from mlxfp.testing.comparing import assert_same, same

Collator = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


def assert_pure_collator(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: the same examples give the same batch, whatever was collated in between, and are left as they were.

    >>> from mlxfp.collators.texts import text
    >>> assert_pure_collator(text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    kept = copy.deepcopy(list(examples))
    batch = collator(examples)
    assert_same(list(examples), kept, f"{collator!r} leaves its examples as they were")
    collator(examples[:1])
    assert_same(collator(examples), batch, f"{collator!r} gives the same batch for the same examples")


def assert_list_and_view_agree(collator: Collator, examples: Sequence[Mapping[str, Any]]) -> None:
    """Law: a list of dicts and a view of a record batch give the same batch, however the view lies in a larger chunk.

    >>> from mlxfp.collators.texts import text
    >>> assert_list_and_view_agree(text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    chunk = from_rows(examples, None, range(len(examples)))
    twice = number_rows(concat_chunks([chunk, chunk]), 0, 0)
    views = {
        "a view": Examples(chunk),
        "a slice": Examples(twice.slice(len(examples))),
        "a view with hidden columns": Examples(twice.slice(0, len(examples))),
    }
    for name, view in views.items():
        assert_same(collator(view), collator(list(view)), f"{collator!r} gives the same batch for {name} and for the list of its rows")


def assert_permutes(collator: Collator, examples: Sequence[Mapping[str, Any]], order: Sequence[int]) -> None:
    """Law: examples in another order give the same rows in that order.

    >>> from mlxfp.collators.texts import text
    >>> assert_permutes(text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}], [1, 0])
    """
    batch, permuted = collator(examples), collator([examples[place] for place in order])
    for name, values in batch.items():
        found, expected = list(permuted[name]), [values[place] for place in order]
        assert_same(found, expected, f"{name!r} of {collator!r} follows the order {list(order)} of the examples")


def assert_padding_is_inert(collator: Collator, examples: Sequence[Mapping[str, Any]], *, mask: str = "attention_mask") -> None:
    """Law: how much padding an example needs beside longer ones changes none of its real tokens, nor its other values.

    `mask` names the array of the batch that is 1 on real tokens; arrays with its second axis hold one value for each token.

    >>> from mlxfp.collators.texts import text
    >>> assert_padding_is_inert(text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": [3]}])
    """
    batch = collator(examples)
    for place, example in enumerate(examples):
        alone = collator([example])
        assert alone.keys() == batch.keys(), f"{collator!r} gives {list(batch)} together, but {list(alone)} for example {place} alone"
        for name in alone:
            found, expected = _real(batch, name, place, mask), _real(alone, name, 0, mask)
            assert_same(found, expected, f"{name!r} of example {place} is the same beside others as alone, in {collator!r}")


def assert_mask_is_exact(
    collator: Collator, examples: Sequence[Mapping[str, Any]], *, tokens: str = "input_ids", mask: str = "attention_mask"
) -> None:
    """Law: the mask is 1 exactly on the real tokens, which are those of the example, in order.

    >>> from mlxfp.collators.texts import text
    >>> assert_mask_is_exact(text(pad_id=0), [{"input_ids": [1, 2]}, {"input_ids": []}])
    """
    batch = collator(examples)
    for place, example in enumerate(examples):
        values = batch[mask][place].tolist()
        assert set(values) <= {0, 1}, f"{mask!r} of {collator!r} is 0 or 1, but example {place} has {values}"
        found, expected = [int(token) for token in _real(batch, tokens, place, mask)], list(map(int, example[tokens]))
        assert same(found, expected), f"{mask!r} of {collator!r} is 1 exactly on the tokens {expected} of example {place}, but on {found}"


def _real(batch: dict[str, Any], name: str, place: int, mask: str) -> Any:
    """Return what a batch holds for one example: of arrays with one value for each token, those of real tokens."""
    values = batch[name]
    if isinstance(values, tuple) or values.ndim < 2 or values.shape[1] != batch[mask].shape[1]:
        return values[place]
    return [value for value, real in zip(values[place].tolist(), batch[mask][place].tolist(), strict=True) if real]
