"""An argument of the wrong kind is named where the stage is built, and not where Python stumbles over it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError

ROWS: Any = fp.from_examples([{"x": 1}])
TYPES: Any = {"x": pa.int64()}


@pytest.mark.parametrize(
    "make",
    [
        lambda: fp.map(dict, schema=TYPES),
        lambda: fp.flat_map(lambda row: [row], schema=TYPES),
        lambda: fp.map_chunks(lambda chunk: chunk, schema=TYPES),
        lambda: fp.from_examples([{"x": 1}], schema=TYPES),
        lambda: fp.from_iterable([{"x": 1}], schema=TYPES),
    ],
)
def test_a_mapping_of_types_is_no_schema(make: Callable[[], Any]):
    with pytest.raises(ArgumentTypeError, match=r"schema must be a pyarrow schema, as in pa\.schema\(\{'x': pa\.int64\(\)\}\), got dict"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fp.iterate(ROWS, b"MLXFPCUR"), r"must be a cursor from iterate, got bytes: .*\. Convert bytes with Cursor\.from_bytes"),  # type: ignore[arg-type]
        (lambda: fp.iterate(ROWS, 3), r"cursor .* got int: 3\. .* as in epoch=1\."),  # type: ignore[arg-type]
        (lambda: fp.split(0.9, seed=0), r"fractions must be a list, got 0\.9\."),  # type: ignore[arg-type]
        (lambda: fp.bucket_by_length(32, size=2), r"lengths must be Sequence or ndarray, got int: 32\."),  # type: ignore[arg-type]
        (lambda: fp.mix([ROWS, ROWS], 0.5), r"weights must be Sequence or ndarray or Mapping, got float: 0\.5\."),  # type: ignore[arg-type]
        (lambda: fp.mix([ROWS, ROWS], [1, "2"]), r"weight must be Real, got str: '2'\."),  # type: ignore[list-item]
        (lambda: fp.rename_columns(["x"]), r"names must be Mapping, got list: \['x'\]"),  # type: ignore[arg-type]
        (lambda: fp.rename_columns({"x": 1}), "name must be a string, got name=1"),  # type: ignore[dict-item]
        (lambda: fp.select_columns(3), r"columns must be a list of strings, got int: 3\."),  # type: ignore[arg-type]
        (lambda: fp.select_columns([0]), r"columns\[0\] must be a string, got columns\[0\]=0"),  # type: ignore[list-item]
        (lambda: ROWS[1.5], r"index must be int or integer or slice, got float: 1\.5\."),
    ],
)
def test_other_kinds_are_named_too(make: Callable[[], Any], message: str):
    with pytest.raises(ArgumentTypeError, match=message):
        make()


def test_arrays_are_lists():
    assert len(fp.split(np.array([0.5, 0.5]), seed=0)(ROWS)) == 2  # type: ignore[arg-type]
    assert len(list(fp.mix([ROWS, ROWS], np.array([1, 1]), stop="all"))) == 2  # type: ignore[arg-type]
    assert ROWS[np.int64(0)] == {"x": 1}
