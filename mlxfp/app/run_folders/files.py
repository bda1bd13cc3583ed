"""Reading and atomic writing of the files of a run."""

import csv
import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.support.atomic_files import write_whole, written_whole
from mlxfp.support.errors import DataError


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Create the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode("utf-8"))


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON, with the keys in the given order."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that `write_json` wrote. Raises `DataError` for a damaged file."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}. Remove the file, and repeat the command to write the file again.") from error
    if not isinstance(values, dict):
        raise DataError(
            f"{path} is damaged: {values!r:.60} is not an object. Remove the file, and repeat the command to write the file again."
        )
    return values


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as .npy."""
    with written_whole(path) as file:
        np.save(file, array, allow_pickle=False)


def read_array(path: Path) -> NDArray[Any]:
    """Read a file that `write_array` wrote. Raises `DataError` for a damaged file."""
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is damaged: {error}. Remove the file, and repeat the command to write the file again.") from error
    return array


def csv_text(columns: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    r"""Return columns as CSV, with all digits of floats and empty cells for NaN.

    >>> csv_text({"id": ["a", "b"], "prediction": np.array([0.1, np.nan])})
    'id,prediction\na,0.1\nb,\n'
    """
    text, pairs = StringIO(), list(columns.items() if isinstance(columns, Mapping) else columns)
    lists = [["" if value != value else value for value in np.asarray(column).tolist()] for _, column in pairs]
    csv.writer(text, lineterminator="\n").writerows([[name for name, _ in pairs], *zip(*lists, strict=True)])
    return text.getvalue()
