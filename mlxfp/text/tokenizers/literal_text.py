"""Tokenizers that encode special tokens in a text as ordinary text.

All special tokens are renamed, both in the list of added tokens and in the model. The new names contain a random part, drawn at import,
and do not occur in any text. Ids do not change.

The option `encode_special_tokens` of the `tokenizers` package is not enough. With this option, a model such as Unigram still finds special
tokens in a text, because its vocabulary contains the tokens.
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
    """Return a random new name for each special token of a tokenizer.

    Special tokens are added tokens that are marked as special, or that are listed in `roles` (as padding token, for example). Tokens for
    single bytes, such as `<0x0A>`, are left out: models with byte_fallback look up these tokens by name to encode unknown characters.
    """
    data = jsons.loads(json)
    added = [token for token in data.get("added_tokens") or [] if not _is_byte(token, data["model"])]
    special = sorted(token["content"] for token in added if token["special"] or token["content"] in roles)
    return {token: unspellable(str(index)) for index, token in enumerate(special)}


def unspellable(name: str) -> str:
    """Return a name that occurs in no text. The name differs in every process, so it must not be shown, compared or saved."""
    return f"<{_DRAWN}-{name}>"


def rename_tokens(json: str, names: Names) -> str:
    """Replace token names in the JSON of a tokenizer. The dict `names` maps old names to new names.

    Tokens for single bytes, such as `<0x0A>`, are removed from the list of added tokens, but stay in the vocabulary of the model.
    """
    data = jsons.loads(json)
    kept = [token for token in data.get("added_tokens") or [] if not _is_byte(token, data["model"])]
    added = [{**token, "content": names.get(token["content"], token["content"])} for token in kept]
    return jsons.dumps({**data, "added_tokens": added, "model": _rename(data["model"], names)}, ensure_ascii=False)


def _is_byte(token: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    return bool(model.get("byte_fallback")) and _BYTE.fullmatch(token["content"]) is not None


def _rename(model: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Rename tokens in the vocabulary of a model. Remove BPE merges that use or create a renamed token."""
    out, vocab = dict(model), model["vocab"]
    if isinstance(vocab, Mapping):
        out["vocab"] = {names.get(token, token): number for token, number in vocab.items()}
    else:
        out["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
    if model.get("unk_token") is not None:
        out["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        out["merges"] = [merge for merge in model["merges"] if not _involves(merge, prefix, names)]
    return out


def _involves(merge: Any, prefix: str, names: Names) -> bool:
    """Return True if a BPE merge uses or creates a token in `names`.

    A merge is a pair of tokens. In older files, a merge is a string of two tokens with a space in between.
    """
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first in names or second in names or first + second.removeprefix(prefix) in names
