"""Cross-validation: it alone calls `fit`, so that no model is ever scored on rows that it was fitted on."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from attrs import field, frozen

from mlxfp import Dataset, Splits, drop_columns, length, schema, select
from mlxfp.app.kaggle.specs.tables import column_values
from mlxfp.app.kaggle.validation.folds import Fold, Folds
from mlxfp.app.kaggle.validation.out_of_fold import FoldPredictions, OutOfFold, fold_predictions, out_of_fold
from mlxfp.app.kaggle.validation.scoring import Numbers, finite_numbers
from mlxfp.support.checks import check_callable, check_choice, check_columns, check_types
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.progress import Progress

Predict = Callable[[Dataset[Any]], Any]
Names = str | Sequence[str]
Fit = Callable[[Splits], Predict]
View = Callable[[Dataset[Any]], Dataset[Any]]
Stopping = Literal["none", "inner", "validation"]


@frozen
class Validated:
    """A fold that has been run: the fitted model, and its predictions of the validation rows."""

    model: Predict
    predictions: FoldPredictions


@frozen
class CrossValidation:
    """The out-of-fold predictions of all folds, and the fitted models in the order of the folds; made by `cross_validate`.

    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> def fit(parts):
    ...     return lambda rows: [column_values(parts.train, "y").mean()] * length(rows)
    >>> run = cross_validate(custom([0, 1]), from_table({"x": [1, 2], "y": [3.0, 5.0]}), fit, target="y")
    >>> [float(values[0]) for values in run.predict(from_table({"x": [7]}))]
    [5.0, 3.0]
    """

    oof: OutOfFold
    models: tuple[Predict, ...] = field(repr=False)

    def predict(self, rows: Dataset[Any]) -> tuple[Numbers, ...]:
        """Predict new rows, such as those of the test file, with each model: one array [N] or [N, C] a model.

        See also: `ensembles`, which combine several predictions.
        """
        return tuple(finite_numbers("Predictions", model(rows)) for model in self.models)


def cross_validate(  # noqa: PLR0913  # each is one choice of how folds are run
    folds: Folds,
    rows: Dataset[Any],
    fit: Fit,
    *,
    target: Names,
    stopping: Stopping = "none",
    share: float = 0.1,
    together: bool = False,
) -> CrossValidation:
    """Fit on the training rows of every fold, and predict the validation rows.

    `fit(parts)` takes the training rows as `parts.train`, and returns a function from rows to predictions: [n] values, or probabilities of
    class 1, or [n, C] probabilities. Everything that is learned belongs to that function: vocabulary, scales, bins, medians and encodings
    as well as weights. The rows to predict do not have the columns of `target`, like those of a test file.

    `stopping` says which rows `parts.valid` has, for early stopping: "none"; "inner", a share of the training rows, which are removed from
    them (groups stay whole, times in order); or "validation", the validation rows themselves, which makes the score too good.

    `together=True` trains all folds in one program, if `fit` has a method `together`, such as those of `small_fit`.

    `rows` needs random access; `target` holds numbers (classes from 0 on), or names several columns of numbers, such as labels that are
    each 0 or 1: then predictions are [n, T]. Errors inside `fit` gain a note that names the fold.

    >>> import numpy as np
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.app.kaggle.validation.folds import kfold
    >>> from mlxfp.app.kaggle.validation.out_of_fold import score
    >>> from mlxfp.app.kaggle.validation.scoring import METRICS
    >>> rows = from_table({"x": np.arange(8.0), "y": np.arange(8.0) * 2})
    >>> def fit(parts):
    ...     slope = np.polyfit(column_values(parts.train, "x"), column_values(parts.train, "y"), 1)
    ...     return lambda rows: np.polyval(slope, column_values(rows, "x"))
    >>> run = cross_validate(kfold(8, count=4, seed=0), rows, fit, target="y")
    >>> round(score(run.oof, METRICS["rmse"]).overall, 6), len(run.models)
    (0.0, 4)

    See also: `validate_fold`, for one fold at a time; `pseudo_label`, which makes a `fit` from two others.
    """
    check_types(bool, together=together)
    check_rows(folds, rows, target)
    targets = target_numbers(rows, target)
    if together:
        if not hasattr(fit, "together"):
            raise ArgumentTypeError(f"together=True needs a fit with a method `together`, as small_fit makes, got {fit!r:.60}.")
        models = tuple(fit.together([parts_of(fold, rows, stopping, share) for fold in folds]))
        predictions = [fold_predictions(fold, model(unseen(fold, rows, target))) for fold, model in zip(folds, models, strict=True)]
        return CrossValidation(out_of_fold(folds, targets, predictions), models)
    every = list(folds)
    with Progress("folds", unit="fold", total=lambda: len(every), lines=True) as progress:
        run = partial(validate_fold, rows=rows, fit=fit, target=target, stopping=stopping, share=share)
        done = [run(fold) for fold in progress.over(every)]
    return CrossValidation(out_of_fold(folds, targets, [each.predictions for each in done]), tuple(each.model for each in done))


def validate_fold(  # noqa: PLR0913  # each is one choice of how folds are run
    fold: Fold, rows: Dataset[Any], fit: Fit, *, target: Names, stopping: Stopping = "none", share: float = 0.1
) -> Validated:
    """Run one fold, as `cross_validate` does; `out_of_fold` combines the predictions of folds that ran at different times.

    >>> import numpy as np
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.app.kaggle.validation.folds import custom
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


def test_time_augmentation(model: Predict, views: Sequence[View]) -> Predict:
    """Predict every view of the rows and average: probabilities or values, [N] or [N, C].

    A view is a stage that keeps the rows and their order: `template(form, seed=0)`, `template(form, seed=1)`, ... write the columns in
    different orders; `map` does anything else. To score it, let `fit` return the augmented model. Raises `ArgumentError` if views differ in
    their number of rows.

    >>> from mlxfp.data.rows.map_filter import map
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> model = lambda rows: column_values(rows, "x")
    >>> augmented = test_time_augmentation(model, [map(lambda row: {"x": row["x"] + 1}), map(lambda row: {"x": row["x"] - 1})])
    >>> augmented(from_table({"x": [0.25, 0.5]})).tolist()
    [0.25, 0.5]
    """
    check_callable(model=model)
    if not views:
        raise ArgumentError("test_time_augmentation needs at least one view, got none.")
    for place, view in enumerate(views):
        check_callable(**{f"views[{place}]": view})
    return partial(_mean_of_views, model, tuple(views))


test_time_augmentation.__test__ = False  # type: ignore[attr-defined]  # else pytest collects it as a test where it is imported


def _mean_of_views(model: Predict, views: Sequence[View], rows: Dataset[Any]) -> Numbers:
    each = [finite_numbers(f"Predictions of view {place}", model(view(rows))) for place, view in enumerate(views)]
    if len({array.shape for array in each}) > 1:
        raise ArgumentError(f"Views must keep the rows, got predictions of {[list(array.shape) for array in each]}.")
    return np.asarray(np.mean(each, axis=0))


def parts_of(fold: Fold, rows: Dataset[Any], stopping: Stopping, share: float) -> Splits:
    """Return the rows that a fold trains on, and those for early stopping."""
    check_choice(("none", "inner", "validation"), stopping=stopping)
    if stopping == "none":
        return Splits(select(fold.train)(rows))
    train, valid = fold.inner(share, seed=0) if stopping == "inner" else (fold.train, fold.valid)
    return Splits(select(train)(rows), valid=select(valid)(rows))


def unseen(fold: Fold, rows: Dataset[Any], target: Names) -> Dataset[Any]:
    """Return the validation rows of a fold, without the target."""
    return drop_columns(names_of(target))(select(fold.valid)(rows))


def check_rows(folds: Folds, rows: Dataset[Any], target: Names) -> None:
    """Raise unless the rows have random access and the target, and are as many as those of the folds."""
    check_types(Folds, folds=folds)
    check_types(Dataset, rows=rows)
    check_columns(names_of(target), schema(rows).names, "cross_validate")
    count = length(rows)
    if count is None:
        raise ArgumentError(f"Folds select rows by number, and {rows!r} can only be read in order. Hold it in memory: pipe(rows, load()).")
    if count != folds.size:
        raise ArgumentError(f"The folds are of {folds.size} rows, and there are {count} in {rows!r}. Make folds of these rows.")


def names_of(target: Names) -> list[str]:
    """Return the columns of a target as a list."""
    return [target] if isinstance(target, str) else list(target)


def target_numbers(rows: Dataset[Any], target: Names) -> Numbers:
    """Read the numbers to predict, float64[N], or [N, T] for several columns; raises `DataError` for missing ones."""
    columns = [finite_numbers(f"The target {name!r}", column_values(rows, name)) for name in names_of(target)]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
