"""What a built-in collator states about itself: the tasks that it is for, the columns that have a role in them, and its arguments."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from mlxfp.collators.columns import Collator
from mlxfp.support.errors import ArgumentError
from mlxfp.text.tokenizers.tokenizer import Tokenizer


@frozen(kw_only=True)
class Setting:
    """What `for_task` knows when it makes a collator: a `TaskSpec`, with the column of every role, and its own arguments."""

    modality: str
    kind: str
    roles: Mapping[str, str | None]
    classes: int | None
    length: int | None
    given_tokenizer: Tokenizer | None
    columns: tuple[str, ...]  # of the rows to collate; empty if unknown
    seed: int
    collators: Mapping[str, Callable[..., Collator]]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; raises `ArgumentError` if none was given."""
        if self.given_tokenizer is None:
            raise ArgumentError(
                f"A {self.kind} task of {self.modality} needs tokenizer=, which says how to pad and how many ids there are."
            )
        return self.given_tokenizer

    def label_arguments(self) -> dict[str, Any]:
        """Return the arguments of a collator with labels."""
        return {"label": self.roles["label"], "label_kind": "value" if self.kind == "regression" else "class", "classes": self.classes}

    def token_arguments(self) -> dict[str, Any]:
        """Return the arguments of a collator of token ids."""
        return {"pad_id": self.tokenizer.pad_id, "vocab_size": self.tokenizer.vocab_size, "length": self.length}


@frozen
class BuiltIn:
    """A built-in collator. The file of each collator ends with one, and `task_specs` lists them all."""

    name: str
    make: Callable[..., Collator]
    tasks: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)  # (modality, kind)
    roles: Mapping[str, str | None] = field(factory=dict, kw_only=True)  # of columns, each with its usual column (None: usually none)
    reads_tokens: bool = field(default=False, kw_only=True)  # rows must have `input_ids`
    arguments: Callable[[Setting], dict[str, Any]] = field(default=lambda setting: {}, kw_only=True)


def labelled(modality: str) -> tuple[tuple[str, str], ...]:
    """Return the tasks of a modality that have a label."""
    return (modality, "classification"), (modality, "regression")
