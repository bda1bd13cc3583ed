"""Reading of a finished run folder for reports and comparisons. Nothing is trained or changed."""

from collections.abc import Callable
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pc
from attrs import evolve, field, frozen

from mlxfp import pipe, select, select_columns, to_table, tokenize
from mlxfp.app.kaggle.ensembling.calibration import Threshold
from mlxfp.app.kaggle.specs.spec_files import load_spec
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.cross_validation import Predict
from mlxfp.app.kaggle.validation.folds import Folds
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold
from mlxfp.app.kaggle.validation.scoring import METRICS, Metric, Numbers, labels_of
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_json
from mlxfp.app.run_folders.folders import BLENDED, FoldFolder, Settings
from mlxfp.app.tasks.recipes import Recipe
from mlxfp.support.errors import ArgumentError, DataError, MlxfpError
from mlxfp.support.structuring import structure

_IDS = "__tokens__"  # column name that user data cannot have
_COUNTED = 20_000  # maximum number of rows for counting tokens; counting takes about a second


LinearOf = Callable[[Path], LinearModel | None]  # function from a run folder to the linear baseline of the run
ModelOf = Callable[[int], Predict]  # function from the index of a fold to the model of the fold


@frozen(eq=False)
class Scored:
    """Out-of-fold predictions of a run with the ids and targets of the rows."""

    spec: DatasetSpec
    metric: Metric
    ids: tuple[str, ...] = field(repr=False)
    oof: OutOfFold
    threshold: float | None

    @cached_property
    def known(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Mask of the rows with a prediction: bool[N]."""
        flat = self.oof.predictions.reshape(self.oof.predictions.shape[0], len(self.ids), -1)
        return np.asarray(np.isfinite(flat).all(axis=2).any(axis=0))

    @cached_property
    def predictions(self) -> Numbers:
        """Mean prediction of each row over repeats: float64[N] or [N, C], NaN for rows without a prediction."""
        means, known = np.full(self.oof.predictions.shape[1:], np.nan), self.known
        means[known] = np.nanmean(self.oof.predictions[:, known], axis=0)
        return means

    @property
    def single(self) -> bool:
        """True for classification with exactly one class per row."""
        return self.spec.task.one_class and self.predicts_classes

    @property
    def predicts_classes(self) -> bool:
        """True if predictions are class probabilities, False if predictions are values."""
        return self.spec.task.has_classes and (self.oof.predictions.ndim == 3 or len(self.spec.classes) == 2)

    @cached_property
    def chances(self) -> Numbers:
        """Probability of every class for the rows with a prediction: float64[n, C]."""
        means = self.predictions[self.known]
        return np.column_stack([1 - means, means]) if means.ndim == 1 else means

    @cached_property
    def targets(self) -> Numbers:
        """Targets of the rows with a prediction: float64[n] or [n, T]."""
        return np.asarray(self.oof.targets[self.known], np.float64)

    @cached_property
    def labels(self) -> Numbers:
        """Number of the predicted class, from 0, for each row with a prediction: float64[n]."""
        means = self.predictions[self.known]
        return np.asarray(labels_of(means) if self.threshold is None else Threshold(self.threshold)((means,)), np.float64)


@frozen(eq=False)
class FinishedRun:
    """Finished run: options, contents of the result files, and the data rows unless reading failed. Returned by `read_run`."""

    folder: Path
    settings: Settings
    metrics: dict[str, Any]
    environment: dict[str, Any]
    receipt: dict[str, Any]
    folds: tuple[FoldFolder, ...]
    scored: Scored | None = None
    linear: LinearModel | None = None  # baseline model; None if the rows cannot be read
    missing: str = ""  # reason for unreadable rows
    model_of: ModelOf | None = None  # None for a blend, because the folder of a blend contains no models

    @property
    def blended(self) -> bool:
        """True for a blend of runs. The folder of a blend contains no models."""
        return BLENDED in self.metrics

    @property
    def logs(self) -> dict[str, Path]:
        """Log file of each fold, by fold name. Folds without a log are left out."""
        named = {f"fold {fold.fold}": fold / folders.LOG for fold in self.folds}
        return {name: path for name, path in named.items() if path.is_file()}

    @cached_property
    def recipe(self) -> Recipe | None:
        """Conversion of rows to texts and tokens, as fitted in the first fold. None if the model reads no text."""
        if not self.folds:
            return None
        try:
            return structure(read_json(self.folds[0] / folders.RECIPE), Recipe)
        except (MlxfpError, OSError):
            return None

    def texts(self, numbers: Any) -> list[str]:
        """Return the text that the model reads, for each row index in `numbers`.

        If the model reads no text, return the column names and values as text. If the rows of the run cannot be read, return empty texts.
        """
        if self.linear is None or not len(numbers):
            return ["" for _ in numbers]
        rows = select(np.asarray(numbers, np.int64))(self.linear.data.rows)
        if self.recipe is not None:
            return [str(text) for text in to_table(select_columns(["text"])(self.recipe.text(rows))).column("text").to_pylist()]
        names = [column.name for column in self.linear.data.spec.columns]
        return [
            "; ".join(f"{name}: {_plain(value)}" for name, value in row.items() if value is not None) for row in select_columns(names)(rows)
        ]

    def token_counts(self) -> np.ndarray[Any, np.dtype[np.int64]] | None:
        """Return the token counts of the training rows: int64[n]. With more than 20,000 rows, count 20,000 evenly spaced rows."""
        if self.linear is None or self.recipe is None:
            return None
        size = self.linear.folds.size
        chosen = np.unique(np.linspace(0, size - 1, min(size, _COUNTED)).astype(np.int64))
        texts = self.recipe.text(select(chosen)(self.linear.data.rows))
        tokens = pipe(texts, select_columns(["text"]), tokenize(self.recipe.tokenizer, into=_IDS))
        counts: Any = to_table(tokens).column(_IDS)
        return np.asarray([len(tokens_of_row) for tokens_of_row in counts], np.int64)


def read_run(folder: str | PathLike[str], linear_of: LinearOf) -> FinishedRun:
    """Read a finished run together with the linear baseline for its rows and folds.

    Raises `DataError` for an unfinished run, and if `linear_of` raises `DataError`, as for changed data.
    """
    run = Path(folder)
    settings = folders.settings_in(run)
    if not folders.is_done(run):
        raise DataError(f"The run in {run} is not finished. Continue the run first: mlxfp resume {run}")
    folds = tuple(FoldFolder(run, index + 1) for index in range(sum(path.is_dir() for path in run.glob("fold-*"))))
    metrics, environment, receipt = (read_json(run / name) for name in (folders.METRICS, folders.ENVIRONMENT, folders.RECEIPT))
    result = FinishedRun(run, settings, metrics, environment, receipt, folds)
    if settings["task"] != "competition":
        return result
    linear, missing = None, ""
    try:
        linear = linear_of(run)
    except DataError:
        raise
    except (MlxfpError, OSError) as error:
        missing = str(error)
    return evolve(result, scored=_scored(run, run, metrics, linear), linear=linear, missing=missing)


def is_blend(folder: Path) -> bool:
    """Return True if a folder has a blend of runs."""
    metrics = folder / folders.METRICS
    return not (folder / folders.CONFIG).is_file() and metrics.is_file() and BLENDED in read_json(metrics)


def read_blend(folder: Path, linear_of: LinearOf) -> FinishedRun:
    """Read a blend as a run without models.

    Rows and folds come from the first blended run. Raises the errors of `read_run` for the first run.
    """
    metrics = read_json(folder / folders.METRICS)
    first = read_run(next(iter(metrics[BLENDED])), linear_of)
    settings = {**first.settings, "output": fspath(folder.parent), "name": folder.name}
    scored = _scored(folder, first.folder, metrics, first.linear)
    return FinishedRun(folder, settings, metrics, {}, {}, (), scored, first.linear, first.missing)


def _scored(folder: Path, run: Path, metrics: dict[str, Any], linear: LinearModel | None) -> Scored:
    """Read the predictions in `folder`, and the spec and folds in `run`. For a blend, `run` is the folder of the first blended run."""
    spec, metric = load_spec(run / folders.SPEC), METRICS[metrics["metric"]]
    ids, *columns = _columns(folder / folders.OOF)
    truth, predicted = np.column_stack(columns[: len(spec.target)]), columns[len(spec.target) :]
    if linear is None:
        assignments = np.stack(_columns(run / folders.FOLDS)[1:]).astype(np.int64) - 1
        # Only time-series folds leave some rows without validation. The fold number of such rows is -1.
        folds = Folds("written", assignments, np.arange(len(ids)), forward=bool((assignments < 0).any()))
    else:
        folds = linear.folds
    if folds.size != len(ids):
        raise DataError(
            f"{folder / folders.OOF} has {len(ids):,} rows, but the folds of the run have {folds.size:,} rows. Restore the original file."
        )
    width = len(predicted) // folds.repeats
    arrays = [np.column_stack(predicted[first : first + width]) for first in range(0, len(predicted), width)]
    predictions = np.stack([array[:, 0] if width == 1 else array for array in arrays])
    oof = OutOfFold(folds, truth[:, 0] if truth.shape[1] == 1 else truth, predictions)
    return Scored(spec, metric, tuple(map(str, ids)), oof, metrics.get("threshold"))


def _plain(value: object) -> object:
    """Convert a whole float to an integer. The rows of a spec hold all numbers as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _columns(path: Path) -> list[Any]:
    """Read a CSV file of a run: ids as texts, other columns as float64 with NaN for empty cells. Column names may repeat."""
    columns = pc.read_csv(path, parse_options=pc.ParseOptions(newlines_in_values=True))
    if columns.num_columns < 2:
        raise ArgumentError(f"{path} needs a column of ids and a column of numbers, got {columns.column_names}. Restore the original file.")
    ids, *numbers = columns.columns
    return [ids.to_pylist(), *(np.asarray(column.cast("float64").to_numpy(), np.float64) for column in numbers)]
