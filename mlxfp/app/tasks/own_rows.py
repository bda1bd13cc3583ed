"""User-defined rows in place of the files of a task, split into training and validation rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp import Dataset, Splits, schema, select_columns, train_valid_test
from mlxfp.app.kaggle.specs.cells import are_numbers, spell
from mlxfp.app.tasks.file_tasks import limited
from mlxfp.app.tasks.targets import NumberClasses
from mlxfp.parts import read_all
from mlxfp.support.checks import check_columns, check_types
from mlxfp.support.errors import DataError

ReadOwn = Callable[[Path, Any], Dataset[Any] | None]
_LABEL = "label"


def own_part(rows: ReadOwn, path: str, part: str) -> Dataset[Any] | None:
    """Return the rows of the split `part`, or None if the user's function has no such split. Raise `ArgumentTypeError` for other values."""
    dataset = rows(Path(path), part)
    if dataset is not None or part == "train":
        check_types(Dataset, **{f"what rows(path, {part!r}) returns": dataset})
    return dataset


def own_parts_of_rows(rows: ReadOwn, path: str, *, classed: bool, seed: int, limit: int | None = None) -> tuple[Splits, tuple[str, ...]]:
    """Return the training and validation rows of `rows(path, part)`, and the class names. The column `label` becomes class indices.

    Without validation rows, a tenth of the training rows of each class is used for validation. See `limited` for `limit`. Raises
    `DataError` for fewer than two classes, and `SchemaError` for rows without the column `label`.
    """
    train, valid = own_part(rows, path, "train"), own_part(rows, path, "valid")
    assert train is not None
    classes = _classes(train) if classed else ()
    if classed:
        number = NumberClasses((_LABEL,), classes)
        train, valid = number(train), None if valid is None else number(valid)
    parts = train_valid_test(train, seed=seed, stratify=_LABEL if classed else None) if valid is None else Splits(train, valid=valid)
    return limited(parts, limit, seed=seed), classes


def _classes(rows: Dataset[Any]) -> tuple[str, ...]:
    """Return the classes of rows as texts, sorted as numbers if all classes are numbers."""
    check_columns([_LABEL], schema(rows).names, "own.rows")
    texts = [spell(chunk, _LABEL) for chunk in read_all(select_columns([_LABEL])(rows))]
    classes = pc.drop_null(pa.chunked_array(texts, pa.string()).unique())
    if len(classes) < 2:
        raise DataError(
            f"own.rows must return at least two classes in the column {_LABEL!r}, got {classes.to_pylist()}. Add rows of other classes."
        )
    return tuple(sorted(classes.to_pylist(), key=float if are_numbers(classes) else str))
