"""Baselines that count words or characters, for comparison with small networks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from math import log
from typing import Any

Rows = Iterable[Mapping[str, Any]]


def linear_model(train: Rows, *, label: str) -> Callable[[Rows], float] | None:
    """Fit logistic regression to the TF-IDF of words and word pairs in the column `text`, and return a function from rows to accuracy.

    Returns None if scikit-learn is not installed (`pip install "mlxfp[kaggle]"`).
    """
    if find_spec("sklearn") is None:
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    # The default pattern of scikit-learn drops words of one character, such as the class of a passenger. This pattern keeps all words.
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+")  # noqa: S106  # no password
    model = make_pipeline(words, LogisticRegression(C=4, max_iter=1000))
    model.fit(*_columns(train, label))
    return lambda rows: float(model.score(*_columns(rows, label)))


def _columns(rows: Rows, label: str) -> tuple[list[str], list[int]]:
    texts, labels = zip(*((row["text"], row[label]) for row in rows), strict=True)
    return list(texts), list(labels)


def five_grams(train: str, valid: str) -> float:
    """Count the characters after every four characters of `train`, and return the loss on `valid` in nats per character.

    Each context is interpolated with the shorter contexts, weighted by the frequency of unseen characters after the context (Witten and
    Bell, "The Zero-Frequency Problem", 1991).
    """
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for order in range(5):
        for position in range(order, len(train)):
            seen[train[position - order : position]][train[position]] += 1
    totals = {context: counts.total() for context, counts in seen.items()}
    alphabet, text, nats = len(set(train + valid)), train[-4:] + valid, 0.0
    for position in range(4, len(text)):
        chance = 1 / alphabet
        for context in (text[position - order : position] for order in range(5)):
            if context in totals:
                counts, total = seen[context], totals[context]
                chance = (counts[text[position]] + len(counts) * chance) / (total + len(counts))
        nats -= log(chance)
    return nats / len(valid)
