"""Registry of all collators, and choice of the collator for a task. A task is a modality, a kind of learning, and the roles of columns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from mlxfp.collators.causal_lm import causal
from mlxfp.collators.collate_functions import foreign
from mlxfp.collators.columns import Collator
from mlxfp.collators.combining import multimodal
from mlxfp.collators.cutting import OF_PACK
from mlxfp.collators.images import vision
from mlxfp.collators.labels import Classes, check_classes
from mlxfp.collators.masked_lm import masked
from mlxfp.collators.plain import default
from mlxfp.collators.preferences import preference
from mlxfp.collators.sequence_to_sequence import seq2seq
from mlxfp.collators.texts import text
from mlxfp.collators.token_labels import tokens
from mlxfp.collators.waveforms import audio
from mlxfp.core.chunks import Schema
from mlxfp.support.arrow_types import is_text, value_type
from mlxfp.support.checks import check_choice, check_columns, check_integer, check_positive, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, SchemaError, unknown_name
from mlxfp.support.registries import Registry
from mlxfp.text.tokenizers.tokenizer import Tokenizer

# To add a collator, write a new file and add an entry here.
COLLATORS: Registry[Callable[..., Collator]] = Registry(
    "collator",
    {
        "audio": audio,
        "causal": causal,
        "default": default,
        "foreign": foreign,
        "masked": masked,
        "multimodal": multimodal,
        "preference": preference,
        "seq2seq": seq2seq,
        "text": text,
        "tokens": tokens,
        "vision": vision,
    },
)
_IMAGES = {"image": "image", "label": "label"}
_ROWS = {"audio": {"waveform": "waveform", "label": "label"}, "multimodal": _IMAGES, "text": {"label": "label"}, "vision": _IMAGES}
# Column roles of each task, (modality, kind), with the default column of a role. None: the role has no default column.
TASK_ROLES: Mapping[tuple[str, str], Mapping[str, str | None]] = {
    ("text", "causal"): {"prompt_mask": None},
    ("text", "masked"): {},
    ("text", "seq2seq"): {"target": "labels"},
    **{(modality, kind): roles for modality, roles in _ROWS.items() for kind in ("classification", "regression")},
}


def _pairs(columns: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(columns, tuple):  # `columns` is already a tuple if the value comes from `attrs.evolve` or is the default.
        return columns
    check_types(Mapping, columns=columns)
    return tuple(sorted(columns.items()))


@frozen
class TaskSpec:
    """Description of a task, for `collators.for_task`.

    `modality` is "text", "vision", "audio" or "multimodal" (text and image). `kind` is "classification" or "regression", and for text
    also "causal", "masked" or "seq2seq".

    `columns` maps roles to column names, for example `{"label": "Survived"}`. By default, a role such as `label`, `image` or `waveform` has
    the column of the same name. The default column of `target` is `labels`, and `prompt_mask` has no default column.

    `classes` is the number of classes, or the names of the classes. `length` is the maximum row length in tokens, samples or frames; images
    have no length.

    >>> TaskSpec("text", "classification", columns={"label": "Survived"}, classes=2).column("label")
    'Survived'
    >>> TaskSpec("txt", "regression")
    Traceback (most recent call last):
    mlxfp.support.errors.UnknownNameError: No modality is named 'txt'. Did you mean 'text'? Known: audio, multimodal, text, vision.

    See also: `TASKS`, which has some tasks by name.
    """

    modality: str
    kind: str
    columns: tuple[tuple[str, str], ...] = field(default=(), converter=_pairs, kw_only=True)
    classes: Classes = field(default=None, converter=check_classes, kw_only=True)
    length: int | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_choice(sorted({modality for modality, _ in TASK_ROLES}), modality=self.modality)
        check_choice(sorted({kind for _, kind in TASK_ROLES}), kind=self.kind)
        if (self.modality, self.kind) not in TASK_ROLES:
            known = ", ".join(kind for modality, kind in TASK_ROLES if modality == self.modality)
            raise ArgumentError(
                f"There is no {self.kind} task of {self.modality}, got kind={self.kind!r}. Kinds of {self.modality} tasks: {known}."
            )
        for role, column in self.columns:
            self._usual_column(role)
            check_text(**{role: column})
        if self.classes is not None and self.kind != "classification":
            raise ArgumentError(f"Only a classification has classes, got classes={self.classes} for kind={self.kind!r}.")
        if self.length is not None:
            check_positive(length=self.length)
            if self.modality == "vision":
                raise ArgumentError(f"Images have no length, got length={self.length}. vision(size=(height, width)) resizes images.")

    def column(self, role: str) -> str | None:
        """Return the column with a given role in the task, such as "label". Return None if the task uses no column for the role.

        Raises `UnknownNameError` for a role that the task does not have.
        """
        return dict(self.columns).get(role, self._usual_column(role))

    def _usual_column(self, role: str) -> str | None:
        """Return the default column name for a role such as "label". Raises `UnknownNameError` if the task has no such role."""
        known = TASK_ROLES[self.modality, self.kind]
        if role not in known:
            raise unknown_name(f"column role for a {self.kind} task of {self.modality}", role, known)
        return known[role]


TASKS: Registry[TaskSpec] = Registry(
    "task",
    {
        "tiny_language_model": TaskSpec("text", "causal", length=128),
        "tiny_text": TaskSpec("text", "classification", classes=2, length=128),
        "tiny_vision": TaskSpec("vision", "classification", classes=10),
    },
)


@explain_call
def for_task(
    task: TaskSpec,
    *,
    tokenizer: Tokenizer | None = None,
    schema: Schema | None = None,
    seed: int = 0,
    collators: Mapping[str, Callable[..., Collator]] = COLLATORS,
) -> Collator:
    """Return the collator for a task.

    Causal, masked and seq2seq tasks get the collator of the same name. Other tasks get the collator named like their modality. Columns,
    classes and length come from the task.

    - `tokenizer` gives token ids and the vocabulary size. Tasks with text need a tokenizer.
    - `seed` is the seed of masks.
    - `schema` is the schema of the rows to collate. The schema shows whether rows have token types or are packed.
    - `collators` maps names to functions that create collators. To use your own function `mine` instead of the built-in `vision`, pass
      `collators=COLLATORS | {"vision": mine}`. `mine` gets the same arguments as `vision`.

    All other arguments of the collator keep their defaults. Change arguments with `attrs.evolve`, as in
    `evolve(for_task(task), normalization=NORMALIZATIONS["cifar10"])`.

    Raises `ArgumentError` if a required tokenizer is missing. With `schema`, raises `SchemaError` for a missing column and for text labels
    without class names.

    >>> for_task(TaskSpec("vision", "classification", columns={"label": "digit"}, classes=10))
    vision(label='digit', classes=10)

    See also: `TASKS`, which has some tasks by name.
    """
    check_types(TaskSpec, task=task)
    check_types((Tokenizer, type(None)), tokenizer=tokenizer)
    check_integer(seed=seed)
    columns = {role: task.column(role) for role in TASK_ROLES[task.modality, task.kind]}
    arguments = _arguments(task, columns, tokenizer, () if schema is None else schema.names, seed)
    if schema is not None:
        needed = [*(["input_ids"] if "pad_id" in arguments else []), *(column for column in columns.values() if column is not None)]
        check_columns(needed, schema.names, "for_task")
        label = columns.get("label")
        if label is not None and is_text(value_type(schema.field(label).type)) and not isinstance(task.classes, tuple):
            raise SchemaError(
                f"for_task: the labels in column {label!r} are text, {schema.field(label).type}. "
                "Name the classes: TaskSpec(..., classes=[...])."
            )
    if task.modality == "multimodal":
        return collators["multimodal"](collators=[collators["text"](**arguments), collators["vision"](image=columns["image"])])
    return collators[task.kind if task.kind in COLLATORS else task.modality](**arguments)


def _arguments(task: TaskSpec, columns: Mapping[str, Any], tokenizer: Tokenizer | None, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Return the arguments of the collator for a task. For text with images, return the arguments of the collator for the text."""
    labels = {"label": columns.get("label"), "label_kind": "value" if task.kind == "regression" else "class", "classes": task.classes}
    if task.modality in {"vision", "audio"}:
        return {**columns, **labels, **({"length": task.length} if task.modality == "audio" else {})}
    if tokenizer is None:
        raise ArgumentError(
            f"A {task.kind} task of {task.modality} needs the argument tokenizer, which gives the padding id and the vocabulary size."
        )
    ids = {"pad_id": tokenizer.pad_id, "vocab_size": tokenizer.vocab_size, "length": task.length}
    type_ids, packed = "token_type_ids" in names, set(OF_PACK) <= set(names)
    match task.kind:
        case "causal":
            return {**ids, **columns, "packed": packed}
        case "masked":
            special = {"mask_id": tokenizer.mask_id, "special_ids": tokenizer.special_ids}
            return {**ids, **special, "type_ids": type_ids, "packed": packed, "seed": seed}
        case "seq2seq":
            # Without a BOS or CLS token, the decoder starts with the padding token, as in T5.
            start = next((role for role in ("bos", "cls") if getattr(tokenizer, f"{role}_token") is not None), "pad")
            return {**ids, **columns, "start_id": getattr(tokenizer, f"{start}_id"), "target_length": task.length}
    return {**ids, **labels, "type_ids": type_ids}
