"""Dates in CSV files: the inferred types, the errors about later values, and the columns that explain names."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import DataError
from mlxfp.support.file_formats import NULL_VALUES
from mlxfp.testing.laws import assert_reads, assert_resumable
from tests.data.written import blocked, write

NOON = datetime(2024, 3, 5, 12, 30)  # times without a zone are naive
FIRST, LAST = datetime(1700, 1, 1), datetime(2200, 1, 1)  # Arrow infers fractions as nanoseconds, from 1677 to 2262
NEAR = st.datetimes(FIRST, LAST) | st.dates(FIRST.date(), LAST.date()) | st.none()
WHOLE = st.datetimes().map(lambda time: time.replace(microsecond=0)) | st.dates() | st.none()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["2024-03-05", ""], pa.date32(), [date(2024, 3, 5), None]),
        (["", "2024-03-05 12:30"], pa.timestamp("s"), [None, NOON]),
        (["2024-03-05T12:30", "2024-03-05 12:30:00"], pa.timestamp("s"), [NOON, NOON]),
        (["2024-03-05 12:30", "2024-03-05"], pa.timestamp("s"), [NOON, NOON.replace(hour=0, minute=0)]),
        (["2024-03-05 12:30:00.5", "2024-03-05 12:30"], pa.timestamp("ms"), [NOON.replace(microsecond=500_000), NOON]),
        (["2024-03-05 12:30:00.000001"], pa.timestamp("us"), [NOON.replace(microsecond=1)]),
    ],
)
def test_iso_dates_have_the_coarsest_type_that_fits_every_value(tmp_path: Path, values: list[str], kind: pa.DataType, expected: list[Any]):
    """A column of ISO dates has a date type, with or without times and gaps."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", "n,x\n" + "".join(f"1,{value}\n" for value in values)))
    assert fp.schema(dataset).field("x").type == kind
    assert [row["x"] for row in dataset] == expected
    assert "looks like dates" not in fp.explain(dataset)


@pytest.mark.parametrize(
    "value", ["5/22/1997", "23.11.2026", "2024-03-05T12:30Z", "2024-03-05 12:30:00+02:00", "2024-03-05 12:30:00.123456789"]
)
def test_explain_names_dates_that_stay_text(tmp_path: Path, value: str):
    """Dates in other notations stay as written, and explain names the column."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", f"n,x\n1,{value}\n2,\n"))
    assert [row["x"] for row in dataset] == [value, None]
    assert f"the text column 'x' looks like dates, such as {value!r}" in fp.explain(dataset)


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (["12.03.2022", "2022-03-12", "13.03.2022", "k.A.", ""], [date(2022, 3, 12), date(2022, 3, 12), date(2022, 3, 13), None, None]),
        (["1/2/2022", "2022-02-01", "25/12/2022"], [date(2022, 2, 1), date(2022, 2, 1), date(2022, 12, 25)]),
        (["1/2/2022", "2022-02-01", "12/25/2022"], [date(2022, 1, 2), date(2022, 2, 1), date(2022, 12, 25)]),
        (
            ["2022-05-27 18:54:22+02:00", "2022-01-27 18:54:22+01:00", "2022-01-27 18:54:22Z"],
            [datetime(2022, 5, 27, 16, 54, 22), datetime(2022, 1, 27, 17, 54, 22), datetime(2022, 1, 27, 18, 54, 22)],
        ),
    ],
)
def test_explain_shows_code_that_converts_dates(tmp_path: Path, values: list[str], days: list[Any]):
    """pandas alone would read 2022-03-12 as December 3 with the day first."""
    pandas = pytest.importorskip("pandas")
    path = write(tmp_path / "a.csv", "n,x\n" + "".join(f"1,{value}\n" for value in values))
    (line,) = (line for line in fp.explain(fp.read_csv(path)).splitlines() if "looks like dates" in line)
    frame = pandas.read_csv(path)
    exec(line.partition("convert a pandas frame with ")[2], {"pandas": pandas, "frame": frame})
    frame.to_csv(tmp_path / "b.csv", index=False)
    assert [row["x"] for row in fp.read_csv(tmp_path / "b.csv")] == days


@pytest.mark.parametrize("value", ["0000-01-01", "0000-01-01 10:00", "2263-01-01 00:00:00.5", "2024-02-30", "12:30", "11.0.1", "soon"])
def test_texts_that_arrow_or_python_cannot_read_as_dates_stay_text(tmp_path: Path, value: str):
    """A text that is no date of Python, or has a fraction after 2262, stays as written."""
    assert [row["x"] for row in fp.read_csv(write(tmp_path / "a.csv", f"n,x\n1,{value}\n"))] == [value]


@pytest.mark.parametrize(
    ("first", "last", "kind"),
    [
        ("2024-03-05", "2024-03-05 12:30", pa.timestamp("s")),
        ("2024-03-05", "2024-03-05 12:30:00.25", pa.timestamp("ms")),
        ("2024-03-05 12:30:00.5", "2024-03-05 12:30:00.0001", pa.timestamp("us")),
        ("2024-03-05", "soon", pa.string()),
        ("2024-03-05", "0000-01-01", pa.string()),
        ("2024-03-05 12:30", "2024-03-05 12:30Z", pa.string()),
    ],
)
def test_a_later_value_that_does_not_fit_names_the_type_to_declare(tmp_path: Path, first: str, last: str, kind: pa.DataType):
    """The remedy in the error reads the whole file, and so does a scan."""
    path = write(tmp_path / "a.csv", "n,x\n" + f"{'1' * 17},{first}\n" * 50_000 + f"1,{last}\n")
    remedy = "string()" if kind == pa.string() else f"timestamp('{kind.unit}')"
    with pytest.raises(DataError, match="does not fit the column 'x' of ") as raised:
        list(fp.read_csv(path))
    nulls = f"null_values={[*NULL_VALUES, 'soon']} (in a spec, the same list under null_values)"
    missing = f"If the value is missing, give {nulls}. " if last == "soon" else ""
    declare = f"Declare another type with schema={{'x': pa.{remedy}}}"
    assert f"got {last!r}, in line 50002 of {path}. {missing}{declare}" in str(raised.value)
    rows = list(fp.read_csv(path, schema={"x": kind}))
    assert len(rows) == 50_001
    assert len(list(fp.read_csv(path, schema="scan"))) == len(rows)


@given(st.lists(NEAR, min_size=1, max_size=20) | st.lists(WHOLE, min_size=1, max_size=20), st.integers(1, 50))
def test_dates_are_read_exactly_in_blocks_of_any_size(tmp_path_factory: pytest.TempPathFactory, values: list[Any], size: int):
    """Python reads the ISO text of each date, with blocks, cursors and workers of any size."""
    lines = "".join(f"{number},{'' if value is None else value.isoformat()}\n" for number, value in enumerate(values))
    dataset = blocked(fp.read_csv(write(tmp_path_factory.mktemp("dates") / "a.csv", f"n,x\n{lines}")), size)
    kind = fp.schema(dataset).field("x").type
    for row, value in zip(dataset, values, strict=True):
        if value is None or kind == pa.string():  # a column without a date is text
            assert row["x"] is value is None
        elif type(value) is date and kind != pa.date32():
            assert row["x"] == datetime(value.year, value.month, value.day)
        else:
            assert row["x"] == value
    assert_reads(dataset.source)
    assert_resumable(dataset)
