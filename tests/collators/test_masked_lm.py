"""Masks: keyed by example and epoch, never on special tokens, in BERT's proportions."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import number_rows
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from tests.collators.groups import IDS, groups, view_of

VOCABULARY: dict[str, Any] = {"pad_id": 0, "mask_id": 1, "special_ids": {0, 1, 2, 3}, "vocab_size": IDS, "seed": 0}
LARGE: dict[str, Any] = {**VOCABULARY, "vocab_size": 1000}
IGNORED = -100


def large_view(rows: int = 400, length: int = 50, *, epoch: int = 0) -> fp.Examples:
    ids = np.random.default_rng(0).integers(4, 1000, rows * length).astype(np.int32)
    column = pa.ListArray.from_arrays(pa.array(np.arange(0, rows * length + 1, length, dtype=np.int32)), pa.array(ids))
    return fp.Examples(number_rows(pa.record_batch({"input_ids": column}), epoch, 0))


def arrays(batch: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(batch["input_ids"]), np.array(batch["labels"])


def by_row(batches: Any) -> dict[int, tuple[list[int], list[int]]]:
    """Collect what is shown and labelled of each row, named by the number it carries, without padding."""
    found = {}
    for each in batches:
        for number, shown, labels, mask in zip(
            *(each[name].tolist() for name in ("y", "input_ids", "labels", "attention_mask")), strict=True
        ):
            real = [place for place, value in enumerate(mask) if value]
            found[number] = ([shown[place] for place in real], [labels[place] for place in real])
    return found


@given(groups(["input_ids"]), st.integers(0, 5), st.floats(0.01, 1))
def test_labels_are_the_hidden_tokens_and_all_else_is_as_it_was(rows: list[Any], seed: int, rate: float):
    options = {**VOCABULARY, "seed": seed, "rate": rate}
    view = view_of(rows)
    shown, labels = arrays(fp.collators.masked(**options)(view))
    for row, seen, label in zip(view, shown.tolist(), labels.tolist(), strict=True):
        for place, token in enumerate(row["input_ids"]):
            assert label[place] in (IGNORED, token)
            if label[place] == IGNORED:
                assert seen[place] == token
            else:
                assert token not in VOCABULARY["special_ids"]
                assert seen[place] not in VOCABULARY["special_ids"] - {VOCABULARY["mask_id"]}
        assert set(label[len(row["input_ids"]) :]) <= {IGNORED}


@pytest.mark.parametrize("rate", [0.15, 0.4, 1.0])
def test_the_proportions_are_those_of_bert(rate: float):
    view = large_view()
    ids = np.array([row["input_ids"] for row in view])
    shown, labels = arrays(fp.collators.masked(**LARGE, rate=rate)(view))
    chosen = labels != IGNORED
    hidden = shown[chosen]
    assert abs(chosen.mean() - rate) < 4 * (rate * (1 - rate) / ids.size) ** 0.5 + 1e-9  # four standard deviations
    bound = 4 * (0.25 / chosen.sum()) ** 0.5
    assert abs((hidden == 1).mean() - 0.8) < bound
    assert abs((hidden == ids[chosen]).mean() - 0.1) < bound
    others = hidden[(hidden != 1) & (hidden != ids[chosen])]
    assert abs(len(others) / len(hidden) - 0.1) < bound
    assert others.min() < 50
    assert others.max() > 950
    # places are independent: the rate is the same at each, and neighbours do not go together
    assert np.ptp(chosen.mean(axis=0)) < 8 * (rate * (1 - rate) / len(ids)) ** 0.5 + 1e-9
    assert abs((chosen[:, 1:] & chosen[:, :-1]).mean() - rate**2) < 0.02


def rows_of(count: int) -> Any:
    random = np.random.default_rng(1)
    return fp.from_examples([{"input_ids": random.integers(4, IDS, random.integers(0, 20)).tolist(), "y": place} for place in range(count)])


def test_any_batching_order_and_padding_gives_an_example_the_same_masks():
    rows, collator = rows_of(40), fp.collators.masked(**VOCABULARY, rate=0.3, carry=["y"])
    expected = by_row(fp.pipe(rows, batch(40), fp.collate(collator)))
    assert len(expected) == 40
    assert sum(label != IGNORED for _, labels in expected.values() for label in labels) > 50
    wide = fp.collators.masked(**VOCABULARY, rate=0.3, carry=["y"], length=32, side="left")
    for other in (
        fp.pipe(rows, batch(1), fp.collate(collator)),
        fp.pipe(rows, batch(7), fp.collate(wide)),
        fp.pipe(rows, fp.shuffle(seed=3), batch(5), fp.collate(collator)),
        fp.pipe(rows, fp.shuffle(seed=3, buffer=8), batch(6), fp.collate(wide)),
    ):
        assert by_row(other) == expected
    rest = by_row(fp.pipe(rows, fp.skip(10), batch(4), fp.collate(collator)))
    assert rest == {row: values for row, values in expected.items() if row >= 10}


def test_each_epoch_and_seed_has_its_own_masks():
    rows = rows_of(40)
    dataset = fp.pipe(rows, batch(8), fp.collate(fp.collators.masked(**VOCABULARY, rate=0.3, carry=["y"])))
    found = [by_row(item for item, _ in fp.iterate(dataset, epoch=epoch)) for epoch in (0, 1, 2)]
    other = {**VOCABULARY, "seed": 1}
    found.append(by_row(fp.pipe(rows, batch(8), fp.collate(fp.collators.masked(**other, rate=0.3, carry=["y"])))))
    assert found[0] == by_row(dataset)
    for place, first in enumerate(found):
        for second in found[place + 1 :]:
            different = sum(first[row] != second[row] for row in first)
            assert different > 30


def test_the_same_text_twice_has_different_masks_in_a_pipeline_and_the_same_without_one():
    rows = [{"input_ids": list(range(4, 28))}] * 2
    view = fp.Examples(number_rows(fp.from_examples(rows).source.table.to_batches()[0], 0, 0))
    collator = fp.collators.masked(**VOCABULARY, rate=0.5)
    first, second = arrays(collator(view))[1]
    assert (first != second).any()
    first, second = arrays(collator(rows))[1]
    assert (first == second).all()


def test_rows_with_and_without_a_key_may_be_mixed():
    view = view_of([{"input_ids": list(range(4, 28))}, {"input_ids": list(range(5, 25))}])
    collator = fp.collators.masked(**VOCABULARY, rate=0.5)
    mixed = arrays(collator([view[0], dict(view[1])]))[1]
    assert (mixed[0] == arrays(collator(view))[1][0]).all()
    assert (mixed[1] == arrays(collator([dict(view[0]), dict(view[1])]))[1][1]).all()
    assert (mixed[1] != arrays(collator(view))[1][1]).any()


def test_every_label_can_be_another_number_than_100():
    shown, labels = arrays(fp.collators.masked(**VOCABULARY, rate=1.0, ignore_index=-1)([{"input_ids": [5, 2, 6]}]))
    assert labels.tolist() == [[5, -1, 6]]
    assert shown[0, 1] == 2


def test_an_id_outside_the_vocabulary_is_an_error_naming_the_example():
    with pytest.raises(DataError) as error:
        fp.collators.masked(**VOCABULARY)(view_of([{"input_ids": [5]}, {"input_ids": [6, 40]}], first=7))
    assert str(error.value) == (
        "collators.masked: column 'input_ids' of source row 8 has the id 40 at position 1, outside the vocabulary of size "
        "30. Use the vocab_size of the tokenizer that created the column: tokenizer.vocab_size."
    )


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"rate": 0}, ArgumentError, "rate must be above 0 and at most 1, got rate=0"),
        ({"rate": 1.5}, ArgumentError, "rate must be above 0 and at most 1, got rate=1.5"),
        ({"rate": "0.1"}, ArgumentTypeError, "rate must be int or float, got str"),
        ({"mask_id": 30}, ArgumentError, "mask_id holds the id 30, but the vocabulary has 30 tokens"),
        ({"special_ids": {-1}}, ArgumentError, "special_ids holds the id -1, but the vocabulary has 30 tokens"),
        ({"special_ids": range(30)}, ArgumentError, "All 30 ids of the vocabulary are special"),
        ({"seed": None}, ArgumentTypeError, "seed must be an int"),
        ({"length": 0}, ArgumentError, "length must be at least 1"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(wrong: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        fp.collators.masked(**{**VOCABULARY, **wrong})


DOCUMENTS = [{"input_ids": ids} for ids in ([5, 6, 7], [8, 9], [10, 11, 12, 13], [14])]


def test_packed_rows_keep_the_documents_in_the_batch():
    """The batch has the columns of `pack`, 0 on padding."""
    packed = fp.pipe(fp.from_examples(DOCUMENTS), fp.pack(6))
    made = next(iter(fp.pipe(packed, batch(2), fp.collate(fp.collators.masked(**VOCABULARY, packed=True)))))
    assert made["segment_ids"].tolist() == [[1, 1, 1, 2, 2, 3], [1, 1, 1, 1, 0, 0]]
    assert made["positions"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0]]
    assert made["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]


def test_packed_rows_without_packed_are_refused_before_a_row_is_read():
    packed = fp.pipe(fp.from_examples(DOCUMENTS), fp.pack(6))
    with pytest.raises(SchemaError, match=r"collators\.masked would lose .* of pack, .* Write masked\(\.\.\., packed=True\), or remove"):
        next(iter(fp.pipe(packed, batch(2), fp.collate(fp.collators.masked(**VOCABULARY)))))
    alone = fp.pipe(packed, fp.drop_columns(["segment_ids", "positions"]), batch(2), fp.collate(fp.collators.masked(**VOCABULARY)))
    assert set(next(iter(alone))) == {"input_ids", "labels", "attention_mask"}
