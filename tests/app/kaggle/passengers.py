"""Titanic as numbers, and models of scikit-learn as `fit`: fast, and good enough to show a leak."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlxfp as fp
from mlxfp.app.kaggle.validation.folds import kfold

TARGET = "Survived"


def read(folder: Path, name: str) -> fp.Dataset[Any]:
    return fp.from_table(fp.to_table(fp.read_csv(folder / "titanic" / name)))


def numeric(rows: fp.Dataset[Any]):
    """Features that need no fitting, [N, 8]."""
    columns = fp.to_table(rows).to_pydict()
    return np.column_stack(
        [
            columns["Pclass"],
            [sex == "female" for sex in columns["Sex"]],
            [-1 if age is None else age for age in columns["Age"]],
            columns["SibSp"],
            columns["Parch"],
            [-1 if fare is None else fare for fare in columns["Fare"]],
            [{"S": 0, "C": 1, "Q": 2, None: 0}[port] for port in columns["Embarked"]],
            [", Master." in name for name in columns["Name"]],
        ]
    ).astype(float)


def forest(leaf: int):
    """Make a `fit` of a small random forest; the smaller the leaves, the more of its training rows it knows by heart."""

    def fit(parts):
        weights = fp.kaggle.column_values(parts.train, "weight") if "weight" in fp.schema(parts.train).names else None
        model = RandomForestClassifier(40, min_samples_leaf=leaf, random_state=0).fit(
            numeric(parts.train), fp.kaggle.column_values(parts.train, TARGET), weights
        )
        return lambda rows: model.predict_proba(numeric(rows))[:, 1]

    return fit


def learn_rates(rows: fp.Dataset[Any], column: str):
    """Learn the survival rate of each value of a column, pulled towards that of all; return a function from rows to rates [N]."""
    values, survived = fp.kaggle.column_values(rows, column), fp.kaggle.column_values(rows, TARGET)
    prior = survived.mean()
    rates = {value: (survived[values == value].sum() + prior) / ((values == value).sum() + 1) for value in set(values)}
    return lambda others: np.array([rates.get(value, prior) for value in fp.kaggle.column_values(others, column)])


def encoded(encode=None):
    """Make a `fit` that sees the survival rate of a ticket; `encode` is one that was learned before, else each fold learns its own.

    Within a fold the training rows get rates that were learned without them, or the model would trust the rates too much.
    """

    def fit(parts):
        train, survived = parts.train, fp.kaggle.column_values(parts.train, TARGET)
        own = encode or learn_rates(train, "Ticket")
        rates = own(train)
        if encode is None:
            table = fp.to_table(train)
            for inner in kfold(len(table), count=5, seed=0):
                seen, rest = (fp.from_table(table.take(rows)) for rows in (inner.train, inner.valid))
                rates[inner.valid] = learn_rates(seen, "Ticket")(rest)
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(np.column_stack([numeric(train), rates]), survived)
        return lambda rows: model.predict_proba(np.column_stack([numeric(rows), own(rows)]))[:, 1]

    return fit
