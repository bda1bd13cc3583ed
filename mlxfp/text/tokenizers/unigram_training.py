"""Training of Unigram models. Such a model has pieces of words with log probabilities.

Implements Kudo (2018, arXiv:1804.10959) with two changes that make the result deterministic. Pieces are counted in the most likely
segmentation (hard EM), which gives integer counts. The loss of a removed piece is computed from its best split into two other pieces.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate, chain
from math import log
from typing import Any

import numpy as np
import tokenizers as hf

Scores = dict[str, float]

# Number of training words. The most frequent words are used, and cover nearly all of a text. More words need more memory, up to 200 MB.
_WORDS = 50_000
_LETTERS = 1 << 19  # Maximum total number of characters in all training words. Only texts without spaces reach the maximum.
_SEEDS = 10  # Number of candidate pieces per vocabulary entry. Held-out likelihood on WikiText-2 was better with 10 than with 4 or 50.
_LONGEST = 16  # Maximum number of characters in a piece, as in SentencePiece.
_KEPT = 0.75  # share of pieces that remain after each round, as in SentencePiece
_STEPS = 2  # number of EM steps per round, as in SentencePiece


def count_words(texts: Iterable[list[str]], normalizer: Any, splitter: Any, longest: int) -> Counter[str]:
    """Count the words of texts after normalization and pre-tokenization. A word with more than `longest` characters is divided."""
    normal, split = normalizer.normalize_str, splitter.pre_tokenize_str
    words = (word for part in texts for text in part for word, _ in split(normal(text)))
    return Counter(word[first : first + longest] for word in words for first in range(0, len(word), longest))


def train_unigram(counts: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """Train a unigram model. Return at most `size` tokens (pieces) with their log-probabilities, most likely first.

    The argument `counts` maps each word to its count. `size` must be at least the number of distinct characters.
    """
    words = sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS]
    words = words[: max(1, bisect(list(accumulate(map(len, words))), _LETTERS))]
    weights = np.array([counts[word] for word in words], np.int64)
    characters = sorted(set(chain.from_iterable(counts)))
    seeds = _first_scores(words, counts, characters, size * _SEEDS)
    scores = seeds
    while True:
        used: dict[str, int] = {}
        for _ in range(_STEPS):
            used = _count_pieces(scores, words, weights)
            scores = _score(used, characters)
        if len(scores) <= size:
            break
        scores = _pruned(scores, used, max(size, int(_KEPT * len(scores))))
    # If the training text is small, few pieces are used. Unused candidate pieces then fill the vocabulary, and help to encode new words.
    spare = [piece for piece, _ in _ranked(seeds) if piece not in scores][: size - len(scores)]
    return _ranked(scores | dict.fromkeys(spare, min(scores.values(), default=0.0)))


def _first_scores(words: list[str], counts: Mapping[str, int], characters: list[str], size: int) -> Scores:
    """Return initial scores of all characters, and of the `size` best longer substrings. A substring ranks by count times length."""
    totals: Counter[str] = Counter()
    for word in words:
        for first in range(len(word)):
            for end in range(first + 1, min(first + _LONGEST, len(word)) + 1):
                totals[word[first:end]] += counts[word]
    longer = [piece for piece in totals if len(piece) > 1 and totals[piece] > 1]
    longer.sort(key=lambda piece: (-totals[piece] * len(piece), piece))
    chosen = [*(character for character in characters if character in totals), *longer[:size]]
    return _score({piece: totals[piece] * len(piece) for piece in chosen}, characters)


def _score(used: Mapping[str, int], characters: Iterable[str]) -> Scores:
    """Return the score of each piece: the logarithm of its share in the counts of all pieces.

    Characters without a count get a lower score than all other pieces.
    """
    total = sum(used.values())
    scores = {piece: log(count / total) for piece, count in used.items()}
    return dict.fromkeys(characters, log(1 / (total + 1)) - 1) | scores


def _count_pieces(scores: Scores, words: list[str], weights: np.ndarray) -> dict[str, int]:
    """Count the pieces in the most likely segmentation of each word."""
    ranked = _ranked(scores)
    # The class `Unigram` requires a token for unknown text. The token "" is never used, because each character is a piece.
    model = hf.Tokenizer(hf.models.Unigram([("", 0.0), *ranked], unk_id=0))
    rows = [encoding.ids for encoding in model.encode_batch_fast(words)]
    ids = np.fromiter(chain.from_iterable(rows), np.int64)
    counts = np.zeros(len(ranked) + 1, np.int64)
    np.add.at(counts, ids, np.repeat(weights, [len(row) for row in rows]))
    return {piece: count for (piece, _), count in zip(ranked, counts[1:].tolist(), strict=True) if count}


def _pruned(scores: Scores, used: Mapping[str, int], size: int) -> Scores:
    """Return at most `size` pieces: all characters, and the longer pieces that most increase the likelihood of the words."""

    def worth(piece: str) -> float:
        halves = ((piece[:index], piece[index:]) for index in range(1, len(piece)))
        ways = (scores[first] + scores[second] for first, second in halves if first in scores and second in scores)
        return used.get(piece, 0) * (scores[piece] - max(ways, default=sum(scores[character] for character in piece)))

    longer = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: (-worth(piece), piece))
    kept = {*longer[: size - (len(scores) - len(longer))]}
    return {piece: score for piece, score in scores.items() if len(piece) == 1 or piece in kept}


def _ranked(scores: Scores) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
