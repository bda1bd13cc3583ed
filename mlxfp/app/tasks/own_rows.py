"""Rows of a user's own in place of the files of a task, in parts that train and validate."""

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
    """Return the rows of a part, or None; raises `ArgumentTypeError` for anything else."""
    found = rows(Path(path), part)
    if found is not None or part == "train":
        check_types(Dataset, **{f"what rows(path, {part!r}) returns": found})
    return found


def own_parts_of_rows(rows: ReadOwn, path: str, *, classed: bool, seed: int, limit: int | None = None) -> tuple[Splits, tuple[str, ...]]:
    """Return the parts "train" and "valid" of `rows(path, part)`, and the classes in their column `label`, which becomes their indices.

    Without a part that validates, a tenth of the rows does, of each class. `limit` is that of `read_parts`. Raises `DataError` for fewer
    than two classes, and `SchemaError` for rows without the column `label`.
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
    """Return the classes of rows as text; numbers are in their order."""
    check_columns([_LABEL], schema(rows).names, "own.rows")
    texts = [spell(chunk, _LABEL) for chunk in read_all(select_columns([_LABEL])(rows))]
    found = pc.drop_null(pa.chunked_array(texts, pa.string()).unique())
    if len(found) < 2:
        raise DataError(
            f"The rows of own.rows need at least two classes in the column {_LABEL!r}, got {found.to_pylist()}. Give rows of each class."
        )
    return tuple(sorted(found.to_pylist(), key=float if are_numbers(found) else str))
