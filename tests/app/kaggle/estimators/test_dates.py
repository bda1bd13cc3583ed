"""Dates are numbers for estimators: counted, and by their place in the year, the month, the week and the day."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import mlxfp as fp
from mlxfp.app.kaggle import ColumnSpec, estimator, load_estimator, save_estimator
from mlxfp.app.kaggle.estimators.dates import PARTS, are_dates, date_numbers
from tests.app.kaggle.estimators.tables import spec_of

DAYS = [ColumnSpec(name="day", type="text")]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from([" ", "T"]))  # files have no zones
def test_dates_are_numbers_as_the_calendar_has_them(moment, between):
    texts = pa.array([moment.date().isoformat(), moment.isoformat(between, "seconds"), moment.isoformat(between, "microseconds")])
    assert are_dates(texts)
    days = moment.toordinal() - date(1970, 1, 1).toordinal()
    for row, parts in zip(date_numbers(texts), (0, 3, 4), strict=True):
        time = (0, moment.hour, moment.minute, moment.second, moment.microsecond / 1e6)[1 : parts + 1]
        hours = sum(part / size for part, size in zip(time, (1, 60, 3600, 3600), strict=False))
        whole = moment.hour if parts else 0
        assert row.tolist() == pytest.approx([days + hours / 24, moment.month, moment.day, moment.weekday(), whole], abs=1e-6)


@pytest.mark.parametrize("text", ["2026", "2026-13-01", "2026-1-1", "23.11.2026", "2026-11-23 25:00", "2026-11-23x", ""])
def test_other_texts_are_no_dates(text):
    assert not are_dates(pa.array(["2026-11-23", text]))
    assert np.isnan(date_numbers(pa.array([text]))).all()


def test_days_that_no_month_has_are_counted_and_missing_ones_are_missing():
    made = date_numbers(pa.array(["2026-02-30", "2026-03-02", None]))
    assert made[0, 0] == made[1, 0]
    assert np.isnan(made[2]).all()
    assert not are_dates(pa.array([None], pa.string()))


def test_a_weekday_is_learned_and_found_again_on_later_days_and_from_files(tmp_path):
    days = np.arange("2024-01-01", "2024-12-31", dtype="datetime64[D]")
    weekday = (days.astype(np.int64) + 3) % 7
    table = {"day": days.astype(str), "y": np.where(weekday == 5, 9.0, 1.0)}
    rows, later = (fp.from_table({name: values[part] for name, values in table.items()}) for part in (slice(0, 300), slice(300, None)))
    fitted = estimator(DecisionTreeRegressor(), spec_of("regression", columns=DAYS))(fp.Splits(rows))
    assert fitted.columns.dates == ("day",)
    assert fitted(fp.drop_columns(["y"])(later)).tolist() == table["y"][300:].tolist()
    save_estimator(fitted, tmp_path)
    assert load_estimator(tmp_path)(later).tolist() == table["y"][300:].tolist()


def test_categories_come_after_dates_and_a_date_that_is_unknown_is_missing():
    columns = [*DAYS, ColumnSpec(name="kind", type="categorical"), ColumnSpec(name="size", type="numerical")]
    rows = fp.from_table({"day": ["2024-01-01", "2024-01-02"] * 20, "kind": ["a", "b"] * 20, "size": [1.0, 2.0] * 20, "y": [0.0, 1.0] * 20})
    fitted = estimator(ExtraTreesClassifier(5), spec_of("binary", columns=columns))(fp.Splits(rows))
    table = fitted.columns.table(fp.to_table(rows).to_batches()[0])
    assert table.shape == (40, 1 + PARTS + 1)
    assert fitted.columns.coded == (1 + PARTS,)
    assert table[:, -1].tolist() == [0.0, 1.0] * 20
    assert len(fitted(fp.from_table({"day": ["soon"], "kind": ["a"], "size": [1.0]}))) == 1


def test_counts_of_words_read_dates_as_texts():
    rows = fp.from_table({"day": ["2024-01-01", "2025-01-02"] * 20, "y": [0.0, 1.0] * 20})
    fitted = estimator(LogisticRegression(), spec_of("binary", columns=DAYS))(fp.Splits(rows))
    assert fitted.columns.dates == ()
    assert (fitted(fp.drop_columns(["y"])(rows)) > 0.5).tolist() == [False, True] * 20
