"""Dates are numbers for estimators: counted, and by their place in the year, the month, the week and the day."""

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import mlxfp as fp
from mlxfp.app.kaggle.specs.dates import PARTS, column_order, date_numbers, date_order
from tests.app.kaggle.estimators.tables import spec_of

DAYS = [fp.kaggle.ColumnSpec(name="day", type="text")]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from([" ", "T"]))
def test_dates_are_numbers_as_the_calendar_has_them(moment, between):
    texts = pa.array([moment.date().isoformat(), moment.isoformat(between, "seconds"), moment.isoformat(between, "microseconds")])
    assert date_order(texts) == "year"
    days = moment.toordinal() - date(1970, 1, 1).toordinal()
    for row, parts in zip(date_numbers(texts), (0, 3, 4), strict=True):
        time = (0, moment.hour, moment.minute, moment.second, moment.microsecond / 1e6)[1 : parts + 1]
        hours = sum(part / size for part, size in zip(time, (1, 60, 3600, 3600), strict=False))
        whole = moment.hour if parts else 0
        assert row.tolist() == pytest.approx([days + hours / 24, moment.month, moment.day, moment.weekday(), whole], abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "2026",
        "2026-13",
        "1234-05",
        "13/2026",
        "Marble 2026",
        "May",
        "32 May 2026",
        "5 6 May 2026",
        "5 May 6 2026",
        "2026-13-01",
        "2026-11-32",
        "2026-11-23 25:00",
        "2026-11-23x",
        "",
    ],
)
def test_other_texts_are_no_dates(text):
    assert date_order(pa.array(["2026-11-23", text])) is None
    assert np.isnan(date_numbers(pa.array([text]))).all()


@pytest.mark.parametrize(
    ("text", "order", "numbers"),
    [
        ("2013-02-12T17:00:00Z", "year", [15748 + 17 / 24, 2, 12, 1, 17]),
        ("2013-02-12 17:00:00.5 UTC", "year", [15748 + 17.5 / 24 - (0.5 - 0.5 / 3600) / 24, 2, 12, 1, 17]),
        ("2013-02-12T17:00:00-05:00", "year", [15748 + 22 / 24, 2, 12, 1, 17]),
        ("2013-02-12 17:00:00+0530", "year", [15748 + 11.5 / 24, 2, 12, 1, 17]),
        ("2013-02-12 17:00+00", "year", [15748 + 17 / 24, 2, 12, 1, 17]),
        ("2013/2/12", "year", [15748, 2, 12, 1, 0]),
        ("5/22/1997 0:00:00", "month", [10003, 5, 22, 3, 0]),
        ("5/22/1997, 12:30 AM", "month", [10003 + 0.5 / 24, 5, 22, 3, 0]),
        ("05/22/1997 1:30 pm", "month", [10003 + 13.5 / 24, 5, 22, 3, 13]),
        ("22/05/1997", "day", [10003, 5, 22, 3, 0]),
        ("22.5.1997 06:00", "day", [10003.25, 5, 22, 3, 6]),
        ("2.5.1997", "day", [9983, 5, 2, 4, 0]),
        ("5-22-1997", "month", [10003, 5, 22, 3, 0]),
        ("1997-05", "year", [9982, 5, 1, 3, 0]),
        ("1997/05", "year", [9982, 5, 1, 3, 0]),
        ("5/1997", "year", [9982, 5, 1, 3, 0]),
        ("05.1997", "year", [9982, 5, 1, 3, 0]),
        ("May-1997", "year", [9982, 5, 1, 3, 0]),
        ("22 May 1997", "year", [10003, 5, 22, 3, 0]),
        ("22-MAY-1997 06:00", "year", [10003.25, 5, 22, 3, 6]),
        ("May 22, 1997", "year", [10003, 5, 22, 3, 0]),
        ("september 2, 1997, 1:30 pm", "year", [10106 + 13.5 / 24, 9, 2, 1, 13]),
        ("Sept. 1997", "year", [10105, 9, 1, 0, 0]),
    ],
)
def test_dates_in_other_notations_have_the_same_numbers(text, order, numbers):
    """Files have dates with zones, slashes, points, and times of 12 or 24 hours."""
    texts = pa.array([text, None])
    assert date_order(texts) == order
    assert date_numbers(texts, order)[0].tolist() == pytest.approx(numbers, abs=1e-9)


def test_the_order_of_day_and_month_follows_from_all_dates_of_a_column():
    """One day above 12 decides for all rows. Two orders of day and month in a column are no dates."""
    assert date_order(pa.array(["1/2/1997", "25/2/1997"])) == "day"
    assert date_order(pa.array(["1/2/1997", "2/25/1997"])) == "month"
    assert date_order(pa.array(["25/2/1997", "2/25/1997"])) is None
    assert date_order(pa.array(["1997.02.25", "1997-02-25"])) == "year"


@given(st.lists(st.tuples(st.dates(date(1000, 1, 1)), st.booleans()), min_size=1), st.sampled_from(["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y"]))
def test_dates_that_begin_with_the_year_stand_among_dates_in_another_order(days, form):
    """Spreadsheets mix 2022-03-12 with 12.03.2022. Each date has the numbers of the ISO date."""
    iso = [day.isoformat() for day, _ in days]
    texts = [f"{day:{form}}" if other else day.isoformat() for day, other in days]
    order: Any = "month" if form.startswith("%m") else "day"
    assert date_order(pa.array([*texts, f"{date(2026, 5, 22):{form}}"])) == order
    assert date_numbers(pa.array(texts), order).tolist() == date_numbers(pa.array(iso)).tolist()


def test_months_stand_among_days():
    """Registrations of cars are days or months. A month is its first day."""
    for texts, order in ((["2018-05", "2018-05-01"], "year"), (["5.2018", "1.5.2018"], "day"), (["05/2018", "05/01/2018"], "month")):
        assert date_order(pa.array(texts)) == order
        numbers = date_numbers(pa.array(texts), order)
        assert numbers[0].tolist() == numbers[1].tolist() == date_numbers(pa.array(["2018-05-01"]))[0].tolist()


def test_a_few_words_among_dates_are_missing_dates():
    """A column of dates in two forms with gaps gives parts of dates to an estimator, and the gaps are missing."""
    texts = ["12.03.2022", "2022-03-12", "k.A.", "13.03.2022", "-", "2022-03-13", "14.03.2022", "2022-03-14"]
    rows = fp.from_table({"day": texts, "y": [1.0, 1.0, 0.0, 2.0, 0.0, 2.0, 3.0, 3.0]})
    fitted = fp.kaggle.estimator(DecisionTreeRegressor(), spec_of("regression", columns=DAYS))(fp.Splits(rows))
    assert fitted.columns.dates == (("day", "day"),)
    table = fitted.columns.table(fp.to_table(rows).to_batches()[0])
    assert np.isnan(table[:, 0]).tolist() == [text in ("k.A.", "-") for text in texts]
    assert fitted(fp.from_table({"day": ["2022-03-12", "12.03.2022", "14.03.2022"]})).tolist() == [1.0, 1.0, 3.0]
    assert column_order(pa.array([*texts, "?", "soon"])) is None  # four words


def test_the_order_of_the_training_rows_holds_for_new_rows():
    """New rows alone may suit the other order."""
    rows = fp.from_table({"day": [f"{day}/3/2024" for day in range(1, 31)], "y": [float(day > 6) for day in range(1, 31)]})
    fitted = fp.kaggle.estimator(DecisionTreeRegressor(), spec_of("regression", columns=DAYS))(fp.Splits(rows))
    assert fitted.columns.dates == (("day", "day"),)
    assert fitted(fp.from_table({"day": ["4/3/2024", "11/3/2024"]})).tolist() == [0.0, 1.0]


def test_days_that_no_month_has_are_counted_and_missing_ones_are_missing():
    made = date_numbers(pa.array(["2026-02-30", "2026-03-02", None]))
    assert made[0, 0] == made[1, 0]
    assert np.isnan(made[2]).all()
    assert date_order(pa.array([None], pa.string())) is None


def test_a_weekday_is_learned_and_found_again_on_later_days_and_from_files(tmp_path):
    days = np.arange("2024-01-01", "2024-12-31", dtype="datetime64[D]")
    weekday = (days.astype(np.int64) + 3) % 7
    table = {"day": days.astype(str), "y": np.where(weekday == 5, 9.0, 1.0)}
    rows, later = (fp.from_table({name: values[part] for name, values in table.items()}) for part in (slice(0, 300), slice(300, None)))
    fitted = fp.kaggle.estimator(DecisionTreeRegressor(), spec_of("regression", columns=DAYS))(fp.Splits(rows))
    assert fitted.columns.dates == (("day", "year"),)
    assert fitted(fp.drop_columns(["y"])(later)).tolist() == table["y"][300:].tolist()
    fp.kaggle.save_estimator(fitted, tmp_path)
    assert fp.kaggle.load_estimator(tmp_path)(later).tolist() == table["y"][300:].tolist()


def test_categories_come_after_dates_and_a_date_that_is_unknown_is_missing():
    columns = [*DAYS, fp.kaggle.ColumnSpec(name="kind", type="categorical"), fp.kaggle.ColumnSpec(name="size", type="numerical")]
    rows = fp.from_table({"day": ["2024-01-01", "2024-01-02"] * 20, "kind": ["a", "b"] * 20, "size": [1.0, 2.0] * 20, "y": [0.0, 1.0] * 20})
    fitted = fp.kaggle.estimator(ExtraTreesClassifier(5), spec_of("binary", columns=columns))(fp.Splits(rows))
    table = fitted.columns.table(fp.to_table(rows).to_batches()[0])
    assert table.shape == (40, 1 + PARTS + 1)
    assert fitted.columns.coded == (1 + PARTS,)
    assert table[:, -1].tolist() == [0.0, 1.0] * 20
    assert len(fitted(fp.from_table({"day": ["soon"], "kind": ["a"], "size": [1.0]}))) == 1


def test_counts_of_words_read_dates_as_texts():
    rows = fp.from_table({"day": ["2024-01-01", "2025-01-02"] * 20, "y": [0.0, 1.0] * 20})
    fitted = fp.kaggle.estimator(LogisticRegression(), spec_of("binary", columns=DAYS))(fp.Splits(rows))
    assert fitted.columns.measured == 0  # no numbers of dates
    assert (fitted(fp.drop_columns(["y"])(rows)) > 0.5).tolist() == [False, True] * 20
