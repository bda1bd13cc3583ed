"""Cross-validation. Only this module calls `fit`, so models are never scored on their own training rows."""

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
    """Fitted model of one fold, with the predictions for the validation rows."""

    model: Predict
    predictions: FoldPredictions


@frozen
class CrossValidation:
    """Out-of-fold predictions and fitted models, in fold order. Returned by `cross_validate`.

    >>> import mlxfp as fp
    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> def fit(parts):
    ...     return lambda rows: [column_values(parts.train, "y").mean()] * length(rows)
    >>> run = cross_validate(custom([0, 1]), fp.from_table({"x": [1, 2], "y": [3.0, 5.0]}), fit, target="y")
    >>> [float(values[0]) for values in run.predict(fp.from_table({"x": [7]}))]
    [5.0, 3.0]
    """

    oof: OutOfFold
    models: tuple[Predict, ...] = field(repr=False)

    def predict(self, rows: Dataset[Any]) -> tuple[Numbers, ...]:
        """Predict new rows, such as a test file, with every model. Return one array [N] or [N, C] per model.

        See also: `ensembles`, for combining several predictions.
        """
        return tuple(finite_numbers("Predictions", model(rows)) for model in self.models)


def cross_validate(  # noqa: PLR0913  # one argument per option
    folds: Folds,
    rows: Dataset[Any],
    fit: Fit,
    *,
    target: Names,
    stopping: Stopping = "none",
    share: float = 0.1,
    together: bool = False,
) -> CrossValidation:
    """Fit a model on the training rows of every fold, and predict the validation rows.

    `fit(parts)` receives the training rows as `parts.train`, and returns a function from rows to predictions: values [n], probabilities of
    class 1 [n], or probabilities [n, C]. Learn everything inside `fit`: not only weights, but also vocabulary, scales, bins, medians and
    encodings. Rows for prediction lack the `target` columns, like a test file.

    `rows` needs random access. `target` names a column of numbers (classes are numbered from 0). `target` may also name several columns,
    such as labels with the values 0 and 1; predictions are then [n, T].

    `stopping` selects the rows for early stopping, which `fit` receives as `parts.valid`:

    - "none": no rows;
    - "inner": a fraction `share` of the training rows, which are removed from `parts.train`. Rows of a group are not separated. For folds
      in time, the latest training rows are used;
    - "validation": the validation rows. The score is then too optimistic.

    `together=True` trains the models of all folds at the same time, in a single MLX program. This option requires a `fit` with a method
    `together`, for example the result of `small_fit`.

    An error inside `fit` gains a note that names the fold.

    >>> import numpy as np
    >>> import mlxfp as fp
    >>> from mlxfp.app.kaggle.validation.folds import kfold
    >>> rows = fp.from_table({"x": np.arange(8.0), "y": np.arange(8.0) * 2})
    >>> def fit(parts):
    ...     slope = np.polyfit(column_values(parts.train, "x"), column_values(parts.train, "y"), 1)
    ...     return lambda rows: np.polyval(slope, column_values(rows, "x"))
    >>> run = cross_validate(kfold(8, count=4, seed=0), rows, fit, target="y")
    >>> round(fp.kaggle.score(run.oof, fp.kaggle.METRICS["rmse"]).overall, 6), len(run.models)
    (0.0, 4)

    See also: `validate_fold`, for a single fold; `pseudo_label`, for a `fit` with a teacher and a student.
    """
    check_types(bool, together=together)
    check_rows(folds, rows, target)
    targets = target_numbers(rows, target)
    if together:
        if not hasattr(fit, "together"):
            raise ArgumentTypeError(f"together=True needs a `fit` with the method `together`, such as small_fit(...), got {fit!r:.60}.")
        models = tuple(fit.together([parts_of(fold, rows, stopping, share) for fold in folds]))
        predictions = [fold_predictions(fold, model(unseen(fold, rows, target))) for fold, model in zip(folds, models, strict=True)]
        return CrossValidation(out_of_fold(folds, targets, predictions), models)
    all_folds = list(folds)
    with Progress("folds", unit="fold", total=lambda: len(all_folds), lines=True) as progress:
        run = partial(validate_fold, rows=rows, fit=fit, target=target, stopping=stopping, share=share)
        results = [run(fold) for fold in progress.over(all_folds)]
    return CrossValidation(
        out_of_fold(folds, targets, [result.predictions for result in results]), tuple(result.model for result in results)
    )


def validate_fold(  # noqa: PLR0913  # one argument per option
    fold: Fold, rows: Dataset[Any], fit: Fit, *, target: Names, stopping: Stopping = "none", share: float = 0.1
) -> Validated:
    """Fit and predict a single fold, as in `cross_validate`. `out_of_fold` combines the predictions of separately run folds.

    >>> import numpy as np
    >>> import mlxfp as fp
    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> first, second = custom([0, 0, 1])
    >>> def fit(parts):
    ...     mean = column_values(parts.train, "y").mean()
    ...     return lambda rows: np.full(length(rows), mean)
    >>> validate_fold(second, fp.from_table({"y": [1.0, 2.0, 9.0]}), fit, target="y").predictions.predictions.tolist()
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
    """Return a model that predicts several changed versions of the rows and averages the predictions, [N] or [N, C].

    Each stage in `views` creates one version of the rows, for example `map` with a function. A stage must keep the number and the order
    of the rows. For cross-validation, the function `fit` of `cross_validate` returns the new model. Raises `ArgumentError` if the versions
    have different numbers of rows.

    >>> import mlxfp as fp
    >>> model = lambda rows: column_values(rows, "x")
    >>> augmented = test_time_augmentation(model, [fp.map(lambda row: {"x": row["x"] + 1}), fp.map(lambda row: {"x": row["x"] - 1})])
    >>> augmented(fp.from_table({"x": [0.25, 0.5]})).tolist()
    [0.25, 0.5]
    """
    check_callable(model=model)
    if not views:
        raise ArgumentError("test_time_augmentation needs at least one view, got none.")
    for index, view in enumerate(views):
        check_callable(**{f"views[{index}]": view})
    return partial(_mean_of_views, model, tuple(views))


test_time_augmentation.__test__ = False  # type: ignore[attr-defined]  # pytest would collect the imported function as a test


def _mean_of_views(model: Predict, views: Sequence[View], rows: Dataset[Any]) -> Numbers:
    predictions = [finite_numbers(f"Predictions of view {index}", model(view(rows))) for index, view in enumerate(views)]
    if len({array.shape for array in predictions}) > 1:
        shapes = [list(array.shape) for array in predictions]
        raise ArgumentError(
            f"The views of test_time_augmentation must keep all rows, got predictions with the shapes {shapes}. "
            "Use stages that neither drop nor add rows."
        )
    return np.asarray(np.mean(predictions, axis=0))


def parts_of(fold: Fold, rows: Dataset[Any], stopping: Stopping, share: float) -> Splits:
    """Return the rows of a fold for training and for early stopping."""
    check_choice(("none", "inner", "validation"), stopping=stopping)
    if stopping == "none":
        return Splits(select(fold.train)(rows))
    train, valid = fold.inner(share, seed=0) if stopping == "inner" else (fold.train, fold.valid)
    return Splits(select(train)(rows), valid=select(valid)(rows))


def unseen(fold: Fold, rows: Dataset[Any], target: Names) -> Dataset[Any]:
    """Return the validation rows of a fold, without the target."""
    return drop_columns(names_of(target))(select(fold.valid)(rows))


def check_rows(folds: Folds, rows: Dataset[Any], target: Names) -> None:
    """Raise an error unless the dataset `rows` has random access, all target columns, and as many rows as the folds."""
    check_types(Folds, folds=folds)
    check_types(Dataset, rows=rows)
    check_columns(names_of(target), schema(rows).names, "cross_validate")
    count = length(rows)
    if count is None:
        raise ArgumentError(f"Folds need random access to rows, but {rows!r} is sequential. Load the rows into memory: pipe(rows, load()).")
    if count != folds.size:
        raise ArgumentError(f"The folds have {folds.size} rows, but {rows!r} has {count} rows. Create the folds from these rows.")


def names_of(target: Names) -> list[str]:
    """Return the names of the target columns as a list."""
    return [target] if isinstance(target, str) else list(target)


def target_numbers(rows: Dataset[Any], target: Names) -> Numbers:
    """Read the target columns as float64[N], or [N, T] for several columns. Raise `DataError` for missing values."""
    columns = [finite_numbers(f"The target {name!r}", column_values(rows, name)) for name in names_of(target)]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
