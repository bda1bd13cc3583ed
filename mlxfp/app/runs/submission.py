"""Creation of submissions in the format required by the metric, the target and the sample submission."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mlxfp.app.kaggle.specs.reading import column_names, read_strings, split_sample
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.specs.spellings import Spelling, have_fractions
from mlxfp.app.kaggle.submitting.submissions import Submission, submission
from mlxfp.app.kaggle.validation.scoring import Metric, Numbers, labels_of
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.support.errors import FEW, DataError, listed


def submission_files(data: CompetitionData) -> tuple[Path, Path] | None:
    """Return the test file and the sample submission, or None if either is missing."""
    test, sample = data.path_of("test"), data.path_of("sample")
    return None if test is None or sample is None else (test, sample)


def make_submission(data: CompetitionData, predictions: Numbers) -> Submission | None:
    """Convert predictions to a submission in the format of the sample submission file. Return None without a test file or sample file.

    The submission holds class names, probabilities or values. The metric decides between class names and probabilities. A sample file with
    fractions such as 0.5 needs probabilities, even if the metric scores class names.

    If the sample file has a column for each target or class, the columns are matched by name, in any order. Raises `DataError` with all
    problems if the predictions do not fit the sample file.
    """
    files = submission_files(data)
    if files is None:
        return None
    (test, sample), metric, spec = files, data.metric, data.spec
    columns = split_sample(*(column_names(file, encoding=spec.encoding) for file in files))[1]
    if not spec.task.one_class:
        values = predictions.reshape(len(predictions), -1)
        wanted = (values > 0.5).astype(np.float64) if _asks_for_labels(metric, spec, sample) else values
        indices = _target_indices(columns, spec, sample)
        by_name = {name: wanted[:, index] for name, index in zip(columns, indices, strict=True)}
    elif len(columns) > 1:
        probabilities = _class_probabilities(predictions, spec, sample)
        by_name = {name: probabilities[:, index] for name, index in zip(columns, _class_indices(columns, spec, sample), strict=True)}
    elif _asks_for_labels(metric, spec, sample):
        by_name = {name: np.array(spec.classes)[labels_of(predictions).astype(np.int64)] for name in columns}
    elif predictions.ndim > 1:
        raise DataError(
            f"{metric.name} needs a probability for each of {len(spec.classes)} classes, but the sample {str(sample)!r} has only "
            f"the column {columns[0]!r}. Choose a metric that scores labels, such as competition.metric=accuracy, or another sample file."
        )
    else:
        by_name = dict.fromkeys(columns, predictions)
    return submission(by_name, test=test, sample=sample, spelling=spelling_of(metric, spec, sample), encoding=spec.encoding)


def spelling_of(metric: Metric, spec: DatasetSpec, sample: Path) -> Mapping[str, Spelling]:
    """Return the format "number" for every column if the submission must hold numbers. Otherwise, return an empty dict."""
    columns, decided = column_names(sample, encoding=spec.encoding), _asks_for_labels(metric, spec, sample)
    several = spec.task.one_class and len(columns) > 2
    return dict.fromkeys(columns, "number") if not decided or several else {}


def _asks_for_labels(metric: Metric, spec: DatasetSpec, sample: Path) -> bool:
    """Return True if the submission must hold class labels, not probabilities.

    For two classes, a sample file with fractions such as 0.5 needs probabilities.
    """
    if not spec.task.has_classes or metric.needs != "labels":
        return False
    cells = read_strings(sample, spec)
    answers = {cell for name in cells.column_names if name != spec.id for cell in cells[name].drop_null().unique().to_pylist()}
    return not spec.task.two_classes or not have_fractions(answers - {*spec.classes})


def _target_indices(columns: Sequence[str], spec: DatasetSpec, sample: Path) -> list[int]:
    """Return the target index of each column in the sample file. A single column may have another name than the single target."""
    if len(columns) == len(spec.target) == 1:
        return [0]
    if set(columns) != set(spec.target):
        raise DataError(
            f"The columns of the sample {str(sample)!r} are {listed(columns, most=FEW)}, but the targets of the spec are "
            f"{', '.join(spec.target)}. Use the column names of the sample as target names in the spec."
        )
    return [spec.target.index(name) for name in columns]


def _class_probabilities(predictions: Numbers, spec: DatasetSpec, sample: Path) -> Numbers:
    """Return the probability of each class, float64[N, C], also for two classes."""
    if predictions.ndim > 1:
        return predictions
    if len(spec.classes) > 2 or set(np.unique(predictions)) <= {0.0, 1.0}:
        raise DataError(
            f"The sample {str(sample)!r} has a probability column for each class, but the run predicts labels. "
            "Set competition.threshold=false. To blend runs, choose another method than vote, because vote gives labels."
        )
    return np.stack([1 - predictions, predictions], axis=1)


def _class_indices(columns: Sequence[str], spec: DatasetSpec, sample: Path) -> list[int]:
    """Return the class index of each column in the sample submission. The class is the longest class name at the end of the column name."""
    ends = [[index for index, name in enumerate(spec.classes) if column.endswith(name)] for column in columns]
    indices = [max(fitting, key=lambda index: len(spec.classes[index])) for fitting in ends if fitting]
    if len(set(indices)) < len(columns):
        raise DataError(
            f"The columns of the sample {str(sample)!r} are {listed(columns, most=FEW)}. They do not match the classes of "
            f"the spec one to one: {listed(spec.classes, most=FEW)}. Use the class names of the sample in the spec."
        )
    return indices
