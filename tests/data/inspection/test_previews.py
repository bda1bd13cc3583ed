import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.inspection.previews import preview, show_value
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing.strategies import pipelines, tables
from tests.data.left_running import no_thread_left

SENTENCES = fp.from_examples([{"text": "a cat", "label": 1}, {"text": "a hat, a cat", "label": 0}])
TOKENIZER = fp.train_tokenizer(SENTENCES, kind="wordpiece", vocab_size=20)
ROWS = fp.pipe(SENTENCES, fp.tokenize(TOKENIZER))


def shown(dataset, **options):
    return preview(dataset, **options).splitlines()


@given(dataset=pipelines(), count=st.integers(1, 4))
def test_any_pipeline_can_be_previewed(dataset, count):
    lines = shown(dataset, count=count)
    unit = {"examples": "example ", "groups": "group "}[dataset.level]
    found = [line for line in lines if line.startswith(unit)]
    assert len(found) == min(count, len(list(dataset)))
    assert lines != ["no items"] or not found


@given(table=tables(min_rows=1, min_columns=1))
def test_columns_of_any_type_take_a_line_each(table):
    lines = shown(fp.from_table(table), count=1)
    if "input_ids" not in table.column_names:
        assert sum(line.startswith("    ") for line in lines) >= table.num_columns


def test_examples_show_values_and_tokens_beside_each_other():
    assert shown(ROWS, count=1, tokenizer=TOKENIZER) == [
        "example 0, source row 0",
        "    text   'a cat'",
        "    label  1",
        "    decoded  'a cat'",
        "    place  input_ids",
        "        0      [CLS]",
        "        1          a",
        "        2        cat",
        "        3      [SEP]",
    ]
    assert shown(ROWS, count=1)[3:5] == ["    place  input_ids", "        0          2"]


def test_source_rows_are_told():
    assert (
        shown(shuffle(seed=1)(ROWS), count=1)[0]
        == f"example 0, source row {next(iter(shuffle(seed=1)(batch(1)(ROWS) and ROWS)))['label'] ^ 1}"
    )


def test_groups_show_their_first_rows():
    lines = shown(batch(2)(ROWS), count=1)
    assert lines[:2] == ["group 0: 2 examples", "    example 0, source row 0"]
    assert "        text   'a cat'" in lines
    assert sum("example" in line for line in lines) == 2


def test_batches_show_shapes_masks_padding_and_labels_in_their_places():
    batches = fp.pipe(ROWS, batch(2), fp.collate(fp.collators.text(pad_id=TOKENIZER.pad_id, label="label")), fp.prefetch(1))
    assert shown(batches, tokenizer=TOKENIZER) == [
        "batch 0: input_ids int32[2, 8], attention_mask int32[2, 8], labels int32[2]",
        "    row 0",
        "        labels  1",
        "        decoded  'a cat'",
        "        place  input_ids  attention_mask",
        "            0      [CLS]               1",
        "            1          a               1",
        "            2        cat               1",
        "            3      [SEP]               1",
        "            4      [PAD]               0",
        "            5      [PAD]               0",
        "            6      [PAD]               0",
        "            7      [PAD]               0",
        "    row 1",
        "        labels  0",
        "        decoded  'a hat, a cat'",
        "        place  input_ids  attention_mask",
        "            0      [CLS]               1",
        "            1          a               1",
        "            2          h               1",
        "            3       ##at               1",
        "            4          ,               1",
        "            5          a               1",
        "            6        cat               1",
        "            7      [SEP]               1",
    ]


def test_labels_stand_beside_the_inputs_that_predict_them():
    def shifted(group):
        ids = np.array([row["input_ids"][:4] for row in group], np.int32)
        return {
            "input_ids": mx.array(ids[:, :-1]),
            "labels": mx.array(np.where(ids[:, 1:] == 3, -100, ids[:, 1:])),
            "weight": mx.ones((2, 3)),
        }

    lines = shown(fp.pipe(ROWS, batch(2), fp.collate(shifted)), count=1, tokenizer=TOKENIZER)
    assert lines[2:] == [
        "        weight  float32[3], 1 to 1",
        "        decoded  'a cat'",
        "        place  input_ids  labels",
        "            0      [CLS]       a",
        "            1          a     cat",
        "            2        cat       ·",
    ]


def test_long_rows_are_cut_and_their_padding_is_counted():
    rows = fp.from_examples([{"input_ids": [*range(20)], "attention_mask": [1] * 13 + [0] * 7}])
    assert shown(rows)[-1] == "    ... 20 places, 7 of them padding"
    assert shown(fp.from_examples([{"input_ids": [*range(20)]}]))[-1] == "    ... 20 places"


def test_ids_beyond_the_vocabulary_are_marked():
    lines = shown(fp.from_examples([{"input_ids": [2, 99]}]), tokenizer=TOKENIZER)
    assert lines[1:] == ["    place  input_ids", "        0      [CLS]", "        1        99?"]


def test_images_sounds_bytes_texts_and_scalars_are_told_in_a_line():
    rows = fp.from_table(
        {"image": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3), "sound": [[0.5] * 50, [0.25] * 50], "raw": [b"\x89PNG" * 9] * 2}
    )
    assert shown(rows, count=1)[1:] == [
        "    image  uint8[2, 2, 3], 0 to 11",
        "    sound  50 values, 0.5 to 0.5",
        r"    raw    36 bytes: b'\x89PNG\x89PNG\x89PNG\x89PNG'",
    ]
    assert show_value("long " * 100) == repr("long " * 100)[:97] + "... (500 long)"
    assert show_value(np.float32(0.1)) == "float32[], 0.1 to 0.1"
    assert show_value(np.zeros((0, 3))) == "float64[0, 3]"
    assert show_value(10**200) == str(10**200)[:100]
    assert show_value([1, "a"] * 20).endswith("... (40 long)")


def test_batches_of_images_carried_texts_and_scalars():
    def collator(group):
        return {
            "image": mx.zeros((2, 4, 4, 3)).astype(mx.bfloat16),
            "names": ("a", "b"),
            "total": mx.array(3),
            "flags": mx.array([True, False]),
        }

    assert shown(fp.pipe(SENTENCES, batch(2), fp.collate(collator)), count=1) == [
        "batch 0: image bfloat16[2, 4, 4, 3], names text[2], total int32[], flags bool[2]",
        "    row 0",
        "        image  bfloat16[4, 4, 3], 0 to 0",
        "        names  'a'",
        "        flags  True",
    ]
    assert shown(fp.pipe(SENTENCES, batch(2), fp.collate(lambda group: {"total": mx.array(3)}))) == ["batch 0: total int32[]"]


def test_nothing_is_said_of_nothing_and_only_the_first_items_are_read():
    assert preview(fp.filter(lambda row: False)(SENTENCES)) == "no items"
    endless = fp.from_iterable(lambda: ({"x": x} for x in iter(int, 1)))
    with no_thread_left():
        assert len(shown(fp.pipe(endless, batch(2), fp.prefetch(2)), count=1)) == 3


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: preview([1]), ArgumentTypeError, "works on a dataset"),
        (lambda: preview(SENTENCES, count=0), ArgumentError, "count must be at least 1, got count=0."),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_real_data_of_several_kinds(data_folder):
    bert = fp.load_tokenizer(data_folder / "tokenizers" / "bert-base-uncased")
    passengers = fp.pipe(
        fp.read_csv(data_folder / "titanic" / "train.csv"), fp.template("A {Sex} aged {Age}."), fp.tokenize(bert), batch(4)
    )
    batches = fp.pipe(passengers, fp.collate(fp.collators.text(pad_id=bert.pad_id, label="Survived")))
    assert "decoded  'a male aged 22. 0.'" in preview(batches, tokenizer=bert)
    plays = fp.pipe(fp.read_text(data_folder / "tinyshakespeare" / "input.txt"), fp.tokenize(bert, special=False), fp.windows(16))
    assert "decoded  'first citizen : before we proceed any further" in preview(plays, tokenizer=bert)

    files = sorted((data_folder / "cifar10").rglob("*.jpg"))[:2] + sorted((data_folder / "speech").glob("*.wav"))[:2]
    raw = fp.map(lambda row: {**row, "bytes": (data_folder / row["path"]).read_bytes()})
    found = preview(fp.pipe(fp.from_examples([{"path": str(file.relative_to(data_folder))} for file in files]), raw), count=9)
    assert r"bytes: b'\xff\xd8" in found
    assert "bytes: b'RIFF" in found


def test_tensors_with_missing_values_are_shown():
    column = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.uint8(), (2,)), pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)))
    assert shown(fp.from_table({"x": column}))[1::2] == ["    x  uint8[2], 1 to 2", "    x  None"]
