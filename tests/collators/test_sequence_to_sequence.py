"""Source and target of encoder-decoder models."""

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from tests.collators.groups import groups, view_of


@given(groups(["input_ids", "labels"]))
def test_the_decoder_sees_at_each_place_the_tokens_before_the_label(rows: list[Any]):
    batch = fp.collators.seq2seq(pad_id=0, start_id=1)(view_of(rows))
    for place, row in enumerate(rows):
        inputs, labels, mask = (batch[name][place].tolist() for name in ("decoder_input_ids", "labels", "decoder_attention_mask"))
        count = len(row["labels"])
        assert labels == row["labels"] + [-100] * (len(labels) - count)
        assert mask == [1] * count + [0] * (len(mask) - count)
        assert inputs[:count] == [1, *row["labels"]][:count]
        assert set(inputs[count:]) <= {0}
        assert batch["input_ids"][place].tolist()[: len(row["input_ids"])] == row["input_ids"]
        assert sum(batch["attention_mask"][place].tolist()) == len(row["input_ids"])
    assert {values.dtype for values in batch.values()} == {mx.int32}


def test_source_and_target_have_their_own_lengths():
    rows = [{"input_ids": [5, 6, 7], "summary": [8]}]
    batch = fp.collators.seq2seq(pad_id=0, start_id=1, target="summary", target_length=4, pad_multiple=8, ignore_index=-1)(rows)
    assert batch["input_ids"].shape == (1, 8)
    assert batch["labels"].tolist() == [[8, -1, -1, -1]]
    assert batch["decoder_input_ids"].tolist() == [[1, 0, 0, 0]]


def test_errors_name_the_column():
    rows = [{"input_ids": [5], "labels": [6, 40, 7]}]
    with pytest.raises(
        DataError, match=r"column 'labels' of row 0 of the group has the id 40 at position 1, outside the vocabulary of size 30"
    ):
        fp.collators.seq2seq(pad_id=0, start_id=1, vocab_size=30)(rows)
    with pytest.raises(DataError, match=r"column 'labels' of row 0 of the group has 3 values, more than the padded length of 2"):
        fp.collators.seq2seq(pad_id=0, start_id=1, target_length=2)(rows)
    with pytest.raises(SchemaError, match=r"collators.seq2seq needs the column 'summary', which is missing"):
        fp.collators.seq2seq(pad_id=0, start_id=1, target="summary")(rows)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"start_id": None}, ArgumentTypeError, "start_id must be an int"),
        ({"target": 3}, ArgumentTypeError, "target must be a string"),
        ({"target_length": 0}, ArgumentError, "target_length must be at least 1"),
        ({"length": 8, "target_length": 8, "pad_multiple": 4}, ArgumentError, "Fixed lengths need no pad_multiple, got pad_multiple=4"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        fp.collators.seq2seq(**{"pad_id": 0, "start_id": 1, **options})


def test_rows_of_pack_are_refused():
    """The encoder would see several documents as one."""
    rows = fp.pipe(fp.from_examples([{"input_ids": [5, 6], "labels": [7, 8]}]), fp.pack(4, aligned=["labels"]), batch(1))
    with pytest.raises(SchemaError, match=r"collators\.seq2seq would lose .* Remove pack, or remove the columns"):
        next(iter(fp.pipe(rows, fp.collate(fp.collators.seq2seq(pad_id=0, start_id=1)))))


def test_ignored_labels_become_padding_in_the_input_of_the_decoder():
    """An embedding has no row for -100, the label that losses ignore."""
    found = fp.collators.seq2seq(pad_id=0, start_id=2)([{"input_ids": [5], "labels": [4, -100, 7]}])
    assert found["decoder_input_ids"].tolist() == [[2, 4, 0]]
    assert found["labels"].tolist() == [[4, -100, 7]]


def test_padding_of_the_source_is_masked_after_pad():
    rows = fp.pipe(
        fp.from_examples([{"input_ids": [5, 6], "labels": [7]}, {"input_ids": [8], "labels": [9]}]), fp.pad(3, pad_id=0), batch(2)
    )
    (found,) = fp.pipe(rows, fp.collate(fp.collators.seq2seq(pad_id=0, start_id=2, length=4)))
    assert found["input_ids"].tolist() == [[5, 6, 0, 0], [8, 0, 0, 0]]
    assert found["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


def test_a_target_that_pad_has_padded_is_refused():
    """The loss would count the padding as labels."""
    rows = fp.from_examples([{"input_ids": [5, 6, 7], "labels": [7, 8]}, {"input_ids": [8], "labels": [9, 3, 2]}])
    collator = fp.collators.seq2seq(pad_id=0, start_id=1)
    groups = fp.pipe(rows, fp.pad(3, pad_id=0), fp.pad(3, pad_id=0, column="labels"), batch(2))
    with pytest.raises(
        DataError, match=r"column 'labels' of source row 0 has padding from pad, but .* Remove pad\(\.\.\., column='labels'\)"
    ):
        next(iter(fp.pipe(groups, fp.collate(collator))))
    ignored = fp.pipe(rows, fp.pad(3, pad_id=0), fp.pad(3, pad_id=-100, column="labels", mask=None), batch(2), fp.collate(collator))
    assert next(iter(ignored))["labels"].tolist() == [[7, 8, -100], [9, 3, 2]]
