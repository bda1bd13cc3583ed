"""Warnings about misleading scores. The rows and folds of a run are checked before training."""

from collections.abc import Iterator
from shlex import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlxfp import select_columns, to_table
from mlxfp.app.kaggle.specs.cells import folded, spell
from mlxfp.app.kaggle.specs.dates import date_order, dates_in_ids
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.differences import part_differences
from mlxfp.app.kaggle.validation.folds import Folds, missing_classes
from mlxfp.app.kaggle.validation.suspicious_columns import column_warnings, text_warnings
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.parts import one_chunk

FEWEST_DUPLICATES = 0.01  # duplicates below this share of the rows hardly change a score
_FEW_ZEROS, _FAR = 0.01, 10  # targets of 0 in at most 1 % of the rows, below targets of at least 10, are probably errors
_FOLD, _ROW = "__fold__", "__place__"  # reserved column names


def run_warnings(data: CompetitionData, folds: Folds, *, inferred: bool) -> Iterator[str]:
    """Yield warnings about possibly misleading scores. `inferred=True` means that the spec was inferred from the files."""
    if data.mismatches:
        yield f"{data.mismatches}\nThe run uses the files unchanged.{_new_spec(data) if inferred else ''}"
    yield from _differences(data)
    yield from _spellings_of_classes(data.spec)
    yield from _missing_classes(data, folds)
    yield from _rare_zeros(data)
    first = folds.assignments[0]
    if folds.forward:
        yield (
            f"Folds are ordered in time by {data.spec.time!r}: the first {int((first < 0).sum()):,} rows never validate. "
            "For random folds, set validation.method=kfold."
        )
        yield from _excluded_groups(data, folds)
    if inferred and folds.method == data.spec.task.grouped_folds:
        yield (
            f"Folds keep rows with equal {data.spec.group!r} together: values repeat in the training rows, and none of them occurs in the "
            "test rows. For random folds, set validation.method=stratified."
        )
    yield from column_warnings(data.spec, data.rows, data.folder if inferred else None)
    if inferred:  # A user who writes a spec chooses the text columns, so only an inferred spec needs these warnings.
        for messages in text_warnings(data.spec, *([data.rows] if data.test is None else [data.rows, data.test]), folder=data.folder):
            yield from messages
    if (count := int(duplicated(data, folds).sum())) >= max(1, FEWEST_DUPLICATES * folds.size):
        inputs = {column.name for column in data.spec.columns}
        other = [name for name in to_table(data.rows).column_names if name not in inputs]
        yield (
            f"{count:,} rows are equal to a row in another fold, in all input columns. If these are duplicates, the score is too "
            f"optimistic. In pandas, frame.drop_duplicates(frame.columns.difference({other})) keeps the first of equal rows."
        )


def _new_spec(data: CompetitionData) -> str:
    name = quote(f"{data.spec.name}_spec")
    code = f"mlxfp new {name} --data {quote(str(data.folder))}"
    return f" The spec was inferred from the files. To change the spec, write a spec file first: {code}, then edit {name}/spec.yaml."


def _differences(data: CompetitionData) -> Iterator[str]:
    """Yield a warning that lists the differences between training and test rows. Yield another warning if the id column holds dates."""
    spec = data.spec
    differences = [] if data.test is None else list(part_differences(spec, data.rows, data.test))
    if differences:
        yield "The test rows differ from the training rows:" + "".join(f"\n  {line}" for line in differences)
    if spec.id is None:
        return
    ids = spell(one_chunk(to_table(select_columns([spec.id])(data.rows))), spec.id)
    if date_order(ids) is not None:
        yield f"The id {spec.id!r} holds dates, which no model reads. To use the dates, copy the column under another name in all files."
    elif code := dates_in_ids(spec.id, ids):
        yield (
            f"The id {spec.id!r} holds dates, such as {ids[0].as_py()!r}, which no model reads. To use the dates, add a column in all "
            f"files, in pandas with frame['date'] = {code}."
        )


def _spellings_of_classes(spec: DatasetSpec) -> Iterator[str]:
    plain: dict[str, str] = {}
    for name in spec.classes:
        other = plain.setdefault(folded(name), name)
        if other != name:
            yield (
                f"The classes {other!r} and {name!r} differ only in spaces, case or Unicode form. Models learn two classes. Write both "
                "alike."
            )


def _rare_zeros(data: CompetitionData) -> Iterator[str]:
    """Yield a warning if a metric of logarithms has a few targets 0, far below all other targets."""
    if data.metric.errors != "logarithmic":
        return
    targets = data.targets
    zeros, others = int((targets == 0).sum()), targets[targets != 0]
    if 0 < zeros <= _FEW_ZEROS * targets.size and others.min() >= _FAR:
        yield (
            f"{zeros:,} training {'row has' if zeros == 1 else 'rows have'} the target 0, and all other targets are at least "
            f"{others.min():g}. With the metric {data.metric.name}, such a row counts more than many others. If the value is an error, "
            "remove the row."
        )


def _excluded_groups(data: CompetitionData, folds: Folds) -> Iterator[str]:
    """Yield a warning if training rows of a fold are excluded because their groups also have validation rows."""
    first = folds.assignments[0]
    earlier, kept = (sum(counts) for counts in zip(*((int((first < fold.number).sum()), len(fold.train)) for fold in folds), strict=True))
    if folds.groups is not None:
        yield (
            f"Folds do not train on their validation groups, by {data.spec.group!r}. This excludes {earlier - kept:,} of "
            f"{earlier:,} earlier rows of all folds. If the test rows have groups of the train file, remove group from the spec."
        )


def duplicated(data: CompetitionData, folds: Folds) -> NDArray[np.bool_]:
    """Return a mask, bool[N]: True for training rows with a duplicate in another fold. Duplicates are equal in all input columns."""
    names = [column.name for column in data.spec.columns]
    first = folds.assignments[0]
    table = (
        to_table(select_columns(names)(data.rows))
        .append_column(_FOLD, pa.array(first))
        .append_column(_ROW, pa.array(np.arange(len(first))))
    )
    kinds = table.group_by(names).aggregate([(_FOLD, "count_distinct"), (_ROW, "list")])
    several = kinds.filter(pc.greater(kinds.column(f"{_FOLD}_count_distinct"), 1)).column(f"{_ROW}_list")
    mask = np.zeros(len(first), bool)
    mask[pc.list_flatten(several).to_numpy()] = True
    return mask


def _missing_classes(data: CompetitionData, folds: Folds) -> Iterator[str]:
    """Yield a warning for each target column with classes that are missing from some folds."""
    spec, targets = data.spec, data.targets
    if spec.task.has_classes:
        for index, column in enumerate(targets.reshape(len(targets), -1).T):
            message = missing_classes(folds, column, spec.classes)
            if message is not None:
                yield f"{spec.target[index]}: {message} Set the number of folds with validation.folds."
