"""Choice of the models that a run with `model.name=auto` trains, from facts that are known before the training."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import mlx.core as mx
from attrs import evolve, frozen

from mlxfp import Dataset, length, select_columns, to_table
from mlxfp.app.kaggle.estimators.columns import are_codes
from mlxfp.app.kaggle.estimators.named import scaled_rounds
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS, Errors
from mlxfp.models import TABLE_MODELS

PACKAGES = ("sklearn", "lightgbm", "catboost")
Values = dict[str, Any]  # sections of a configuration

_SHORT = 2_000_000  # up to this number of bytes in text columns, the model of word counts is first; 5 folds take about 20 s
_FEW = 5000  # maximum number of rows for forests (because of the file size) and kernel models (because of the fitting time)
# Boosting stops after 30 rounds without improvement. The improvement is measured on a tenth of the training rows.
# Early stopping is needed, because noisy tables need only 50 rounds, while tables with little noise need 1000 rounds.
# On the noisy table InstEval (R package lme4), the out-of-fold RMSE is 1.302 with early stopping, and 1.331 with 1000 rounds.
# On the noisy table movies (R package ggplot2movies), the RMSE is 1.391 with early stopping, and 1.464 with 1000 rounds.
# Training with 1000 rounds takes eight times as long as training with early stopping.
_PATIENCE = 30
_BOOSTED = {"n_estimators": 1000, "learning_rate": 0.05, "num_leaves": 31, "min_child_samples": 20, "colsample_bytree": 0.8}
_CATBOOST = {"iterations": 500, "learning_rate": 0.1}
# Small trees suit tables with few rows or much noise. Small and large trees make different errors, so a blend of both is better.
_SHALLOW = {"n_estimators": 200, "learning_rate": 0.03, "num_leaves": 7, "min_child_samples": 20, "reg_lambda": 5.0}
# On Calhousing (house prices in California) with 5 folds, the RMSE is 44,139 with these settings, and 44,857 with the defaults of LightGBM.
_LARGE = {
    "n_estimators": 1200,
    "learning_rate": 0.03,
    "num_leaves": 95,
    "min_child_samples": 10,
    "colsample_bytree": 0.5,
    "reg_lambda": 5.0,
}
# A second LightGBM setting for large tables. Each tree uses 80 % of the rows and 80 % of the columns.
# On Calhousing (house prices in California), the second LightGBM setting has an RMSE of 44,094, close to the best of 20 tried settings.
# On the first fold of Calhousing, averaging the predictions of both LightGBM settings lowers the RMSE from 43,553 and 43,519 to 43,304.
_SAMPLED = {
    "n_estimators": 1500,
    "learning_rate": 0.03,
    "num_leaves": 72,
    "min_child_samples": 7,
    "subsample": 0.8,
    "subsample_freq": 1,
    "colsample_bytree": 0.8,
    "reg_lambda": 0.3,
}
_MOST_TRAINED = 200_000  # maximum number of rows for networks that finish within minutes
FEWEST_EPOCHS = 16  # minimum number of epochs of a network whose training is shortened to save time


_ABOUT = {
    "catboost": "boosted trees of CatBoost",
    "codes": "boosted trees on numbers and categories, without texts",
    "catboost_codes": "boosted trees of CatBoost, with repeated whole numbers as categories",
    "forest": "extremely randomized trees",
    "kernel": "kernel model: similar rows have similar targets",
    "large": "LightGBM with many small steps and large trees",
    "lightgbm": "boosted trees of LightGBM",
    "linear": "linear model",
    "linear_codes": "linear model, with repeated whole numbers as categories",
    "plain_words": "linear model on word counts, with stronger regularization",
    "sampled": "LightGBM with a sample of rows and columns for each tree",
    "shallow": "LightGBM with smaller trees",
    "slow": "LightGBM with many small steps and small trees",
    "text": "transformer encoder on rows as text",
    "trees": "boosted trees of scikit-learn",
    "words": "linear model on word counts and on the other columns",
}


@frozen
class Facts:
    """Facts that determine the choice of models: task, device, installed packages, and the numbers of rows, columns and classes."""

    rows: int
    numbers: int
    categories: int
    texts: int
    classes: int  # 0 for regression
    errors: Errors
    packages: frozenset[str]
    gpu: bool = False
    codes: int = 0  # number of columns with whole numbers that look like identifiers
    text_bytes: int = 0  # size of all text columns


@frozen
class Member:
    """One of several models in a run. `values` holds the options that the model changes in the run, by section and name.

    The other fields belong to the record of the run. `seconds` is the training time. `kept` is True if the blend includes the model, False
    if not, and None before the decision. `why` is the reason for an exclusion.
    """

    name: str
    values: Values
    seconds: float = 0.0
    kept: bool | None = None
    why: str = ""


def facts_of(spec: DatasetSpec, rows: Dataset[Any]) -> Facts:
    """Return the facts about the data, the installed packages and the device that determine the choice of models."""
    kinds = [column.type for column in spec.columns]
    packages = frozenset(name for name in PACKAGES if find_spec(name) is not None)
    counts = (kinds.count("numerical"), kinds.count("categorical"), kinds.count("text"))
    numbers = [column.name for column in spec.columns if column.type == "numerical"]
    table = to_table(select_columns(numbers)(rows)) if numbers else None
    codes = sum(are_codes(table[name]) for name in numbers) if table is not None else 0
    texts = [column.name for column in spec.columns if column.type == "text"]
    text_bytes = to_table(select_columns(texts)(rows)).nbytes if texts else 0
    count, errors = length(rows) or 0, METRICS[spec.metric].errors
    return Facts(count, *counts, len(spec.classes), errors, packages, mx.default_device() == mx.gpu, codes, text_bytes)


def members(facts: Facts) -> tuple[Member, ...]:
    """Return the models to train, most important first. If time runs out, the last models are excluded.

    >>> from attrs import evolve
    >>> table = Facts(800, numbers=5, categories=2, texts=0, classes=2, errors="squared", packages=frozenset({"sklearn"}))
    >>> [member.name for member in members(table)][:4]  # networks for tables follow
    ['trees', 'linear', 'forest', 'kernel']
    >>> [member.name for member in members(evolve(table, numbers=0, categories=0, texts=1, packages=frozenset({"sklearn", "lightgbm"})))]
    ['words', 'lightgbm', 'shallow', 'plain_words']
    >>> [member.name for member in members(evolve(table, texts=1, packages=frozenset({"sklearn", "lightgbm", "catboost"})))][:4]
    ['words', 'codes', 'lightgbm', 'catboost']
    """
    columns = facts.numbers + facts.categories
    readable = columns and ("sklearn" in facts.packages or not facts.texts)  # word counts of text columns need scikit-learn
    networks = [Member(name, _network(name, facts)) for name in _networks(facts)] if readable else []
    fitted = list(_estimators(facts, columns)) if "sklearn" in facts.packages else []
    return (*fitted, *networks) or (Member("text", {"model": {"name": None}}),)


def describe(name: str) -> str:
    """Return a short description of the model with this name, or "" for an unknown name.

    >>> describe("forest"), describe("seed-1")
    ('extremely randomized trees', '')
    """
    return _ABOUT.get(name, f"neural network for tables ({name})" if name in TABLE_MODELS else "")


def _networks(facts: Facts) -> Iterator[str]:
    """Yield the names of networks that train within minutes."""
    for name, network in TABLE_MODELS.items() if facts.rows <= _MOST_TRAINED else ():
        if facts.gpu or network.quick.rows is None or facts.rows <= network.quick.rows:
            yield name


def _network(name: str, facts: Facts) -> Values:
    """Return the default settings of a network. Without a GPU, the network gets smaller layers or fewer epochs."""
    network, sections = TABLE_MODELS[name], dict[str, Any]()
    quick = network.quick
    for layer in (network.defaults, {"model": {"name": name}}, {} if facts.classes else quick.values, {} if facts.gpu else quick.slow):
        sections |= {section: {**sections.get(section, {}), **values} for section, values in layer.items()}
    if not facts.gpu and quick.updates is not None:
        training, observers = sections["training"], sections["observers"]
        epochs = max(FEWEST_EPOCHS, min(training["epochs"], quick.updates * training["size"] // facts.rows))
        sections |= {"training": training | {"epochs": epochs}, "observers": observers | {"patience": min(epochs, observers["patience"])}}
    return sections


def _estimators(facts: Facts, columns: int) -> Iterator[Member]:
    """Yield the estimators in the order of training: fast boosted trees, then different kinds of models, then further trees."""
    boosted = _boosted("lightgbm", "lightgbm", _BOOSTED, facts) if "lightgbm" in facts.packages else _named("trees", *_histograms(facts))
    words = [_named("words", "tfidf")] if facts.texts else []
    if columns:
        # With long texts, the first model ignores text columns, so that the first result does not wait for the slow counting of words.
        # With short texts, the model of word counts is first: often only the texts predict the target, and a short run may have no time
        # for a second model.
        trees = [_with(evolve(boosted, name="codes"), texts=False), boosted] if facts.texts else [boosted]
        yield from [*words, *trees] if facts.text_bytes <= _SHORT else [*trees, *words]
        yield from _without_texts(facts)
    else:
        yield from (*words, boosted)
    yield from _further(facts, columns)


def _without_texts(facts: Facts) -> Iterator[Member]:
    """Yield models that ignore text columns. These models score better if the texts do not predict the target."""
    if not facts.texts:
        yield _named("linear", *_linear(classed=facts.classes > 0))
    if facts.codes:
        yield _with(_named("linear_codes", *_sparse_linear(classed=facts.classes > 0)), texts=False, codes=True)
    if "catboost" in facts.packages:
        yield _with(_boosted("catboost", "catboost", _CATBOOST, facts), texts=False)
        if facts.codes:
            yield _with(_boosted("catboost_codes", "catboost", _CATBOOST, facts), texts=False, codes=True)


def _further(facts: Facts, columns: int) -> Iterator[Member]:
    """Yield the last models to train. Usually, they improve a blend only a little."""
    classed, few, lightgbm = facts.classes > 0, facts.rows <= _FEW, "lightgbm" in facts.packages
    if columns and lightgbm and few:
        yield _with(_named("slow", "lightgbm"), texts=False)
    if lightgbm and classed:
        yield _boosted("shallow", "lightgbm", _SHALLOW, facts)
    if facts.texts and classed:
        yield _named("plain_words", "tfidf", {"C": 0.5})
    if columns and lightgbm and not few:
        yield _boosted("large", "lightgbm", _LARGE, facts)
        yield _boosted("sampled", "lightgbm", _SAMPLED, facts)
    if columns and few:
        yield _named("forest", *_forest(columns, classed=classed))
        yield _named("kernel", "kernel")


def _named(name: str, model: str, arguments: Mapping[str, Any] | None = None) -> Member:
    return Member(name, {"model": {"name": model, "arguments": dict(arguments or {})}})


def _boosted(name: str, model: str, settings: Mapping[str, Any], facts: Facts) -> Member:
    """Return boosted trees that stop early."""
    member = _named(name, model, scaled_rounds(settings, rows=facts.rows, classes=facts.classes))
    return evolve(member, values={**member.values, "observers": {"patience": _PATIENCE}})


def _with(member: Member, **options: bool) -> Member:
    return evolve(member, values={**member.values, "model": {**member.values["model"], **options}})


def _histograms(facts: Facts) -> tuple[str, Mapping[str, Any]]:
    shape = {"max_iter": 300, "learning_rate": 0.04, "max_leaf_nodes": 15, "min_samples_leaf": 10, "l2_regularization": 1.0}
    shape = scaled_rounds(shape, rows=facts.rows, classes=facts.classes)
    loss = {"loss": "absolute_error"} if facts.errors == "absolute" and not facts.classes else {}
    return f"sklearn.ensemble:HistGradientBoosting{'Classifier' if facts.classes else 'Regressor'}", shape | loss


def _linear(*, classed: bool) -> tuple[str, Mapping[str, Any]]:
    if classed:
        return "sklearn.linear_model:LogisticRegression", {"C": 0.5, "max_iter": 1000}
    return "sklearn.linear_model:RidgeCV", {"alphas": [0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]}


def _sparse_linear(*, classed: bool) -> tuple[str, Mapping[str, Any]]:
    """Return a linear model for thousands of one-hot columns."""
    if classed:
        return _linear(classed=True)
    return "sklearn.linear_model:Ridge", {"alpha": 3.0, "solver": "sparse_cg"}


def _forest(columns: int, *, classed: bool) -> tuple[str, Mapping[str, Any]]:
    if classed:
        return "sklearn.ensemble:ExtraTreesClassifier", {"n_estimators": 100, "min_samples_leaf": 3, "max_features": 0.5}
    # Fraction of the columns that each split of a tree may use: all columns for few columns, 40 % of the columns for many columns.
    # On the data set Concrete (8 columns), the RMSE is 5.02 if a split may use all columns, and 6.16 with 40 % of the columns.
    # On the data set Ames (74 columns), the RMSE is the same if a split may use all columns or 40 % of the columns.
    share = round(min(1.0, max(0.4, 10 / columns)), 2)
    return "sklearn.ensemble:ExtraTreesRegressor", {"n_estimators": 100, "min_samples_leaf": 2, "max_features": share}
