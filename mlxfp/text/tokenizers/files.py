"""Reading tokenizers: `tokenizer.json`, WordPiece vocabularies, byte-level BPE vocabularies with merges; and chat templates."""

import json as jsons
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import tokenizers as hf
from attrs import evolve
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from mlxfp.support.checks import check_choice, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentTypeError, DataError, MissingFileError, MlxfpError
from mlxfp.support.optional import optional
from mlxfp.text.tokenizers.chat_templates import CHAT_SETTINGS, ChatTemplate, special_tokens
from mlxfp.text.tokenizers.configuration import read_configuration
from mlxfp.text.tokenizers.json_checks import check_ids
from mlxfp.text.tokenizers.tokenizer import ENGINE_NAMES, ROLES, EngineName, Tokenizer, how_to_read
from mlxfp.text.tokenizers.tokenizer import engine as own_tokenizer

Roles = dict[str, str | None]

# The token of each role where no file names one. For the unknown token, the model's own setting comes first.
_CUSTOMARY = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
}
_WRITE = "Write a tokenizer.json with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
_SPECIAL = {token for tokens in _CUSTOMARY.values() for token in tokens}

_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "add_bos_token")

# Slow tokenizers of transformers with GPT-2's byte-level BPE, or RoBERTa's, which puts <s> ... </s> around a text.
_BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "CodeGenTokenizer")


@explain_call
def load_tokenizer(path: str | PathLike[str], *, engine: EngineName = "auto") -> Tokenizer:
    """Read a tokenizer from a file or a folder.

    A folder may hold, in this order of preference, `tokenizer.json`; `vocab.txt` (BERT's WordPiece); or `vocab.json` with `merges.txt`,
    also named `encoder.json` and `vocab.bpe` (byte-level BPE of GPT-2 and RoBERTa). The roles of special tokens come from its
    `tokenizer_config.json` and `special_tokens_map.json`; a chat template is read too, see `load_chat_template`. A file is a
    `tokenizer.json` or a `vocab.txt`. Roles that no file names are given to the customary tokens (`[PAD]`, `<pad>`, `<|endoftext|>`, ...)
    where the vocabulary has them.

    `tokenizers` says what the ids of a text are. Engines are other packages that give the same ids faster (`pip install "mlxfp[fast]"`):
    gigatoken, for byte-level and SentencePiece BPE, and tokie, for WordPiece. With `engine="auto"`, `tokenize` uses the one that is proved
    for this tokenizer, for long columns; with the name of an engine, only this one, from the first column on; `explain` says which one.
    The ids are the same either way. An engine has to pass a probe with the vocabulary, and gets only texts of characters that a fuzzing
    campaign has cleared for this kind of tokenizer; `tokenizers` encodes all others.

    Padding, truncation and dropout that a `tokenizer.json` sets are left out: they are arguments of stages, as `tokenize(max_length=...)`.

    Texts for a `vocab.txt` are lower-cased if `do_lower_case` of `tokenizer_config.json` says so; without it, if the vocabulary has no
    capital letters.

    Raises `MissingFileError` where no tokenizer is found, `DataError` for files that cannot be read; both name the path;
    `MissingExtraError` for an engine that is not installed. A regular
    expression of a `tokenizer.json` ends with an error after ten million steps at one place of a text; there is no limit for a whole text,
    so a file that was made to do harm can take hours over a long one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "vocab.txt").write_text("[PAD] [UNK] [CLS] [SEP] [MASK] a cat ##s".replace(" ", chr(10)))
    ...     tokenizer = load_tokenizer(folder)
    >>> tokenizer.tokens(tokenizer.encode("A cats"))
    ['[CLS]', 'a', 'cat', '##s', '[SEP]']
    """
    if not isinstance(path, str | PathLike):
        raise ArgumentTypeError(f"path must be str or PathLike, got {type(path).__name__}: {path!r:.60}. {how_to_read(path)}")
    check_choice(ENGINE_NAMES, engine=engine)
    if engine not in ("auto", "tokenizers"):
        optional(engine, extra="fast", needed_by=f'load_tokenizer(engine="{engine}")')
    return evolve(_load(Path(path)), engine=engine)


@explain_call
def load_chat_template(folder: str | PathLike[str], *, name: str = "default") -> ChatTemplate:
    """Read the chat template of a model's folder, with its special tokens as variables. Nothing is downloaded.

    It is in `chat_template.jinja`, or under `chat_template` in `tokenizer_config.json`, where it may have a `name`. Templates are programs;
    see `ChatTemplate`. Raises `MissingFileError` where the folder has no template, `DataError` for one that is malformed, and
    `MissingExtraError` without Jinja (extra `chat`).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    ...     _ = Path(folder, "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    ...     load_chat_template(folder).render([{"role": "user", "content": "Hello"}])
    'Hello</s>'
    """
    check_types((str, PathLike), folder=folder)
    check_text(name=name)
    place = Path(folder)
    found = _find_templates(place)
    if name not in found:
        known = f"It has {', '.join(map(repr, sorted(found)))}: give one as name=" if found else "Models without one are not for chats"
        raise MissingFileError(f"The folder {str(place)!r} has no chat template named {name!r}. {known}.")
    try:
        found[name].check()
        return found[name]
    except DataError as error:
        error.add_note(f"while reading the chat template {name!r} of {str(place)!r}")
        raise


def _find_templates(folder: Path) -> dict[str, ChatTemplate]:
    """Return the templates by their name. Files of their own come first, as in transformers."""
    config = _read_configs(folder)
    listed = config.get("chat_template") or {}
    if isinstance(listed, list) and all(isinstance(each, dict) for each in listed):
        listed = {each.get("name"): each.get("template") for each in listed}
    found = {"default": listed} if isinstance(listed, str) else listed
    if not isinstance(found, dict) or not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise DataError(
            f"chat_template of tokenizer_config.json in {str(folder)!r} must be text, or a list of names and texts: {listed!r:.80}."
        )
    files = {"default": folder / "chat_template.jinja"} | {path.stem: path for path in folder.glob("additional_chat_templates/*.jinja")}
    texts = found | {name: _read(path) for name, path in files.items() if path.is_file()}
    settings = {"variables": special_tokens(config), "today": None} | (config.get(CHAT_SETTINGS) or {})
    return {name: ChatTemplate(text, variables=settings["variables"], today=settings["today"]) for name, text in texts.items()}


def _load(place: Path) -> Tokenizer:
    if place.is_dir():
        return evolve(_from_folder(place), chat_template=_find_templates(place).get("default"))
    if not place.is_file():
        raise MissingFileError(
            f"No tokenizer is at {str(place)!r}. Give a tokenizer.json file or a folder that holds one; nothing is downloaded."
        )
    return _value(place, _wordpiece(place, {}) if place.suffix == ".txt" else _read(place), {})


def _from_folder(folder: Path) -> Tokenizer:
    config = _read_configs(folder)
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if whole.is_file():
        return _value(whole, _read(whole), config)
    if words.is_file():
        return _complete(folder, _value(words, _wordpiece(words, config), config), config)
    pairs = ((folder / vocab, folder / merges) for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")))
    vocab, merges = next((pair for pair in pairs if all(file.is_file() for file in pair)), (None, None))
    if vocab is not None and merges is not None:
        return _complete(folder, _value(vocab, _byte_level(vocab, merges, config), config), config)
    pieces = next((file.name for file in sorted(folder.iterdir()) if file.suffix == ".model"), None)
    if pieces is not None:
        raise DataError(f"The folder {str(folder)!r} holds a SentencePiece model ({pieces}) and no tokenizer.json. {_WRITE}")
    names = ", ".join(sorted(file.name for file in folder.iterdir())) or "nothing"
    raise MissingFileError(
        f"The folder {str(folder)!r} holds no tokenizer: {names:.300}. It needs tokenizer.json, vocab.txt, or vocab.json and merges.txt."
    )


def _value(path: Path, json: str, config: Mapping[str, Any]) -> Tokenizer:
    try:
        tokenizer = Tokenizer(json)
        number_of = own_tokenizer(tokenizer.json).token_to_id
        roles: dict[str, Any] = _customary_roles(lambda token: number_of(token) is not None)
        roles |= read_configuration(tokenizer.json).roles | _configured_roles(config)
        return evolve(tokenizer, **{f"{role}_token": token for role, token in roles.items()})
    except MlxfpError as error:
        raise DataError(f"{path}: {error}") from error


def _complete(folder: Path, tokenizer: Tokenizer, config: Mapping[str, Any]) -> Tokenizer:
    """Raise `DataError` if other files of the folder add tokens that the tokenizer was built without."""
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, Mapping) or not all(isinstance(token, Mapping) for token in listed.values()):
        raise DataError(f"added_tokens_decoder of tokenizer_config.json in {str(folder)!r} must hold objects, got {listed!r:.80}. {_WRITE}")
    added = [*_read_map(folder / "added_tokens.json"), *(str(token.get("content")) for token in listed.values())]
    missing = [token for token in added if own_tokenizer(tokenizer.json).token_to_id(token) is None]
    if missing:
        raise DataError(f"The folder {str(folder)!r} adds tokens to its vocabulary, {missing[0]!r} the first of them. {_WRITE}")
    return tokenizer


def _customary_roles(known: Callable[[str], bool]) -> Roles:
    return {role: next((token for token in tokens if known(token)), None) for role, tokens in _CUSTOMARY.items()}


def _configured_roles(config: Mapping[str, Any]) -> Roles:
    """Return the tokens that the files next to a tokenizer name."""
    return {role: config[f"{role}_token"] for role in ROLES if f"{role}_token" in config}


def _wordpiece(path: Path, config: Mapping[str, Any]) -> str:
    """Build BERT's tokenizer from its list of tokens, one a line."""
    tokens = _read_lines(path)
    vocab = {token: number for number, token in enumerate(tokens) if token or number < len(tokens) - 1}
    roles = _customary_roles(vocab.__contains__) | _configured_roles(config)
    unknown, first, last = roles["unk"], roles["cls"], roles["sep"]
    if unknown is None or unknown not in vocab:
        raise DataError(f"{path} is not a WordPiece vocabulary: it has no line {unknown or '[UNK]'}. One token a line is expected.")
    built = hf.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    built.normalizer = normalizers.BertNormalizer(
        lowercase=config.get("do_lower_case", not any(token != token.lower() for token in tokens if not token.startswith("["))),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    if first in vocab and last in vocab:
        # MPNet, too, puts two separators between texts.
        kind = processors.RobertaProcessing if first == "<s>" else processors.BertProcessing
        built.post_processor = kind((last, vocab[last]), (first, vocab[first]))
    return _with_specials(built, vocab, config)


def _byte_level(vocab_path: Path, merges_path: Path, config: Mapping[str, Any]) -> str:
    """Build the tokenizer of GPT-2, or of RoBERTa if the vocabulary has its marks, from a vocabulary and the merges by rank."""
    vocab = _read_map(vocab_path)
    lines = _read_lines(merges_path)
    merges: list[Any] = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    kind = str(config.get("tokenizer_class") or _BYTE_LEVEL[0]).removesuffix("Fast")
    if kind not in _BYTE_LEVEL or config.get("add_bos_token") or any(token.endswith("</w>") for token in vocab):
        raise DataError(
            f"{vocab_path} and {merges_path.name} are not GPT-2's or RoBERTa's (class {kind}), and do not say how text is split. {_WRITE}"
        )
    try:
        check_ids(vocab.values())
        built = hf.Tokenizer(models.BPE(vocab, merges))
    except Exception as error:  # the package raises plain Exception
        raise DataError(f"{vocab_path} and {merges_path.name} do not fit each other: {error}.") from error
    spaced = bool(config.get("add_prefix_space"))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    built.decoder = decoders.ByteLevel()
    built.post_processor = processors.ByteLevel(trim_offsets=False)
    if "<s>" in vocab and "</s>" in vocab:
        built.post_processor = processors.RobertaProcessing(("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]), add_prefix_space=spaced)
    return _with_specials(built, vocab, config)


def _with_specials(built: Any, vocab: Mapping[str, int], config: Mapping[str, Any]) -> str:
    named: set[Any] = {*_SPECIAL, *(config.get(f"{role}_token") for role in ROLES)}
    special = sorted((token for token in named if token in vocab), key=vocab.__getitem__)
    # RoBERTa's mask takes the space in front of it, as the token of the masked word includes that space.
    built.add_special_tokens([hf.AddedToken(token, special=True, lstrip=token == "<mask>", normalized=False) for token in special])  # noqa: S105
    json: str = built.to_str()
    return json


def _read_lines(path: Path) -> list[str]:
    return [line.rstrip("\r") for line in _read(path).split("\n")]


def _read_configs(folder: Path) -> dict[str, Any]:
    return {**_read_config(folder / "special_tokens_map.json"), **_read_config(folder / "tokenizer_config.json")}


def _read_config(path: Path) -> dict[str, Any]:
    """Read a configuration file next to a tokenizer. A role is a token, an object with its content, or null for no token."""
    config = {name: value for name, value in _read_map(path).items() if value is not None or name not in _SWITCHES}
    names = [f"{role}_token" for role in ROLES if f"{role}_token" in config]
    roles = {name: config[name].get("content") if isinstance(config[name], Mapping) else config[name] for name in names}
    try:
        check_types((str, type(None)), **roles)
        check_types(bool, **{name: config[name] for name in _SWITCHES if name in config})
    except ArgumentTypeError as error:
        raise DataError(f"{path}: {error}") from error
    return config | roles


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
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON, or is nested too deeply: {error}.") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} should hold a JSON object, got {type(found).__name__}.")
    return found
