"""Texts as counts of words and of parts of words: hashed n-grams, weighted by TF-IDF that is fitted on training rows.

Hashing needs no vocabulary, so the memory is that of the counts. Salton and Buckley, "Term-weighting approaches in automatic text
retrieval", 1988; Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.support.optional import optional

Analyzer = Literal["words", "characters"]
Matrix = Any  # of SciPy, float32[N, K] in compressed rows: it has no type stubs

_SPACE = 2**20  # places that n-grams are hashed to; two of 100,000 n-grams in 20 share one, without effect on scores
_MOST = 2**18  # n-grams that are kept of a column, the most frequent ones: a weight of a linear model for each class belongs to each
_PARTS = 5_000_000  # characters of training texts whose parts of words are counted: more take minutes, and long texts have words enough

# Words, numbers and marks, alone and in pairs; parts of words of 2 to 5 characters, for inflections, compounds and misspellings.
_OPTIONS: Mapping[Analyzer, Mapping[str, Any]] = {
    "words": {"ngram_range": (1, 2), "token_pattern": r"(?u)\w+|[^\w\s]"},
    "characters": {"ngram_range": (2, 5), "analyzer": "char_wb"},
}


@frozen(eq=False, repr=False)
class WordCounts:
    """TF-IDF of the texts of one column, sparse float32[N, K], or its first components, float32[N, C]; made by `fit_word_counts`.

    `kept` has the places of the n-grams that training texts have, in rising order, `weights` their inverse document frequencies, and
    `components`, [C, K], the right singular vectors of the training rows.

    >>> fitted = WordCounts("words", np.array([3], np.int32), np.array([1.5], np.float32))
    >>> fitted
    WordCounts(words: 1 n-grams)
    """

    analyzer: Analyzer
    kept: NDArray[np.int32]
    weights: NDArray[np.float32]
    components: NDArray[np.float32] | None = field(default=None)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Weigh the n-grams of texts; rows are scaled to length 1."""
        return self.of_counts(_count(self.analyzer, texts))

    def of_counts(self, counts: Matrix) -> Any:
        """Weigh counts of all n-grams as scikit-learn does with `sublinear_tf`: 1 + log(count), times the weight of the n-gram."""
        places = np.minimum(np.searchsorted(self.kept, counts.indices), len(self.kept) - 1)  # SciPy's way takes time for each place
        known = self.kept[places] == counts.indices
        starts = np.concatenate([[0], np.cumsum(known)])[counts.indptr]
        places = places[known].astype(np.int32)
        weighted = (1 + np.log(counts.data[known])) * self.weights[places]
        sparse = optional("scipy.sparse", extra="kaggle", needed_by="Words as counts")
        made = sparse.csr_matrix((weighted, places, starts), shape=(len(starts) - 1, len(self.kept)))
        made = optional("sklearn.preprocessing", extra="kaggle", needed_by="Words as counts").normalize(made, copy=False)
        return made if self.components is None else np.asarray(made @ self.components.T, np.float32)

    def __repr__(self) -> str:
        return f"WordCounts({self.analyzer}: {len(self.kept):,} n-grams)"


def fit_word_counts(
    texts: Sequence[str], *, components: int = 0, seed: int = 0, parts: bool = True, most: int = _MOST
) -> tuple[tuple[WordCounts, Any], ...]:
    """Fit the counts of words, and of `parts` of words where the texts are not too long, with what they give for these texts.

    With `components`, at most so many singular vectors are fitted, to n-grams of at least two rows. The `most` frequent n-grams are kept.
    An analyzer is left out where the texts have nothing to count.

    >>> [(counts, values.shape) for counts, values in fit_word_counts(["red apple", "red pear"], parts=False)]
    [(WordCounts(words: 5 n-grams), (2, 5))]
    """
    analyzers: tuple[Analyzer, ...] = ("words", "characters") if parts and sum(map(len, texts)) <= _PARTS else ("words",)
    fit = partial(_fit, texts=texts, components=components, seed=seed, most=most)
    return tuple(found for found in map(fit, analyzers) if found is not None)


def _fit(analyzer: Analyzer, texts: Sequence[str], components: int, seed: int, most: int) -> tuple[WordCounts, Any] | None:
    counts = _count(analyzer, texts)
    rows = np.bincount(counts.indices, minlength=_SPACE)
    found = np.flatnonzero(rows >= (2 if components else 1))
    if len(found) < (2 if components else 1):
        return None
    if len(found) > most:
        found = np.sort(found[np.argsort(-rows[found], kind="stable")[:most]])
    weights = np.log((1 + len(texts)) / (1 + rows[found])) + 1
    made = WordCounts(analyzer, found.astype(np.int32), weights.astype(np.float32))
    weighted = made.of_counts(counts)
    if not components:
        return made, weighted
    svd = optional("sklearn.decomposition", extra="kaggle", needed_by="Words as counts").TruncatedSVD(
        min(components, len(found) - 1), random_state=seed
    )
    limits = optional("threadpoolctl", extra="kaggle", needed_by="Words as counts").threadpool_limits
    with limits({"blas": 1}):  # the last digits depend on the number of threads
        svd.fit(weighted)
    right = np.asarray(svd.components_, np.float32)
    return WordCounts(analyzer, made.kept, made.weights, right), np.asarray(weighted @ right.T, np.float32)


def _count(analyzer: Analyzer, texts: Sequence[str]) -> Matrix:
    """Count n-grams in the places that they are hashed to, float32[N, places]."""
    return _vectorizer(analyzer).transform(texts)


def _vectorizer(analyzer: Analyzer) -> Any:
    make: Callable[..., Any] = optional("sklearn.feature_extraction.text", extra="kaggle", needed_by="Words as counts").HashingVectorizer
    return make(n_features=_SPACE, alternate_sign=False, norm=None, dtype=np.float32, **_OPTIONS[analyzer])
