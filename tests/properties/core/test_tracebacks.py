"""A traceback of an error in a user's function has the lines of the user, and few of ours."""

from pathlib import Path
from traceback import walk_tb
from typing import Any

import pyarrow as pa
import pytest

import mlxfp as fp


def fails(row: Any) -> Any:
    return row["nowhere"]


def fails_of_a_group(rows: Any) -> Any:
    return rows[0]["nowhere"]


def fails_late(row: Any) -> Any:
    yield row
    yield row["nowhere"]


NUMBERS = fp.from_examples([{"x": number} for number in range(5)])


@pytest.mark.parametrize(
    ("consume", "function"),
    {
        "map": (lambda: list(fp.pipe(NUMBERS, fp.map(fails))), fails),
        "map with a schema": (lambda: list(fp.pipe(NUMBERS, fp.map(fails, schema=pa.schema({"x": pa.int64()})))), fails),
        "filter": (lambda: list(fp.pipe(NUMBERS, fp.filter(fails))), fails),
        "flat_map": (lambda: list(fp.pipe(NUMBERS, fp.flat_map(fails_late))), fails_late),
        "collate": (lambda: list(fp.pipe(NUMBERS, fp.batch(2), fp.collate(fails_of_a_group))), fails_of_a_group),
        "schema": (lambda: fp.schema(fp.pipe(NUMBERS, fp.map(fails))), fails),
        "random access": (lambda: list(fp.pipe(NUMBERS, fp.map(fails), fp.shuffle(seed=0))), fails),
    }.values(),
)
def test_in_ipython_a_traceback_has_the_lines_of_the_user_and_no_other(consume: Any, function: Any):
    """It leaves out frames with `__tracebackhide__` among their locals."""
    with pytest.raises(KeyError) as caught:
        consume()
    shown = [frame for frame, _ in walk_tb(caught.value.__traceback__) if not frame.f_locals.get("__tracebackhide__")]
    assert [Path(frame.f_code.co_filename).name for frame in shown] == [Path(__file__).name] * 3  # this test, the lambda, the function
    assert shown[-1].f_code is function.__code__
