"""Collators by name, and the one for a task."""

from collections.abc import Callable, Mapping
from typing import Any

from mlxfp.collators.causal_lm import causal
from mlxfp.collators.columns import Collator, is_text
from mlxfp.collators.combining import multimodal
from mlxfp.collators.images import vision
from mlxfp.collators.masked_lm import masked
from mlxfp.collators.plain import default
from mlxfp.collators.sequence_to_sequence import seq2seq
from mlxfp.collators.task_specs import ROLES, TaskSpec
from mlxfp.collators.texts import text
from mlxfp.collators.waveforms import audio
from mlxfp.core.checks import check_columns, check_integer, check_types
from mlxfp.core.chunks import Schema
from mlxfp.core.errors import ArgumentError, SchemaError
from mlxfp.settings.registries import Registry
from mlxfp.text.tokenizers.tokenizer import Tokenizer

COLLATORS: Registry[Callable[..., Collator]] = Registry(
    "collator",
    {
        "audio": audio,
        "causal": causal,
        "default": default,
        "masked": masked,
        "multimodal": multimodal,
        "seq2seq": seq2seq,
        "text": text,
        "vision": vision,
    },
)


def for_task(
    task: TaskSpec,
    *,
    tokenizer: Tokenizer | None = None,
    schema: Schema | None = None,
    seed: int = 0,
    collators: Mapping[str, Callable[..., Collator]] = COLLATORS,
) -> Collator:
    """Make the collator that a task needs.

    Its name is the task's kind where there is a collator of that name (causal, masked, seq2seq), else its modality. Ids and the size of the
    vocabulary come from `tokenizer`, which every task with text needs; columns, classes and length come from the task; `schema`, that of
    the rows to collate, says whether there are token types or packed rows. `seed` is for masks. What is left as it is by default can be
    changed with `attrs.evolve`, as in `evolve(for_task(task), normalization=NORMALIZATIONS["cifar10"])`. `collators` may hold your own in
    the place of ours: `COLLATORS | {"vision": mine}`; it gets the same arguments.

    Raises `ArgumentError` without a tokenizer where one is needed; with `schema`, `SchemaError` for a column that is not there, and for
    class labels that are text.

    >>> for_task(TaskSpec("vision", "classification", columns={"label": "digit"}, classes=10))
    vision(label='digit', classes=10)

    See also: `TASKS`, tasks by name.
    """
    check_types(TaskSpec, task=task)
    check_types((Tokenizer, type(None)), tokenizer=tokenizer)
    check_integer(seed=seed)
    if task.modality in ("text", "multimodal") and tokenizer is None:
        raise ArgumentError(f"A {task.kind} task of {task.modality} needs tokenizer=, which says how to pad and how many ids there are.")
    if schema is not None:
        _check_schema(task, schema)
    columns = () if schema is None else tuple(schema.names)
    if task.modality == "multimodal":
        seen = collators["vision"](image=task.column("image"))
        return collators["multimodal"]([collators["text"](**_text(task, tokenizer, columns)), seen])
    name = task.kind if task.kind in _ARGUMENTS else task.modality
    arguments = _ARGUMENTS[name](task, tokenizer, columns)
    return collators[name](**arguments, **({"seed": seed} if name == "masked" else {}))


def _text(task: TaskSpec, tokenizer: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    return {**_tokens(task, tokenizer), **_labels(task), "type_ids": "token_type_ids" in columns}


def _causal(task: TaskSpec, tokenizer: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    packed = {"segment_ids", "positions"} <= set(columns)
    return {**_tokens(task, tokenizer), "prompt_mask": task.column("prompt_mask"), "packed": packed}


def _masked(task: TaskSpec, tokenizer: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    ids = {"mask_id": tokenizer.mask_id, "special_ids": tokenizer.special_ids}
    return {**_tokens(task, tokenizer), **ids, "type_ids": "token_type_ids" in columns}


def _seq2seq(task: TaskSpec, tokenizer: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    start = next((role for role in ("bos", "cls") if getattr(tokenizer, f"{role}_token") is not None), "pad")  # T5 starts with padding
    ids = {"start_id": getattr(tokenizer, f"{start}_id"), "target": task.column("target")}
    return {**_tokens(task, tokenizer), **ids, "target_length": task.length}


def _vision(task: TaskSpec, tokenizer: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    return {"image": task.column("image"), **_labels(task)}


def _audio(task: TaskSpec, tokenizer: Any, columns: tuple[str, ...]) -> dict[str, Any]:
    return {"waveform": task.column("waveform"), **_labels(task), "length": task.length}


_ARGUMENTS = {"text": _text, "causal": _causal, "masked": _masked, "seq2seq": _seq2seq, "vision": _vision, "audio": _audio}


def _tokens(task: TaskSpec, tokenizer: Tokenizer) -> dict[str, Any]:
    return {"pad_id": tokenizer.pad_id, "vocab_size": tokenizer.vocab_size, "length": task.length}


def _labels(task: TaskSpec) -> dict[str, Any]:
    return {"label": task.column("label"), "label_kind": "value" if task.kind == "regression" else "class", "classes": task.classes}


def _check_schema(task: TaskSpec, schema: Schema) -> None:
    """Raise `SchemaError` unless the columns of the task are there, and the labels are numbers."""
    roles = ROLES[task.modality, task.kind]
    wanted = [column for column in map(task.column, roles) if column is not None]
    check_columns([*(["input_ids"] if task.modality in ("text", "multimodal") else []), *wanted], schema.names, "for_task")
    label = task.column("label") if "label" in roles else None
    if label is not None and is_text(schema.field(label).type):
        raise SchemaError(f"for_task: the labels in column {label!r} are text, {schema.field(label).type}. Number the classes with map.")
