"""Reading tokenizers: `tokenizer.json`, WordPiece vocabularies, byte-level BPE vocabularies with merges."""

import json as jsons
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import tokenizers as hf
from attrs import evolve
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from mlxfp.core.errors import DataError, MissingFileError, MlxfpError
from mlxfp.text.tokenizers import ROLES, Tokenizer

Roles = dict[str, str | None]

# Which token has a role where no file says so. For the unknown token, the model's own setting goes first.
_CUSTOMARY = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
}
_SPECIAL = {token for tokens in _CUSTOMARY.values() for token in tokens}

# Slow tokenizers of transformers that are GPT-2's byte-level BPE, or RoBERTa's: the same with <s> ... </s> around a text.
_BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "CodeGenTokenizer")


def load_tokenizer(path: str | PathLike[str]) -> Tokenizer:
    """Read a tokenizer from a file or a folder.

    A folder may hold, in this order of preference, `tokenizer.json`; `vocab.txt` (BERT's WordPiece); or `vocab.json` with `merges.txt`,
    also named `encoder.json` and `vocab.bpe` (byte-level BPE of GPT-2 and RoBERTa). The roles of special tokens come from its
    `tokenizer_config.json` and `special_tokens_map.json`. A file is a `tokenizer.json` or a `vocab.txt`. Roles that no file names are
    given to the customary tokens (`[PAD]`, `<pad>`, `<|endoftext|>`, ...) where the vocabulary has them.

    Whether a `vocab.txt` is lower-cased is said by `do_lower_case` of `tokenizer_config.json`; without it, by whether the vocabulary has
    capital letters.

    Raises `MissingFileError` where there is nothing, `DataError` for what cannot be read; both name the path.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "vocab.txt").write_text("[PAD] [UNK] [CLS] [SEP] [MASK] a cat ##s".replace(" ", chr(10)))
    ...     tokenizer = load_tokenizer(folder)
    >>> tokenizer.tokens(tokenizer.encode("A cats"))
    ['[CLS]', 'a', 'cat', '##s', '[SEP]']
    """
    place = Path(path)
    if place.is_dir():
        return _from_folder(place)
    if not place.is_file():
        raise MissingFileError(
            f"No tokenizer is at {str(place)!r}. Give a tokenizer.json file or a folder that holds one; nothing is downloaded."
        )
    if place.suffix == ".txt":
        return _value(place, _wordpiece(place, {}), {})
    return _value(place, _read(place), {})


def _from_folder(folder: Path) -> Tokenizer:
    config = {**_read_map(folder / "special_tokens_map.json"), **_read_map(folder / "tokenizer_config.json")}
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if whole.is_file():
        return _value(whole, _read(whole), config)
    if words.is_file():
        return _value(words, _wordpiece(words, config), config)
    pairs = ((folder / vocab, folder / merges) for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")))
    vocab, merges = next((pair for pair in pairs if all(file.is_file() for file in pair)), (None, None))
    if vocab is not None and merges is not None:
        return _value(vocab, _byte_level(vocab, merges, config), config)
    pieces = next((file.name for file in sorted(folder.iterdir()) if file.suffix == ".model"), None)
    if pieces is not None:
        raise DataError(
            f"The folder {str(folder)!r} holds a SentencePiece model ({pieces}) and no tokenizer.json. Write one with transformers: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
        )
    names = ", ".join(sorted(file.name for file in folder.iterdir())) or "nothing"
    raise MissingFileError(
        f"The folder {str(folder)!r} holds no tokenizer: {names:.300}. It needs tokenizer.json, vocab.txt, or vocab.json and merges.txt."
    )


def _value(path: Path, json: str, config: Mapping[str, Any]) -> Tokenizer:
    try:
        tokenizer = Tokenizer(json)
        roles: dict[str, Any] = _customary_roles(jsons.loads(json)) | _named_roles(config)
        return evolve(tokenizer, **{f"{role}_token": token for role, token in roles.items()})
    except MlxfpError as error:
        raise DataError(f"{path}: {error}") from error


def _named_roles(config: Mapping[str, Any]) -> Roles:
    """Read roles as transformers writes them: a token, an object with its content, or null for none."""
    named = {role: config[f"{role}_token"] for role in ROLES if f"{role}_token" in config}
    return {role: token.get("content") if isinstance(token, Mapping) else token for role, token in named.items()}


def _customary_roles(data: Mapping[str, Any]) -> Roles:
    model, processor = data["model"], data.get("post_processor") or {}
    vocab = model.get("vocab") or ()
    known = {piece[0] for piece in vocab} if model.get("type") == "Unigram" else set(vocab)
    known |= {token["content"] for token in data.get("added_tokens") or ()}
    roles: Roles = {role: next((token for token in tokens if token in known), None) for role, tokens in _CUSTOMARY.items()}
    if model.get("unk_token") is not None:
        roles["unk"] = model["unk_token"]
    elif model.get("unk_id") is not None:
        roles["unk"] = vocab[model["unk_id"]][0]
    if processor.get("type") in ("BertProcessing", "RobertaProcessing"):
        roles |= {"cls": processor["cls"][0], "sep": processor["sep"][0]}
    return roles


def _wordpiece(path: Path, config: Mapping[str, Any]) -> str:
    """Build BERT's tokenizer from its list of tokens, one a line."""
    tokens = [line.rstrip("\r") for line in _read(path).split("\n")]
    vocab = {token: number for number, token in enumerate(tokens) if token or number < len(tokens) - 1}
    if "[UNK]" not in vocab:
        raise DataError(f"{path} is not a WordPiece vocabulary: it has no line [UNK]. One token a line is expected.")
    lowercase = config.get("do_lower_case", not any(token != token.lower() for token in tokens if not token.startswith("[")))
    built = hf.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))  # noqa: S106  # a token of text, not a secret
    built.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=config.get("strip_accents"), handle_chinese_chars=config.get("tokenize_chinese_chars", True)
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    if "[CLS]" in vocab and "[SEP]" in vocab:
        built.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    return _with_specials(built, vocab)


def _byte_level(vocab_path: Path, merges_path: Path, config: Mapping[str, Any]) -> str:
    """Build the tokenizer of GPT-2, or of RoBERTa if the vocabulary has its marks, from a vocabulary and the merges by rank."""
    vocab = _read_map(vocab_path)
    lines = _read(merges_path).split("\n")
    merges: list[Any] = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    kind = str(config.get("tokenizer_class") or _BYTE_LEVEL[0]).removesuffix("Fast")
    if kind not in _BYTE_LEVEL or config.get("add_bos_token") or any(token.endswith("</w>") for token in vocab):
        raise DataError(
            f"{vocab_path} and {merges_path.name} are not GPT-2's or RoBERTa's (class {kind}), and do not say how text is split. "
            "Write a tokenizer.json with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
        )
    try:
        built = hf.Tokenizer(models.BPE(vocab, merges))
    except Exception as error:  # the package raises plain Exception
        raise DataError(f"{vocab_path} and {merges_path.name} do not fit each other: {error}.") from error
    spaced = bool(config.get("add_prefix_space"))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    built.decoder = decoders.ByteLevel()
    built.post_processor = processors.ByteLevel(trim_offsets=False)
    if "<s>" in vocab and "</s>" in vocab:
        built.post_processor = processors.RobertaProcessing(("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]), add_prefix_space=spaced)
    return _with_specials(built, vocab)


def _with_specials(built: Any, vocab: Mapping[str, int]) -> str:
    special = sorted((token for token in _SPECIAL if token in vocab), key=vocab.__getitem__)
    # RoBERTa's mask takes the space in front of it: a word that it stands for has that space in its own token.
    built.add_special_tokens([hf.AddedToken(token, special=True, lstrip=token == "<mask>", normalized=False) for token in special])  # noqa: S105
    json: str = built.to_str()
    return json


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # not read_text, which would turn a token that is a carriage return into a line end
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Give a tokenizer.json, a vocab.txt, or the folder that holds them.") from error


def _read_map(path: Path) -> dict[str, Any]:
    """Read a JSON object; an absent file is an empty one."""
    if not path.is_file():
        return {}
    try:
        found = jsons.loads(_read(path))
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} should hold a JSON object, got {type(found).__name__}.")
    return found
