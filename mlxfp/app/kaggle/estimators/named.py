"""Creation of estimators by name: a short name in `ESTIMATORS`, or the class name of a well-known package."""

from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import chain
from typing import Any

from attrs import frozen

from mlxfp.app.kaggle.estimators.libraries import LIBRARIES
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS
from mlxfp.support.errors import ConfigError, MlxfpError, suggest, unknown_name
from mlxfp.support.optional import optional
from mlxfp.support.registries import Registry

Arguments = Mapping[str, Any]
_FEW = 5000  # from this number of training rows on, LightGBM builds larger trees
# Settings of LightGBM, tuned on out-of-fold predictions of titanic, house_prices (80 columns) and calhousing.
# Tables with few columns need a larger `colsample_bytree`.
_FEW_CLASSED = {"n_estimators": 300, "learning_rate": 0.03, "num_leaves": 15, "min_child_samples": 10, "colsample_bytree": 0.6}
_FEW_VALUES = {"n_estimators": 1500, "learning_rate": 0.03, "num_leaves": 7, "min_child_samples": 5}
_MANY = {"n_estimators": 1000, "learning_rate": 0.05, "num_leaves": 31, "colsample_bytree": 0.6}
# Settings of kernel machines, tuned on eight tables with 600 to 3,600 rows and 5 to 200 columns.
# The kernel width gamma depends on the number of columns, because no constant suits tables with few columns and with many columns.
_KERNEL, _GAMMA = {"C": 5.0}, 0.25
_PAIRED = 20  # maximum number of classes for outputs of pairs of classes; the number of pairs grows with the square
_SAMPLED = {"subsample": 0.8, "subsample_freq": 1, "reg_lambda": 1.0}


_ROUNDS = ("n_estimators", "iterations", "max_iter")  # argument names for the number of rounds
_MANY_ROWS = 100_000  # above this number of training rows, boosted trees get fewer rounds and a higher learning rate
_FEWEST_ROUNDS, _HIGHEST_RATE = 100, 0.15


def scaled_rounds(settings: Arguments, *, rows: int, classes: int) -> dict[str, Any]:
    """Return settings of boosted trees with fewer rounds and a higher learning rate for many classes or rows.

    Reason: with three or more classes, each round trains one tree per class, and a tree takes longer with more rows.

    >>> scaled_rounds({"n_estimators": 1000, "learning_rate": 0.03}, rows=9000, classes=8)
    {'n_estimators': 250, 'learning_rate': 0.12}
    >>> scaled_rounds({"n_estimators": 1000, "learning_rate": 0.03}, rows=9000, classes=2)
    {'n_estimators': 1000, 'learning_rate': 0.03}
    """
    factor = max(1.0, classes / 2) * max(1.0, rows / _MANY_ROWS) ** 0.5
    name = next(name for name in _ROUNDS if name in settings)
    rounds = min(settings[name], max(_FEWEST_ROUNDS, round(settings[name] / factor)))
    rate = round(max(settings["learning_rate"], min(_HIGHEST_RATE, settings["learning_rate"] * settings[name] / rounds)), 4)
    return {**settings, name: rounds, "learning_rate": rate}


@frozen
class Task:
    """Competition spec and number of training rows, which determine the default settings of an estimator."""

    spec: DatasetSpec
    rows: int

    @property
    def classed(self) -> bool:
        """True if the targets are classes."""
        return self.spec.task.has_classes

    @property
    def absolute(self) -> bool:
        """True for metrics of absolute errors, such as mae."""
        return METRICS[self.spec.metric].errors == "absolute"


def _lightgbm(task: Task, arguments: Arguments) -> Any:
    lightgbm = optional("lightgbm", extra="boosting", needed_by="model.name=lightgbm")
    # LightGBM ignores unknown parameter names. Only the private function `_get_all_param_aliases` returns all known names.
    aliases = lightgbm.basic._ConfigAliases._get_all_param_aliases()  # noqa: SLF001
    known = {*lightgbm.LGBMModel().get_params(), *aliases, *chain.from_iterable(aliases.values())}
    for name in arguments:
        if name not in known:
            raise ConfigError(
                f"model.arguments: LightGBM has no parameter {name!r}.{suggest(name, known)} Correct or remove this parameter."
            )
    loss = {"objective": "regression_l1"} if task.absolute else {}
    share = {"colsample_bytree": max(0.2, min(0.6, 12 / len(task.spec.columns)))}
    settings = _MANY if task.rows >= _FEW else _FEW_CLASSED if task.classed else _FEW_VALUES | share
    suited = scaled_rounds(settings, rows=task.rows, classes=len(task.spec.classes))
    return (lightgbm.LGBMClassifier if task.classed else lightgbm.LGBMRegressor)(**(suited | _SAMPLED | loss | {**arguments}))


def _catboost(task: Task, arguments: Arguments) -> Any:
    catboost = optional("catboost", extra="boosting", needed_by="model.name=catboost")
    loss = {"loss_function": "MAE"} if task.absolute else {}
    return (catboost.CatBoostClassifier if task.classed else catboost.CatBoostRegressor)(**(loss | {**arguments}))


def _tfidf(task: Task, arguments: Arguments) -> Any:
    """Return a linear model for word counts. If all columns are texts, add a naive Bayes model and average the probabilities.

    Accuracy on the official test set of sst2: 0.850 with naive Bayes, 0.833 without naive Bayes. A calibrated LinearSVC has 0.833, too,
    and takes twice the time.
    """
    linear = optional("sklearn.linear_model", extra="kaggle", needed_by="model.name=tfidf")
    if not task.classed:
        return linear.Ridge(**({"alpha": 1.0, "solver": "sparse_cg", "tol": 1e-4} | {**arguments}))
    # The dual solver takes a tenth of the time of lbfgs on sparse rows, but is limited to two classes.
    # For more than two classes, one model per class separates the class from all other classes.
    model = linear.LogisticRegression(**({"C": 10.0, "solver": "liblinear", "dual": True, "max_iter": 1000} | {**arguments}))
    if len(task.spec.classes) > 2:
        model = optional("sklearn.multiclass", extra="kaggle", needed_by="model.name=tfidf").OneVsRestClassifier(model)
    if any(column.type != "text" for column in task.spec.columns):
        return model
    bayes = optional("sklearn.naive_bayes", extra="kaggle", needed_by="model.name=tfidf").MultinomialNB(alpha=0.3)
    voting = optional("sklearn.ensemble", extra="kaggle", needed_by="model.name=tfidf").VotingClassifier
    return voting([("linear", model), ("bayes", bayes)], voting="soft")


def _kernel(task: Task, arguments: Arguments) -> Any:
    """Return a kernel machine with scaled targets or probabilities. The training time is quadratic in the number of rows.

    For classes, one machine separates each pair of classes, or with many classes, each class from the others. A logistic regression of
    their cross-validated outputs gives the probabilities. A calibration of each class alone gives probabilities close to each other.
    """
    svm, ensemble, linear, compose, preprocessing = (
        optional(f"sklearn.{name}", extra="kaggle", needed_by="model.name=kernel")
        for name in ("svm", "ensemble", "linear_model", "compose", "preprocessing")
    )
    suited = _KERNEL | {"gamma": round(_GAMMA / max(1, len(task.spec.columns)), 6)}
    if task.classed:
        outputs = "ovo" if len(task.spec.classes) <= _PAIRED else "ovr"
        machines = svm.SVC(**(suited | {"decision_function_shape": outputs} | {**arguments}))
        probabilities = linear.LogisticRegression(max_iter=1000)
        return ensemble.StackingClassifier([("machines", machines)], probabilities, cv=3, stack_method="decision_function")
    machine = svm.SVR(**(suited | {"epsilon": 0.05} | {**arguments}))
    # check_inverse=True would warn about rounding errors if targets differ by many orders of magnitude
    return compose.TransformedTargetRegressor(machine, transformer=preprocessing.StandardScaler(), check_inverse=False)


ESTIMATORS: Registry[Callable[[Task, Arguments], Any]] = Registry(
    "estimator", {"lightgbm": _lightgbm, "catboost": _catboost, "tfidf": _tfidf, "kernel": _kernel}
)


def make_named(name: str, task: Task, arguments: Arguments) -> Any:
    """Create an estimator of `ESTIMATORS`, or of a class such as `sklearn.linear_model:LogisticRegression`, with the given arguments.

    Raises `ConfigError` for classes other than estimators of packages in `LIBRARIES`, and for unknown arguments.
    """
    kind = known_class(name) if ":" in name else None
    try:
        return ESTIMATORS[name](task, arguments) if kind is None else kind(**arguments)
    except MlxfpError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"model.arguments do not fit model.name={name}: {error}. Use parameters of {name}.") from error


def needs_permission(name: str) -> bool:
    """Return True if the package of the class is not in `LIBRARIES`. Importing such a package may run any code."""
    return name.partition(":")[0].partition(".")[0] not in LIBRARIES


def known_class(name: str) -> Any:
    """Import a public estimator class from a package in `LIBRARIES`."""
    module, _, attribute = name.partition(":")
    package = module.partition(".")[0]
    if any(part.startswith("_") for part in (*module.split("."), attribute)):
        raise ConfigError(f"model.name={name} names a private part of {package}. Choose a public class.")
    try:
        holder = import_module(module)
    except ImportError as error:
        raise ConfigError(f"model.name={name}: the module {module!r} cannot be imported: {error}. Install {package}.") from error
    if not hasattr(holder, attribute):
        raise unknown_name(f"part of the module {module!r}", attribute, [entry for entry in dir(holder) if entry[0] != "_"])
    kind = getattr(holder, attribute)
    if not (isinstance(kind, type) and hasattr(kind, "fit") and hasattr(kind, "predict")):
        raise ConfigError(f"model.name={name} must be an estimator class, got {kind!r:.60}. Choose a classifier or a regressor.")
    return kind
