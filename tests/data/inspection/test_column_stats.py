import datetime as dt
import math
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.inspection.column_stats import ColumnStats, column_stats
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, PipelineError, SchemaError
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings

KINDS = [pa.int8(), pa.int64(), pa.uint64(), pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary()]
KINDS += [pa.large_binary(), pa.list_(pa.int32()), pa.large_list(pa.string()), pa.dictionary(pa.int32(), pa.string())]


def values_of(kind):
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(plain):
        low = 0 if "uint" in str(plain) else -(2 ** (plain.bit_width - 1))
        return st.integers(low, low + 2**plain.bit_width - 1)
    if pa.types.is_boolean(plain):
        return st.booleans()
    if pa.types.is_floating(plain):
        return st.floats(width=plain.bit_width)
    if pa.types.is_string(plain) or pa.types.is_large_string(plain):
        return st.text(max_size=5)
    if pa.types.is_binary(plain) or pa.types.is_large_binary(plain):
        return st.binary(max_size=5)
    inner = st.integers(0, 9) if plain.value_type == pa.int32() else st.text(max_size=2)
    return st.lists(inner, max_size=4)


def plainly(values):
    """Measure a list of Python values."""
    there = [value for value in values if value is not None and value == value]
    sizes = [len(value) if hasattr(value, "__len__") else int(value) if isinstance(value, int) else value for value in there]
    kind = "lengths" if any(hasattr(value, "__len__") for value in there) else "values"
    total = 0
    for size in sizes:
        total += size
    return ColumnStats(
        "x",
        kind,
        len(sizes),
        len(values) - len(sizes),
        min(sizes, default=None),
        max(sizes, default=None),
        total / len(sizes) if sizes else None,
    )


def same(a, b):
    """Compare, with NaN (a mean of both infinities) equal to NaN."""
    if a.mean is not None and math.isnan(a.mean):
        return math.isnan(b.mean) and evolve(a, mean=0.0) == evolve(b, mean=0.0)
    return a == b


@given(kind=st.sampled_from(KINDS), data=st.data())
def test_it_measures_what_python_measures_however_rows_are_cut(kind, data):
    values = data.draw(st.lists(values_of(kind) | st.none(), min_size=1, max_size=12))
    table = pa.table({"x": pa.array(values, kind)})
    (found,) = column_stats(from_chunks(data.draw(rechunkings(table))), ["x"])
    expected = plainly(table["x"].to_pylist())
    assert same(found, expected if expected.count else evolve(expected, of=found.of))


def test_groups_and_several_columns_are_measured():
    rows = fp.from_table({"x": np.arange(6), "text": list("abcdef")})
    dataset = fp.pipe(rows, fp.filter(lambda row: row["x"] > 1), fp.batch(3))
    assert [(each.column, each.of, each.count) for each in column_stats(dataset, ["x", "text"])] == [
        ("x", "values", 4),
        ("text", "lengths", 4),
    ]


def test_rows_that_fail_are_not_measured():
    dataset = fp.pipe(fp.from_table({"x": np.arange(1, 6)}), fp.map(lambda row: {"y": 1 // (row["x"] - 3)}), fp.on_error("skip"))
    (found,) = column_stats(dataset, ["y"])
    assert (found.count, found.missing, found.least, found.greatest) == (4, 0, -1, 1)


def test_whole_numbers_do_not_overflow_and_infinities_may_meet():
    rows = fp.from_table({"big": np.full(3, 2**63 - 1), "huge": np.full(3, 2**64 - 1, np.uint64), "odd": [math.inf, -math.inf, 1.0]})
    big, huge, odd = column_stats(rows, ["big", "huge", "odd"])
    assert (big.mean, huge.mean) == (2.0**63, 2.0**64)
    assert math.isnan(odd.mean)
    assert (odd.least, odd.greatest) == (-math.inf, math.inf)


def test_a_sum_by_chunks_would_be_caught():
    values = [1.0, 1e16, -1e16, 1.0]
    by_chunk = values[0] + reduce(add, values[1:])  # not sum(), which is exact from Python 3.12 on
    assert by_chunk != reduce(add, values)
    cuts = ([pa.record_batch({"x": values[at : at + cut]}) for at in range(0, 4, cut)] for cut in (1, 2, 3, 4))
    assert len({column_stats(from_chunks(chunks), ["x"])[0].mean for chunks in cuts}) == 1


ROWS = fp.from_table({"x": [1]})


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: column_stats(ROWS, "x"), ArgumentTypeError, r"columns must be a list of strings, got the string 'x'. Write \['x'\]."),
        (lambda: column_stats(ROWS, []), ArgumentError, "columns must name at least one column, got none."),
        (lambda: column_stats(ROWS, ["x", "x"]), ArgumentError, "columns repeats 'x'; each name may appear once."),
        (
            lambda: column_stats(ROWS, ["y"]),
            SchemaError,
            "column_stats needs the column 'y', which is missing. Columns: 'x'.",
        ),
        (lambda: column_stats([1], ["x"]), ArgumentTypeError, "works on a dataset, got list"),
        (
            lambda: column_stats(
                fp.pipe(fp.from_examples([{"input_ids": [1]}]), fp.batch(1), fp.collate(fp.collators.text(pad_id=0))), ["input_ids"]
            ),
            PipelineError,
            "column_stats",
        ),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_all_columns_have_statistics_and_times_have_extremes(unit: str):
    """Without column names, every column is described: times by their extremes, and other types by counts."""
    times = pa.array([None, 1_700_000_000, 1_600_000_000], pa.timestamp("s")).cast(pa.timestamp(unit))
    table = pa.table({"n": [1, 2, 4], "day": pa.array([3, None, 1], pa.date32()), "time": times, "s": [{"a": 1}, None, {"a": 2}]})
    for rows in (1, 2, 3):
        stats = column_stats(from_chunks(table.to_batches(max_chunksize=rows)))
        assert [(entry.column, entry.of, entry.count, entry.missing, entry.least, entry.greatest) for entry in stats] == [
            ("n", "values", 3, 0, 1, 4),
            ("day", "times", 2, 1, dt.date(1970, 1, 2), dt.date(1970, 1, 4)),
            ("time", "times", 2, 1, dt.datetime(2020, 9, 13, 12, 26, 40), dt.datetime(2023, 11, 14, 22, 13, 20)),
            ("s", "counts", 2, 1, None, None),
        ]
        assert [entry.mean for entry in stats] == [7 / 3, None, None, None]


def test_times_of_any_type_have_extremes():
    """Durations and times of day are returned as Python values, also with a time zone."""
    columns = {
        "span": pa.array([5, 1], pa.duration("ns")),
        "clock": pa.array([5_000, 1_001], pa.time64("ns")),
        "zoned": pa.array([5_000, 1_001], pa.timestamp("ns", "UTC")),
    }
    spans = {entry.column: entry.greatest for entry in column_stats(fp.from_table(pa.table(columns)))}
    assert spans == {"span": dt.timedelta(0), "clock": dt.time(0, 0, 0, 5), "zoned": dt.datetime(1970, 1, 1, 0, 0, 0, 5, dt.UTC)}
