"""Descriptions of the built-in collators: their tasks, column roles and arguments."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from mlxfp.collators.columns import Collator
from mlxfp.collators.labels import Classes
from mlxfp.support.errors import ArgumentError
from mlxfp.text.tokenizers.tokenizer import Tokenizer


@frozen(kw_only=True)
class Setting:
    """Argument that `for_task` passes to the function that creates a collator.

    Contains the description of the task, the column of every role, the tokenizer and the data columns.
    """

    modality: str
    kind: str
    roles: Mapping[str, str | None]
    classes: Classes
    length: int | None
    given_tokenizer: Tokenizer | None
    columns: tuple[str, ...]  # column names of the dataset; empty if unknown
    seed: int
    collators: Mapping[str, Callable[..., Collator]]

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the task. Raises `ArgumentError` if no tokenizer was given."""
        if self.given_tokenizer is None:
            raise ArgumentError(
                f"A {self.kind} task of {self.modality} needs the argument tokenizer, which gives the padding id and the vocabulary size."
            )
        return self.given_tokenizer

    def label_arguments(self) -> dict[str, Any]:
        """Return keyword arguments for a collator: the label column, the kind of label and the classes."""
        return {"label": self.roles["label"], "label_kind": "value" if self.kind == "regression" else "class", "classes": self.classes}

    def token_arguments(self) -> dict[str, Any]:
        """Return the arguments for a collator that reads token ids."""
        return {"pad_id": self.tokenizer.pad_id, "vocab_size": self.tokenizer.vocab_size, "length": self.length}


@frozen
class BuiltIn:
    """Description of a built-in collator: its name, its factory function, and the tasks that use the collator."""

    name: str
    make: Callable[..., Collator]
    tasks: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)  # (modality, kind)
    roles: Mapping[str, str | None] = field(factory=dict, kw_only=True)  # maps each role, such as "label", to its default column or None
    reads_tokens: bool = field(default=False, kw_only=True)  # True: rows need `input_ids`
    arguments: Callable[[Setting], dict[str, Any]] = field(default=lambda setting: {}, kw_only=True)


def labelled(modality: str) -> tuple[tuple[str, str], ...]:
    """Return the tasks with a label for a modality such as text: classification and regression."""
    return (modality, "classification"), (modality, "regression")
