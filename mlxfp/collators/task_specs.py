"""What a task is: which kind of data, what to learn of it, and which columns hold what."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from mlxfp.core.checks import check_choice, check_positive, check_text, check_types
from mlxfp.core.errors import ArgumentError, unknown_name
from mlxfp.settings.registries import Registry

Modality = Literal["text", "vision", "audio", "multimodal"]
Kind = Literal["classification", "regression", "causal", "masked", "seq2seq"]

_LABELLED = ("label",)
ROLES: dict[tuple[str, str], tuple[str, ...]] = {  # of every task that there is: the roles that columns have in it
    ("text", "classification"): _LABELLED,
    ("text", "regression"): _LABELLED,
    ("text", "causal"): ("prompt_mask",),
    ("text", "masked"): (),
    ("text", "seq2seq"): ("target",),
    **{("vision", kind): ("image", *_LABELLED) for kind in ("classification", "regression")},
    **{("audio", kind): ("waveform", *_LABELLED) for kind in ("classification", "regression")},
    **{("multimodal", kind): ("image", *_LABELLED) for kind in ("classification", "regression")},
}
_USUAL = {"label": "label", "image": "image", "waveform": "waveform", "target": "labels", "prompt_mask": None}


def _pairs(columns: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(columns, tuple):  # from attrs.evolve, or none
        return columns
    check_types(Mapping, columns=columns)
    return tuple(sorted(columns.items()))


@frozen
class TaskSpec:
    """What a task is. `collators.for_task` and `train_valid_test` take it.

    `modality` is "text", "vision", "audio" or "multimodal" (a text and an image); `kind` is "classification" or "regression", or of text
    also "causal", "masked" or "seq2seq". `columns` names the columns that have a role in the task, where they are not named as usual:
    `label`, `image`, `waveform`, `target` (usually named labels) and `prompt_mask` (usually there is none). `classes` counts the classes.
    `length` is that of the longest row of tokens, samples or frames; images have none.

    >>> TaskSpec("text", "classification", columns={"label": "Survived"}, classes=2).column("label")
    'Survived'
    >>> TaskSpec("txt", "regression")
    Traceback (most recent call last):
    mlxfp.core.errors.UnknownNameError: No modality is named 'txt'. Did you mean 'text'? Known: audio, multimodal, text, vision.

    See also: `TASKS`, which has some by name.
    """

    modality: Modality
    kind: Kind
    columns: tuple[tuple[str, str], ...] = field(default=(), converter=_pairs, kw_only=True)
    classes: int | None = field(default=None, kw_only=True)
    length: int | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check that there is such a task, and that it has such columns."""
        check_choice(sorted({modality for modality, _ in ROLES}), modality=self.modality)
        check_choice(sorted({kind for _, kind in ROLES}), kind=self.kind)
        if (self.modality, self.kind) not in ROLES:
            known = ", ".join(kind for modality, kind in ROLES if modality == self.modality)
            raise ArgumentError(f"There is no {self.kind} task of {self.modality}, got kind={self.kind!r}. Its kinds: {known}.")
        for role, column in self.columns:
            self._check_role(role)
            check_text(**{role: column})
        if self.classes is not None:
            check_positive(classes=self.classes)
            if self.kind != "classification":
                raise ArgumentError(f"Only a classification has classes, got classes={self.classes} for kind={self.kind!r}.")
        if self.length is not None:
            check_positive(length=self.length)
            if self.modality == "vision":
                raise ArgumentError(f"Images have no length, got length={self.length}. vision(size=(height, width)) brings them to a size.")

    def column(self, role: str) -> str | None:
        """Return the column that has a role, None where there is none. Raises `UnknownNameError` for a role that the task does not know."""
        self._check_role(role)
        return dict(self.columns).get(role, _USUAL[role])

    def _check_role(self, role: str) -> None:
        known = ROLES[self.modality, self.kind]
        if role not in known:
            raise unknown_name(f"role of a column in a {self.kind} task of {self.modality}", role, known)


TASKS: Registry[TaskSpec] = Registry(
    "task",
    {
        "tiny_language_model": TaskSpec("text", "causal", length=128),
        "tiny_text": TaskSpec("text", "classification", classes=2, length=128),
        "tiny_vision": TaskSpec("vision", "classification", classes=10),
    },
)
