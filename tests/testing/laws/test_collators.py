"""The laws of collators catch each mistake that padding code makes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.examples import Examples
from mlxfp.testing.laws import (
    assert_an_example_stands_alone,
    assert_list_and_view_agree,
    assert_mask_counts,
    assert_permutes,
    assert_pure_collator,
)

Rows = Sequence[Mapping[str, Any]]
EXAMPLES = [{"input_ids": [5, 6, 7], "y": 1}, {"input_ids": [8], "y": 0}, {"input_ids": [9, 9], "y": 1}]


def plain(examples: Rows, *, pad: int = 0, length: int | None = None, left: bool = False) -> dict[str, Any]:
    """Pad to the longest: right, and simple enough to see it."""
    rows = [list(row["input_ids"]) for row in examples]
    width = max(1, *map(len, rows)) if length is None else length
    padded = [[pad] * (width - len(row)) + row if left else row + [pad] * (width - len(row)) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) if left else [1] * len(row) + [0] * (width - len(row)) for row in rows]
    names = tuple(str(row["input_ids"]) for row in examples)
    return {"input_ids": mx.array(padded), "attention_mask": mx.array(mask), "names": names}


def left(examples: Rows) -> dict[str, Any]:
    return plain(examples, left=True)


def long(examples: Rows) -> dict[str, Any]:
    return plain(examples, length=20)


@pytest.mark.parametrize("collator", [plain, left, long])
@given(data=st.data())
def test_a_collator_that_is_right_passes_all_laws(collator: Callable[..., dict[str, Any]], data: st.DataObject):
    examples = [{"input_ids": row} for row in data.draw(st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=6))]
    assert_pure_collator(collator, examples)
    assert_list_and_view_agree(collator, examples)
    assert_permutes(collator, examples, data.draw(st.permutations(range(len(examples)))))
    assert_mask_counts(collator, examples, tokens="input_ids", mask="attention_mask")
    assert_an_example_stands_alone(collator, examples)


def _sorts_in_place(examples: Rows) -> dict[str, Any]:
    for row in examples:
        row["input_ids"].sort(reverse=True)
    return plain(examples)


_SEEN: list[int] = []


def _remembers(examples: Rows) -> dict[str, Any]:
    _SEEN.append(len(examples))
    return {**plain(examples), "number": mx.array([len(_SEEN)] * len(examples))}


def _asks_for_a_list(examples: Rows) -> dict[str, Any]:
    return plain(examples) if isinstance(examples, list) else plain(examples, pad=1)


def _whole_column(examples: Rows) -> dict[str, Any]:
    """Forget that a view may be a slice: `values` is the column of the whole chunk."""
    if not isinstance(examples, Examples):
        return {"input_ids": mx.array([token for row in examples for token in row["input_ids"]])}
    return {"input_ids": mx.array(examples.column("input_ids").values.to_numpy())}


def _shows_hidden_columns(examples: Rows) -> dict[str, Any]:
    if isinstance(examples, Examples):
        return {**plain(examples), **{name: mx.array([0]) for name in examples.chunk.schema.names if name == "__row__"}}
    return plain(examples)


def _longest_first(examples: Rows) -> dict[str, Any]:
    return plain(sorted(examples, key=lambda row: -len(row["input_ids"])))


def _subtracts_the_mean(examples: Rows) -> dict[str, Any]:
    total = sum(row["y"] for row in examples)
    return {**plain(examples), "labels": mx.array([row["y"] - total / len(examples) for row in examples])}


def _shifts_over_the_end(examples: Rows) -> dict[str, Any]:
    """Take the next token as the label, wrapping around: the last token's label depends on the padding."""
    batch = plain(examples)
    return {**batch, "labels": mx.concatenate([batch["input_ids"][:, 1:], batch["input_ids"][:, :1] * 0 + len(examples)], axis=1)}


def _drops_a_key(examples: Rows) -> dict[str, Any]:
    return plain(examples) if len(examples) > 1 else {"input_ids": plain(examples)["input_ids"]}


def _counts_padding(examples: Rows) -> dict[str, Any]:
    batch = plain(examples)
    return {**batch, "attention_mask": mx.ones_like(batch["attention_mask"])}


def _masks_by_value(examples: Rows) -> dict[str, Any]:
    """Take every token that equals the padding id for padding."""
    batch = plain(examples, pad=9)
    return {**batch, "attention_mask": (batch["input_ids"] != 9).astype(mx.int32)}


def _mask_on_the_other_side(examples: Rows) -> dict[str, Any]:
    return {**plain(examples), "attention_mask": left(examples)["attention_mask"]}


def _mask_of_minus_infinity(examples: Rows) -> dict[str, Any]:
    batch = plain(examples)
    return {**batch, "attention_mask": (batch["attention_mask"] - 1) * 10**9}


@pytest.mark.parametrize("collator", [_sorts_in_place, _remembers])
def test_what_is_not_pure_is_caught(collator: Callable[..., Any]):
    with pytest.raises(AssertionError, match=r"does not change its examples|gives the same batch for the same examples"):
        assert_pure_collator(collator, [{"input_ids": [1, 2]}, {"input_ids": [3]}])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (None, r"must return a dict of arrays\. A batch holds arrays and lists of texts, .* but the batch is NoneType: None"),
        (({"x": mx.array([1]), "y": None},), r"but '0.y' is NoneType: None"),
        ({"labels": [[1], [2, 3]]}, r"but 'labels' is list: \[\[1\], \[2, 3\]\]"),
        ({"labels": {5}}, r"but 'labels' is set: \{5\}"),
    ],
)
def test_what_is_no_batch_is_caught(batch: Any, message: str):
    with pytest.raises(AssertionError, match=message):
        assert_pure_collator(lambda examples: batch, EXAMPLES)


@pytest.mark.parametrize("collator", [_asks_for_a_list, _whole_column, _shows_hidden_columns])
def test_lists_and_views_that_disagree_are_caught(collator: Callable[..., Any]):
    with pytest.raises(AssertionError, match=r"and for the list of its rows"):
        assert_list_and_view_agree(collator, EXAMPLES)


def test_rows_in_an_order_of_their_own_are_caught():
    assert_permutes(_longest_first, EXAMPLES[:1], [0])
    with pytest.raises(AssertionError, match=r"follows the order \[2, 0, 1\]"):
        assert_permutes(_longest_first, EXAMPLES, [2, 0, 1])


@pytest.mark.parametrize("value", [mx.zeros((1, 3)), ("a",)])
def test_arrays_without_a_row_for_each_example_are_caught(value: Any):
    with pytest.raises(
        AssertionError, match=r"'total' of .* has a row for each of 3 examples, but its shape is \(.* end to end, as graphs"
    ):
        assert_permutes(lambda examples: {"total": value}, EXAMPLES, [0, 1, 2])


def test_half_precision_is_compared_too():
    assert_an_example_stands_alone(lambda examples: {"x": mx.ones((len(examples), 2), mx.bfloat16)}, EXAMPLES)
    with pytest.raises(AssertionError, match="in a group"):
        assert_an_example_stands_alone(lambda examples: {"x": mx.ones((len(examples), 2), mx.bfloat16) * len(examples)}, EXAMPLES)


def _pads_with_what_others_have(examples: Rows) -> dict[str, Any]:
    """Leave in the padding what the row above has there."""
    rows = [list(row["input_ids"]) for row in examples]
    longest = max(rows, key=len)
    return {"input_ids": mx.array([row + [len(row) + token for token in longest[len(row) :]] for row in rows])}


def _pads_with_the_size(examples: Rows) -> dict[str, Any]:
    return plain(examples, pad=len(examples))


def _pads_on_both_sides(examples: Rows) -> dict[str, Any]:
    width = max(len(row["input_ids"]) for row in examples)
    padded = [plain([row], length=width, left=place % 2 > 0)["input_ids"][0].tolist() for place, row in enumerate(examples)]
    return {"input_ids": mx.array(padded)}


def _of_the_widest_type(examples: Rows) -> dict[str, Any]:
    return {"input_ids": plain(examples)["input_ids"].astype(mx.int32 if len(examples) > 1 else mx.int8)}


def _square(examples: Rows) -> dict[str, Any]:
    """Which token may look at which, over padding too: two axes are padded."""
    mask = plain(examples)["attention_mask"]
    return {"mask": mask[:, :, None] * mask[:, None, :], "positions": mx.broadcast_to(mx.arange(mask.shape[1]), mask.shape)}


def _causal_square(examples: Rows) -> dict[str, Any]:
    """Each query sees the earlier tokens, also a query of the padding: the padding of the two axes has different values."""
    mask = plain(examples)["attention_mask"]
    return {"mask": (mask[:, None, :] * mx.tril(mx.ones((mask.shape[1], mask.shape[1]), mx.int32)))[:, None]}


def _pictures(examples: Rows) -> dict[str, Any]:
    return {"image": mx.array([[row["input_ids"][:1] * 2] for row in examples]), "names": plain(examples)["names"]}


@pytest.mark.parametrize("collator", [_square, _causal_square, _pictures, left])
def test_an_example_stands_alone_in_batches_of_any_shape(collator: Callable[..., Any]):
    assert_an_example_stands_alone(collator, EXAMPLES)


@pytest.mark.parametrize(
    "collator",
    [
        _subtracts_the_mean,
        _shifts_over_the_end,
        _drops_a_key,
        _pads_with_what_others_have,
        _pads_on_both_sides,
        _of_the_widest_type,
        _longest_first,
    ],
)
def test_an_example_that_does_not_stand_alone_is_caught(collator: Callable[..., Any]):
    with pytest.raises(AssertionError, match=r"in a group|together, but|is padded with"):
        assert_an_example_stands_alone(collator, EXAMPLES)


def test_padding_that_tells_how_many_examples_there_are_is_caught():
    message = (
        "so a collator must not sort or normalize over the group: 'input_ids' of _pads_with_the_size is the same in a group that has each "
        "example twice, but the results differ"
    )
    with pytest.raises(AssertionError, match=message):
        assert_an_example_stands_alone(_pads_with_the_size, EXAMPLES)


@pytest.mark.parametrize("collator", [_counts_padding, _masks_by_value, _mask_on_the_other_side, _mask_of_minus_infinity])
def test_a_mask_that_counts_wrongly_is_caught(collator: Callable[..., Any]):
    with pytest.raises(AssertionError, match=r"is 1 exactly on the \[3, 1, 2\] values of 'input_ids', but it is \[\["):
        assert_mask_counts(collator, EXAMPLES, tokens="input_ids", mask="attention_mask")
