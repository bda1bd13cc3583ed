"""Tasks, and the collators for tasks and by name."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.collators.task_specs import TASK_ROLES, TASKS, TaskSpec
from mlxfp.core.identity import fingerprint
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, SchemaError, UnknownNameError


def test_columns_are_named_as_usual_unless_said_otherwise():
    task = TaskSpec("vision", "classification", columns={"label": "digit"})
    assert (task.column("label"), task.column("image")) == ("digit", "image")
    assert TaskSpec("text", "seq2seq").column("target") == "labels"
    assert TaskSpec("text", "causal").column("prompt_mask") is None
    with pytest.raises(UnknownNameError, match=r"No column role for a causal task of text is named 'label'\. .*Known: prompt_mask"):
        TaskSpec("text", "causal").column("label")


@pytest.mark.parametrize(("modality", "kind"), TASK_ROLES)
def test_a_task_is_a_value(modality: Any, kind: Any):
    columns = dict.fromkeys(TASK_ROLES[modality, kind], "x")
    task = TaskSpec(modality, kind, columns=columns)
    turned = TaskSpec(modality, kind, columns=dict(reversed(columns.items())))
    assert task == turned == pickle.loads(pickle.dumps(task)) == evolve(task)
    assert hash(task) == hash(turned)
    assert fingerprint(task) == fingerprint(turned)
    assert evolve(task, columns={}) == TaskSpec(modality, kind)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (
            ("txt", "causal"),
            {},
            UnknownNameError,
            r"No modality is named 'txt'\. Did you mean 'text'\? Known: audio, multimodal, text, vision",
        ),
        (("text", "casual"), {}, UnknownNameError, r"No kind is named 'casual'\. Did you mean 'causal'\?"),
        (
            ("vision", "causal"),
            {},
            ArgumentError,
            r"There is no causal task of vision, got kind='causal'\. Kinds of vision tasks: classification, regression",
        ),
        (
            ("text", "masked"),
            {"columns": {"label": "y"}},
            UnknownNameError,
            r"No column role for a masked task of text is named 'label'",
        ),
        (("text", "causal"), {"columns": ["x"]}, ArgumentTypeError, "columns must be Mapping, got list"),
        (("text", "regression"), {"columns": {"label": 3}}, ArgumentTypeError, "label must be a string"),
        (("text", "regression"), {"classes": 2}, ArgumentError, "Only a classification has classes, got classes=2 for kind='regression'"),
        (("text", "classification"), {"classes": 0}, ArgumentError, "classes must be at least 1"),
        (("text", "causal"), {"length": 0}, ArgumentError, "length must be at least 1"),
        (("vision", "regression"), {"length": 8}, ArgumentError, r"Images have no length, got length=8\. vision\(size="),
    ],
)
def test_a_task_that_cannot_be_is_refused(arguments: Any, options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        TaskSpec(*arguments, **options)


def test_presets_print_what_they_are():
    assert repr(TASKS["tiny_vision"]) == "TaskSpec(modality='vision', kind='classification', columns=(), classes=10, length=None)"


ROWS = fp.from_examples(
    [{"text": "the cat sat", "summary": "cat", "label": 1, "score": 0.5}, {"text": "a mat", "summary": "mat", "label": 0, "score": 1.5}]
)


@pytest.fixture(scope="module")
def tokenizer() -> fp.Tokenizer:
    return fp.train_tokenizer(ROWS, kind="wordpiece", vocab_size=40)


def batch_for(task: TaskSpec, tokenizer: fp.Tokenizer, *stages: Any) -> dict[str, Any]:
    rows = fp.pipe(ROWS, *stages)
    (made,) = fp.pipe(rows, fp.batch(2), fp.collate(fp.collators.for_task(task, tokenizer=tokenizer, schema=fp.schema(rows))))
    return made


def test_the_registry_holds_every_collator():
    assert list(fp.collators.COLLATORS) == [
        "audio",
        "causal",
        "default",
        "foreign",
        "masked",
        "multimodal",
        "preference",
        "seq2seq",
        "text",
        "tokens",
        "vision",
    ]
    assert fp.collators.COLLATORS["text"](pad_id=0) == fp.collators.text(pad_id=0)
    with pytest.raises(UnknownNameError, match=r"No collator is named 'casual'\. Did you mean 'causal'\? Known: audio, causal, default"):
        fp.collators.COLLATORS["casual"]


def test_every_task_of_text_gets_its_collator(tokenizer: fp.Tokenizer):
    ids = fp.tokenize(tokenizer)
    for kind, key in (("classification", "label"), ("regression", "score")):
        task = TaskSpec("text", kind, columns={"label": key}, length=16)
        made = batch_for(task, tokenizer, ids)
        assert made["input_ids"].shape == (2, 16)
        assert made["labels"].tolist() == ([1, 0] if kind == "classification" else [0.5, 1.5])
    assert "labels" in batch_for(TaskSpec("text", "causal"), tokenizer, ids)
    assert (np.array(batch_for(TaskSpec("text", "masked"), tokenizer, ids)["labels"]) <= tokenizer.vocab_size).all()
    target = fp.tokenize(tokenizer, column="summary", into="target_ids")
    made = batch_for(TaskSpec("text", "seq2seq", columns={"target": "target_ids"}), tokenizer, ids, target)
    assert made["decoder_input_ids"][0, 0].item() == tokenizer.cls_id


def test_the_schema_says_what_rows_hold(tokenizer: fp.Tokenizer):
    pair = fp.tokenize(tokenizer, pair="summary")
    assert "token_type_ids" in batch_for(TaskSpec("text", "classification"), tokenizer, pair)
    packed = fp.pipe(ROWS, fp.tokenize(tokenizer), fp.pack(32))
    for kind in ("causal", "masked"):
        collator = fp.collators.for_task(TaskSpec("text", kind), tokenizer=tokenizer, schema=fp.schema(packed))
        (made,) = fp.pipe(packed, fp.batch(4), fp.collate(collator))
        assert "segment_ids" in made


def test_masks_follow_the_seed_and_can_be_changed_after(tokenizer: fp.Tokenizer):
    task = TaskSpec("text", "masked")
    collator = fp.collators.for_task(task, tokenizer=tokenizer, seed=3)
    assert collator != fp.collators.for_task(task, tokenizer=tokenizer)
    assert collator == fp.collators.for_task(task, tokenizer=tokenizer, seed=3)
    other: Any = evolve(collator, rate=0.4)
    assert "rate=0.4" in repr(other)


def test_images_sound_and_both_at_once(tokenizer: fp.Tokenizer):
    assert fp.collators.for_task(TaskSpec("vision", "classification", columns={"image": "picture"}, classes=3)) == fp.collators.vision(
        image="picture", label="label", classes=3
    )
    assert (
        repr(fp.collators.for_task(TaskSpec("audio", "regression", length=800)))
        == "audio(label='label', label_kind='value', lengths=(800,))"
    )
    both = fp.collators.for_task(TaskSpec("multimodal", "classification"), tokenizer=tokenizer)
    made = both([{"input_ids": [5], "image": np.zeros((2, 2), np.uint8), "label": 1}])
    assert set(made) == {"input_ids", "attention_mask", "labels", "images"}


def test_presets_are_tasks_by_name(tokenizer: fp.Tokenizer):
    assert list(TASKS) == ["tiny_language_model", "tiny_text", "tiny_vision"]
    for task in TASKS.values():
        assert callable(fp.collators.for_task(task, tokenizer=tokenizer))
    with pytest.raises(UnknownNameError, match=r"No task is named 'tiny_txt'\. Did you mean 'tiny_text'"):
        TASKS["tiny_txt"]


def test_a_collator_of_ones_own_takes_the_place_of_ours():
    def mine(**options: Any) -> Any:
        return fp.collators.vision(**options, normalization=fp.collators.NORMALIZATIONS["cifar10"])

    found = fp.collators.for_task(TASKS["tiny_vision"], collators=fp.collators.COLLATORS | {"vision": mine})
    assert found == fp.collators.vision(label="label", classes=10, normalization=fp.collators.NORMALIZATIONS["cifar10"])
    assert found == evolve(fp.collators.for_task(TASKS["tiny_vision"]), normalization=fp.collators.NORMALIZATIONS["cifar10"])


def test_what_is_missing_is_said(tokenizer: fp.Tokenizer):
    with pytest.raises(ArgumentError, match="A classification task of text needs the argument tokenizer"):
        fp.collators.for_task(TASKS["tiny_text"])
    with pytest.raises(ArgumentTypeError, match="task must be TaskSpec, got str"):
        fp.collators.for_task("tiny_text")
    with pytest.raises(SchemaError, match=r"for_task needs the columns 'input_ids', 'label', which are missing\. Columns: 'text'"):
        fp.collators.for_task(TASKS["tiny_text"], tokenizer=tokenizer, schema=pa.schema({"text": pa.string()}))
    labels = pa.schema({"image": pa.binary(), "label": pa.string()})
    with pytest.raises(SchemaError, match=r"for_task: the labels in column 'label' are text, string\. Name the classes"):
        fp.collators.for_task(TASKS["tiny_vision"], schema=labels)
    plain = evolve(tokenizer, mask_token=None)
    with pytest.raises(ArgumentError, match="The vocabulary has no mask token"):
        fp.collators.for_task(TaskSpec("text", "masked"), tokenizer=plain)
