"""Collators by name, and for tasks."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve

from mlxfp.collators import COLLATORS, NORMALIZATIONS, TASKS, TaskSpec, continuations, for_task, text, vision
from mlxfp.collators.collating import collate
from mlxfp.core.describing import schema
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.packing import pack
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, SchemaError, UnknownNameError
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.text.tokenizers.training import train_tokenizer
from mlxfp.text.tokenizing import tokenize

ROWS = from_examples(
    [{"text": "the cat sat", "summary": "cat", "label": 1, "score": 0.5}, {"text": "a mat", "summary": "mat", "label": 0, "score": 1.5}]
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(ROWS, kind="wordpiece", vocab_size=40)


def batch_for(task: TaskSpec, tokenizer: Tokenizer, *stages: Any) -> dict[str, Any]:
    rows = pipe(ROWS, *stages)
    (made,) = pipe(rows, batch(2), collate(for_task(task, tokenizer=tokenizer, schema=schema(rows))))
    return made


def test_the_registry_holds_every_collator():
    assert list(COLLATORS) == [
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
    assert COLLATORS["text"](pad_id=0) == text(pad_id=0)
    with pytest.raises(UnknownNameError, match=r"No collator is named 'casual'\. Did you mean 'causal'\? Known: audio, causal, default"):
        COLLATORS["casual"]


def test_every_task_of_text_gets_its_collator(tokenizer: Tokenizer):
    ids = tokenize(tokenizer)
    for kind, key in (("classification", "label"), ("regression", "score")):
        task = TaskSpec("text", kind, columns={"label": key}, length=16)
        made = batch_for(task, tokenizer, ids)
        assert made["input_ids"].shape == (2, 16)
        assert made["labels"].tolist() == ([1, 0] if kind == "classification" else [0.5, 1.5])
    assert "labels" in batch_for(TaskSpec("text", "causal"), tokenizer, ids)
    assert (np.array(batch_for(TaskSpec("text", "masked"), tokenizer, ids)["labels"]) <= tokenizer.vocab_size).all()
    target = tokenize(tokenizer, column="summary", into="target_ids")
    made = batch_for(TaskSpec("text", "seq2seq", columns={"target": "target_ids"}), tokenizer, ids, target)
    assert made["decoder_input_ids"][0, 0].item() == tokenizer.cls_id


def test_the_schema_says_what_rows_hold(tokenizer: Tokenizer):
    pair = tokenize(tokenizer, pair="summary")
    assert "token_type_ids" in batch_for(TaskSpec("text", "classification"), tokenizer, pair)
    packed = pipe(ROWS, tokenize(tokenizer), pack(32))
    for kind in ("causal", "masked"):
        collator = for_task(TaskSpec("text", kind), tokenizer=tokenizer, schema=schema(packed))
        (made,) = pipe(packed, batch(4), collate(collator))
        assert "segment_ids" in made


def test_masks_follow_the_seed_and_can_be_changed_after(tokenizer: Tokenizer):
    task = TaskSpec("text", "masked")
    collator = for_task(task, tokenizer=tokenizer, seed=3)
    assert collator != for_task(task, tokenizer=tokenizer)
    assert collator == for_task(task, tokenizer=tokenizer, seed=3)
    whole: Any = evolve(collator, continuations=continuations(tokenizer))
    assert "continuations" in repr(whole)


def test_images_sound_and_both_at_once(tokenizer: Tokenizer):
    assert for_task(TaskSpec("vision", "classification", columns={"image": "picture"}, classes=3)) == vision(
        image="picture", label="label", classes=3
    )
    assert repr(for_task(TaskSpec("audio", "regression", length=800))) == "audio(label='label', label_kind='value', lengths=(800,))"
    both = for_task(TaskSpec("multimodal", "classification"), tokenizer=tokenizer)
    made = both([{"input_ids": [5], "image": np.zeros((2, 2), np.uint8), "label": 1}])
    assert set(made) == {"input_ids", "attention_mask", "labels", "images"}


def test_presets_are_tasks_by_name(tokenizer: Tokenizer):
    assert list(TASKS) == ["tiny_language_model", "tiny_text", "tiny_vision"]
    for task in TASKS.values():
        assert callable(for_task(task, tokenizer=tokenizer))
    with pytest.raises(UnknownNameError, match=r"No task is named 'tiny_txt'\. Did you mean 'tiny_text'"):
        TASKS["tiny_txt"]


def test_a_collator_of_ones_own_takes_the_place_of_ours():
    def mine(**options: Any) -> Any:
        return vision(**options, normalization=NORMALIZATIONS["cifar10"])

    found = for_task(TASKS["tiny_vision"], collators=COLLATORS | {"vision": mine})
    assert found == vision(label="label", classes=10, normalization=NORMALIZATIONS["cifar10"])
    assert found == evolve(for_task(TASKS["tiny_vision"]), normalization=NORMALIZATIONS["cifar10"])


def test_what_is_missing_is_said(tokenizer: Tokenizer):
    with pytest.raises(ArgumentError, match="A classification task of text needs the argument tokenizer"):
        for_task(TASKS["tiny_text"])
    with pytest.raises(ArgumentTypeError, match="task must be TaskSpec, got str"):
        for_task("tiny_text")
    with pytest.raises(SchemaError, match=r"for_task needs the columns 'input_ids', 'label', which are missing\. Columns: 'text'"):
        for_task(TASKS["tiny_text"], tokenizer=tokenizer, schema=pa.schema({"text": pa.string()}))
    labels = pa.schema({"image": pa.binary(), "label": pa.string()})
    with pytest.raises(SchemaError, match=r"for_task: the labels in column 'label' are text, string\. Name the classes"):
        for_task(TASKS["tiny_vision"], schema=labels)
    plain = evolve(tokenizer, mask_token=None)
    with pytest.raises(ArgumentError, match="The vocabulary has no mask token"):
        for_task(TaskSpec("text", "masked"), tokenizer=plain)
