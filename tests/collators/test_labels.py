"""Class labels by name: indices in a batch, errors with the row, and names saved with a model."""

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError

MOODS = ["calm", "happy", "sad"]
LABELLED = [
    (fp.collators.text(pad_id=0, label="mood", classes=MOODS), {"input_ids": [[1], [2], [3]]}),
    (fp.collators.vision(label="mood", classes=MOODS), {"image": [np.zeros((2, 2), np.uint8)] * 3}),
    (fp.collators.audio(label="mood", classes=MOODS), {"waveform": [[0.5], [0.25], [0.125]]}),
]


@pytest.mark.parametrize(("collator", "columns"), LABELLED)
def test_class_names_become_their_indices_in_every_collator_with_labels(collator, columns):
    """The order of `classes` decides the number of a class, not the order of the rows."""
    rows = [{name: values[index] for name, values in columns.items()} for index in range(3)]
    batch = collator([{**row, "mood": mood} for row, mood in zip(rows, ["sad", "calm", "sad"], strict=True)])
    assert (batch["labels"].tolist(), batch["labels"].dtype) == ([2, 0, 2], mx.int32)


def test_dictionary_columns_and_numbered_labels_work_with_class_names():
    """Categories of pandas and labels that are already numbers give the same batch."""
    collator = fp.collators.text(pad_id=0, label="mood", classes=MOODS)
    table = pa.table({"input_ids": [[1], [2]], "mood": pa.array(["sad", "happy"]).dictionary_encode()})
    batches = fp.pipe(fp.from_table(table), fp.batch(2), fp.collate(collator))
    assert next(iter(batches))["labels"].tolist() == [2, 1]
    assert collator([{"input_ids": [1], "mood": 1}])["labels"].tolist() == [1]


@pytest.mark.parametrize(
    ("options", "mood", "error", "message"),
    [
        (
            {"classes": MOODS},
            "hapy",
            DataError,
            r"holds 'hapy', which is not a class\. Did you mean 'happy'\? Classes: 'calm', 'happy', 'sad'\.",
        ),
        ({"classes": MOODS}, 3, DataError, "holds 3, outside the 3 classes 0 to 2"),
        ({"classes": MOODS}, None, DataError, "is null"),
        ({}, "sad", SchemaError, r"must hold class numbers, got string\. Name all classes in a fixed order: classes=\['sad'\]\."),
        ({"label_kind": "value"}, "sad", SchemaError, "must hold numbers, got string"),
    ],
)
def test_an_invalid_class_label_is_an_error_with_the_known_classes(options, mood, error, message):
    """The error names the row, the value and the classes."""
    with pytest.raises(error, match=message):
        fp.collators.text(pad_id=0, label="mood", **options)([{"input_ids": [1], "mood": mood}])


@pytest.mark.parametrize(
    ("options", "moods"), [({"classes": MOODS}, ["sad", None]), ({"classes": MOODS}, [None, None]), ({"label_kind": "value"}, [None])]
)
def test_a_row_without_a_label_is_an_error_with_the_number_of_the_row(options, moods):
    """A column of nulls has no other type, but the error names the first row in the same way."""
    collator = fp.collators.text(pad_id=0, label="mood", **options)
    rows = fp.from_examples([{"input_ids": [1], "mood": mood} for mood in moods])
    with pytest.raises(DataError) as caught:
        list(fp.pipe(rows, fp.batch(2), fp.collate(collator)))
    assert str(caught.value) == (
        f"collators.text: column 'mood' of source row {moods.index(None)} is null. Call fp.filter to remove the row, or remove label= "
        "from the collator for rows without labels."
    )


@pytest.mark.parametrize(
    ("classes", "error"), [([], ArgumentError), (["a", "a"], ArgumentError), ("ab", ArgumentTypeError), ([1], ArgumentTypeError)]
)
def test_class_names_are_a_list_of_different_texts(classes, error):
    """Mistakes in `classes` raise an error when the collator is built."""
    with pytest.raises(error):
        fp.collators.text(pad_id=0, label="mood", classes=classes)


BERT = fp.models.Bert(fp.models.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
ENCODER = fp.models.Encoder(fp.models.EncoderConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1))


@pytest.mark.parametrize("head", [fp.models.Classifier, fp.models.TokenClassifier])
@pytest.mark.parametrize("body", [BERT, ENCODER])
def test_a_saved_model_keeps_its_class_names(tmp_path, head, body):
    """`load` returns the names, in a format of transformers and in the format of mlxfp."""
    fp.models.save(tmp_path, head(body, 3, classes=MOODS))
    assert fp.models.load(tmp_path).classes == tuple(MOODS)
    with pytest.raises(ArgumentError, match=r"classes must name each output, got 3 names and outputs=2\. Pass outputs=3"):
        head(body, 2, classes=MOODS)


def test_a_model_without_class_names_loads_without_class_names(tmp_path):
    """The numbered names that transformers expects are no class names."""
    fp.models.save(tmp_path, fp.models.Classifier(BERT, 3))
    assert fp.models.load(tmp_path).classes == ()


def test_a_task_takes_class_names():
    """`for_task` accepts text labels if the task names the classes."""
    tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "a b"}]), kind="wordpiece", vocab_size=20)
    task = fp.collators.TaskSpec("text", "classification", classes=MOODS)
    schema = pa.schema({"input_ids": pa.list_(pa.int32()), "label": pa.string()})
    assert fp.collators.for_task(task, tokenizer=tokenizer, schema=schema).classes == tuple(MOODS)
