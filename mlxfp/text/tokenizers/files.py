"""Functions that load chat templates and tokenizers, from `tokenizer.json`, WordPiece vocabularies, or byte-level BPE vocabularies."""

import json as jsons
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import tokenizers as hf
from attrs import evolve
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from mlxfp.support.checks import check_choice, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentTypeError, DataError, MissingFileError, MlxfpError, suggest_path
from mlxfp.support.hub import model_folder
from mlxfp.support.optional import optional
from mlxfp.text.tokenizers.chat_templates import CHAT_SETTINGS, ChatTemplate, special_tokens
from mlxfp.text.tokenizers.configuration import read_configuration
from mlxfp.text.tokenizers.json_checks import check_ids, is_panic
from mlxfp.text.tokenizers.tokenizer import ENGINE_NAMES, ROLES, EngineName, Tokenizer, how_to_read
from mlxfp.text.tokenizers.tokenizer import engine as package_tokenizer

Roles = dict[str, str | None]

# Usual special tokens of each role, for roles without a token in the configuration files.
# The unknown token of the model takes precedence over the usual unknown tokens.
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

_HUB_FILES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "added_tokens.json"),
    *("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "additional_chat_templates/*.jinja"),
    # SentencePiece models cannot be read. The files are downloaded only for an error message that explains the conversion.
    *("tokenizer.model", "spiece.model"),
)

# Tokenizer classes of transformers that use the byte-level BPE of GPT-2 or RoBERTa. RoBERTa adds <s> ... </s> around a text.
_BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "CodeGenTokenizer")


@explain_call
def load_tokenizer(path: str | PathLike[str], *, engine: EngineName = "auto", revision: str | None = None) -> Tokenizer:
    """Load a tokenizer from a file, a folder, or the Hugging Face hub.

    If `path` is a file, the file must be a `tokenizer.json` or a `vocab.txt`. In a folder, the first existing entry of this list is read:

    - `tokenizer.json`
    - `vocab.txt`, the WordPiece vocabulary of BERT
    - `vocab.json` with `merges.txt`, also named `encoder.json` and `vocab.bpe`, the byte-level BPE of GPT-2 and RoBERTa

    A path such as `"org/name"` names a model on the hub if no local folder has this path. The files of the tokenizer are downloaded into
    the cache of huggingface_hub. `revision` is a branch, a tag or a commit; the default is the newest version. A commit always has the
    same files, and is read from the cache without a network.

    The roles of special tokens come from `tokenizer_config.json` and `special_tokens_map.json`. A role without a token in these files
    gets a common token (`[PAD]`, `<pad>`, `<|endoftext|>`, ...) if the vocabulary has the token. Chat templates are also loaded, as
    by `load_chat_template`.

    Engines are optional packages that return the same ids faster (`pip install "mlxfp[fast]"`): gigatoken for byte-level and SentencePiece
    BPE, tokie for WordPiece. `engine="auto"` selects an engine for long columns. `engine="gigatoken"` or `engine="tokie"` tries only this
    engine, for all columns. `explain` shows the engine in use.

    The ids never depend on the engine. An engine must first pass a test with the vocabulary. It then gets only texts whose characters it is
    known to encode correctly for this kind of tokenizer. The `tokenizers` package encodes all other texts.

    Padding, truncation and dropout settings in `tokenizer.json` are ignored. Use arguments of stages instead, for example
    `tokenize(max_length=...)`. With a `vocab.txt`, `do_lower_case` of `tokenizer_config.json` controls lowercasing. Without this setting,
    texts are lowercased if the vocabulary contains no capital letters.

    Raises `MissingFileError` if no tokenizer exists at the path or on the hub, `DataError` for unreadable files, and `MissingExtraError` if
    the engine is not installed. Regular expressions in a `tokenizer.json` fail after ten million steps at one position of a text. The time
    for a whole text is not limited, so a malicious file can take hours for a long text.

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
    folder, _ = model_folder(path, revision=revision, files=_HUB_FILES)
    return evolve(_load(folder), engine=engine)


@explain_call
def load_chat_template(folder: str | PathLike[str], *, name: str = "default") -> ChatTemplate:
    """Load the chat template of a model folder, with the special tokens as variables. Nothing is downloaded.

    The template is stored in `chat_template.jinja`, or under `chat_template` in `tokenizer_config.json`. A folder may hold several
    templates, selected by `name`. A template is a program, so load only templates of trusted models (see `ChatTemplate`).

    Raises `MissingFileError` if the folder has no such template, `DataError` if the template is malformed, and `MissingExtraError` without
    Jinja (extra `chat`).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    ...     _ = Path(folder, "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    ...     load_chat_template(folder).render([{"role": "user", "content": "Hello"}])
    'Hello</s>'
    """
    check_types((str, PathLike), folder=folder)
    check_text(name=name)
    path = Path(folder)
    templates = _find_templates(path)
    if name not in templates:
        names = ", ".join(map(repr, sorted(templates)))
        known = f"Choose name= from: {names}" if templates else "Models without a chat template are not for conversations"
        raise MissingFileError(f"The folder {str(path)!r} has no chat template named {name!r}. {known}.")
    try:
        templates[name].check()
        return templates[name]
    except DataError as error:
        error.add_note(f"while reading the chat template {name!r} of {str(path)!r}")
        raise


def _find_templates(folder: Path) -> dict[str, ChatTemplate]:
    """Return the templates of a folder by name. Separate files take precedence over `tokenizer_config.json`, as in transformers."""
    config = _read_configs(folder)
    listed = config.get("chat_template") or {}
    if isinstance(listed, list) and all(isinstance(item, dict) for item in listed):
        listed = {item.get("name"): item.get("template") for item in listed}
    templates = {"default": listed} if isinstance(listed, str) else listed
    if not isinstance(templates, dict) or not all(isinstance(text, str) for pair in templates.items() for text in pair):
        raise DataError(
            f"chat_template of tokenizer_config.json in {str(folder)!r} must be text, or a list of names and texts, got {listed!r:.80}."
        )
    files = {"default": folder / "chat_template.jinja"} | {path.stem: path for path in folder.glob("additional_chat_templates/*.jinja")}
    texts = templates | {name: _read(path) for name, path in files.items() if path.is_file()}
    settings = {"variables": special_tokens(config), "today": None} | (config.get(CHAT_SETTINGS) or {})
    return {name: ChatTemplate(text, variables=settings["variables"], today=settings["today"]) for name, text in texts.items()}


def _load(path: Path) -> Tokenizer:
    if path.is_dir():
        return evolve(_from_folder(path), chat_template=_find_templates(path).get("default"))
    if not path.is_file():
        raise MissingFileError(
            f"No tokenizer is at {str(path)!r}.{suggest_path(path)} Pass the path of a tokenizer.json file or of the folder of a model, "
            "or a name on the hub, such as google-bert/bert-base-uncased."
        )
    return _make_tokenizer(path, _wordpiece(path, {}) if path.suffix == ".txt" else _read(path), {})


def _from_folder(folder: Path) -> Tokenizer:
    config = _read_configs(folder)
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if whole.is_file():
        return _make_tokenizer(whole, _read(whole), config)
    if words.is_file():
        return _check_complete(folder, _make_tokenizer(words, _wordpiece(words, config), config), config)
    pairs = ((folder / vocab, folder / merges) for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")))
    vocab, merges = next((pair for pair in pairs if all(file.is_file() for file in pair)), (None, None))
    if vocab is not None and merges is not None:
        return _check_complete(folder, _make_tokenizer(vocab, _byte_level(vocab, merges, config), config), config)
    pieces = next((file.name for file in sorted(folder.iterdir()) if file.suffix == ".model"), None)
    if pieces is not None:
        raise DataError(f"The folder {str(folder)!r} contains a SentencePiece model ({pieces}) but no tokenizer.json. {_WRITE}")
    names = ", ".join(sorted(file.name for file in folder.iterdir())) or "none"
    raise MissingFileError(
        f"The folder {str(folder)!r} contains no tokenizer (files: {names:.300}). "
        "Add tokenizer.json, vocab.txt, or vocab.json with merges.txt."
    )


def _make_tokenizer(path: Path, json: str, config: Mapping[str, Any]) -> Tokenizer:
    try:
        tokenizer = Tokenizer(json)
        number_of = package_tokenizer(tokenizer.json).token_to_id
        roles: dict[str, Any] = _customary_roles(lambda token: number_of(token) is not None)
        roles |= read_configuration(tokenizer.json).roles | _configured_roles(config)
        return evolve(tokenizer, **{f"{role}_token": token for role, token in roles.items()})
    except MlxfpError as error:
        raise DataError(f"{path}: {error}") from error


def _check_complete(folder: Path, tokenizer: Tokenizer, config: Mapping[str, Any]) -> Tokenizer:
    """Raise `DataError` if other files of the folder list added tokens that the tokenizer lacks."""
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, Mapping) or not all(isinstance(token, Mapping) for token in listed.values()):
        raise DataError(f"added_tokens_decoder of tokenizer_config.json in {str(folder)!r} must hold objects, got {listed!r:.80}. {_WRITE}")
    added = [*_read_map(folder / "added_tokens.json"), *(str(token.get("content")) for token in listed.values())]
    missing = [token for token in added if package_tokenizer(tokenizer.json).token_to_id(token) is None]
    if missing:
        raise DataError(
            f"The vocabulary in {str(folder)!r} lacks added tokens that other files of the folder list, such as {missing[0]!r}. {_WRITE}"
        )
    return tokenizer


def _customary_roles(known: Callable[[str], bool]) -> Roles:
    return {role: next((token for token in tokens if known(token)), None) for role, tokens in _CUSTOMARY.items()}


def _configured_roles(config: Mapping[str, Any]) -> Roles:
    """Return the special tokens named in the configuration files."""
    return {role: config[f"{role}_token"] for role in ROLES if f"{role}_token" in config}


def _wordpiece(path: Path, config: Mapping[str, Any]) -> str:
    """Build the tokenizer of BERT from `vocab.txt`, a file with one token per line."""
    tokens = _read_lines(path)
    vocab = {token: number for number, token in enumerate(tokens) if token or number < len(tokens) - 1}
    roles = _customary_roles(vocab.__contains__) | _configured_roles(config)
    unknown, first, last = roles["unk"], roles["cls"], roles["sep"]
    if unknown is None or unknown not in vocab:
        raise DataError(
            f"{path} is not a WordPiece vocabulary: it has no line {unknown or '[UNK]'}. The file must have one token per line."
        )
    built = hf.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    built.normalizer = normalizers.BertNormalizer(
        lowercase=config.get("do_lower_case", not any(token != token.lower() for token in tokens if not token.startswith("["))),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    if first in vocab and last in vocab:
        # The tokenizer of MPNet puts two separators between texts, like RoBERTa.
        kind = processors.RobertaProcessing if first == "<s>" else processors.BertProcessing
        built.post_processor = kind((last, vocab[last]), (first, vocab[first]))
    return _with_specials(built, vocab, config)


def _byte_level(vocab_path: Path, merges_path: Path, config: Mapping[str, Any]) -> str:
    """Build the byte-level BPE tokenizer of RoBERTa if the vocabulary contains <s> and </s>, otherwise the tokenizer of GPT-2."""
    vocab = _read_map(vocab_path)
    lines = _read_lines(merges_path)
    merges: list[Any] = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    kind = str(config.get("tokenizer_class") or _BYTE_LEVEL[0]).removesuffix("Fast")
    if kind not in _BYTE_LEVEL or config.get("add_bos_token") or any(token.endswith("</w>") for token in vocab):
        raise DataError(
            f"{vocab_path} and {merges_path.name} are not the files of GPT-2 or RoBERTa, "
            f"so the pre-tokenizer is unknown. The tokenizer class is {kind}. {_WRITE}"
        )
    try:
        check_ids(vocab.values())
        built = hf.Tokenizer(models.BPE(vocab, merges))
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):  # Other exceptions, such as Ctrl-C, are raised unchanged.
            raise
        raise DataError(
            f"{vocab_path} and {merges_path.name} do not fit each other: {error}. Copy both files from the same model."
        ) from error
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
    # The mask token of RoBERTa includes the space before the token (lstrip).
    added = [hf.AddedToken(token, special=True, lstrip=token == "<mask>", normalized=False) for token in special]  # noqa: S105
    built.add_special_tokens(added)
    json: str = built.to_str()
    return json


def _read_lines(path: Path) -> list[str]:
    return [line.rstrip("\r") for line in _read(path).split("\n")]


def _read_configs(folder: Path) -> dict[str, Any]:
    return {**_read_config(folder / "special_tokens_map.json"), **_read_config(folder / "tokenizer_config.json")}


def _read_config(path: Path) -> dict[str, Any]:
    """Read a configuration file. Return the configuration with the token of each role as text or None.

    The file may store a token as text, as an object with `content`, or as null.
    """
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
        return path.read_bytes().decode("utf-8-sig")  # `read_text` would change carriage returns in the file.
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Pass a tokenizer.json, a vocab.txt, or the folder of a model.") from error


def _read_map(path: Path) -> dict[str, Any]:
    """Read a JSON object. Return an empty dict if the file is absent."""
    if not path.is_file():
        return {}
    try:
        data = jsons.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON or is nested too deeply: {error}. Copy the file again from the model.") from error
    if not isinstance(data, dict):
        raise DataError(f"{path} must contain a JSON object, got {type(data).__name__}. Copy the file again from the model.")
    return data
