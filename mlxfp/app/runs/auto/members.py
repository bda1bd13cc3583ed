"""Choice of the models that a run with `model.name=auto` trains, from facts that are known before the training."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
from attrs import evolve, frozen

from mlxfp.app.kaggle.estimators.named import scaled_rounds
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS, Errors
from mlxfp.app.runs.plans import Trackers
from mlxfp.models import TABLE_MODELS

PACKAGES = ("sklearn", "lightgbm", "catboost", "xgboost")
Values = Mapping[str, Any]  # sections of a configuration

_FEW = 5000  # maximum number of rows for forests (because of the file size) and kernel models (because of the fitting time)
# 300 rounds take 3 to 5 seconds for 10,000 rows. With these settings, CatBoost is the best single model on several tables.
_CATBOOST = {"iterations": 300, "learning_rate": 0.1}
# Larger trees (_DEEP) and smaller trees (_SHALLOW) complement the defaults of lightgbm for few rows: one of the three suits most tables.
# Examples from the R package modeldata: macro F1 on hpc_data 0.801 (defaults 0.777), ROC AUC on attrition 0.814 (defaults 0.802).
_DEEP = {"n_estimators": 150, "learning_rate": 0.08, "num_leaves": 31, "min_child_samples": 20, "colsample_bytree": 0.8}
_SHALLOW = {"n_estimators": 200, "learning_rate": 0.03, "num_leaves": 7, "min_child_samples": 20, "reg_lambda": 5.0}
# On Calhousing with 5 folds, the RMSE is 44,139 with these settings, and 44,857 with the default settings of lightgbm.
_LARGE = {
    "n_estimators": 1200,
    "learning_rate": 0.03,
    "num_leaves": 95,
    "min_child_samples": 10,
    "colsample_bytree": 0.5,
    "reg_lambda": 5.0,
}
# Second LightGBM setting for tables with many rows: each tree uses a sample of the rows and most columns.
# On Calhousing, the RMSE of the second setting is 44,094, close to the best of 20 settings tried.
# First fold of Calhousing: RMSE 43,553 for the first setting, 43,519 for the second setting, 43,304 for the mean of both.
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
_EPOCHS = 16  # minimum number of epochs of a network without a GPU


_ABOUT = {
    "catboost": "boosted trees of CatBoost",
    "codes": "boosted trees on numbers and categories, without texts",
    "deep": "LightGBM with larger trees",
    "forest": "extremely randomized trees",
    "kernel": "kernel model: similar rows have similar targets",
    "large": "LightGBM with many small steps and large trees",
    "lightgbm": "boosted trees of LightGBM",
    "linear": "linear model",
    "plain_words": "linear model on word counts, with stronger regularization",
    "sampled": "LightGBM with a sample of rows and columns for each tree",
    "shallow": "LightGBM with smaller trees",
    "text": "transformer encoder on rows as text",
    "trees": "boosted trees of scikit-learn",
    "words": "linear model on word counts and on the other columns",
    "xgboost": "boosted trees of XGBoost",
}


@frozen
class Facts:
    """Facts that determine the choice of models: training rows, columns of each kind, task, installed packages and device."""

    rows: int
    numbers: int
    categories: int
    texts: int
    classes: int  # 0 for regression
    errors: Errors
    packages: frozenset[str]
    gpu: bool = False


@frozen
class Member:
    """A model of a run with several models. `values` has the options that differ from the run, by section and name."""

    name: str
    values: Values

    def options(self, run: Trackers) -> dict[str, Any]:
        """Return the options for the run of this model, by option path."""
        by_path = {f"{section}.{name}": value for section, values in self.values.items() for name, value in values.items()}
        return {"name": self.name, "competition.threshold": False, **_watched(run), **by_path}


def _watched(run: Trackers) -> dict[str, Any]:
    """Return the logging and tracking options for a single model. Model names repeat between runs, so trackers also need the run name."""
    board, project = run.tensorboard, run.trackio
    return {
        "observers.progress": False,
        "observers.mlflow_model": None,
        "observers.tensorboard": None if board is None else str(Path(board, run.name)),
        "observers.trackio": None if project is None else f"{project}-{run.name}",
    }


def facts_of(spec: DatasetSpec, rows: int) -> Facts:
    """Return the facts for a spec, a number of training rows and the installed packages."""
    kinds = [column.type for column in spec.columns]
    packages = frozenset(name for name in PACKAGES if find_spec(name) is not None)
    counts = (kinds.count("numerical"), kinds.count("categorical"), kinds.count("text"))
    return Facts(rows, *counts, len(spec.classes), METRICS[spec.metric].errors, packages, mx.default_device() == mx.gpu)


def members(facts: Facts) -> tuple[Member, ...]:
    """Return the models to train, most important first. If time runs out, the last models are excluded.

    >>> from attrs import evolve
    >>> table = Facts(800, numbers=5, categories=2, texts=0, classes=2, errors="squared", packages=frozenset({"sklearn"}))
    >>> [member.name for member in members(table)][:4]  # networks for tables follow
    ['trees', 'linear', 'kernel', 'forest']
    >>> [member.name for member in members(evolve(table, numbers=0, categories=0, texts=1, packages=frozenset({"sklearn", "lightgbm"})))]
    ['words', 'lightgbm', 'deep', 'shallow', 'plain_words']
    >>> [member.name for member in members(evolve(table, texts=1, packages=frozenset({"sklearn", "lightgbm", "catboost"})))][:4]
    ['codes', 'lightgbm', 'words', 'catboost']
    """
    columns = facts.numbers + facts.categories
    readable = columns and ("sklearn" in facts.packages or not facts.texts)  # word counts of text columns need scikit-learn
    networks = [Member(name, _network(name, facts)) for name in _networks(facts)] if readable else []
    fitted = list(_estimators(facts, columns)) if "sklearn" in facts.packages else []
    return (*fitted, *networks) or (Member("text", {"model": {"name": None}}),)


def describe(name: str) -> str:
    """Return the kind of the model with a member name in one line.

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
    """Return the published settings of a network. Without a GPU, the network gets smaller layers or fewer epochs."""
    network, sections = TABLE_MODELS[name], dict[str, Any]()
    quick = network.quick
    for layer in (network.defaults, {"model": {"name": name}}, {} if facts.classes else quick.values, {} if facts.gpu else quick.slow):
        sections |= {section: {**sections.get(section, {}), **values} for section, values in layer.items()}
    if not facts.gpu and quick.updates is not None:
        training, observers = sections["training"], sections["observers"]
        epochs = max(_EPOCHS, min(training["epochs"], quick.updates * training["size"] // facts.rows))
        sections |= {"training": training | {"epochs": epochs}, "observers": observers | {"patience": min(epochs, observers["patience"])}}
    return sections


def _estimators(facts: Facts, columns: int) -> Iterator[Member]:
    packages, classed, few = facts.packages, facts.classes > 0, facts.rows <= _FEW
    lightgbm = "lightgbm" in packages
    boosted = _named("lightgbm", "lightgbm") if lightgbm else _named("trees", *_histograms(facts))
    words = [_named("words", "tfidf")] if facts.texts else []
    codes = [_without_texts(evolve(boosted, name="codes"))] if facts.texts else []  # `codes` is first, because its fit needs no word counts
    yield from (*codes, boosted, *words) if columns else (*words, boosted)
    if columns and not facts.texts:
        yield _named("linear", *_linear(classed=classed))  # second, because the fit is cheap, and linear errors differ most from trees
    if "catboost" in packages:
        catboost = _named("catboost", "catboost", scaled_rounds(_CATBOOST, rows=facts.rows, classes=facts.classes))
        yield _without_texts(catboost) if columns and facts.texts else catboost
    if lightgbm:
        yield _trees("deep", _DEEP, facts)
        yield from [_trees("shallow", _SHALLOW, facts)] if classed else ()
    if facts.texts and classed:
        yield _named("plain_words", "tfidf", {"C": 0.5})
    if columns and lightgbm and not few:
        yield _trees("large", _LARGE, facts)
        yield _trees("sampled", _SAMPLED, facts)
    if columns and few:
        yield _named("kernel", "kernel")
        yield _named("forest", *_forest(columns, classed=classed))
    yield from [_named("xgboost", "xgboost")] if "xgboost" in packages else ()


def _named(name: str, model: str, arguments: Mapping[str, Any] | None = None) -> Member:
    return Member(name, {"model": {"name": model, "arguments": dict(arguments or {})}})


def _trees(name: str, settings: Mapping[str, Any], facts: Facts) -> Member:
    return _named(name, "lightgbm", scaled_rounds(settings, rows=facts.rows, classes=facts.classes))


def _without_texts(member: Member) -> Member:
    """Return the same model without text columns. Text components make trees worse if the texts do not predict the target."""
    return evolve(member, values={"model": {**member.values["model"], "texts": False}})


def _histograms(facts: Facts) -> tuple[str, Mapping[str, Any]]:
    shape = {"max_iter": 300, "learning_rate": 0.04, "max_leaf_nodes": 15, "min_samples_leaf": 10, "l2_regularization": 1.0}
    shape = scaled_rounds(shape, rows=facts.rows, classes=facts.classes)
    loss = {"loss": "absolute_error"} if facts.errors == "absolute" and not facts.classes else {}
    return f"sklearn.ensemble:HistGradientBoosting{'Classifier' if facts.classes else 'Regressor'}", shape | loss


def _linear(*, classed: bool) -> tuple[str, Mapping[str, Any]]:
    if classed:
        return "sklearn.linear_model:LogisticRegression", {"C": 0.5, "max_iter": 1000}
    return "sklearn.linear_model:RidgeCV", {"alphas": [0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]}


def _forest(columns: int, *, classed: bool) -> tuple[str, Mapping[str, Any]]:
    if classed:
        return "sklearn.ensemble:ExtraTreesClassifier", {"n_estimators": 150, "min_samples_leaf": 3, "max_features": 0.5}
    # Share of the columns per tree. With few columns, use all columns: RMSE on concrete (8 columns) is 5.02, against 6.16 with 40 %.
    # With many columns, 40 % of the columns are enough: on ames (74 columns), the RMSE is the same with 40 % and with all columns.
    share = round(min(1.0, max(0.4, 10 / columns)), 2)
    return "sklearn.ensemble:ExtraTreesRegressor", {"n_estimators": 150, "min_samples_leaf": 2, "max_features": share}
