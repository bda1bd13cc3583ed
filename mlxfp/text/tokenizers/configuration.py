"""What the JSON of a tokenizer says: its parts, its special tokens, and how the kind of its model writes words.

Everything that differs from one kind of model to another is an entry of `KINDS`.
"""

import json as jsons
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from attrs import frozen

from mlxfp.text.tokenizers.json_checks import malformed

Part = Mapping[str, Any]  # an object of the JSON: a normalizer, a pre-tokenizer, a model, ...

MARK = "\u2581"  # how SentencePiece writes a space
_BYTE_LEVEL_SPACES = tuple("ĠĊĉčċČ")  # how byte-level vocabularies write space, line feed, tab, carriage return, \v and \f


@frozen
class Configuration:
    """The parts of a tokenizer. Sequences of normalizers, and of pre-tokenizers (`splitters`), are written out as flat lists."""

    model: Part
    normalizers: list[Part]
    splitters: list[Part]
    processor: Part
    added_tokens: list[Part]

    @cached_property
    def kind(self) -> "Kind | None":
        """Return the first kind of `KINDS` that fits."""
        return next((kind for kind in KINDS if kind.fits(self)), None)

    @property
    def part_types(self) -> set[str]:
        """The types of all normalizers and pre-tokenizers."""
        return {part["type"] for part in (*self.normalizers, *self.splitters)}

    @property
    def roles(self) -> dict[str, str]:
        """The special tokens that the model and the post-processor name: some of unk, cls and sep."""
        roles = {}
        if self.model.get("unk_token") is not None:
            roles["unk"] = self.model["unk_token"]
        elif self.model.get("unk_id") is not None:
            roles["unk"] = self.model["vocab"][self.model["unk_id"]][0]
        if self.processor.get("type") in ("BertProcessing", "RobertaProcessing"):
            roles |= {role: self.processor[role][0] for role in ("cls", "sep")}
        return roles


@frozen
class Kind:
    """A kind of tokenizer model: which configurations are of this kind, and how its vocabulary writes words.

    `continues(token, model)` says whether a token continues the word of the token before it. `divides(model)` says whether the ids of a
    whole text, its spaces written as marks, are those of its words, each with the mark in front of it.
    """

    name: str
    fits: Callable[[Configuration], bool]
    continues: Callable[[str, Part], bool]
    divides: Callable[[Part], bool] = lambda model: False


def read_configuration(json: str) -> Configuration:
    """Read the JSON of a tokenizer. Options that it leaves out are not filled in."""
    data = jsons.loads(json)
    return Configuration(
        data["model"],
        _flatten(data.get("normalizer"), "normalizers"),
        _flatten(data.get("pre_tokenizer"), "pretokenizers"),
        data.get("post_processor") or {},
        data.get("added_tokens") or [],
    )


def _flatten(part: Any, key: str) -> list[Part]:
    if part is None:
        return []
    if not isinstance(part, Mapping) or "type" not in part:  # the package takes shorter ways to write a part, which no file has
        raise malformed(f"a part of {key} is {part!r:.60}, not an object with a type")
    return [inner for one in part[key] for inner in _flatten(one, key)] if part["type"] == "Sequence" else [part]


def _has_marks(configuration: Configuration) -> bool:
    replaced = any(part["type"] == "Replace" and part.get("content") == MARK for part in configuration.normalizers)
    return replaced or "Metaspace" in configuration.part_types


def _merges_within_words(model: Part) -> bool:
    """Whether BPE merges nothing over the place in front of a mark.

    Where no token has a mark behind another character, no merge leads over that place, so its two sides do not affect each other. Nor
    are unknown characters joined over it, as the mark itself is known.
    """
    unusual = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")  # the last one looks whole texts up in the vocabulary
    ordinary = MARK in model["vocab"] and not any(model.get(option) for option in unusual)
    return ordinary and not any(re.search(f"[^{MARK}]{MARK}", token) for token in model["vocab"])


# The first one that fits counts.
KINDS = (
    Kind("WordLevel", fits=lambda found: found.model.get("type") == "WordLevel", continues=lambda token, model: False),
    Kind(
        "WordPiece",  # and BPE with a prefix
        fits=lambda found: bool(found.model.get("continuing_subword_prefix")),
        continues=lambda token, model: token.startswith(model["continuing_subword_prefix"]),
    ),
    Kind(
        "byte-level",  # BPE of GPT-2, RoBERTa, GPT-4, Llama 3
        fits=lambda found: "ByteLevel" in found.part_types and not found.model.get("end_of_word_suffix"),
        continues=lambda token, model: not token.startswith(_BYTE_LEVEL_SPACES),
    ),
    Kind(
        "BPE of SentencePiece",  # Llama 2, Mistral, Gemma
        fits=lambda found: found.model.get("type") == "BPE" and _has_marks(found),
        continues=lambda token, model: not token.startswith(MARK),
        divides=_merges_within_words,
    ),
    Kind(
        "Unigram",  # T5, XLM-R, ALBERT, DeBERTa 3
        fits=_has_marks,
        continues=lambda token, model: not token.startswith(MARK),
    ),
)
