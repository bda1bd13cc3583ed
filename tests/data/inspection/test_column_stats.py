import math
from functools import reduce
from operator import add
from statistics import fmean

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfp.collators.collating import collate
from mlxfp.core.cursors import Cursor
from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, CursorMismatchError, PipelineError, SchemaError
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import compose, pipe
from mlxfp.data.inspection.column_stats import ColumnStats, column_stats, column_stats_at
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import filter, map, take
from mlxfp.data.rows.mixing import concat, mix
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.caching import load
from mlxfp.data.running.error_rows import on_error
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples, from_table
from mlxfp.testing.laws import (
    assert_chunks_do_not_matter,
    assert_described,
    assert_lazy,
    assert_pure_stages,
    assert_resumable,
    assert_told_apart,
    assert_transparent,
    assert_value,
)
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
    dataset = column_stats(["x"])(from_chunks(data.draw(rechunkings(table))))
    *_, (_, cursor) = iterate(dataset)
    (found,) = column_stats_at(dataset, cursor)
    expected = plainly(table["x"].to_pylist())
    assert same(found, expected if expected.count else evolve(expected, of=found.of))


@given(data=st.data())
def test_it_is_a_pure_stage_that_changes_nothing(data):
    table = pa.table({"x": [1, 2, None, 4], "y": ["a", None, "ccc", ""]})
    chunks, others = data.draw(rechunkings(table)), data.draw(rechunkings(table))
    stage = column_stats(["x", "y"])
    assert_transparent(stage, from_chunks(chunks))
    assert_pure_stages(stage(from_chunks(chunks)))
    assert_chunks_do_not_matter(stage, chunks, others)
    assert_lazy(stage, chunks)
    assert_described(stage(from_chunks(chunks)))


@settings(max_examples=10)
@given(data=st.data())
def test_what_was_measured_goes_on_where_the_run_goes_on(data):
    values = data.draw(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=12))
    chunks = data.draw(rechunkings(pa.table({"x": values})))
    dataset = pipe(from_chunks(chunks), shuffle(seed=1, buffer=3), column_stats(["x"]), batch(2), prefetch(2))
    whole = list(iterate(dataset))
    last = column_stats_at(dataset, whole[-1][1])
    for _, cursor in whole[:-1]:
        *_, (_, end) = iterate(dataset, Cursor.from_bytes(cursor.to_bytes()))
        assert column_stats_at(dataset, end) == last
    assert last[0].count == len(values)
    assert last[0].mean == pytest.approx(fmean(values))
    assert_resumable(dataset)


def test_statistics_are_of_the_rows_that_have_passed():
    dataset = pipe(from_chunks([pa.record_batch({"x": [x]}) for x in range(5)]), column_stats(["x"]))
    assert [column_stats_at(dataset, cursor)[0].greatest for _, cursor in iterate(dataset)] == [0, 1, 2, 3, 4]
    means = [column_stats_at(dataset, cursor)[0].mean for _, cursor in iterate(dataset)]
    assert means == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_groups_several_stages_and_joined_datasets_are_measured():
    rows = from_table({"x": np.arange(6), "text": list("abcdef")})
    dataset = pipe(rows, column_stats(["x"]), filter(lambda row: row["x"] > 1), batch(3), column_stats(["x", "text"]))
    *_, (_, cursor) = iterate(dataset)
    assert [(each.column, each.of, each.count) for each in column_stats_at(dataset, cursor)] == [
        ("x", "values", 6),
        ("x", "values", 4),
        ("text", "lengths", 4),
    ]
    joined = mix([column_stats(["x"])(rows), column_stats(["x"])(rows)], [1, 1], stop="all")
    *_, (_, cursor) = iterate(joined)
    assert [each.count for each in column_stats_at(joined, cursor)] == [6, 6]
    one_ended = mix([column_stats(["x"])(rows), pipe(rows, take(1), column_stats(["x"]))], [1, 1], stop="all")
    *_, (_, cursor) = iterate(one_ended)
    assert [each.count for each in column_stats_at(one_ended, cursor)] == [6]
    after = concat([column_stats(["x"])(rows), column_stats(["x"])(rows)])
    *_, (_, cursor) = iterate(after)
    assert [each.count for each in column_stats_at(after, cursor)] == [6]


def test_what_goes_into_batches_is_measured_through_threads():
    batches = pipe(
        from_table({"x": np.arange(7)}), column_stats(["x"]), prefetch(1), batch(3), collate(lambda group: {"x": mx.array(len(group))})
    )
    for dataset in (batches, prefetch(2)(batches), take(2)(prefetch(2)(batches))):
        *_, (_, cursor) = iterate(dataset)
        assert column_stats_at(dataset, cursor)[0].count == 7


def test_an_error_before_the_item_of_the_cursor_is_raised_and_one_after_it_is_not():
    failing = set()

    def fragile(row):
        if row["x"] in failing:
            raise ValueError(f"{row['x']} fails")
        return row

    dataset = pipe(
        from_chunks([pa.record_batch({"x": [x]}) for x in range(4)]), column_stats(["x"]), map(fragile, schema=pa.schema({"x": pa.int64()}))
    )
    cursors = [cursor for _, cursor in iterate(dataset)]
    failing.add(2)
    assert [column_stats_at(dataset, cursor)[0].count for cursor in cursors[:2]] == [1, 2]
    with pytest.raises(ValueError, match="2 fails"):
        column_stats_at(dataset, cursors[2])


def test_rows_that_fail_are_not_measured():
    dataset = pipe(from_table({"x": np.arange(1, 6)}), map(lambda row: {"y": 1 // (row["x"] - 3)}), column_stats(["y"]), on_error("skip"))
    *_, (_, cursor) = iterate(dataset)
    (found,) = column_stats_at(dataset, cursor)
    assert (found.count, found.missing, found.least, found.greatest) == (4, 0, -1, 1)


def test_whole_numbers_do_not_overflow_and_infinities_may_meet():
    rows = from_table({"big": np.full(3, 2**63 - 1), "huge": np.full(3, 2**64 - 1, np.uint64), "odd": [math.inf, -math.inf, 1.0]})
    dataset = column_stats(["big", "huge", "odd"])(rows)
    *_, (_, cursor) = iterate(dataset)
    big, huge, odd = column_stats_at(dataset, Cursor.from_bytes(cursor.to_bytes()))
    assert (big.mean, huge.mean) == (2.0**63, 2.0**64)
    assert math.isnan(odd.mean)
    assert (odd.least, odd.greatest) == (-math.inf, math.inf)


def test_a_sum_by_chunks_would_be_caught():
    values = [1.0, 1e16, -1e16, 1.0]
    by_chunk = values[0] + reduce(add, values[1:])  # not sum(), which is exact from Python 3.12 on
    assert by_chunk != reduce(add, values)
    found = []
    for cut in (1, 2, 3, 4):
        dataset = column_stats(["x"])(from_chunks([pa.record_batch({"x": values[at : at + cut]}) for at in range(0, 4, cut)]))
        *_, (_, cursor) = iterate(dataset)
        found.append(column_stats_at(dataset, cursor)[0].mean)
    assert len(set(found)) == 1


def test_it_is_a_value():
    assert_value(column_stats(["x"]))
    assert_value(column_stats(["x"])(from_table({"x": [1]})))
    assert_told_apart(column_stats(["x"]), column_stats(["y"]))
    assert repr(column_stats(["x", "y"])) == "column_stats(columns=('x', 'y'))"
    assert column_stats(["x"]).traits.longest_row(7) == 7


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: column_stats("x"), ArgumentTypeError, r"columns must be a list of strings, got the string 'x'. Write \['x'\]."),
        (lambda: column_stats([]), ArgumentError, "columns must name at least one column, got none."),
        (lambda: column_stats(["x", "x"]), ArgumentError, "columns repeats 'x'; each name may appear once."),
        (
            lambda: schema(column_stats(["y"])(from_table({"x": [1]}))),
            SchemaError,
            "column_stats needs the column 'y', which is not there. Columns: 'x'.",
        ),
        (
            lambda: schema(column_stats(["x"])(from_examples([{"x": {"a": 1}}]))),
            SchemaError,
            "column_stats takes numbers, text and lists, got struct<a: int64> in column 'x'. Name other columns.",
        ),
        (lambda: column_stats_at([1], None), ArgumentTypeError, "works on a dataset, got list"),
        (
            lambda: column_stats_at(from_table({"x": [1]}), next(iterate(from_table({"x": [1]})))[1]),
            PipelineError,
            "There are no measurements",
        ),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("after", [load(), shuffle(seed=0), compose(shuffle(seed=0), repeat(2))])
def test_it_says_so_where_no_state_is_kept(after):
    dataset = pipe(from_table({"x": [1, 2]}), column_stats(["x"]), after)
    with pytest.raises(PipelineError, match="a stage after it reads everything at once"):
        column_stats_at(dataset, next(iterate(dataset))[1])


def test_the_cursor_of_another_pipeline_is_refused():
    cursor = next(iterate(column_stats(["x"])(from_table({"x": [1]}))))[1]
    with pytest.raises(CursorMismatchError):
        column_stats_at(column_stats(["x"])(from_table({"x": [2]})), cursor)
