"""Text features for models of tables: counts of word and character n-grams, weighted by TF-IDF. The weights are fitted to training rows.

N-grams are hashed to buckets, and no vocabulary is stored. Memory use therefore depends only on the number of nonzero counts. Sources:
Salton and Buckley, "Term-weighting approaches in automatic text retrieval", 1988; Weinberger et al., "Feature Hashing for Large Scale
Multitask Learning", 2009.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.support.optional import optional

Analyzer = Literal["words", "characters"]
Matrix = Any  # SciPy CSR matrix, float32[N, K]; the type is Any, because SciPy has no type stubs

_SPACE = 2**20  # Number of hash buckets. Of 100,000 n-grams, about 10,000 share a bucket with another n-gram, without effect on scores.
_MOST = 2**18  # Maximum number of n-grams per column. A limit is needed, because linear models have a weight per n-gram and class.
_ITERATIONS = 5  # power iterations of the truncated SVD, as in scikit-learn
_PARTS = 5_000_000  # Maximum number of characters in a text column with character n-grams. For longer columns, counting takes minutes.

# Word n-grams are single tokens and pairs of neighbouring tokens. A token is a word, a number or a punctuation mark.
# Character n-grams have 2 to 5 characters inside words, and cover inflections, compounds and misspellings.
_OPTIONS: Mapping[Analyzer, Mapping[str, Any]] = {
    "words": {"ngram_range": (1, 2), "token_pattern": r"(?u)\w+|[^\w\s]"},
    "characters": {"ngram_range": (2, 5), "analyzer": "char_wb"},
}


@frozen(eq=False, repr=False)
class WordCounts:
    """TF-IDF features of a text column, created by `fit_word_counts`.

    The features are weighted n-gram counts (sparse, float32[N, K]) or, if `components` is set, their projections (float32[N, C]). `kept`
    holds the hash buckets of the n-grams in the training texts, sorted. `weights` holds the inverse document frequency of each bucket.
    `components`, [C, K], holds the right singular vectors of the weighted counts of the training texts.

    >>> fitted = WordCounts("words", np.array([3], np.int32), np.array([1.5], np.float32))
    >>> fitted
    WordCounts(words: 1 n-grams)
    """

    analyzer: Analyzer
    kept: NDArray[np.int32]
    weights: NDArray[np.float32]
    components: NDArray[np.float32] | None = field(default=None)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return the features of texts, one row per text. Counts are scaled to the Euclidean norm 1 per row."""
        return self.of_counts(_count(self.analyzer, texts))

    def of_counts(self, counts: Matrix) -> Any:
        """Multiply 1 + log(count) of each n-gram by the weight of the n-gram, as scikit-learn does with `sublinear_tf=True`."""
        # A binary search selects the columns, because SciPy's column selection takes time for each of the 2^20 hash buckets.
        buckets = np.minimum(np.searchsorted(self.kept, counts.indices), len(self.kept) - 1)
        known = self.kept[buckets] == counts.indices
        starts = np.concatenate([[0], np.cumsum(known)])[counts.indptr]
        buckets = buckets[known].astype(np.int32)
        weighted = (1 + np.log(counts.data[known])) * self.weights[buckets]
        sparse = optional("scipy.sparse", extra="kaggle", needed_by="Words as counts")
        matrix = sparse.csr_matrix((weighted, buckets, starts), shape=(len(starts) - 1, len(self.kept)))
        matrix = optional("sklearn.preprocessing", extra="kaggle", needed_by="Words as counts").normalize(matrix, copy=False)
        return matrix if self.components is None else np.asarray(matrix @ self.components.T, np.float32)

    def __repr__(self) -> str:
        return f"WordCounts({self.analyzer}: {len(self.kept):,} n-grams)"


def fit_word_counts(
    texts: Sequence[str], *, components: int = 0, seed: int = 0, parts: bool = True, most: int = _MOST
) -> tuple[tuple[WordCounts, Any], ...]:
    """Fit TF-IDF features to texts. Return a pair (`WordCounts` for new texts, features of `texts`) for each kind of n-gram.

    - Word n-grams are always counted. Character n-grams are also counted if `parts` is True and the texts are short.
    - `most` is the maximum number of n-grams of each kind. The most frequent n-grams are kept. The result has no pair for absent kinds.
    - `components=0`: the features are the TF-IDF values of the n-grams.
    - `components=100`: the TF-IDF values are reduced to at most 100 dimensions (truncated SVD). N-grams of only one text are ignored.

    >>> [(counts, values.shape) for counts, values in fit_word_counts(["red apple", "red pear"], parts=False)]
    [(WordCounts(words: 5 n-grams), (2, 5))]
    """
    analyzers: tuple[Analyzer, ...] = ("words", "characters") if parts and sum(map(len, texts)) <= _PARTS else ("words",)
    fit = partial(_fit, texts=texts, components=components, seed=seed, most=most)
    return tuple(fitted for fitted in map(fit, analyzers) if fitted is not None)


def _fit(analyzer: Analyzer, texts: Sequence[str], components: int, seed: int, most: int) -> tuple[WordCounts, Any] | None:
    counts = _count(analyzer, texts)
    rows = np.bincount(counts.indices, minlength=_SPACE)
    buckets = np.flatnonzero(rows >= (2 if components else 1))
    if len(buckets) < (2 if components else 1):
        return None
    if len(buckets) > most:
        buckets = np.sort(buckets[np.argsort(-rows[buckets], kind="stable")[:most]])
    weights = np.log((1 + len(texts)) / (1 + rows[buckets])) + 1
    fitted = WordCounts(analyzer, buckets.astype(np.int32), weights.astype(np.float32))
    weighted = fitted.of_counts(counts)
    if not components:
        return fitted, weighted
    linear = optional("sklearn.utils.extmath", extra="kaggle", needed_by="Words as counts")
    limits = optional("threadpoolctl", extra="kaggle", needed_by="Words as counts").threadpool_limits
    with limits({"blas": 1}):  # A single thread is used, because the last digits depend on the number of threads.
        # `randomized_svd` gives the result of TruncatedSVD without its division by the variance, which is 0 for texts with the same words.
        left, _, right = linear.randomized_svd(
            weighted, min(components, len(buckets) - 1), n_iter=_ITERATIONS, random_state=seed, flip_sign=False
        )
    right = np.asarray(linear.svd_flip(left, right, u_based_decision=False)[1], np.float32)
    return WordCounts(analyzer, fitted.kept, fitted.weights, right), np.asarray(weighted @ right.T, np.float32)


def _count(analyzer: Analyzer, texts: Sequence[str]) -> Matrix:
    """Count how many n-grams of each text fall into each hash bucket: float32[N, buckets]. The n-grams of equal texts are found once."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return _vectorizer(analyzer).transform(list(rows))[[rows[text] for text in texts]]


def _vectorizer(analyzer: Analyzer) -> Any:
    make: Callable[..., Any] = optional("sklearn.feature_extraction.text", extra="kaggle", needed_by="Words as counts").HashingVectorizer
    return make(n_features=_SPACE, alternate_sign=False, norm=None, dtype=np.float32, **_OPTIONS[analyzer])
