"""Pseudo-labels from a finished run, called the teacher.

In each fold, rows are labelled only by the teacher's models of the same fold, which have not seen the validation labels.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa

from mlxfp import Dataset, from_table, to_table
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.app.kaggle.validation.folds import Fold
from mlxfp.app.kaggle.validation.pseudolabels import Confidence
from mlxfp.app.run_folders.files import read_array, read_json
from mlxfp.app.run_folders.folders import DATA, FOLD_TEST, FoldFolder
from mlxfp.app.runs.plans import Plan
from mlxfp.inspect import fingerprint
from mlxfp.support.errors import ConfigError, DataError


def with_pseudo_labels(plan: Plan, fold: Fold, train: Dataset[Any]) -> Dataset[Any]:
    """Add test rows to the training rows of a fold. Labels are confident predictions of the teacher (a finished run) in the same fold.

    Raises `ConfigError` if the teacher has other rows or folds.
    """
    teacher = plan.teacher
    if teacher is None or plan.data.test is None:
        return train
    _check_teacher(plan, teacher)
    names = [*(column.name for column in plan.data.spec.columns), plan.data.spec.target[0]]
    chances = read_array(_test_file(plan, fold, teacher))
    rows, labels = Confidence().choose(chances, plan.data.targets[fold.train])
    sure = to_table(plan.data.test).take(pa.array(rows)).append_column(names[-1], pa.array(labels))
    return from_table(pa.concat_tables([to_table(train).select(names), sure.select(names)], promote_options="permissive"))


def teacher_files(plan: Plan) -> dict[str, str]:
    """For each fold, return the hash of the predictions that became pseudo-labels. Return an empty dict without pseudo-labels."""
    teacher = plan.teacher
    if teacher is None:
        return {}
    _check_teacher(plan, teacher)
    return {f"pseudo-labels of fold {number}": hash_file(_test_file(plan, fold, teacher)) for number, fold in enumerate(plan.folds, 1)}


def _check_teacher(plan: Plan, teacher: Path) -> None:
    if not (teacher / DATA).is_file() or not all(_test_file(plan, fold, teacher).is_file() for fold in plan.folds):
        raise DataError(
            f"data.pseudo_labels needs a finished run with test predictions, and {teacher} has no test predictions. Finish this run first."
        )
    known = read_json(teacher / DATA)
    expected = {"rows": fingerprint(plan.rows), "test": fingerprint(plan.data.test), "folds": plan.folds.fingerprint}
    differ = [name for name, value in expected.items() if known.get(name) != value]
    if differ:
        raise ConfigError(
            f"data.pseudo_labels: the run in {teacher} has different {', '.join(differ)}, so the models of that run may have seen "
            "validation rows of this run. Use the same data.path, data.limit and validation for both runs."
        )


def _test_file(plan: Plan, fold: Fold, teacher: Path) -> Path:
    number = fold.repeat * plan.folds.count + fold.number + 1
    return FoldFolder(teacher, number) / FOLD_TEST
