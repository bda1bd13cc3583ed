"""Estimators of other libraries as members: fitted to the columns of a table, with all that prediction needs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp import Dataset, Splits
from mlxfp.app.kaggle.estimators.columns import Columns, Layout, fit_columns
from mlxfp.app.kaggle.estimators.libraries import LIBRARIES, Examples, Library, one_decides, threads
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.specs.tables import column_values
from mlxfp.app.kaggle.validation.scoring import METRICS, Numbers, finite_numbers
from mlxfp.support.checks import check_not_negative, check_positive, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.support.optional import optional


def estimator(model: Any, spec: DatasetSpec, *, weight: str | None = None, patience: int = 50, seed: int = 0) -> "Estimator":
    """Make a `fit` for `cross_validate` of an estimator of scikit-learn, LightGBM, CatBoost or XGBoost.

    All that it needs is fitted on the training rows: categories get codes, or one-hot columns, as the library takes them; missing numbers
    stay missing, or get the median and a mark; texts count by their words and parts of words (TF-IDF), whole where the estimator takes
    sparse numbers and no missing ones, else as the first 16 components. Targets are learned as logarithms if the metric of the spec is one
    of logarithms. Classes are predicted as probabilities: [N] of the second of two, else [N, C] in the order of the spec.

    `model` has its parameters and is not fitted; it is cloned for every fit. Where they are not set, its seed is `seed` and its threads
    are the cores that other programs leave free, or one for small tables. `weight` names a column of the training rows with their
    weights. Where `cross_validate` sets rows aside to stop early, `patience` is after how many rounds without improvement.

    Raises `ArgumentError` for a model that does not fit the targets of the spec, or has no probabilities, and `MissingExtraError` without
    scikit-learn.

    >>> from sklearn.linear_model import LogisticRegression
    >>> import mlxfp as fp
    >>> from mlxfp.app.kaggle import ColumnSpec, FileSpec, METRICS, cross_validate, folds, score
    >>> about = {"train": FileSpec(name="a.csv"), "target": ["y"], "classes": ["no", "yes"], "metric": "accuracy"}
    >>> columns = [ColumnSpec(name="size", type="numerical"), ColumnSpec(name="said", type="text")]
    >>> spec = DatasetSpec(name="x", kind="binary", columns=columns, **about)
    >>> rows = fp.from_table({"size": [1.0, None] * 10, "said": ["very good", "so bad"] * 10, "y": [1, 0] * 10})
    >>> run = cross_validate(folds.kfold(20, count=4, seed=0), rows, estimator(LogisticRegression(), spec), target="y")
    >>> score(run.oof, METRICS["accuracy"]).overall, run.models[0].library
    (1.0, 'sklearn')

    See also: `save_estimator` and `load_estimator`; `model.name=lightgbm` of a run, and `tfidf`, with settings that suit most data.
    """
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise ArgumentTypeError(f"estimator takes a model of scikit-learn's interface, got {model!r:.60}. Make one: LogisticRegression().")
    check_types(DatasetSpec, spec=spec)
    check_positive(patience=patience)
    check_not_negative(seed=seed)
    classed, base = spec.task.has_classes, optional("sklearn.base", extra="kaggle", needed_by="estimator")
    if classed != base.is_classifier(model):
        kind = "a classifier" if classed else "a regressor"
        raise ArgumentError(f"The targets of {spec.name!r} are {spec.kind}, which needs {kind}, got {type(model).__name__}. Choose one.")
    if classed and not hasattr(model, "predict_proba"):
        raise ArgumentError(
            f"{type(model).__name__} predicts classes without their probabilities. Let it learn them: CalibratedClassifierCV(model)."
        )
    return Estimator(model, spec, weight, patience, seed)


@frozen
class Estimator:
    """How to fit an estimator; made by `estimator`.

    >>> from sklearn.linear_model import Ridge
    >>> from mlxfp.app.kaggle.specs.catalogue import SPECS
    >>> estimator(Ridge(), SPECS["house_prices"]).library.package
    'sklearn'
    """

    model: Any
    spec: DatasetSpec = field(repr=lambda spec: repr(spec.name))
    weight: str | None = None
    patience: int = 50
    seed: int = 0
    parts_of_words: bool = True  # whether texts are counted by these, too, which takes several times as long

    @property
    def library(self) -> Library:
        """What depends on the library of the model; that of scikit-learn is for all other packages that have its interface."""
        return LIBRARIES.get(type(self.model).__module__.partition(".")[0], LIBRARIES["sklearn"])

    @property
    def layout(self) -> Layout:
        """How the model takes numbers: whether it knows missing ones, and sparse ones."""
        if self.library.package == "catboost":
            return "codes"
        tags = optional("sklearn.utils", extra="kaggle", needed_by="estimator").get_tags(self.model).input_tags
        return "codes" if tags.allow_nan else "sparse" if tags.sparse and self.has_texts and not self._keeps_rows else "scaled"

    @property
    def _keeps_rows(self) -> bool:
        """Whether the model has a kernel, and so keeps training rows: no file takes sparse ones."""
        return any(name.rpartition("__")[2] == "gamma" for name in self.model.get_params())

    @property
    def has_texts(self) -> bool:
        """Whether a column of the spec is a text."""
        return any(column.type == "text" for column in self.spec.columns)

    def __call__(self, parts: Splits) -> "FittedEstimator":
        """Fit the columns and the model to training rows."""
        if parts.valid is not None and not self.library.stops:
            raise ArgumentError(
                f"{type(self.model).__name__} cannot stop early by rows that are set aside. Leave stopping out (observers.patience)."
            )
        with one_decides():
            columns, numbers = fit_columns(self.spec, parts.train, self.layout, seed=self.seed, parts=self.parts_of_words)
            weights = None if self.weight is None else finite_numbers("The weights", column_values(parts.train, self.weight))
            held = None if parts.valid is None else columns(parts.valid)
        fitted = []
        with one_decides(numbers.size):
            for name in self.spec.target:
                targets = self._targets(parts.train, name)
                valid = None if parts.valid is None else (held, self._targets(parts.valid, name))
                fitted.append(self._fit(columns, numbers, targets, weights, valid))
        return FittedEstimator(self.spec, columns, tuple(fitted))

    def _targets(self, rows: Dataset[Any], name: str) -> Numbers:
        values = finite_numbers(f"The target {name!r}", column_values(rows, name))
        if not _is_logarithmic(self.spec):
            return values
        if values.min(initial=0) < 0:
            raise DataError(
                f"{self.spec.metric} needs logarithms of the target {name!r}, and it is {values.min():g} in a row. Choose another metric."
            )
        return np.asarray(np.log1p(values))

    def _fit(self, columns: Columns, numbers: Any, targets: Numbers, weights: Any, valid: Any) -> "FittedTarget":
        base = optional("sklearn.base", extra="kaggle", needed_by="estimator")
        library, model, learned = self.library, base.clone(self.model), targets
        classes: tuple[int, ...] = ()
        if self.spec.task.has_classes:
            found, places = np.unique(targets, return_inverse=True)
            learned = np.asarray(places, np.float64)
            classes = tuple(map(int, found))
            if valid is not None:  # a class without training rows cannot be predicted
                known = np.isin(valid[1], found)
                valid = (valid[0][known], np.searchsorted(found, valid[1][known])) if known.any() else None
            if len(classes) == 1:
                dummy = optional("sklearn.dummy", extra="kaggle", needed_by="estimator")
                library, model = LIBRARIES["sklearn"], dummy.DummyClassifier()
        settings, given = library.settings(threads(numbers.size), self.seed), model.get_params()
        if library.package == "sklearn":  # its parts have seeds, too
            settings = {name: settings[last] for name in given if (last := name.rpartition("__")[2]) in settings}
        model.set_params(**{name: value for name, value in settings.items() if given.get(name) is None})
        coded = columns.coded if columns.layout == "codes" else ()
        return FittedTarget(library.package, classes, library.fit(model, Examples(numbers, learned, weights, valid, coded, self.patience)))


@frozen(eq=False)
class FittedTarget:
    """A fitted model of one target: of a library, and with the numbers of the classes in its training rows."""

    package: str
    classes: tuple[int, ...]
    model: Any = field(repr=False)

    @property
    def library(self) -> Library:
        """What depends on its library."""
        return LIBRARIES[self.package]

    def __call__(self, numbers: Any, count: int) -> Numbers:
        """Predict values [N], or probabilities [N, count] of all classes."""
        made = self.library.predict(self.model, numbers, classed=bool(self.classes))
        if not self.classes:
            return np.asarray(made, np.float64).reshape(-1)
        chances = np.zeros((len(made), count))
        chances[:, self.classes] = made if made.ndim == 2 else np.stack([1 - made, made], axis=1)
        return chances


@frozen(eq=False)
class FittedEstimator:
    """A fitted estimator: a function from rows to predictions, float64[N], [N, C] for classes, or [N, T] for several targets.

    >>> from sklearn.linear_model import Ridge
    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="size", type="numerical")], **about)
    >>> fitted = estimator(Ridge(1e-9), spec)(fp.Splits(fp.from_table({"size": [1.0, 3.0], "y": [10.0, 30.0]})))
    >>> fitted(fp.from_table({"size": [2.0, 4.0]})).round(6).tolist()
    [20.0, 40.0]
    """

    spec: DatasetSpec = field(repr=lambda spec: repr(spec.name))
    columns: Columns
    targets: tuple[FittedTarget, ...]

    @property
    def library(self) -> str:
        """The package that its models are of."""
        return self.targets[0].package

    def __call__(self, rows: Dataset[Any]) -> Numbers:
        """Predict rows; they need the columns of the spec, and no target."""
        with one_decides():
            numbers = self.columns(rows)
        with one_decides(numbers.size):
            made = [self._predicted(target, numbers) for target in self.targets]
        return _answers(self.spec, made)

    def _predicted(self, target: "FittedTarget", numbers: Any) -> Numbers:
        """Predict rows. A category or number that is missing only in new rows counts as an average of training rows."""
        made, novel = target(numbers, len(self.spec.classes)), self.columns.novel(numbers)
        rows = np.flatnonzero(novel.any(axis=1))
        if self.columns.typical is not None and len(rows):
            known, fill = numbers[rows], novel[rows]
            total: Any = 0
            for typical in self.columns.typical:
                filled = known.copy()
                filled[:, : fill.shape[1]] = np.where(fill, typical, known[:, : fill.shape[1]])
                total = total + target(filled, len(self.spec.classes))
            made[rows] = total / len(self.columns.typical)
        return made


def _answers(spec: DatasetSpec, made: Sequence[Numbers]) -> Numbers:
    if len(spec.classes) == 2:
        made = [chances[:, 1] for chances in made]
    if _is_logarithmic(spec):
        made = [np.maximum(np.expm1(values), 0) for values in made]
    return made[0] if len(made) == 1 else np.stack(made, axis=1)


def _is_logarithmic(spec: DatasetSpec) -> bool:
    return METRICS[spec.metric].errors == "logarithmic"
