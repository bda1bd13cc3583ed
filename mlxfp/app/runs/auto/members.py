"""Which models suit a table, and in which order they are worth their time: a pure function of what is known before anything is trained."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
from attrs import evolve, frozen

from mlxfp.app.config.classes import ObserversConfig, RunConfig
from mlxfp.app.config.presets import MODEL_DEFAULTS
from mlxfp.app.kaggle.specs.specs import CLASSED, DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS, Errors
from mlxfp.app.runs.from_config import AUTO, CHOICES
from mlxfp.support.structuring import structure, unstructure

PACKAGES = ("sklearn", "lightgbm", "catboost", "xgboost")
Values = Mapping[str, Any]  # sections of a configuration

_FEW = 5000  # rows: up to here, forests are small enough to keep, and kernels quick enough to fit
_BOOSTED = ("catboost", "xgboost")
# Larger trees, and smaller and fewer ones: with those that lightgbm has by itself for few rows, one of them suits most tables. Macro F1 of
# hpc_data .801 (.777 by itself), ROC AUC of attrition .814 (.802), both of the R package modeldata.
_DEEP = {"n_estimators": 150, "learning_rate": 0.08, "num_leaves": 31, "min_child_samples": 20, "colsample_bytree": 0.8}
_SHALLOW = {"n_estimators": 200, "learning_rate": 0.03, "num_leaves": 7, "min_child_samples": 20, "reg_lambda": 5.0}
# Calhousing, 5 folds: RMSE 44,139, and 44,857 with the settings that lightgbm has by itself.
_LARGE = {
    "n_estimators": 1200,
    "learning_rate": 0.03,
    "num_leaves": 95,
    "min_child_samples": 10,
    "colsample_bytree": 0.5,
    "reg_lambda": 5.0,
}
# Another one, whose trees see a sample of the rows and most columns, near the best of 20 trials of tuning there (44,094). In the first fold
# the mean of the two has 43,304, and each alone 43,553 and 43,519.
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
# The frequencies of numbers in realmlp, of values: that of its authors is 0.1. RMSE of the first fold of calhousing after 30 epochs, 45,769
# and 46,449 (two seeds), and 48,610 with 0.1; Computers 165, 183 (mean of two folds); concrete 5.08, 5.45. For classes, 0.1 does as well.
_SIGMA = 1.0
_MOST_TRAINED = 200_000  # rows beyond which networks do not finish in minutes
# Of a fold of realmlp without a GPU: at most so many, half a minute on one core, and at least so many. Calhousing, first fold:
# RMSE 51,370 after 16 epochs, 47,783 after 40 and 47,777 after 256.
_UPDATES, _EPOCHS = 3000, 16


@frozen
class Facts:
    """What the choice of members depends on: the number of training rows, and of columns of each kind; the task; packages; the device."""

    rows: int
    numbers: int
    categories: int
    texts: int
    classes: int  # 0: values
    errors: Errors
    packages: frozenset[str]
    gpu: bool = False


@frozen
class Member:
    """A model of a run of several: its name, and the sections of its configuration that differ from the run's."""

    name: str
    values: Values

    def config(self, run: RunConfig, *, data: str, spec: str | None, output: str) -> RunConfig:
        """Return the configuration of the member's own run, with the folds and rows of the whole."""
        base = evolve(run, name=self.name, output=output, data=evolve(run.data, path=data, spec=spec))
        base = evolve(base, competition=evolve(run.competition, threshold=False), observers=_watched(run))
        values = unstructure(base)
        merged = {name: {**value, **self.values[name]} if name in self.values else value for name, value in values.items()}
        return structure(merged, RunConfig, choices=CHOICES)


def _watched(run: RunConfig) -> ObserversConfig:
    """Return how members are watched. Their own names are those of the members of other runs: trackers need that of the run, too."""
    watched, board, project = run.observers, run.observers.tensorboard, run.observers.trackio
    return evolve(
        watched,
        progress=False,
        mlflow_model=None,
        minutes=None if run.model.name == AUTO else watched.minutes,  # of all members together, or of a fold
        tensorboard=None if board is None else str(Path(board, run.name)),
        trackio=None if project is None else f"{project}-{run.name}",
    )


def facts_of(spec: DatasetSpec, rows: int) -> Facts:
    """Return the facts of a data set of so many training rows, with the packages that are installed."""
    kinds = [column.type for column in spec.columns]
    found = frozenset(name for name in PACKAGES if find_spec(name) is not None)
    classes = len(spec.classes) if spec.kind in CLASSED else 0
    counts = (kinds.count("numerical"), kinds.count("categorical"), kinds.count("text"))
    return Facts(rows, *counts, classes, METRICS[spec.metric].errors, found, mx.default_device() == mx.gpu)


def members(facts: Facts) -> tuple[Member, ...]:
    """Choose members, the one that must not be missing first; later ones are left out where the time is up.

    >>> table = Facts(800, numbers=5, categories=2, texts=0, classes=2, errors="squared", packages=frozenset({"sklearn"}))
    >>> [member.name for member in members(table)]
    ['trees', 'linear', 'kernel', 'forest', 'realmlp', 'tabm']
    >>> [member.name for member in members(evolve(table, numbers=0, categories=0, texts=1, packages=frozenset({"sklearn", "lightgbm"})))]
    ['words', 'lightgbm', 'deep', 'shallow', 'plain_words']
    """
    columns = facts.numbers + facts.categories
    readable = columns and ("sklearn" in facts.packages or not facts.texts)  # which counts the words of texts
    networks = [Member(name, _network(name, facts)) for name in _networks(facts)] if readable else []
    fitted = list(_estimators(facts, columns)) if "sklearn" in facts.packages else []
    return (*fitted, *networks) or (Member("text", {"model": {"name": None}}),)


def _networks(facts: Facts) -> Iterator[str]:
    """Yield the networks that end within minutes: without a GPU, a TabM takes that long for a fold of many rows."""
    if facts.rows <= _MOST_TRAINED:
        yield "realmlp"
        yield from ("tabm",) if facts.gpu or facts.rows <= _FEW else ()


def _network(name: str, facts: Facts) -> Values:
    """Return the training of the authors; without a GPU, that of smaller layers or fewer epochs."""
    sections = {section: {**values} for section, values in MODEL_DEFAULTS[name].items()}
    sections["model"] |= {"name": name}
    if name == "realmlp" and not facts.classes:
        sections["model"] |= {"arguments": {"sigma": _SIGMA}}
    if not facts.gpu and name == "tabm":
        sections["model"] |= {"size": "tiny"}
    if not facts.gpu and name == "realmlp":
        training = sections["training"]
        epochs = max(_EPOCHS, min(training["epochs"], _UPDATES * training["size"] // facts.rows))
        sections["training"], sections["observers"] = training | {"epochs": epochs}, sections["observers"] | {"patience": epochs}
    return sections


def _estimators(facts: Facts, columns: int) -> Iterator[Member]:
    packages, classed, few = facts.packages, facts.classes > 0, facts.rows <= _FEW
    lightgbm = "lightgbm" in packages
    boosted = _named("lightgbm", "lightgbm") if lightgbm else _named("trees", *_histograms(facts))
    words = [_named("words", "tfidf")] if facts.texts else []
    yield from (boosted, *words) if columns else (*words, boosted)
    if columns and not facts.texts:
        yield _named("linear", *_linear(classed=classed))
    if lightgbm:
        yield _named("deep", "lightgbm", _DEEP)
        yield from [_named("shallow", "lightgbm", _SHALLOW)] if classed else ()
    if facts.texts and classed:
        yield _named("plain_words", "tfidf", {"C": 0.5})
    if columns and lightgbm and not few:
        yield _named("large", "lightgbm", _LARGE)
        yield _named("sampled", "lightgbm", _SAMPLED)
    if columns and few:
        yield _named("kernel", "kernel")
        yield _named("forest", *_forest(columns, classed=classed))
    yield from (_named(name, name) for name in _BOOSTED if name in packages)


def _named(name: str, model: str, arguments: Mapping[str, Any] | None = None) -> Member:
    return Member(name, {"model": {"name": model, "arguments": dict(arguments or {})}})


def _histograms(facts: Facts) -> tuple[str, Mapping[str, Any]]:
    shape = {"max_iter": 300, "learning_rate": 0.04, "max_leaf_nodes": 15, "min_samples_leaf": 10, "l2_regularization": 1.0}
    loss = {"loss": "absolute_error"} if facts.errors == "absolute" and not facts.classes else {}
    return f"sklearn.ensemble:HistGradientBoosting{'Classifier' if facts.classes else 'Regressor'}", shape | loss


def _linear(*, classed: bool) -> tuple[str, Mapping[str, Any]]:
    if classed:
        return "sklearn.linear_model:LogisticRegression", {"C": 0.5, "max_iter": 1000}
    return "sklearn.linear_model:RidgeCV", {"alphas": [0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]}


def _forest(columns: int, *, classed: bool) -> tuple[str, Mapping[str, Any]]:
    if classed:
        return "sklearn.ensemble:ExtraTreesClassifier", {"n_estimators": 150, "min_samples_leaf": 3, "max_features": 0.5}
    # Of few columns, all: RMSE 5.02 on concrete (8 columns), and 6.16 with 40 %. Of 74 columns (ames) the two are alike.
    share = round(min(1.0, max(0.4, 10 / columns)), 2)
    return "sklearn.ensemble:ExtraTreesRegressor", {"n_estimators": 150, "min_samples_leaf": 2, "max_features": share}
