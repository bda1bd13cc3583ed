"""Token lists to batches: what a few lines of Python do to each row."""

from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import number_rows
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.shape_planning import Padding
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError
from tests.collators.groups import groups, view_of

ROWS = [{"input_ids": [5, 6, 7], "token_type_ids": [0, 0, 1], "y": 1}, {"input_ids": [8], "token_type_ids": [1], "y": 0}]


@given(groups(["input_ids", "token_type_ids", "y", "score"]), st.sampled_from(["left", "right"]), st.integers(1, 8), st.integers(0, 99))
def test_a_batch_is_each_row_padded(rows: list[Any], side: Any, pad_multiple: int, pad_id: int):
    longest = max(1, *(len(row["input_ids"]) for row in rows))
    length = -(-longest // pad_multiple) * pad_multiple

    def padded(values: list[int], fill: int) -> list[int]:
        padding = [fill] * (length - len(values))
        return values + padding if side == "right" else padding + values

    batch = fp.collators.text(pad_id=pad_id, label="y", side=side, pad_multiple=pad_multiple, type_ids=True, carry=["score"])(view_of(rows))
    assert batch["input_ids"].tolist() == [padded(row["input_ids"], pad_id) for row in rows]
    assert batch["attention_mask"].tolist() == [padded([1] * len(row["input_ids"]), 0) for row in rows]
    assert batch["token_type_ids"].tolist() == [padded(row["token_type_ids"], 0) for row in rows]
    assert batch["labels"].tolist() == [row["y"] for row in rows]
    assert batch["score"].tolist() == [row["score"] for row in rows]
    assert {name: values.dtype for name, values in batch.items()} == {
        "input_ids": mx.int32,
        "attention_mask": mx.int32,
        "token_type_ids": mx.int32,
        "labels": mx.int32,
        "score": mx.float32,
    }


@pytest.mark.parametrize(
    ("options", "length"),
    [({}, 3), ({"pad_multiple": 8}, 8), ({"length": 5}, 5), ({"lengths": [2, 3, 9]}, 3), ({"lengths": [4, 9]}, 4)],
)
def test_the_length_is_what_was_asked_for(options: dict[str, Any], length: int):
    collator = fp.collators.text(pad_id=0, **options)
    assert collator(ROWS)["input_ids"].shape == (2, length)
    assert isinstance(collator, Padding)
    assert collator.padded(3) == length
    assert collator.longest == (max(options.get("lengths", [options.get("length", 0)])) or None)


def test_any_column_of_integers_will_do():
    plain = [[5, 6], [], [7]]
    for kind in (pa.list_(pa.uint8()), pa.large_list(pa.int64()), pa.list_(pa.uint64())):
        view = fp.Examples(pa.record_batch({"input_ids": pa.array([[9], *plain], kind)}).slice(1))
        assert fp.collators.text(pad_id=0)(view)["input_ids"].tolist() == [[5, 6], [0, 0], [7, 0]]
    fixed = fp.Examples(pa.record_batch({"input_ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2))}).slice(1))
    assert fp.collators.text(pad_id=0)(fixed)["input_ids"].tolist() == [[3, 4]]


def test_labels_of_each_kind():
    def labels(kind: Any, *values: Any) -> list[Any]:
        rows = [{"input_ids": [5], "y": value} for value in values]
        return fp.collators.text(pad_id=0, label="y", label_kind=kind)(rows)["labels"].tolist()

    assert labels("class", 1, 0) == [1, 0]
    assert labels("class", 1.0, -100.0) == [1, -100]
    assert labels("class", True, False) == [1, 0]
    assert labels("value", 1, 2) == [1.0, 2.0]
    assert labels("value", 0.5, -1.5) == [0.5, -1.5]
    assert labels("value", np.array([[0.5, 1.0]]), np.array([[0.0, 2.0]])) == [[[0.5, 1.0]], [[0.0, 2.0]]]
    assert labels("value", [0, 1, 1], [1, 0, 0]) == labels("value", np.array([0, 1, 1]), np.array([1, 0, 0])) == [[0, 1, 1], [1, 0, 0]]
    assert labels("class", [0, 2], [1, 1]) == [[0, 2], [1, 1]]
    assert labels("class", [], []) == [[], []]


def test_text_is_carried_as_strings():
    words = pa.array(["b", "a"]).dictionary_encode()
    view = fp.Examples(pa.record_batch({"input_ids": [[5], [6]], "word": words, "long": words.cast(pa.large_string())}))
    batch = fp.collators.text(pad_id=0, carry=["word", "long"])(view)
    assert batch["word"] == batch["long"] == ("b", "a")


def numbered(**columns: Any) -> fp.Examples:
    return fp.Examples(number_rows(pa.record_batch(columns), 0, 40))


@pytest.mark.parametrize(
    ("options", "columns", "error", "message"),
    [
        (
            {},
            {"x": [1]},
            SchemaError,
            (
                "collators.text needs the column 'input_ids', which is missing. Columns: 'x'. input_ids: the stage tokenize makes "
                "this column from a text column; add the stage before this one."
            ),
        ),
        (
            {},
            {"input_ids": ["a"]},
            SchemaError,
            "collators.text: column 'input_ids' must hold lists of numbers, got string. Put tokenize before batch.",
        ),
        (
            {},
            {"input_ids": [[0.5]]},
            SchemaError,
            "collators.text: column 'input_ids' must hold lists of integers, got list<item: double>. Put tokenize before batch.",
        ),
        (
            {},
            {"input_ids": [["a"]]},
            SchemaError,
            "collators.text: column 'input_ids' must hold lists of numbers, got list<item: string>.",
        ),
        (
            {},
            {"input_ids": [[1], None]},
            DataError,
            "collators.text: column 'input_ids' of source row 41 is null. Call fp.map to replace the null, or fp.filter to remove the row.",
        ),
        (
            {},
            {"input_ids": [[1], [], [1, 2, None]]},
            DataError,
            "collators.text: column 'input_ids' of source row 42 holds a null in its list. Call fp.map to replace the null.",
        ),
        (
            {},
            {"input_ids": [[1], [2, 2**31]]},
            DataError,
            (
                "collators.text: column 'input_ids' of source row 41 holds 2147483648, beyond 32-bit integers. "
                "Renumber such values before batch."
            ),
        ),
        (
            {"length": 2},
            {"input_ids": [[1], [1, 2, 3]]},
            DataError,
            (
                "collators.text: column 'input_ids' of source row 41 has 3 values, more than the padded length of 2. "
                "Cut the rows before batch with tokenize(max_length=2), or pad to a larger length."
            ),
        ),
        (
            {"vocab_size": 30},
            {"input_ids": [[1], [], [2, 30]]},
            DataError,
            (
                "collators.text: column 'input_ids' of source row 42 has the id 30 at position 1, outside the "
                "vocabulary of size 30. Use the vocab_size of the tokenizer that created the column: tokenizer.vocab_size."
            ),
        ),
        (
            {"vocab_size": 30},
            {"input_ids": [[-1]]},
            DataError,
            (
                "collators.text: column 'input_ids' of source row 40 has the id -1 at position 0, outside the "
                "vocabulary of size 30. Use the vocab_size of the tokenizer that created the column: tokenizer.vocab_size."
            ),
        ),
        (
            {"type_ids": True},
            {"input_ids": [[1], [2, 3]], "token_type_ids": [[0], [0]]},
            DataError,
            (
                "collators.text: source row 41 has lists of different lengths: 2 in column 'input_ids' and 1 in column "
                "'token_type_ids'. Both columns need one value per token."
            ),
        ),
        (
            {"label": "y", "classes": 2},
            {"input_ids": [[1], [2]], "y": [1, 2]},
            DataError,
            (
                "collators.text: column 'y' of source row 41 holds 2, outside the 2 classes 0 to "
                "1. Correct the data, or set the right number of classes."
            ),
        ),
        (
            {"label": "y"},
            {"input_ids": [[1], [2]], "y": [1.0, 0.5]},
            DataError,
            (
                "collators.text: column 'y' of source row 41 holds 0.5, which is not a class (an integer). "
                'For regression use label_kind="value".'
            ),
        ),
        (
            {"label": "y"},
            {"input_ids": [[1]], "y": [float("nan")]},
            DataError,
            (
                "collators.text: column 'y' of source row 40 holds nan, which is not a class (an integer). "
                'For regression use label_kind="value".'
            ),
        ),
        (
            {"label": "y", "classes": 2},
            {"input_ids": [[1], [2]], "y": [[0, 1], [1, 2]]},
            DataError,
            (
                "collators.text: column 'y' of source row 41 holds 2, outside the 2 classes "
                "0 to 1. Correct the data, or set the right number of classes."
            ),
        ),
        (
            {"carry": ["y"]},
            {"input_ids": [[1], [2]], "y": [[0, 1], [1]]},
            DataError,
            (
                "collators.text: column 'y' of source row 41 has 1 values, but the first row of the group "
                "has 2. All rows need the same length: pad the rows before batch."
            ),
        ),
        (
            {"label": "y"},
            {"input_ids": [[1]], "y": ["a"]},
            SchemaError,
            "collators.text: column 'y' must hold class numbers, got string. Name all classes in a fixed order: classes=['a'].",
        ),
        (
            {"label": "y", "label_kind": "value"},
            {"input_ids": [[1]], "y": [1e300]},
            DataError,
            ("collators.text: column 'y' of source row 40 holds 1e+300, beyond 32-bit floats. Scale it before batch."),
        ),
    ],
)
def test_an_error_says_what_is_wrong_and_where(options: dict[str, Any], columns: Any, error: type[Exception], message: str):
    with pytest.raises(error) as raised:
        fp.collators.text(pad_id=0, **options)(numbered(**columns))
    assert str(raised.value) == message
    with pytest.raises(error):
        fp.collators.text(pad_id=0, **options)(list(numbered(**columns)))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    "collator",
    [
        fp.collators.text(pad_id=0),
        fp.collators.causal(pad_id=0),
        fp.collators.default(),
        fp.collators.multimodal([fp.collators.text(pad_id=0), fp.collators.default()]),
        fp.collators.foreign(lambda rows: {}),
    ],
)
def test_a_collator_without_collate_in_a_pipeline_is_named(collator: Any, grouped: bool):
    """A collator receives a dataset if the user forgot `collate`; the message gives the remedy."""
    rows = fp.pipe(fp.from_iterable([{"input_ids": [1, 2]}]), *([batch(2)] if grouped else []))
    with pytest.raises(
        ArgumentTypeError, match=r"takes a group of rows, got a dataset: .*Wrap the collator in the pipeline: fp\.collate\("
    ):
        fp.pipe(rows, collator)


def test_a_list_without_source_rows_is_named_by_places():
    with pytest.raises(DataError, match=r"of row 1 of the group is null"):
        fp.collators.text(pad_id=0)([{"input_ids": [1]}, {"y": 1}])
    with pytest.raises(ArgumentTypeError, match=r"A collator takes mappings, got int at index 1 of the group: 7\."):
        fp.collators.text(pad_id=0)([{"input_ids": [1]}, 7])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"pad_id": "0"}, ArgumentTypeError, "pad_id must be an int"),
        ({"side": "middle"}, UnknownNameError, "No side is named 'middle'"),
        ({"label": "y", "label_kind": "clas"}, UnknownNameError, "Did you mean 'class'"),
        ({"length": 8, "pad_multiple": 8}, ArgumentError, "A fixed length needs no pad_multiple, got length=8 and pad_multiple=8"),
        ({"lengths": [8, 4]}, ArgumentError, "lengths must be in strictly ascending order"),
        (
            {"lengths": [4], "length": 4},
            ArgumentError,
            r"lengths=\[4\] already gives all padded lengths\. Remove length and pad_multiple\.",
        ),
        ({"vocab_size": 0}, ArgumentError, "vocab_size must be at least 1"),
        ({"carry": "name"}, ArgumentTypeError, "carry must be a list of strings, got the string 'name'"),
        ({"carry": ["a", "a"]}, ArgumentError, "carry repeats 'a'"),
        ({"classes": 2}, ArgumentError, "classes=2 needs class labels, got label=None"),
        ({"classes": 2, "label": "y", "label_kind": "value"}, ArgumentError, "label_kind='value'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        fp.collators.text(**{"pad_id": 0, **options})


def test_a_collator_prints_as_the_call_that_makes_it():
    assert repr(fp.collators.text(pad_id=0, label="y", length=8)) == "text(pad_id=0, label='y', lengths=(8,))"


def test_rows_that_pad_has_padded_keep_the_mask_that_it_made():
    rows = fp.from_examples([{"input_ids": [5, 6, 7]}, {"input_ids": [8]}])
    padded = next(iter(fp.pipe(rows, fp.pad(4, pad_id=0), batch(2), fp.collate(fp.collators.text(pad_id=0)))))
    assert padded["input_ids"].tolist() == [[5, 6, 7, 0], [8, 0, 0, 0]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


def test_two_texts_of_a_row_make_one_batch():
    rows = [{"input_ids": [5, 6, 7], "answer": [8]}, {"input_ids": [9], "answer": [10, 11]}]
    pairs = fp.collators.multimodal(
        [fp.collators.text(pad_id=0), fp.collators.text(pad_id=3, column="answer", prefix="answer_", side="left")]
    )
    assert {name: values.tolist() for name, values in pairs(rows).items()} == {
        "input_ids": [[5, 6, 7], [9, 0, 0]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "answer_input_ids": [[3, 8], [10, 11]],
        "answer_attention_mask": [[0, 1], [1, 1]],
    }


@pytest.mark.parametrize("rows_before", [1, 40])
def test_the_names_are_the_same_where_many_small_batches_are_cut_at_once(rows_before):
    collator = fp.collators.text(pad_id=0, column="answer", prefix="answer_")
    rows = [{"answer": [1] * (1 + place % 5)} for place in range(rows_before)]
    for made in fp.pipe(fp.from_examples(rows), batch(4), fp.collate(collator)):
        assert sorted(made) == ["answer_attention_mask", "answer_input_ids"]


def test_a_mask_of_pad_belongs_to_input_ids_alone():
    rows = [{"input_ids": [5, 6, 0], "attention_mask": [1, 1, 0], "answer": [8, 9]}]
    assert fp.collators.text(pad_id=0, prefix="first_")(rows)["first_attention_mask"].tolist() == [[1, 1, 0]]
    assert fp.collators.text(pad_id=0, column="answer")(rows)["attention_mask"].tolist() == [[1, 1]]


@pytest.mark.parametrize("first", [[], [fp.pad(4, pad_id=0)]])
@pytest.mark.parametrize("side", ["right", "left"])
def test_another_column_that_pad_has_padded_is_refused(first, side):
    """Its mask has the name of the mask of `input_ids`, and a model would use the padding as tokens."""
    rows = fp.from_examples([{"input_ids": [1, 2, 3, 4], "answer": [5, 6, 7, 0]}, {"input_ids": [1], "answer": [8]}])
    padded = fp.pipe(rows, *first, fp.pad(4, pad_id=0, column="answer", side=side))
    collator = fp.collators.text(pad_id=0, column="answer")
    message = (
        "collators.text: column 'answer' of source row 1 has padding from pad, but collators.text uses no mask of pad for "
        "this column, so a model would use the padding as tokens. Remove pad(..., column='answer'), because the collator pads each batch."
    )
    for call in (lambda: collator(next(iter(fp.pipe(padded, batch(2))))), lambda: list(fp.pipe(padded, batch(2), fp.collate(collator)))):
        with pytest.raises(DataError) as error:
            call()
        assert str(error.value) == message
    assert collator(list(padded)[:1])["input_ids"].tolist() == [[5, 6, 7, 0]]
    assert collator(list(rows))["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]


def test_another_column_has_no_token_types_and_is_named_in_messages():
    with pytest.raises(ArgumentError, match=r"Only the column 'input_ids' has token types, got type_ids=True and column='answer'"):
        fp.collators.text(pad_id=0, column="answer", type_ids=True)
    with pytest.raises(DataError, match=r"column 'answer' of .* has 3 values, more than the padded length of 2"):
        fp.collators.text(pad_id=0, column="answer", length=2)([{"answer": [1, 2, 3]}])
    with pytest.raises(ArgumentTypeError, match="prefix"):
        fp.collators.text(pad_id=0, prefix=3)


def test_rows_of_pack_are_refused():
    """One mask for several documents would let the documents see each other. Columns in `carry` are no loss."""
    rows = fp.pipe(fp.from_examples([{"input_ids": [5, 6]}, {"input_ids": [7, 8]}]), fp.pack(4))
    with pytest.raises(SchemaError, match=r"collators\.text would lose .* Use causal, masked or tokens with packed=True, or remove"):
        next(iter(fp.pipe(rows, batch(1), fp.collate(fp.collators.text(pad_id=0)))))
    assert next(iter(fp.pipe(rows, batch(1), fp.collate(fp.collators.text(pad_id=0, carry=["segment_ids"])))))["segment_ids"].tolist() == [
        [1, 1, 2, 2]
    ]
