"""Tokenizers for `fuzz_tokens`: transparent tokenizers, which show every split of a text, trained tokenizers and real tokenizers."""

import json as jsons
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import models, normalizers, pre_tokenizers, trainers

from benchmarks.inputs import data_folder, natural_text, tokenizers
from mlxfp.text.tokenizers.configuration import MARK

PARTNERS = ("a", "A", " ", "1", ".", "'")  # a character of each class known to pre-tokenizers
Json = dict[str, Any]

_SEEN = tuple(map(chr, range(33, 127)))

_GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN = _GPT4.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}|\p{{N}}{{1,3}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def _split(pattern: str) -> Any:
    whole = pre_tokenizers.Split(hf.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([whole, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_UNKNOWN, _UNKNOWN_WORD = "<unk>", "[UNK]"


def _fallback() -> Any:
    return models.BPE(unk_token=_UNKNOWN, fuse_unk=True, byte_fallback=True)


def _spaced(**options: bool) -> Any:
    return pre_tokenizers.ByteLevel(**options)


# Model, normalizer and pre-tokenizer of each kind. The BPE of SentencePiece needs a pre-tokenizer only for training.
_PARTS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "GPT-2": lambda: (models.BPE(), None, _spaced(add_prefix_space=False)),
    "RoBERTa with a space in front": lambda: (models.BPE(), None, _spaced(add_prefix_space=True)),
    "ModernBERT": lambda: (models.BPE(), normalizers.NFC(), _spaced(add_prefix_space=False)),
    "Llama 3": lambda: (models.BPE(ignore_merges=True), None, _split(_GPT4)),
    "GPT-4": lambda: (models.BPE(), None, _split(_GPT4)),
    "Qwen 2": lambda: (models.BPE(), normalizers.NFC(), _split(_QWEN)),
    "GPT-4o": lambda: (models.BPE(ignore_merges=True), None, _split(_GPT4O)),
    "Llama 2": lambda: (
        _fallback(),
        normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]),
        pre_tokenizers.Split(MARK, "merged_with_next"),
    ),
    "Gemma": lambda: (_fallback(), normalizers.Replace(" ", MARK), pre_tokenizers.Split(" ", "merged_with_previous")),
    "BERT": lambda: (
        models.WordPiece(unk_token=_UNKNOWN_WORD),
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "BERT cased": lambda: (
        models.WordPiece(unk_token=_UNKNOWN_WORD),
        normalizers.BertNormalizer(lowercase=False),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "Unigram": lambda: (models.Unigram(), None, pre_tokenizers.Metaspace()),
    "Unigram of train_tokenizer": lambda: (
        models.Unigram(),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(hf.Regex(" {2,}"), " ")]),
        pre_tokenizers.Metaspace(),
    ),
}
KINDS = tuple(_PARTS)


def _plain(kind: str) -> Json:
    """Return the JSON of a tokenizer of this kind, without vocabulary."""
    model, normalizer, splitter = _PARTS[kind]()
    built = hf.Tokenizer(model)
    if normalizer is not None:
        built.normalizer = normalizer
    if kind != "Llama 2":
        built.pre_tokenizer = splitter
    data: Json = jsons.loads(built.to_str())
    return data


def transparent(kind: str, letters: Iterable[str]) -> str:
    """Return the JSON of a tokenizer with ids that show every split of a text.

    Each character is a token. BPE and Unigram also have a token for each pair of a partner character and another character, in both orders.
    A pair token in the ids means no split between both characters. WordPiece marks characters inside a word with "##".
    """
    data = _plain(kind)
    plain = hf.Tokenizer.from_str(jsons.dumps(data))
    normal = plain.normalizer.normalize_str if plain.normalizer else str
    known = sorted({character for letter in (*letters, *PARTNERS, *_SEEN) for character in letter + normal(letter)} | {MARK})
    write = _byte_level if "ByteLevel" in jsons.dumps(data["pre_tokenizer"]) else lambda text: text
    partners = {character.replace(" ", MARK) if write("a b") == "a b" else character for character in PARTNERS}
    pairs = {(partner, letter): None for letter in known for partner in (*sorted(partners), letter)}
    pairs |= {(letter, partner): None for letter in known for partner in sorted(partners)}
    model = data["model"]
    if model["type"] == "WordPiece":
        model["vocab"] = _numbered(["[UNK]", *known, *(f"##{letter}" for letter in known)])
    elif model["type"] == "Unigram":
        rng = random.Random(0)  # noqa: S311  # scores that differ, as the best of several equal ways is anybody's choice
        pieces = {piece: -1 - rng.random() / 9 for piece in ("<unk>", *known)} | {"".join(pair): -1.5 - rng.random() / 9 for pair in pairs}
        model["vocab"], model["unk_id"] = [[piece, score] for piece, score in pieces.items()], 0
    else:
        written = {letter: write(letter) for letter in (*known, *partners)}
        merges = dict.fromkeys(merge for letter in known for merge in _joins(written[letter]))
        merges |= dict.fromkeys((written[first], written[second]) for first, second in pairs)
        base = sorted(pre_tokenizers.ByteLevel.alphabet()) if write(" ") != " " else ["<unk>", *_BYTE_TOKENS, *known]
        model["vocab"] = _numbered([*base, *(first + second for first, second in merges)])
        model["merges"] = [list(merge) for merge in merges]
    return jsons.dumps(data, ensure_ascii=False)


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _joins(text: str) -> list[tuple[str, str]]:
    return [(text[:index], text[index]) for index in range(1, len(text))]


@cache
def _letters() -> dict[int, str]:
    """Return the character of each byte in byte-level vocabularies."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    seen = {byte: split(chr(byte))[0][0] for byte in range(128)}
    for code in (*range(0x80, 0x800), *range(0x800, 0x10000, 0x40), *range(0x10000, 0x110000, 0x10000)):
        if not 0xD800 <= code < 0xE000:
            seen |= dict(zip(chr(code).encode(), split(chr(code))[0][0], strict=True))
    return seen


def _byte_level(text: str) -> str:
    return "".join(_letters()[byte] for byte in text.encode())


def training_lines() -> list[str]:
    """Return lines of wikitext-2 and paragraphs of Shakespeare, or synthetic text if the files are missing."""
    folder = data_folder()
    if folder is None:
        return natural_text(1_000_000)
    wiki = (folder / "wikitext2/valid.txt").read_text("utf-8").split("\n")
    plays = next((folder / "tinyshakespeare").glob("*.txt")).read_text("utf-8").split("\n\n")
    return [*wiki, *plays]


def trained(kind: str, size: int) -> str:
    """Train a tokenizer of this kind, with added tokens that depend on the surrounding text, and return the JSON."""
    model, normalizer, splitter = _PARTS[kind]()
    built = hf.Tokenizer(model)
    if normalizer is not None:
        built.normalizer = normalizer
    built.pre_tokenizer = splitter
    options: dict[str, Any] = {"vocab_size": size, "show_progress": False}
    trainer: Any
    if isinstance(model, models.WordPiece):
        trainer = trainers.WordPieceTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], **options)
    elif isinstance(model, models.Unigram):
        trainer = trainers.UnigramTrainer(special_tokens=["<pad>", "<unk>"], unk_token=_UNKNOWN, **options)
    elif model.byte_fallback:
        trainer = trainers.BpeTrainer(special_tokens=["<unk>", "<s>", "</s>", *_BYTE_TOKENS], **options)
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(special_tokens=["<|endoftext|>", "<|im_start|>"], initial_alphabet=alphabet, **options)
    built.train_from_iterator(training_lines(), trainer)
    special = {"special": True, "normalized": False}
    built.add_special_tokens(
        [
            hf.AddedToken("[MASK]", lstrip=True, **special),
            hf.AddedToken("<tool>", rstrip=True, **special),
            hf.AddedToken("Zqx", single_word=True, **special),
        ]
    )
    data = jsons.loads(built.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in _BYTE_TOKENS]
    if kind == "Llama 2":
        data["pre_tokenizer"] = None
    return jsons.dumps(data, ensure_ascii=False)


def subjects(kinds: Collection[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and JSON of the real tokenizers and of two trained tokenizers per kind. The folder caches trained tokenizers."""
    yield from ((name, tokenizer.json) for name, tokenizer in tokenizers().items())
    folder.mkdir(exist_ok=True)
    for kind, size in product(kinds, (2000, 16_000)):
        file = folder / f"{kind} {size}.json"
        if not file.is_file():
            file.write_text(trained(kind, size), "utf-8")
        yield f"{kind}, {size:,} tokens", file.read_text("utf-8")
