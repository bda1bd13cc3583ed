"""A run as its folder has it: what a report and a comparison are made of. Nothing is trained, and nothing is changed."""

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

_IDS = "__tokens__"  # a name that no column of a user has
_COUNTED = 20_000  # rows whose tokens are counted: enough for a picture, and a second of work


LinearOf = Callable[[Path], LinearModel | None]  # of the rows and folds of the run in a folder


@frozen(eq=False)
class Scored:
    """The out-of-fold predictions of a run with folds: of each row its id, target and prediction, the mean over repeats."""

    spec: DatasetSpec
    metric: Metric
    ids: tuple[str, ...] = field(repr=False)
    oof: OutOfFold
    threshold: float | None

    @cached_property
    def known(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows have a prediction: bool[N]."""
        flat = self.oof.predictions.reshape(self.oof.predictions.shape[0], len(self.ids), -1)
        return np.asarray(np.isfinite(flat).all(axis=2).any(axis=0))

    @cached_property
    def predictions(self) -> Numbers:
        """The mean of each row's predictions over repeats: float64[N] or [N, C], NaN where there are none."""
        made, known = np.full(self.oof.predictions.shape[1:], np.nan), self.known
        made[known] = np.nanmean(self.oof.predictions[:, known], axis=0)
        return made

    @property
    def single(self) -> bool:
        """Whether each row has one class of several."""
        return self.spec.task.one_class and self.predicts_classes

    @property
    def predicts_classes(self) -> bool:
        """Whether predictions are probabilities of classes, not values."""
        return self.spec.task.has_classes and (self.oof.predictions.ndim == 3 or len(self.spec.classes) == 2)

    @cached_property
    def chances(self) -> Numbers:
        """The probability of every class, of rows with a prediction: float64[n, C]."""
        made = self.predictions[self.known]
        return np.column_stack([1 - made, made]) if made.ndim == 1 else made

    @cached_property
    def targets(self) -> Numbers:
        """The targets of rows with a prediction: float64[n] or [n, T]."""
        return np.asarray(self.oof.targets[self.known], np.float64)

    @cached_property
    def labels(self) -> Numbers:
        """The predicted class of rows with a prediction: float64[n]."""
        made = self.predictions[self.known]
        return np.asarray(labels_of(made) if self.threshold is None else Threshold(self.threshold)((made,)), np.float64)


@frozen(eq=False)
class FinishedRun:
    """A finished run: its options as plain data, files and, where they can still be read, its rows; made by `read_run`."""

    folder: Path
    settings: Settings
    metrics: dict[str, Any]
    environment: dict[str, Any]
    receipt: dict[str, Any]
    folds: tuple[FoldFolder, ...]
    scored: Scored | None = None
    linear: LinearModel | None = None  # to compare with; None where the rows cannot be read
    missing: str = ""  # why the rows cannot be read

    @property
    def blended(self) -> bool:
        """Whether it is a blend of runs, without models of its own."""
        return BLENDED in self.metrics

    @property
    def logs(self) -> dict[str, Path]:
        """The logs of the folds that wrote one, by name."""
        named = {f"fold {each.fold}": each / folders.LOG for each in self.folds}
        return {name: path for name, path in named.items() if path.is_file()}

    @cached_property
    def recipe(self) -> Recipe | None:
        """What the first fold fitted to write rows as texts and tokens; None where the model reads no texts."""
        if not self.folds:
            return None
        try:
            return structure(read_json(self.folds[0] / folders.RECIPE), Recipe)
        except (MlxfpError, OSError):
            return None

    def texts(self, numbers: Any) -> list[str]:
        """Return rows as the model reads them, by their numbers; of a model without texts, as columns and values."""
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
        """Count the tokens of training rows, of more than 20,000 of as many evenly spaced ones: int64[n]."""
        if self.linear is None or self.recipe is None:
            return None
        size = self.linear.folds.size
        chosen = np.unique(np.linspace(0, size - 1, min(size, _COUNTED)).astype(np.int64))
        texts = self.recipe.text(select(chosen)(self.linear.data.rows))
        tokens = pipe(texts, select_columns(["text"]), tokenize(self.recipe.tokenizer, into=_IDS))
        counts: Any = to_table(tokens).column(_IDS)
        return np.asarray([len(each) for each in counts], np.int64)


def read_run(folder: str | PathLike[str], linear_of: LinearOf) -> FinishedRun:
    """Read a finished run, with the linear model of its rows and folds.

    Raises `DataError` for a run that is not done.
    """
    run = Path(folder)
    settings = folders.settings_in(run)
    if not folders.is_done(run):
        raise DataError(f"The run in {run} is not done. Continue it first: mlxfp resume {run}.")
    folds = tuple(FoldFolder(run, place + 1) for place in range(sum(each.is_dir() for each in run.glob("fold-*"))))
    metrics, environment, receipt = (read_json(run / name) for name in (folders.METRICS, folders.ENVIRONMENT, folders.RECEIPT))
    found = FinishedRun(run, settings, metrics, environment, receipt, folds)
    if settings["task"] != "competition":
        return found
    linear, missing = None, ""
    try:
        linear = linear_of(run)
    except (MlxfpError, OSError) as error:
        missing = str(error)
    return evolve(found, scored=_scored(run, run, metrics, linear), linear=linear, missing=missing)


def is_blend(folder: Path) -> bool:
    """Whether a folder holds a blend of runs."""
    metrics = folder / folders.METRICS
    return not (folder / folders.CONFIG).is_file() and metrics.is_file() and BLENDED in read_json(metrics)


def read_blend(folder: Path, linear_of: LinearOf) -> FinishedRun:
    """Read a blend as a run without folds of its own: rows and folds are those of its first run. Raises what `read_run` does of that."""
    metrics = read_json(folder / folders.METRICS)
    first = read_run(next(iter(metrics[BLENDED])), linear_of)
    settings = {**first.settings, "output": fspath(folder.parent), "name": folder.name}
    scored = _scored(folder, first.folder, metrics, first.linear)
    return FinishedRun(folder, settings, metrics, {}, {}, (), scored, first.linear, first.missing)


def _scored(folder: Path, run: Path, metrics: dict[str, Any], linear: LinearModel | None) -> Scored:
    """Read the predictions in a folder, of the rows and folds of a run."""
    spec, metric = load_spec(run / folders.SPEC), METRICS[metrics["metric"]]
    ids, *columns = _columns(folder / folders.OOF)
    truth, predicted = np.column_stack(columns[: len(spec.target)]), columns[len(spec.target) :]
    if linear is None:
        assignments = np.stack(_columns(run / folders.FOLDS)[1:]).astype(np.int64) - 1
        # Only folds in time leave rows that never validate.
        folds = Folds("written", assignments, np.arange(len(ids)), forward=bool((assignments < 0).any()))
    else:
        folds = linear.folds
    if folds.size != len(ids):
        raise DataError(
            f"{folder / folders.OOF} has {len(ids):,} rows, and the folds of the run have {folds.size:,}. Restore the original."
        )
    each = len(predicted) // folds.repeats
    arrays = [np.column_stack(predicted[first : first + each]) for first in range(0, len(predicted), each)]
    predictions = np.stack([array[:, 0] if each == 1 else array for array in arrays])
    oof = OutOfFold(folds, truth[:, 0] if truth.shape[1] == 1 else truth, predictions)
    return Scored(spec, metric, tuple(map(str, ids)), oof, metrics.get("threshold"))


def _plain(value: object) -> object:
    """Return whole numbers as such: a column that lacks values in some rows is one of floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _columns(path: Path) -> list[Any]:
    """Read a CSV file of a run: the first column as texts, the others as numbers, empty cells as NaN. Names may repeat."""
    found = pc.read_csv(path, parse_options=pc.ParseOptions(newlines_in_values=True))
    if found.num_columns < 2:
        raise ArgumentError(f"{path} needs a column of ids and one of numbers, got {found.column_names}. Restore the original.")
    ids, *numbers = found.columns
    return [ids.to_pylist(), *(np.asarray(each.cast("float64").to_numpy(), np.float64) for each in numbers)]
