"""Small tables with numbers, categories and texts, made for tests of estimators."""

import numpy as np

import mlxfp as fp

COLUMNS = [
    fp.kaggle.ColumnSpec(name="size", type="numerical"),
    fp.kaggle.ColumnSpec(name="kind", type="categorical"),
    fp.kaggle.ColumnSpec(name="said", type="text"),
]
CLASSES = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "multilabel": ("0", "1"), "regression": (), "ordinal": ("1", "2", "3")}
METRICS = {"binary": "accuracy", "multiclass": "log_loss", "multilabel": "roc_auc", "regression": "rmse", "ordinal": "qwk"}


def spec_of(kind, *, metric=None, target=("y",), columns=COLUMNS, classes=None):
    return fp.kaggle.DatasetSpec(
        name="things",
        kind=kind,
        train=fp.kaggle.FileSpec(name="train.csv"),
        target=target,
        classes=CLASSES[kind] if classes is None else classes,
        columns=columns,
        metric=metric or METRICS[kind],
    )


def things(count, *, seed=0):
    """Rows whose numbers, categories and words all say something about a score, with missing values; and the score."""
    random = np.random.default_rng(seed)
    size, kind, words = random.normal(size=count), random.integers(3, size=count), random.integers(4, size=(count, 3))
    score = size + 1.5 * kind + np.where(words == 0, 2, 0).sum(axis=1)
    rows = {
        "size": [None if missing else float(value) for value, missing in zip(size, random.random(count) < 0.1, strict=True)],
        "kind": [None if missing else f"k{value}" for value, missing in zip(kind, random.random(count) < 0.1, strict=True)],
        "said": [" ".join(np.array(["splendid", "table", "chair", "lamp"])[row]) if row[0] else None for row in words],
    }
    return rows, score


def table_of(kind, count=60, *, seed=0, target=("y",)):
    """Rows of a kind of target, as a dataset."""
    rows, score = things(count, seed=seed)
    levels = (np.searchsorted(np.quantile(score, [1 / 3, 2 / 3]), score)).astype(float)
    values = {"multiclass": levels, "ordinal": levels, "regression": score}.get(kind, (score > np.median(score)).astype(float))
    return fp.from_table(rows | {name: values if place == 0 else (values + place) % 2 for place, name in enumerate(target)})
