"""What a task can be."""

import pickle
from typing import Any

import pytest
from attrs import evolve

from mlxfp.collators.task_specs import TASK_COLLATORS, TASKS, TaskSpec
from mlxfp.core.identity import fingerprint
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, UnknownNameError


def test_columns_are_named_as_usual_unless_said_otherwise():
    task = TaskSpec("vision", "classification", columns={"label": "digit"})
    assert (task.column("label"), task.column("image")) == ("digit", "image")
    assert TaskSpec("text", "seq2seq").column("target") == "labels"
    assert TaskSpec("text", "causal").column("prompt_mask") is None
    with pytest.raises(UnknownNameError, match=r"No column role for a causal task of text is named 'label'\. .*Known: prompt_mask"):
        TaskSpec("text", "causal").column("label")


@pytest.mark.parametrize(("modality", "kind"), TASK_COLLATORS)
def test_a_task_is_a_value(modality: Any, kind: Any):
    columns = dict.fromkeys(TASK_COLLATORS[modality, kind].roles, "x")
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
