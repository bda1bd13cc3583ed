"""Components of a tokenizer JSON, special tokens, and the rules by which each kind of model marks the start of a word.

All differences between kinds of models are entries of `KINDS`.
"""

import json as jsons
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from attrs import frozen

from mlxfp.text.tokenizers.json_checks import malformed

Part = Mapping[str, Any]  # JSON object of a component, for example of a normalizer, a pre-tokenizer or a model

MARK = "\u2581"  # character that SentencePiece writes for a space
_BYTE_LEVEL_SPACES = tuple("ĠĊĉčċČ")  # characters that byte-level vocabularies use for space, line feed, tab, carriage return, \v and \f


@frozen
class Configuration:
    """Components of a tokenizer. Normalizers and pre-tokenizers (`splitters`) inside sequences are listed one by one."""

    model: Part
    normalizers: list[Part]
    splitters: list[Part]
    processor: Part
    added_tokens: list[Part]

    @cached_property
    def kind(self) -> "Kind | None":
        """Type of the tokenizer model, such as WordPiece (see `KINDS`). None if the type is unknown."""
        return next((kind for kind in KINDS if kind.fits(self)), None)

    @property
    def part_types(self) -> set[str]:
        """Types of all normalizers and pre-tokenizers of the tokenizer."""
        return {part["type"] for part in (*self.normalizers, *self.splitters)}

    @property
    def roles(self) -> dict[str, str]:
        """Special tokens of the model and the post-processor. The keys are roles: unk, cls and sep, if present."""
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
    """Type of tokenizer model, such as WordPiece, with functions that depend on the type.

    - `fits(configuration)`: True if the tokenizer is of this type.
    - `continues(token, model)`: True if a token belongs to the same word as the preceding token.
    - `divides(model)`: True if a text can be split before each space without changing the ids. The model writes spaces as marks (U+2581).
    """

    name: str
    fits: Callable[[Configuration], bool]
    continues: Callable[[str, Part], bool]
    divides: Callable[[Part], bool] = lambda model: False


def read_configuration(json: str) -> Configuration:
    """Parse the JSON of a tokenizer. Options that are absent from the JSON stay absent."""
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
    if not isinstance(part, Mapping) or "type" not in part:  # old files without "type" are not supported
        raise malformed(f'each entry of {key} must be a JSON object with the key "type", got {part!r:.60}')
    return [inner for item in part[key] for inner in _flatten(item, key)] if part["type"] == "Sequence" else [part]


def _has_marks(configuration: Configuration) -> bool:
    replaced = any(part["type"] == "Replace" and part.get("content") == MARK for part in configuration.normalizers)
    return replaced or "Metaspace" in configuration.part_types


def _merges_within_words(model: Part) -> bool:
    """Return True if BPE never merges a mark (U+2581, written for a space) with the text before the mark.

    No token may contain a mark after another character. The mark itself must be in the vocabulary. Otherwise, the mark could be merged with
    other unknown characters.
    """
    # These options change how BPE merges. For example, `ignore_merges` looks up whole texts in the vocabulary.
    unusual = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    ordinary = MARK in model["vocab"] and not any(model.get(option) for option in unusual)
    return ordinary and not any(re.search(f"[^{MARK}]{MARK}", token) for token in model["vocab"])


# Kinds in the order in which they are tried. The first kind that fits is used.
KINDS = (
    Kind("WordLevel", fits=lambda configuration: configuration.model.get("type") == "WordLevel", continues=lambda token, model: False),
    Kind(
        "WordPiece",  # also the kind of BPE tokenizers that mark the middle of a word with a prefix such as ##
        fits=lambda configuration: bool(configuration.model.get("continuing_subword_prefix")),
        continues=lambda token, model: token.startswith(model["continuing_subword_prefix"]),
    ),
    Kind(
        "byte-level",  # kind of the tokenizers of GPT-2, RoBERTa, GPT-4 and Llama 3
        fits=lambda configuration: "ByteLevel" in configuration.part_types and not configuration.model.get("end_of_word_suffix"),
        continues=lambda token, model: not token.startswith(_BYTE_LEVEL_SPACES),
    ),
    Kind(
        "BPE of SentencePiece",  # kind of the tokenizers of Llama 2, Mistral and Gemma
        fits=lambda configuration: configuration.model.get("type") == "BPE" and _has_marks(configuration),
        continues=lambda token, model: not token.startswith(MARK),
        divides=_merges_within_words,
    ),
    Kind(
        "Unigram",  # kind of the tokenizers of T5, XLM-R, ALBERT and DeBERTa 3
        fits=_has_marks,
        continues=lambda token, model: not token.startswith(MARK),
    ),
)
