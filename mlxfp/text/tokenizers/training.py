"""Deterministic training of tokenizers.

The trainers of the `tokenizers` package iterate over hash maps in random order. Byte-level BPE does not depend on this order. WordPiece
depends on the order only for the ids of the first tokens, so these ids are fixed in advance. Unigram depends on the order in many steps,
so `unigram_training` contains a separate implementation.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Literal

import tokenizers as hf
from attrs import frozen
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import beginning, progress_of, run
from mlxfp.core.nodes import check_dataset
from mlxfp.core.sources import check_ends
from mlxfp.support.checks import check_choice, check_positive, check_text, explain_call
from mlxfp.support.errors import ArgumentError, DataError, PipelineError
from mlxfp.support.progress import Progress
from mlxfp.text.templates.formatting import check_text_column, read_text
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.text.tokenizers.unigram_training import count_words, train_unigram

Kind = Literal["bpe", "wordpiece", "unigram"]

_UNKNOWN = "[UNK]"
_SPECIAL = ["[PAD]", _UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
_BYTES = 256
_LARGE = 1000  # Minimum vocab_size for the warning about too few learned tokens. Smaller vocabularies give no warning.
_FEW = 50  # Training of byte-level BPE warns if less than 1/50 of the requested tokens was learned.
_LONGEST = 100  # Maximum length of a learned token. WordPiece encodes longer words as [UNK], and engines overflow the stack on long tokens.
_LARGEST = 1 << 20  # Maximum vocab_size. The trainers reserve memory for all tokens. The largest known vocabularies have 262,144 tokens.
_FREQUENCY = 2  # Minimum count of a token pair. Pairs that occur once are not worth a vocabulary entry.


@explain_call
def train_tokenizer(
    dataset: Dataset[Any], *, column: str = "text", kind: Kind = "bpe", vocab_size: int, lowercase: bool = False
) -> Tokenizer:
    """Train a tokenizer on the text column of a dataset (rows of epoch 0). The result depends only on the text.

    - `"bpe"`: byte-level BPE, as in GPT-2. Encodes any text, and decodes exactly (without `lowercase`).
    - `"wordpiece"`: WordPiece, as in BERT. Splits words and punctuation, and writes `##` before tokens that continue a word.
    - `"unigram"`: Unigram model, as in SentencePiece (Kudo 2018, arXiv:1804.10959). The first token of a word
      begins with `▁`, which stands for the space before the word. Trained on the most likely segmentation of each word (hard EM), with
      the 50,000 most frequent words.

    `lowercase=True` encodes texts in lower case. For `"wordpiece"`, accents are removed too, as in BERT: "É" becomes "e".

    The first ids are `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]` (0 to 4). A text is encoded as `[CLS] a [SEP]`, a pair as `[CLS] a
    [SEP] b [SEP]`. To leave out these special tokens, encode with `special=False`.

    `vocab_size` is an upper limit. A small amount of text gives a smaller vocabulary. Tokens have at most 100 characters. WordPiece ignores
    longer words, and the other kinds divide longer words. The dataset is read once, for WordPiece twice.

    Byte-level BPE warns if almost no piece of the text occurs twice. Raises `ArgumentError` if `vocab_size` is too small for all characters
    of the text (byte-level: all bytes) or above 1,048,576, and `DataError` for a missing text or an empty dataset.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"text": "low lower lowest"}, {"text": "new newer newest"}])
    >>> tokenizer = fp.train_tokenizer(rows, vocab_size=270)
    >>> tokenizer.decode(tokenizer.encode("never seen: 漢字"))
    'never seen: 漢字'
    >>> tokenizer.tokens(tokenizer.encode("lowest", special=False))
    ['lo', 'west']
    """
    check_dataset(dataset, train_tokenizer)
    check_text(column=column)
    check_choice(("bpe", "wordpiece", "unigram"), kind=kind)
    check_positive(vocab_size=vocab_size)
    if vocab_size > _LARGEST:
        raise ArgumentError(f"vocab_size must be at most {_LARGEST:,}, got vocab_size={vocab_size}. Large models use 32,000 to 262,144.")
    if dataset.level == "batches":
        raise PipelineError(
            f"train_tokenizer reads text from examples or groups, got batches from {dataset.parts[-1]!r}. Remove collate from the pipeline."
        )
    check_text_column(dataset.resolved.schemas[-1], column, "train_tokenizer", "column")
    train = {"bpe": _train_bpe, "wordpiece": _train_wordpiece, "unigram": _train_unigram}[kind]
    check_ends(dataset, "train_tokenizer")
    with progress_of(dataset, "train_tokenizer", epochs=2 if kind == "wordpiece" else 1) as progress:
        model, parts = train(lambda: _texts(dataset, column, progress), vocab_size, lowercase=lowercase)
    built = parts.around(model)
    built.add_special_tokens(_SPECIAL)
    built.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, _SPECIAL.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    roles: dict[str, Any] = {f"{token[1:-1].lower()}_token": token for token in _SPECIAL}
    return Tokenizer(built.to_str(), **roles)


Texts = Callable[[], Iterator[list[str]]]  # function that reads all texts again in each call, from the first row on


@frozen
class _Parts:
    """Components of a tokenizer other than the model."""

    normalizer: Any
    splitter: Any
    decoder: Any

    def around(self, model: Any) -> hf.Tokenizer:
        built = hf.Tokenizer(model)
        if self.normalizer is not None:
            built.normalizer = self.normalizer
        built.pre_tokenizer, built.decoder = self.splitter, self.decoder
        return built


def _texts(dataset: Dataset[Any], column: str, progress: Progress) -> Iterator[list[str]]:
    nonempty = False
    progress.rename("train_tokenizer")
    with closing(run(dataset, beginning(dataset))) as items:
        for chunk in progress.over(item for item, _ in items):
            nonempty = nonempty or chunk.num_rows > 0
            yield read_text(chunk, column, "train_tokenizer").to_pylist()
    if not nonempty:
        raise DataError(f"train_tokenizer got no text: {dataset!r} is empty. Give a dataset with at least one row.")
    progress.rename("train_tokenizer: building the vocabulary")


def _train_bpe(texts: Texts, vocab_size: int, *, lowercase: bool) -> tuple[Any, _Parts]:
    _check_vocab_size(vocab_size, _BYTES, "bytes", "")
    parts = _Parts(normalizers.Lowercase() if lowercase else None, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())
    built = parts.around(models.BPE())
    divide = pre_tokenizers.Split(hf.Regex(f".{{{_LONGEST}}}"), "isolated")  # merges read whole words, so long words would be slow
    built.pre_tokenizer = pre_tokenizers.Sequence([parts.splitter, divide])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_FREQUENCY,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    built.train_from_iterator(texts(), trainer)
    base, size = _BYTES + len(_SPECIAL), built.get_vocab_size()
    if vocab_size >= _LARGE and (size - base + 1) * _FEW < vocab_size - base:
        warnings.warn(
            f"train_tokenizer got vocab_size={vocab_size}, but the vocabulary has {size} tokens: {_BYTES} bytes, {len(_SPECIAL)} special "
            f"tokens and {size - base} pieces that occur at least twice. Train on more text, or check the column.",
            RuntimeWarning,
            stacklevel=4,
        )
    return built.model, parts


def _train_wordpiece(texts: Texts, vocab_size: int, *, lowercase: bool) -> tuple[Any, _Parts]:
    """Train a WordPiece model. The texts are read twice, for two trainings.

    The first training finds the characters that occur inside words. The second training gets these characters in sorted order as its first
    tokens, so that their ids are the same in every run.
    """
    parts = _Parts(normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece())
    long_words = pre_tokenizers.Split(hf.Regex(rf"\S{{{_LONGEST + 1},}}"), "removed")

    def vocabulary(first: list[str], size: int) -> dict[str, int]:
        built = parts.around(models.WordPiece(unk_token=_UNKNOWN))
        built.pre_tokenizer = pre_tokenizers.Sequence([parts.splitter, long_words])
        trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=_FREQUENCY, special_tokens=first, show_progress=False)
        built.train_from_iterator(texts(), trainer)
        return dict(built.get_vocab())

    characters = vocabulary(_SPECIAL, 0)
    _check_vocab_size(vocab_size, len(characters) - len(_SPECIAL), "characters (alone, or inside words)")
    continuing = sorted(token for token in characters if token.startswith("##") and len(token) == 3)
    return models.WordPiece(vocabulary([*_SPECIAL, *continuing], vocab_size), unk_token=_UNKNOWN), parts


def _train_unigram(texts: Texts, vocab_size: int, *, lowercase: bool) -> tuple[Any, _Parts]:
    steps = [normalizers.NFKC(), normalizers.Replace(hf.Regex(" {2,}"), " "), *([normalizers.Lowercase()] if lowercase else [])]
    parts = _Parts(normalizers.Sequence(steps), pre_tokenizers.Metaspace(), decoders.Metaspace())
    counts = count_words(texts(), parts.normalizer, parts.splitter, _LONGEST)
    _check_vocab_size(vocab_size, len(set().union(*counts)), "characters")
    pieces = [(piece, score) for piece, score in train_unigram(counts, vocab_size - len(_SPECIAL)) if piece not in _SPECIAL]
    return models.Unigram([*((token, 0.0) for token in _SPECIAL), *pieces], unk_id=_SPECIAL.index(_UNKNOWN)), parts


def _check_vocab_size(vocab_size: int, count: int, unit: str, alternative: str = ', or write rare characters with kind="bpe"') -> None:
    needed = count + len(_SPECIAL)
    if vocab_size < needed:
        raise ArgumentError(
            f"vocab_size={vocab_size} is too small: {count} {unit} and {len(_SPECIAL)} special tokens need {needed}. "
            f"Increase vocab_size{alternative}."
        )
