"""Components and special tokens of a tokenizer JSON."""

import json as jsons
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from mlxfp.text.tokenizers.json_checks import malformed

Part = Mapping[str, Any]  # JSON object of a component, for example of a normalizer, a pre-tokenizer or a model

MARK = "\u2581"  # character that SentencePiece writes for a space


@frozen
class Configuration:
    """Components of a tokenizer. A sequence of normalizers or of pre-tokenizers (`splitters`) is stored as a flat list."""

    model: Part
    normalizers: list[Part]
    splitters: list[Part]
    processor: Part
    added_tokens: list[Part]

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
