"""What a built-in collator states about itself: for which tasks it is, which columns have a role in them, and its arguments for a task."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import field, frozen

from mlxfp.collators.columns import Collator
from mlxfp.core.errors import ArgumentError
from mlxfp.text.tokenizers.tokenizer import Tokenizer


class Task(Protocol):
    """A `TaskSpec`, as collators see it."""

    @property
    def modality(self) -> str:
        """The kind of data."""

    @property
    def kind(self) -> str:
        """What to learn."""

    @property
    def classes(self) -> int | None:
        """The number of classes, if that is known."""

    @property
    def length(self) -> int | None:
        """The length of the longest row, if that is known."""

    def column(self, role: str) -> str | None:
        """Return the column that has a role, None where there is none."""


@frozen
class Setting:
    """What `for_task` was given besides the task."""

    tokenizer: Tokenizer | None
    columns: tuple[str, ...]  # of the rows to collate; none where these are not known
    seed: int
    collators: Mapping[str, Callable[..., Collator]]

    def tokens(self, task: Task) -> Tokenizer:
        """Return the tokenizer; raise `ArgumentError` if there is none."""
        if self.tokenizer is None:
            raise ArgumentError(
                f"A {task.kind} task of {task.modality} needs tokenizer=, which says how to pad and how many ids there are."
            )
        return self.tokenizer


def _no_arguments(task: Task, setting: Setting) -> dict[str, Any]:
    return {}


@frozen
class BuiltIn:
    """A built-in collator. Each collator's file ends with one, and `table` lists them all."""

    name: str
    make: Callable[..., Collator]
    tasks: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)  # (modality, kind)
    roles: Mapping[str, str | None] = field(factory=dict, kw_only=True)  # of columns, each with its usual column (None: usually none)
    reads_tokens: bool = field(default=False, kw_only=True)  # rows must have `input_ids`
    arguments: Callable[[Task, Setting], dict[str, Any]] = field(default=_no_arguments, kw_only=True)


def labelled(modality: str) -> tuple[tuple[str, str], ...]:
    """Return the tasks of a modality that have a label.

    >>> labelled("vision")
    (('vision', 'classification'), ('vision', 'regression'))
    """
    return (modality, "classification"), (modality, "regression")


def label_arguments(task: Task) -> dict[str, Any]:
    """Return the arguments of a collator with labels."""
    return {"label": task.column("label"), "label_kind": "value" if task.kind == "regression" else "class", "classes": task.classes}


def token_arguments(task: Task, setting: Setting) -> dict[str, Any]:
    """Return the arguments of a collator of token ids."""
    tokenizer = setting.tokens(task)
    return {"pad_id": tokenizer.pad_id, "vocab_size": tokenizer.vocab_size, "length": task.length}
