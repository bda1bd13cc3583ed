"""Training tokenizers, so that the same data gives the same tokenizer.

The trainers of the `tokenizers` package iterate over hash maps whose order changes from run to run. Byte-level BPE does not depend on
that order. WordPiece depends on it through the ids of its first tokens, so these are fixed beforehand. Unigram depends on it throughout,
so it is trained in `unigram_training`.
"""

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
_FREQUENCY = 2  # a pair of tokens seen once is not worth a place in the vocabulary


@explain_call
def train_tokenizer(
    dataset: Dataset[Any], *, column: str = "text", kind: Kind = "bpe", vocab_size: int, lowercase: bool = False
) -> Tokenizer:
    """Train a tokenizer on a dataset's column of text, in epoch 0; the same text gives the same tokenizer.

    - `"bpe"`: byte-level BPE, as GPT-2. It encodes any text, and decodes it exactly (without `lowercase`).
    - `"wordpiece"`: as BERT: splits words and punctuation, with `##` in front of tokens that continue a word; `lowercase` also removes
      accents.
    - `"unigram"`: as SentencePiece's Unigram model (Kudo 2018, arXiv:1804.10959): white space becomes a mark on the next word. Trained
      with the likeliest segmentation of each word (hard EM) on the 50,000 most frequent words.

    The first ids are `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]` (0 to 4). A text is framed as `[CLS] a [SEP]`, a pair as
    `[CLS] a [SEP] b [SEP]`; encode with `special=False` for streams of text. `vocab_size` is the largest size of the vocabulary: with
    little text it is smaller. Reads the dataset once, for WordPiece twice. Raises `ArgumentError` for a `vocab_size` that cannot hold the
    text's characters (byte-level: all bytes), `DataError` for a missing text or an empty dataset.

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
    if dataset.level == "batches":
        raise PipelineError(
            f"train_tokenizer reads text from examples or groups, got batches from {dataset.parts[-1]!r}. Leave collate out."
        )
    check_text_column(dataset.resolved.schemas[-1], column, "train_tokenizer")
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


Texts = Callable[[], Iterator[list[str]]]  # each call reads from the beginning


@frozen
class _Parts:
    """The parts of a tokenizer around its model."""

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
    found = False
    progress.rename("train_tokenizer")
    with closing(run(dataset, beginning(dataset))) as items:
        for chunk in progress.over(item for item, _ in items):
            found = found or chunk.num_rows > 0
            yield read_text(chunk, column, "train_tokenizer").to_pylist()
    if not found:
        raise DataError(f"train_tokenizer got no text: {dataset!r} is empty. Give a dataset with at least one row.")
    progress.rename("train_tokenizer: text is read, making the vocabulary")


def _train_bpe(texts: Texts, vocab_size: int, *, lowercase: bool) -> tuple[Any, _Parts]:
    _check_room(vocab_size, _BYTES, "bytes", "")
    parts = _Parts(normalizers.Lowercase() if lowercase else None, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())
    built = parts.around(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_FREQUENCY,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    built.train_from_iterator(texts(), trainer)
    return built.model, parts


def _train_wordpiece(texts: Texts, vocab_size: int, *, lowercase: bool) -> tuple[Any, _Parts]:
    """Train twice: first to find the characters that continue words, which get ids in hash order; then with these ids fixed."""
    parts = _Parts(normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece())

    def vocabulary(first: list[str], size: int) -> dict[str, int]:
        built = parts.around(models.WordPiece(unk_token=_UNKNOWN))
        trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=_FREQUENCY, special_tokens=first, show_progress=False)
        built.train_from_iterator(texts(), trainer)
        return dict(built.get_vocab())

    characters = vocabulary(_SPECIAL, 0)
    _check_room(vocab_size, len(characters) - len(_SPECIAL), "characters (alone, or inside words)")
    continuing = sorted(token for token in characters if token.startswith("##") and len(token) == 3)
    return models.WordPiece(vocabulary([*_SPECIAL, *continuing], vocab_size), unk_token=_UNKNOWN), parts


def _train_unigram(texts: Texts, vocab_size: int, *, lowercase: bool) -> tuple[Any, _Parts]:
    steps = [normalizers.NFKC(), normalizers.Replace(hf.Regex(" {2,}"), " "), *([normalizers.Lowercase()] if lowercase else [])]
    parts = _Parts(normalizers.Sequence(steps), pre_tokenizers.Metaspace(), decoders.Metaspace())
    counts = count_words(texts(), parts.normalizer, parts.splitter)
    _check_room(vocab_size, len(set().union(*counts)), "characters")
    pieces = [(piece, score) for piece, score in train_unigram(counts, vocab_size - len(_SPECIAL)) if piece not in _SPECIAL]
    return models.Unigram([*((token, 0.0) for token in _SPECIAL), *pieces], unk_id=_SPECIAL.index(_UNKNOWN)), parts


def _check_room(vocab_size: int, count: int, what: str, otherwise: str = ', or write rare characters with kind="bpe"') -> None:
    needed = count + len(_SPECIAL)
    if vocab_size < needed:
        raise ArgumentError(
            f"vocab_size={vocab_size} is too small: {count} {what} and {len(_SPECIAL)} special tokens need {needed}. "
            f"Make it larger{otherwise}."
        )
