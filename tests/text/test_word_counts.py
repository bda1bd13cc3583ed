"""Counts of words: those of scikit-learn's vectorizers, from hashed places that training texts have."""

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from mlxfp.text.word_counts import fit_word_counts

TEXTS = ["a good film", "good, good film", "bad film", "so bad", "a film"]


def test_weights_are_those_of_scikit_learn():
    fitted = fit_word_counts(TEXTS)
    assert [counts.analyzer for counts, _ in fitted] == ["words", "characters"]
    for (counts, made), options in zip(
        fitted, ({"ngram_range": (1, 2), "token_pattern": r"(?u)\w+|[^\w\s]"}, {"analyzer": "char_wb", "ngram_range": (2, 5)}), strict=True
    ):
        known = TfidfVectorizer(sublinear_tf=True, **options).fit(TEXTS)
        for texts in (TEXTS, ["good bad", "unknown", ""]):
            ours, theirs = counts(texts), known.transform(texts)
            assert np.allclose((ours @ ours.T).toarray(), (theirs @ theirs.T).toarray(), atol=1e-6)  # columns have another order
        assert np.allclose(made.toarray(), counts(TEXTS).toarray())


def test_components_keep_what_rows_share():
    (words, made), _ = fit_word_counts(TEXTS, components=2, seed=0)
    assert made.shape == (5, 2)
    assert np.allclose(made, words(TEXTS), atol=1e-6)
    assert made.dtype == np.float32


def test_components_are_those_of_scikit_learn():
    (words, _), _ = fit_word_counts(TEXTS * 20, components=3, seed=4)
    (_, weighted), _ = fit_word_counts(TEXTS * 20)
    assert np.array_equal(words.components, TruncatedSVD(3, random_state=4).fit(weighted).components_)


@pytest.mark.parametrize("texts", [["the same words"] * 20, [f"one item {row}" for row in range(20)]])
def test_texts_with_the_same_words_have_components_and_no_warning(texts):
    """The words that several texts share have no variance. The components are finite. Warnings are errors in tests."""
    (_, made), _ = fit_word_counts(texts, components=16)
    assert np.allclose(made, made[0], atol=1e-6)


def test_memory_is_bounded():
    fitted = fit_word_counts([f"{text} " * 100_000 for text in TEXTS], most=3)
    assert [(counts.analyzer, len(counts.kept)) for counts, _ in fitted] == [("words", 3)]  # the texts are long, so no parts of words
    assert np.all(np.diff(fitted[0][0].kept) > 0)


def test_texts_without_anything_to_count_have_no_counts():
    assert fit_word_counts(["", " "]) == ()
    assert fit_word_counts(["ab cd", "ef gh"], components=4) == ()  # no n-gram is in two rows
