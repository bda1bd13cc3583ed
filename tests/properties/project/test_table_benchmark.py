"""Folders with a hidden part, and the comparison of two programs on the hidden rows."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from benchmarks.tables import compare, read_hidden, write_split

TABLE = pa.table(
    {
        "size": [float(row % 17) for row in range(100)],
        "shop": [f"s{row // 5}" for row in range(100)],
        "day": [f"2024-01-{1 + row // 4:02}" for row in range(100)],
        "y": [None if row == 7 else row % 3 % 2 for row in range(100)],
    }
)


def files(folder):
    return {path.stem: csv.read_csv(path) for path in folder.glob("*.csv")}


@pytest.mark.parametrize("by", [{}, {"group": "shop"}, {"time": "day"}])
def test_every_row_with_a_target_is_in_one_file_and_the_test_file_has_no_target(by, tmp_path):
    """The hidden part is a share of the rows, and an equal seed repeats the files."""
    for name in ("first", "second"):
        write_split(TABLE, tmp_path / name, "y", answer="probability", **by)
    parts = files(tmp_path / "first")
    ids = [*parts["train"]["id"].to_pylist(), *parts["test"]["id"].to_pylist()]
    assert sorted(ids) == list(range(99))
    assert "y" not in parts["test"].column_names
    assert parts["solution"]["id"] == parts["test"]["id"] == parts["sample_submission"]["id"]
    assert 20 <= parts["test"].num_rows <= 40
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_groups_and_times_are_not_divided(tmp_path):
    """All rows of a group are in one file, and all hidden days are later."""
    write_split(TABLE, tmp_path / "shops", "y", answer="class", group="shop")
    write_split(TABLE, tmp_path / "days", "y", answer="class", time="day")
    shops, days = files(tmp_path / "shops"), files(tmp_path / "days")
    assert not {*shops["train"]["shop"].to_pylist()} & {*shops["test"]["shop"].to_pylist()}
    assert max(days["train"]["day"].to_pylist()) < min(days["test"]["day"].to_pylist())


def test_the_better_predictions_win_by_more_than_their_error(tmp_path):
    """The sign of the difference is positive for better predictions, whether the metric is greater or smaller for better predictions."""
    for answer, metric in (("probability", "roc_auc"), ("class", "accuracy"), ("value", "rmse")):
        table = TABLE if answer != "value" else TABLE.set_column(3, "y", pa.array([row**0.5 for row in range(100)]))
        write_split(table, tmp_path / answer, "y", answer=answer)
        hidden = read_hidden(tmp_path / answer)
        assert hidden.metric.name == metric
        better, error = compare(hidden, hidden.targets, np.roll(hidden.targets, 1))
        assert better > 2 * error > 0
        assert compare(hidden, hidden.targets, hidden.targets) == (0, 0)
