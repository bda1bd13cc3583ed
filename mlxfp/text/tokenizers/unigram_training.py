"""Training of Unigram models: the pieces of words, with the logarithms of their probabilities.

Kudo (2018, arXiv:1804.10959) with two changes, so that the result depends on the text alone: pieces are counted in the likeliest
segmentation (hard EM), so counts are whole numbers; and the worth of a piece is judged against the best way to write it with two others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from math import log
from typing import Any

import numpy as np
import tokenizers as hf

Scores = dict[str, float]

_WORDS = 50_000  # the most frequent words, nearly all of a text; the memory of training, 200 MB at most, grows with this
_SEEDS = 10  # candidates for each place in the vocabulary: of 4, 10 and 50, this gave the best held-out likelihood on wikitext-2
_LONGEST = 16  # characters of a piece, as in SentencePiece
_KEPT = 0.75  # of the pieces after each round, as in SentencePiece
_STEPS = 2  # of EM in each round, as in SentencePiece


def count_words(texts: Iterable[list[str]], normalizer: Any, splitter: Any) -> Counter[str]:
    """Count the words of texts, as a normalizer and a pre-tokenizer make them."""
    normal, split = normalizer.normalize_str, splitter.pre_tokenize_str
    return Counter(word for part in texts for text in part for word, _ in split(normal(text)))


def train_unigram(counts: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """Return at most `size` pieces with their scores, likeliest first; every character is one, so there must be room for them."""
    words = sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS]
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
    # Little text uses few pieces. Candidates fill the other places: they help to write words that the text does not have.
    spare = [piece for piece, _ in _ranked(seeds) if piece not in scores][: size - len(scores)]
    return _ranked(scores | dict.fromkeys(spare, min(scores.values(), default=0.0)))


def _first_scores(words: list[str], counts: Mapping[str, int], characters: list[str], size: int) -> Scores:
    """Take every character, and the substrings that cover most of the text."""
    found: Counter[str] = Counter()
    for word in words:
        for first in range(len(word)):
            for end in range(first + 1, min(first + _LONGEST, len(word)) + 1):
                found[word[first:end]] += counts[word]
    longer = [piece for piece in found if len(piece) > 1 and found[piece] > 1]
    longer.sort(key=lambda piece: (-found[piece] * len(piece), piece))
    chosen = [*(character for character in characters if character in found), *longer[:size]]
    return _score({piece: found[piece] * len(piece) for piece in chosen}, characters)


def _score(used: Mapping[str, int], characters: Iterable[str]) -> Scores:
    """Give each piece the logarithm of its share; characters that no segmentation used score below all others."""
    total = sum(used.values())
    scores = {piece: log(count / total) for piece, count in used.items()}
    return dict.fromkeys(characters, log(1 / (total + 1)) - 1) | scores


def _count_pieces(scores: Scores, words: list[str], weights: np.ndarray) -> dict[str, int]:
    """Count the pieces in the likeliest segmentation of each word."""
    ranked = _ranked(scores)
    model = hf.Tokenizer(hf.models.Unigram([("", 0.0), *ranked], unk_id=0))  # the empty piece is for unknown text, which does not occur
    rows = [encoding.ids for encoding in model.encode_batch_fast(words)]
    ids = np.fromiter(chain.from_iterable(rows), np.int64)
    counts = np.zeros(len(ranked) + 1, np.int64)
    np.add.at(counts, ids, np.repeat(weights, [len(row) for row in rows]))
    return {piece: count for (piece, _), count in zip(ranked, counts[1:].tolist(), strict=True) if count}


def _pruned(scores: Scores, used: Mapping[str, int], size: int) -> Scores:
    """Keep the characters, and of the other pieces those without which the text's likelihood would fall most."""

    def worth(piece: str) -> float:
        halves = ((piece[:place], piece[place:]) for place in range(1, len(piece)))
        ways = (scores[left] + scores[right] for left, right in halves if left in scores and right in scores)
        return used.get(piece, 0) * (scores[piece] - max(ways, default=sum(scores[character] for character in piece)))

    longer = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: (-worth(piece), piece))
    kept = {*longer[: size - (len(scores) - len(longer))]}
    return {piece: score for piece, score in scores.items() if len(piece) == 1 or piece in kept}


def _ranked(scores: Scores) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
