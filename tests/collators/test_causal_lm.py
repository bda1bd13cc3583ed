"""The laws of the causal collator: each label is the token that follows, within a document and after the prompt."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.collators.cutting import aligned_values
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.testing import laws
from mlxfp.training import losses
from tests.data.token_rows import numbered

PAD, IGNORED = 500, -7


@st.composite
def groups(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make groups of rows with everything beside their tokens."""
    rows = []
    alike = st.tuples(st.integers(1, 5), st.integers(0, 7)).map(lambda drawn: drawn[0] * [drawn[1]])
    for size in draw(st.lists(st.integers(0, 7), min_size=1, max_size=5) | alike):
        segments = sorted(draw(st.lists(st.integers(1, 3), min_size=size, max_size=size)))
        rows.append(
            {
                "input_ids": draw(st.lists(st.integers(0, 99), min_size=size, max_size=size)),
                "masked": draw(st.lists(st.booleans(), min_size=size, max_size=size)),
                "segment_ids": segments,
                "positions": [segments[:place].count(number) for place, number in enumerate(segments)],
            }
        )
    if not any(row["input_ids"] for row in rows):  # a list of rows without any token has no types
        rows[0] = {"input_ids": [1], "masked": [False], "segment_ids": [1], "positions": [0]}
    return rows


settings = st.fixed_dictionaries(
    {"pad_id": st.just(PAD), "ignore_index": st.just(IGNORED)},
    optional={"prompt_mask": st.just("masked"), "packed": st.just(True), "side": st.sampled_from(["left", "right"])},
)
lengths = st.fixed_dictionaries({"pad_multiple": st.integers(1, 4)}) | st.sampled_from([{"length": 6}, {"lengths": [1, 4, 9]}, {}])


def expected(rows: list[dict[str, Any]], length: int, asked: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Make the batch token by token."""
    batch: dict[str, list[list[int]]] = {}
    for row in rows:
        ids, count = row["input_ids"], max(0, len(row["input_ids"]) - 1)
        labels = []
        for place in range(1, len(ids)):
            across = asked.get("packed") and row["segment_ids"][place] != row["segment_ids"][place - 1]
            prompt = asked.get("prompt_mask") and row["masked"][place]
            labels.append(IGNORED if across or prompt else ids[place])
        columns = {"input_ids": (ids[:-1], PAD), "attention_mask": ([1] * count, 0), "labels": (labels, IGNORED)}
        if asked.get("packed"):
            columns |= {name: (row[name][:-1], 0) for name in ("segment_ids", "positions")}
        for name, (values, fill) in columns.items():
            padding = [fill] * (length - count)
            batch.setdefault(name, []).append(padding + values if asked.get("side") == "left" else values + padding)
    return batch


def without_documents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: values for name, values in row.items() if name not in ("segment_ids", "positions")} for row in rows]


def assert_predicts_what_follows(rows: list[dict[str, Any]], asked: dict[str, Any]) -> None:
    """Law: the batch is the one that is made token by token."""
    batch = fp.collators.causal(**asked)(rows if asked.get("packed") else without_documents(rows))
    length = batch["input_ids"].shape[1]
    assert all(str(values.dtype) == "mlx.core.int32" and values.shape == (len(rows), length) for values in batch.values())
    assert {name: values.tolist() for name, values in batch.items()} == expected(rows, length, asked)


@given(groups(), settings, lengths)
def test_a_label_is_the_token_that_follows(rows: list[dict[str, Any]], asked: dict[str, Any], fit: dict[str, Any]):
    assert_predicts_what_follows(rows, {**asked, **fit})


@given(groups(), settings, lengths, st.randoms(use_true_random=False))
def test_the_laws_of_collators_hold(rows: list[dict[str, Any]], asked: dict[str, Any], fit: dict[str, Any], random: Any):
    collator = fp.collators.causal(**{**asked, **fit})
    rows = rows if asked.get("packed") else without_documents(rows)
    laws.assert_pure_collator(collator, rows)
    laws.assert_list_and_view_agree(collator, rows)
    order = list(range(len(rows)))
    random.shuffle(order)
    laws.assert_permutes(collator, rows, order)
    laws.assert_an_example_stands_alone(collator, [row for row in rows if row["input_ids"]])
    batch = collator(rows)
    pairs = zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True)
    assert [[token for token, real in zip(*pair, strict=True) if real] for pair in pairs] == [row["input_ids"][:-1] for row in rows]
    laws.assert_value(collator)


@given(groups(), st.sampled_from([{"pad_multiple": 3}, {"length": 6}, {"lengths": [1, 4, 9]}, {}]))
def test_the_length_is_the_one_that_is_stated_for_the_longest_row(rows: list[dict[str, Any]], fit: dict[str, Any]):
    collator: Any = fp.collators.causal(pad_id=0, **fit)
    longest = max(len(row["input_ids"]) for row in rows)
    assert collator(without_documents(rows))["input_ids"].shape[1] == collator.padded(longest)
    assert collator.longest == {"length": 7, "lengths": 10}.get(next(iter(fit), ""))


CASE: list[dict[str, Any]] = [
    {"input_ids": [5, 6, 7, 8], "masked": [1, 1, 0, 0], "segment_ids": [1, 1, 1, 2], "positions": [0, 1, 2, 0]},
    {"input_ids": [9, 9], "masked": [0, 0], "segment_ids": [1, 1], "positions": [0, 1]},
]
ASKED = {"pad_id": PAD, "ignore_index": IGNORED, "prompt_mask": "masked", "packed": True}


def _prompt_read_at_the_input(view: Any, name: str, ends: Any, wanted_by: str) -> Any:
    values = aligned_values(view, name, ends, wanted_by)
    return np.roll(values, 1) if name == "masked" else values


def _one_document(view: Any, name: str, ends: Any, wanted_by: str) -> Any:
    return aligned_values(view, name, ends, wanted_by) * 0 + 1


@pytest.mark.parametrize(
    ("name", "broken"),
    [("np.roll", lambda ids, _: ids), ("aligned_values", _prompt_read_at_the_input), ("aligned_values", _one_document)],
)
def test_the_law_catches_labels_that_are_off(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any):
    assert_predicts_what_follows(CASE, ASKED)
    monkeypatch.setattr(f"mlxfp.collators.causal_lm.{name}", broken)
    with pytest.raises(AssertionError):
        assert_predicts_what_follows(CASE, ASKED)


def test_windows_of_one_token_more_fill_a_batch_exactly():
    group = fp.bucket_by_length([5], size=2)
    (batch,) = fp.pipe(fp.from_table(numbered([3, 6])), fp.windows(5, stride=4), group, fp.collate(fp.collators.causal(pad_id=0, length=4)))
    assert batch["input_ids"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batch["labels"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_packed_documents_do_not_predict_each_other():
    rows = fp.from_examples([{"input_ids": [1, 2, 3], "prompt": [1, 0, 0]}, {"input_ids": [7, 8], "prompt": [0, 0]}])
    group = fp.bucket_by_length([6], size=1)
    (batch,) = fp.pipe(
        rows, fp.pack(6, aligned=["prompt"]), group, fp.collate(fp.collators.causal(pad_id=0, packed=True, prompt_mask="prompt", length=5))
    )
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[1, 2, 3, 7, 0]],
        "labels": [[2, 3, -100, 8, -100]],
        "attention_mask": [[1, 1, 1, 1, 0]],
        "segment_ids": [[1, 1, 1, 2, 0]],
        "positions": [[0, 1, 2, 0, 0]],
    }


def test_a_token_that_is_also_the_padding_is_learned_where_it_is_text():
    end = 2
    rows = [{"input_ids": [5, 6, end]}, {"input_ids": [7, end, 8, 9, end]}]
    assert fp.collators.causal(pad_id=end)(rows)["labels"].tolist() == [[6, end, -100, -100], [end, 8, 9, end]]
    (batch,) = fp.pipe(
        fp.from_examples(rows),
        fp.pack(9),
        fp.bucket_by_length([9], size=1),
        fp.collate(fp.collators.causal(pad_id=end, packed=True, length=8)),
    )
    assert batch["labels"].tolist() == [[6, end, -100, end, 8, 9, end, -100]]
    (batch,) = fp.pipe(
        fp.from_examples(rows),
        fp.windows(10, separator=end),
        fp.bucket_by_length([10], size=1),
        fp.collate(fp.collators.causal(pad_id=end, length=9)),
    )
    assert batch["labels"].tolist() == [[6, end, end, 7, end, 8, 9, end, end]]


@given(st.lists(st.integers(0, 70), min_size=1, max_size=6), st.sampled_from([1, 8, 32]))
@example(sizes=[31, 32, 33, 34], multiple=32)
def test_no_label_is_lost_to_the_length_of_a_batch(sizes: list[int], multiple: int):
    rows = [{"input_ids": [1] * size} for size in sizes]
    labels = np.array(fp.collators.causal(pad_id=0, pad_multiple=multiple)(rows)["labels"]) if any(sizes) else np.empty((len(sizes), 0))
    assert (labels == 1).sum(axis=1).tolist() == [max(0, size - 1) for size in sizes]


def test_answers_that_were_cut_off_leave_nothing_to_learn():
    rows = [{"input_ids": [5, 6, 7], "prompt": [1, 1, 1]}, {"input_ids": [5], "prompt": [1]}]
    batch = fp.collators.causal(pad_id=0, prompt_mask="prompt")(rows)
    total, weight = losses.causal_lm(lambda ids, mask: mx.zeros((*ids.shape, 9)), batch)
    assert (total.item(), weight.item()) == (0.0, 0.0)


def test_a_model_that_knows_no_segments_refuses_packed_rows():
    batch = fp.collators.causal(pad_id=0, packed=True)([{"input_ids": [1, 2, 3], "segment_ids": [1, 1, 2], "positions": [0, 1, 0]}])
    with pytest.raises(TypeError, match="unexpected keyword argument 'segment_ids'"):
        losses.causal_lm(lambda ids, mask=None, cache=None: mx.zeros((*ids.shape, 9)), batch)


def test_columns_are_carried_along():
    batch = fp.collators.causal(pad_id=0, carry=["weight", "name"])([{"input_ids": [1, 2], "weight": 0.5, "name": "a"}])
    assert (batch["weight"].tolist(), batch["name"]) == ([0.5], ("a",))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("side", "masks", "labels"),
    [
        ("right", [[1, 1, 0, 0], [1, 1, 1, 0]], [[6, IGNORED, IGNORED, IGNORED], [8, 9, IGNORED, IGNORED]]),
        ("left", [[0, 0, 0, 1], [0, 0, 1, 1]], [[IGNORED, IGNORED, IGNORED, 6], [IGNORED, IGNORED, 8, 9]]),
    ],
)
def test_padding_is_not_learned_after_pad(size: int, side: Any, masks: list[Any], labels: list[Any]):
    rows = fp.pipe(fp.from_examples([{"input_ids": [5, 6]}, {"input_ids": [7, 8, 9]}]), fp.pad(5, pad_id=0, side=side), fp.batch(size))
    batches = list(fp.pipe(rows, fp.collate(fp.collators.causal(pad_id=0, ignore_index=IGNORED))))
    assert [mask for batch in batches for mask in batch["attention_mask"].tolist()] == masks
    assert [label for batch in batches for label in batch["labels"].tolist()] == labels


def test_rows_without_a_prediction_are_padding():
    batch = fp.collators.causal(pad_id=9, pad_multiple=2)([{"input_ids": [1]}, {"input_ids": []}])
    assert batch["input_ids"].tolist() == [[9, 9], [9, 9]]
    assert batch["labels"].tolist() == [[-100, -100], [-100, -100]]


def test_collators_print_as_they_are_called():
    assert repr(fp.collators.causal(pad_id=3)) == "causal(pad_id=3)"
    assert repr(fp.collators.causal(pad_id=3, length=8)) == "causal(pad_id=3, lengths=(8,))"
    assert fp.collators.causal(pad_id=3, length=8) == fp.collators.causal(pad_id=3, lengths=[8])


@pytest.mark.parametrize(
    ("asked", "row", "message"),
    [
        (
            {"length": 2},
            {"input_ids": [1, 2, 3, 4]},
            r"column 'input_ids' of row 1 of the group has 4 tokens, so 3 predictions, more than the padded length of 2\. Cut rows",
        ),
        (
            {"vocab_size": 4},
            {"input_ids": [1, 4]},
            r"collators\.causal: column 'input_ids' of row 1 of the group has the id 4 at position 1, outside",
        ),
        (
            {"prompt_mask": "p"},
            {"input_ids": [1, 2], "p": [1]},
            "row 1 of the group has lists of different lengths: 2 in column 'input_ids' and 1 in column 'p'",
        ),
        (
            {"packed": True},
            {"input_ids": [1, 2], "segment_ids": [1]},
            "row 1 of the group has lists of different lengths: 2 in column 'input_ids' and 1 in column 'segment_ids'",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named(asked: dict[str, Any], row: dict[str, Any], message: str):
    whole = {name: [1, 1] for name in row}
    with pytest.raises(DataError, match=message):
        fp.collators.causal(pad_id=0, **asked)([whole, row])


def test_a_column_that_is_missing_is_named():
    with pytest.raises(SchemaError, match=r"collators\.causal needs the column 'segment_ids', which is missing\..* Columns: 'input_ids'"):
        fp.collators.causal(pad_id=0, packed=True)([{"input_ids": [1, 2]}])


def test_arguments_that_cannot_work_are_refused_at_once():
    with pytest.raises(ArgumentTypeError, match="pad_id must be an int"):
        fp.collators.causal(pad_id=None)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentTypeError, match="prompt_mask must be a string"):
        fp.collators.causal(pad_id=0, prompt_mask=1)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentError, match="A fixed length needs no pad_multiple"):
        fp.collators.causal(pad_id=0, length=4, pad_multiple=2)
    with pytest.raises(ArgumentError, match=r"lengths=\[4\] already gives all padded lengths\. Remove length and pad_multiple"):
        fp.collators.causal(pad_id=0, lengths=[4], pad_multiple=2)
    with pytest.raises(ArgumentError, match=r"lengths must be in strictly ascending order, got \[4, 2\]"):
        fp.collators.causal(pad_id=0, lengths=[4, 2])
    with pytest.raises(ArgumentTypeError, match="carry must be a list of strings, got the string 'x'"):
        fp.collators.causal(pad_id=0, carry="x")


def test_nan_in_a_mask_of_prompts_is_refused():
    """NaN is not 0, and would silently count as a token of the prompt."""
    rows = [{"input_ids": [5, 6], "p": [0.0, 1.0]}, {"input_ids": [5, 6, 7], "p": [1.0, float("nan"), 0.0]}]
    with pytest.raises(DataError, match="column 'p' of row 1 of the group holds nan for token 1, but a mask has only true and false"):
        fp.collators.causal(pad_id=0, prompt_mask="p")(rows)


@pytest.mark.parametrize("segments", [[1.0, float("nan")], [1.0, 1.5]])
def test_segment_ids_that_are_no_integers_are_refused(segments: list[float]):
    """A token with the segment nan would see no token, not even itself."""
    rows = fp.from_examples([{"input_ids": [5, 6], "segment_ids": segments, "positions": [0, 1]}])
    batches = fp.pipe(rows, fp.batch(1), fp.collate(fp.collators.causal(pad_id=0, packed=True)))
    with pytest.raises(SchemaError, match=r"'segment_ids' must hold lists of integers, got list<.*: double>\. Put pack before batch\."):
        list(batches)
