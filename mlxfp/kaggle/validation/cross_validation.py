"""The fold runner: the only caller of `fit`, so nothing is ever fitted on rows that it is judged by."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from attrs import field, frozen

from mlxfp.core.checks import check_callable, check_choice, check_columns, check_types
from mlxfp.core.chunks import Indices
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length, schema
from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.data.rows.columns import drop_columns
from mlxfp.data.rows.dataset_splits import Splits
from mlxfp.data.rows.selecting import select
from mlxfp.kaggle.specs.tables import column_values
from mlxfp.kaggle.validation.folds import Fold, Folds
from mlxfp.kaggle.validation.out_of_fold import FoldPredictions, OutOfFold, fold_predictions, out_of_fold
from mlxfp.kaggle.validation.scoring import Numbers, finite_numbers

Predict = Callable[[Dataset[Any]], Any]
Names = str | Sequence[str]
Fit = Callable[[Splits], Predict]
Stopping = Literal["none", "inner", "validation"]


@runtime_checkable
class Together(Protocol):
    """A `fit` that can train all folds in one program."""

    def together(self, parts: Sequence[Splits]) -> Sequence[Predict]:
        """Fit on the training rows of each fold; return a model for each, as calling it once for each would."""


@frozen
class Validated:
    """A fold that has been run: what was fitted, and what it said of the rows that it had not seen."""

    model: Predict
    predictions: FoldPredictions


@frozen
class CrossValidation:
    """All folds: the out-of-fold predictions, and the fitted models in the order of the folds; made by `cross_validate`.

    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.kaggle.validation.folds import custom
    >>> def fit(parts):
    ...     return lambda rows: [column_values(parts.train, "y").mean()] * length(rows)
    >>> run = cross_validate(custom([0, 1]), from_table({"x": [1, 2], "y": [3.0, 5.0]}), fit, target="y")
    >>> [float(values[0]) for values in run.predict(from_table({"x": [7]}))]
    [5.0, 3.0]
    """

    oof: OutOfFold
    models: tuple[Predict, ...] = field(repr=False)

    def predict(self, rows: Dataset[Any]) -> tuple[Numbers, ...]:
        """Return what each model says of rows that none has seen, such as the test file's: one array [N] or [N, C] a model.

        See also: `ensembles`, which make one prediction of several.
        """
        return tuple(finite_numbers("Predictions", model(rows)) for model in self.models)


def cross_validate(  # noqa: PLR0913  # each is a plain word of what is done
    folds: Folds,
    rows: Dataset[Any],
    fit: Fit,
    *,
    target: Names,
    stopping: Stopping = "none",
    share: float = 0.1,
    together: bool = False,
) -> CrossValidation:
    """Fit on the training rows of every fold, and predict the rows that were left out.

    `fit(parts)` is given the training rows as `parts.train`, and returns a function from rows to predictions: [n] values, or
    probabilities of class 1, or [n, C] probabilities. What it returns holds all that was learned: vocabulary, scales, bins, medians and
    encodings as well as weights. The rows to predict come without what `target` names, as those of a test file do.

    `stopping` says what is in `parts.valid`, to stop early by: "none"; "inner", a share of the training rows, taken out of them, where
    groups stay whole and times stay in order; or "validation", the very rows that are predicted, which makes their score too good.

    `together=True` trains all folds in one program, for a `fit` that can, such as those of `small_fit`: it has a method `together`.

    `rows` needs random access; `target` holds numbers (classes from 0 on), or names several columns that do, such as labels that are each
    there or not: then predictions are [n, T]. Errors inside `fit` gain a note that names the fold.

    >>> import numpy as np
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.kaggle.validation.folds import kfold
    >>> from mlxfp.kaggle.validation.out_of_fold import score
    >>> from mlxfp.kaggle.validation.scoring import METRICS
    >>> rows = from_table({"x": np.arange(8.0), "y": np.arange(8.0) * 2})
    >>> def fit(parts):
    ...     slope = np.polyfit(column_values(parts.train, "x"), column_values(parts.train, "y"), 1)
    ...     return lambda rows: np.polyval(slope, column_values(rows, "x"))
    >>> run = cross_validate(kfold(8, count=4, seed=0), rows, fit, target="y")
    >>> round(score(run.oof, METRICS["rmse"]).overall, 6), len(run.models)
    (0.0, 4)

    See also: `validate_fold`, for one fold at a time; `pseudo_label` and others, which make a `fit` of a `fit`.
    """
    check_types(bool, together=together)
    targets = _targets(folds, rows, target)
    if together:
        if not isinstance(fit, Together):
            raise ArgumentTypeError(f"together=True needs a fit with a method `together`, as small_fit makes, got {fit!r:.60}.")
        models = tuple(fit.together([parts_of(fold, rows, stopping, share) for fold in folds]))
        predictions = [fold_predictions(fold, model(unseen(fold, rows, target))) for fold, model in zip(folds, models, strict=True)]
        return CrossValidation(out_of_fold(folds, targets, predictions), models)
    done = [validate_fold(fold, rows, fit, target=target, stopping=stopping, share=share) for fold in folds]
    return CrossValidation(out_of_fold(folds, targets, [each.predictions for each in done]), tuple(each.model for each in done))


def validate_fold(  # noqa: PLR0913  # each is a plain word of what is done
    fold: Fold, rows: Dataset[Any], fit: Fit, *, target: Names, stopping: Stopping = "none", share: float = 0.1
) -> Validated:
    """Run one fold, as `cross_validate` runs all; `out_of_fold` puts the predictions of folds together that ran at different times.

    >>> import numpy as np
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.kaggle.validation.folds import custom
    >>> first, second = custom([0, 0, 1])
    >>> def fit(parts):
    ...     mean = column_values(parts.train, "y").mean()
    ...     return lambda rows: np.full(length(rows), mean)
    >>> validate_fold(second, from_table({"y": [1.0, 2.0, 9.0]}), fit, target="y").predictions.predictions.tolist()
    [1.5]
    """
    check_callable(fit=fit)
    check_rows(fold.folds, rows, target)
    parts = parts_of(fold, rows, stopping, share)
    try:
        model = fit(parts)
        check_callable(**{"what fit returns": model})
        predictions = model(unseen(fold, rows, target))
    except Exception as error:
        error.add_note(f"in {fold!r} of {fold.folds!r}")
        raise
    return Validated(model, fold_predictions(fold, predictions))


def parts_of(fold: Fold, rows: Dataset[Any], stopping: Stopping, share: float) -> Splits:
    """Return the rows that a fold trains on, and those that it stops by."""
    check_choice(("none", "inner", "validation"), stopping=stopping)
    if stopping == "none":
        return Splits(_chosen(rows, fold.train))
    train, valid = fold.inner(share, seed=0) if stopping == "inner" else (fold.train, fold.valid)
    return Splits(_chosen(rows, train), valid=_chosen(rows, valid))


def unseen(fold: Fold, rows: Dataset[Any], target: Names) -> Dataset[Any]:
    """Return the rows that a fold predicts, without what is to be predicted."""
    return drop_columns(names_of(target))(_chosen(rows, fold.valid))


def check_rows(folds: Folds, rows: Dataset[Any], target: Names) -> None:
    """Raise unless the rows are those that were dealt to the folds, as far as can be told, and have the target."""
    check_types(Folds, folds=folds)
    check_types(Dataset, rows=rows)
    check_columns(names_of(target), schema(rows).names, "cross_validate")
    count = length(rows)
    if count is None:
        raise ArgumentError(f"Folds choose rows by their place, and {rows!r} is read in order only. Hold it in memory: pipe(rows, load()).")
    if count != folds.size:
        raise ArgumentError(f"The folds are of {folds.size} rows, and there are {count} in {rows!r}. Make folds of these rows.")


def _targets(folds: Folds, rows: Dataset[Any], target: Names) -> Numbers:
    check_rows(folds, rows, target)
    return target_numbers(rows, target)


def names_of(target: Names) -> list[str]:
    """Return the columns of a target, which are one or several."""
    return [target] if isinstance(target, str) else list(target)


def target_numbers(rows: Dataset[Any], target: Names) -> Numbers:
    """Read the numbers to predict: float64[N], of several columns [N, T]; raises `DataError` for such that are missing."""
    columns = [finite_numbers(f"The target {name!r}", column_values(rows, name)) for name in names_of(target)]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _chosen(rows: Dataset[Any], indices: Indices) -> Dataset[Any]:
    return select(indices)(rows)
