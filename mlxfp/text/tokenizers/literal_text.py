"""Tokenizers for content: text that spells a special token is encoded as ordinary text.

The `tokenizers` package has a switch for this, `encode_special_tokens`, which leaves special tokens out of the search for added tokens. It
is not enough: models that have them in their vocabulary too, as Unigram models do, find them there. So the special tokens get other names,
in the list of added tokens and in the model. No text has these names, as they are drawn when Python starts; no id changes.
"""

import json as jsons
import re
from collections.abc import Collection, Mapping
from secrets import token_hex
from typing import Any

_DRAWN = token_hex(16)
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")

Names = Mapping[str, str]


def find_names(json: str, roles: Collection[str | None]) -> dict[str, str]:
    """Return the special tokens in the JSON of a tokenizer, with the names that they get instead.

    They are those that it calls special, and added tokens that have one of the roles. The tokens of single bytes are not: a model with
    byte_fallback looks for them by their names, to write a character that it does not know.
    """
    data = jsons.loads(json)
    added = [token for token in data.get("added_tokens") or [] if not _is_byte(token, data["model"])]
    special = sorted(token["content"] for token in added if token["special"] or token["content"] in roles)
    return {token: unspellable(str(place)) for place, token in enumerate(special)}


def unspellable(name: str) -> str:
    """Return a text that no text holds. It differs from one process to the next, so it is never shown, compared or saved."""
    return f"<{_DRAWN}-{name}>"


def rename_tokens(json: str, names: Names) -> str:
    """Give tokens in the JSON of a tokenizer other names, and leave single bytes to the model, so that no text spells them."""
    data = jsons.loads(json)
    kept = [token for token in data.get("added_tokens") or [] if not _is_byte(token, data["model"])]
    added = [{**token, "content": names.get(token["content"], token["content"])} for token in kept]
    return jsons.dumps({**data, "added_tokens": added, "model": _rename(data["model"], names)}, ensure_ascii=False)


def _is_byte(token: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    return bool(model.get("byte_fallback")) and _BYTE.fullmatch(token["content"]) is not None


def _rename(model: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Give tokens of a model other names, and leave out the merges that would make them of ordinary text."""
    out, vocab = dict(model), model["vocab"]
    if isinstance(vocab, Mapping):
        out["vocab"] = {names.get(token, token): number for token, number in vocab.items()}
    else:
        out["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
    if model.get("unk_token") is not None:
        out["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        out["merges"] = [merge for merge in model["merges"] if not _makes(merge, prefix, names)]
    return out


def _makes(merge: Any, prefix: str, names: Names) -> bool:
    """Whether one of the tokens is a part of a merge, or its result. Older files write a merge as one text."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first in names or second in names or first + second.removeprefix(prefix) in names
