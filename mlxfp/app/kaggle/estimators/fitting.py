"""Estimators of other libraries as members of an ensemble, fitted to the columns of a table."""

import warnings
from collections.abc import Sequence
from time import monotonic
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from mlxfp import Dataset, Splits
from mlxfp.app.kaggle.estimators.columns import Columns, Layout, fit_columns
from mlxfp.app.kaggle.estimators.libraries import LIBRARIES, Examples, Library, limited_threads, threads
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.specs.tables import column_values
from mlxfp.app.kaggle.validation.scoring import METRICS, Numbers, finite_numbers
from mlxfp.support.checks import check_not_negative, check_positive, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.support.optional import optional


def estimator(model: Any, spec: DatasetSpec, *, weight: str | None = None, patience: int = 50, seed: int = 0) -> "Estimator":
    """Return a `fit` for `cross_validate` from a scikit-learn, LightGBM or CatBoost estimator.

    All preprocessing is fitted on the training rows. The estimator decides the encoding:

    - categories become codes or one-hot columns;
    - missing numbers stay missing, or are replaced by the median and marked in an extra column;
    - texts become TF-IDF weights of words and character n-grams. Linear models read all weights as a sparse matrix. For other models, such
      as trees, a truncated SVD reduces the weights of a text to 16 numbers for words and 16 for n-grams;
    - targets become logarithms if the metric of the spec is logarithmic.

    Classes are predicted as probabilities: [N] for the second of two classes, or [N, C] in the class order of the spec.

    `model` must be unfitted, and is cloned for every fit. If the model has no seed, the clone gets `seed`. If the model has no number of
    threads, the clone gets the number of idle cores (one for small tables). `weight` names a column of row weights.
    `patience` is the number of rounds without improvement before early stopping.

    Raises `ArgumentError` for a model that is unsuitable for the targets or cannot predict probabilities, and `MissingExtraError`
    without scikit-learn.

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

    See also: `save_estimator` and `load_estimator`; the settings `model.name=lightgbm` and `model.name=tfidf` of a run.
    """
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise ArgumentTypeError(
            f"estimator needs an unfitted scikit-learn estimator, got {model!r:.60}. Create one, such as LogisticRegression()."
        )
    check_types(DatasetSpec, spec=spec)
    check_positive(patience=patience)
    check_not_negative(seed=seed)
    classed, base = spec.task.has_classes, optional("sklearn.base", extra="kaggle", needed_by="estimator")
    if classed != base.is_classifier(model):
        estimator_kind = "a classifier" if classed else "a regressor"
        raise ArgumentError(
            f"The targets of {spec.name!r} are {spec.kind} and need {estimator_kind}, got {type(model).__name__}. Pass {estimator_kind}."
        )
    if classed and not hasattr(model, "predict_proba"):
        raise ArgumentError(f"{type(model).__name__} cannot predict probabilities. Wrap the model: CalibratedClassifierCV(model).")
    return Estimator(model, spec, weight, patience, seed)


@frozen
class Estimator:
    """Unfitted model with its settings, created by the function `estimator`. To fit the model, call the object with training rows.

    >>> from sklearn.linear_model import Ridge
    >>> import mlxfp as fp
    >>> estimator(Ridge(), fp.kaggle.SPECS["house_prices"]).library.package
    'sklearn'
    """

    model: Any
    spec: DatasetSpec = field(repr=lambda spec: repr(spec.name))
    weight: str | None = None
    patience: int = 50
    seed: int = 0
    parts_of_words: bool = True  # True: count character n-grams as well as words; counting then takes several times as long
    reads_texts: bool = True
    reads_codes: bool = False  # True: whole numbers that look like identifiers are used as numbers and as categories
    seconds: float | None = None  # time limit for all targets; at the limit, boosted trees stop fitting and keep the finished trees

    @property
    def library(self) -> Library:
        """Entry of `LIBRARIES` for the model. Packages with the scikit-learn interface use the entry "sklearn"."""
        return LIBRARIES.get(type(self.model).__module__.partition(".")[0], LIBRARIES["sklearn"])

    @property
    def layout(self) -> Layout:
        """Input format of the model: "codes" (dense, may have missing values), "scaled" (dense, without missing values) or "sparse"."""
        if self.library.package == "catboost":
            return "codes"
        tags = optional("sklearn.utils", extra="kaggle", needed_by="estimator").get_tags(self.model).input_tags
        if tags.allow_nan:
            return "codes"
        has_texts = self.reads_texts and any(column.type == "text" for column in self.spec.columns)
        # Kernel models store training rows. The rows must be dense, because model files cannot store sparse rows.
        keeps_rows = any(name.rpartition("__")[2] == "gamma" for name in self.model.get_params())
        return "sparse" if tags.sparse and (has_texts or self.reads_codes) and not keeps_rows else "scaled"

    def __call__(self, parts: Splits) -> "FittedEstimator":
        if parts.valid is not None and not self.library.stops:
            raise ArgumentError(
                f"{type(self.model).__name__} does not support early stopping. "
                "Remove the argument stopping, or the option observers.patience of a run."
            )
        began = monotonic()
        with limited_threads():
            columns, numbers = fit_columns(
                self.spec,
                parts.train,
                self.layout,
                seed=self.seed,
                parts=self.parts_of_words,
                reads_texts=self.reads_texts,
                reads_codes=self.reads_codes,
            )
            weights = None if self.weight is None else finite_numbers("The weights", column_values(parts.train, self.weight))
            valid_numbers = None if parts.valid is None else columns(parts.valid)
        fitted = []
        with limited_threads(numbers.size):
            for index, name in enumerate(self.spec.target):
                remaining = None if self.seconds is None else (self.seconds - (monotonic() - began)) / (len(self.spec.target) - index)
                targets = self._targets(parts.train, name)
                valid = None if parts.valid is None else (valid_numbers, self._targets(parts.valid, name))
                fitted.append(self._fit(columns, Examples(numbers, targets, weights, valid, seconds=remaining)))
        return FittedEstimator(self.spec, columns, tuple(fitted))

    def _targets(self, rows: Dataset[Any], name: str) -> Numbers:
        values = finite_numbers(f"The target {name!r}", column_values(rows, name))
        if not _is_logarithmic(self.spec):
            return values
        if values.min(initial=0) < 0:
            raise DataError(
                f"{self.spec.metric} needs targets of at least 0, but {name!r} contains {values.min():g}. Choose another metric."
            )
        return np.asarray(np.log1p(values))

    def _fit(self, columns: Columns, examples: Examples) -> "FittedTarget":
        base = optional("sklearn.base", extra="kaggle", needed_by="estimator")
        targets, valid = examples.targets, examples.valid
        library, model, learned = self.library, base.clone(self.model), targets
        classes: tuple[int, ...] = ()
        if self.spec.task.has_classes:
            known_classes, codes = np.unique(targets, return_inverse=True)
            learned = np.asarray(codes, np.float64)
            classes = tuple(map(int, known_classes))
            if valid is not None:  # remove validation rows of classes without training rows: the model cannot predict these classes
                known = np.isin(valid[1], known_classes)
                valid = (valid[0][known], np.searchsorted(known_classes, valid[1][known])) if known.any() else None
            if len(classes) == 1:
                dummy = optional("sklearn.dummy", extra="kaggle", needed_by="estimator")
                library, model = LIBRARIES["sklearn"], dummy.DummyClassifier()
        settings, given = library.settings(threads(examples.numbers.size), self.seed), model.get_params()
        if library.package == "sklearn":  # a scikit-learn pipeline has a seed for each step, such as ridge__random_state
            settings = {name: settings[last] for name in given if (last := name.rpartition("__")[2]) in settings}
        model.set_params(**{name: value for name, value in settings.items() if given.get(name) is None})
        coded = columns.coded if columns.layout == "codes" else ()
        prepared = evolve(examples, targets=learned, valid=valid, coded=coded, patience=self.patience)
        began = monotonic()
        try:
            fitted = library.fit(model, prepared)
        except DataError as error:
            if classes:
                counts = np.unique(learned, return_counts=True)[1]
                rarest, rows = classes[int(counts.argmin())], int(counts.min())
                error.add_note(f"The rarest class is {self.spec.classes[rarest]!r} with {rows} training row{'s' if rows > 1 else ''}.")
            raise
        if library.package != "sklearn" and prepared.seconds is not None and monotonic() - began > prepared.seconds:
            warnings.warn(
                "The time limit ended a fit of boosted trees before the last tree, so the predictions can be poor. "
                "Start a run with another name and more time, as in name=second observers.minutes=10.",
                RuntimeWarning,
                stacklevel=2,
            )
        return FittedTarget(library.package, classes, fitted)


@frozen(eq=False)
class FittedTarget:
    """Fitted model for one target. `classes` are the class numbers in the training rows."""

    package: str
    classes: tuple[int, ...]
    model: Any = field(repr=False)

    @property
    def library(self) -> Library:
        """Entry of `LIBRARIES` for the Python package of the model. The entry has functions that fit, save and load models."""
        return LIBRARIES[self.package]

    def __call__(self, numbers: Any, count: int) -> Numbers:
        predicted = self.library.predict(self.model, numbers, classed=bool(self.classes))
        if not self.classes:
            return np.asarray(predicted, np.float64).reshape(-1)
        chances = np.zeros((len(predicted), count))
        chances[:, self.classes] = predicted if predicted.ndim == 2 else np.stack([1 - predicted, predicted], axis=1)
        return chances


@frozen(eq=False)
class FittedEstimator:
    """Fitted estimator. A call with rows returns predictions: float64[N], [N, C] for classes, or [N, T] for several targets.

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
        """Package name of the models."""
        return self.targets[0].package

    def __call__(self, rows: Dataset[Any]) -> Numbers:
        with limited_threads():
            numbers = self.columns(rows)
        with limited_threads(numbers.size):
            predictions = [self._predicted(target, numbers) for target in self.targets]
        return _answers(self.spec, predictions)

    def _predicted(self, target: "FittedTarget", numbers: Any) -> Numbers:
        """Predict rows. Fill missing values in columns that were complete in the training rows.

        A row with a filled value is predicted several times, each time with the values of another training row. The result is the mean.
        """
        predictions, novel = target(numbers, len(self.spec.classes)), self.columns.novel(numbers)
        rows = np.flatnonzero(novel.any(axis=1))
        if self.columns.typical is not None and len(rows):
            known, fill = numbers[rows], novel[rows]
            total: Any = 0
            for typical in self.columns.typical:
                filled = known.copy()
                filled[:, : fill.shape[1]] = np.where(fill, typical, known[:, : fill.shape[1]])
                total = total + target(filled, len(self.spec.classes))
            predictions[rows] = total / len(self.columns.typical)
        return predictions


def _answers(spec: DatasetSpec, predictions: Sequence[Numbers]) -> Numbers:
    if len(spec.classes) == 2:
        predictions = [chances[:, 1] for chances in predictions]
    if _is_logarithmic(spec):
        predictions = [np.maximum(np.expm1(values), 0) for values in predictions]
    return predictions[0] if len(predictions) == 1 else np.stack(predictions, axis=1)


def _is_logarithmic(spec: DatasetSpec) -> bool:
    return METRICS[spec.metric].errors == "logarithmic"
