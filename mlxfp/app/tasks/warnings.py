"""What may make the score of a run misleading: found in its rows and folds before anything is trained."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlxfp import select_columns, to_table
from mlxfp.app.kaggle.validation.folds import Folds, missing_classes
from mlxfp.app.kaggle.validation.suspicious_columns import column_warnings, text_warnings
from mlxfp.app.tasks.competition_data import CompetitionData

_FOLD, _ROW = "__fold__", "__place__"  # names that no column of data has


def run_warnings(data: CompetitionData, folds: Folds, *, inferred: bool) -> Iterator[str]:
    """Yield what may make a score misleading, though it need not be a mistake. `inferred`: nobody has said what the columns are."""
    if data.mismatches:
        yield data.mismatches
    yield from _missing_classes(data, folds)
    first = folds.assignments[0]
    if folds.forward:
        yield (
            f"Folds go forward in time, by {data.spec.time!r}: the first {int((first < 0).sum()):,} rows are only trained on. "
            "For random folds: validation.method=kfold."
        )
        yield from _apart(data, folds)
    yield from column_warnings(data.spec, data.rows)
    if inferred:  # inferred: nobody has said that these are texts
        yield from text_warnings(data.spec, *([data.rows] if data.test is None else [data.rows, data.test]))
    if count := int(duplicated(data, folds).sum()):
        yield (
            f"{count:,} rows are equal to a row in another fold, in all columns that a model sees: the score is too good "
            "if these are duplicates. A group column in the spec keeps such rows together."
        )


def _apart(data: CompetitionData, folds: Folds) -> Iterator[str]:
    """Say how many earlier rows folds in time do not train on, as their groups validate."""
    first = folds.assignments[0]
    earlier, kept = (sum(counts) for counts in zip(*((int((first < fold.number).sum()), len(fold.train)) for fold in folds), strict=True))
    if folds.groups is not None:
        yield (
            f"Groups, by {data.spec.group!r}, that a fold validates are not trained on: that leaves out {earlier - kept:,} of "
            f"{earlier:,} earlier rows of all folds. If rows to predict have groups of the train file, leave the group out of the spec."
        )


def duplicated(data: CompetitionData, folds: Folds) -> NDArray[np.bool_]:
    """Return which training rows are equal to a row in another fold, in all columns that a model sees: bool[N]."""
    names = [column.name for column in data.spec.columns]
    first = folds.assignments[0]
    table = (
        to_table(select_columns(names)(data.rows))
        .append_column(_FOLD, pa.array(first))
        .append_column(_ROW, pa.array(np.arange(len(first))))
    )
    kinds = table.group_by(names).aggregate([(_FOLD, "count_distinct"), (_ROW, "list")])
    several = kinds.filter(pc.greater(kinds.column(f"{_FOLD}_count_distinct"), 1)).column(f"{_ROW}_list")
    found = np.zeros(len(first), bool)
    found[pc.list_flatten(several).to_numpy()] = True
    return found


def _missing_classes(data: CompetitionData, folds: Folds) -> Iterator[str]:
    """Say which classes some folds lack; of several labels, each by its name."""
    spec, targets = data.spec, data.targets
    if spec.task.has_classes:
        for place, column in enumerate(targets.reshape(len(targets), -1).T):
            said = missing_classes(folds, column, spec.classes)
            if said is not None:
                yield f"{spec.target[place]}: {said} The number of folds is validation.folds."
