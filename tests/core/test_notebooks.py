"""What a notebook shows of datasets, groups and cursors: bounded, escaped, and never an error."""

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.collators.collating import collate
from mlxfp.core.cursors import Cursor
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import filter, take
from mlxfp.data.rows.mixing import concat
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table

HOSTILE = "<script>alert('x')</script>\x00\u202e</table>"


def html(value):
    return value._repr_html_()


def test_a_dataset_shows_its_parts_and_first_rows():
    shown = html(pipe(from_examples([{"x": place, "name": "Ann"} for place in range(9)]), batch(4)))
    assert "from_examples(9 rows)" in shown
    assert "batch(size=4)" in shown
    assert "groups: x int64, name string; 3 of them" in shown
    assert shown.count("Ann") == 4


def test_what_data_and_names_hold_is_escaped():
    rows = from_examples([{HOSTILE: HOSTILE, "bytes": b"abc", "none": None}])
    for value in (rows, next(iter(pipe(rows, batch(1)))), next(iterate(rows))[1]):
        shown = html(value)
        assert "<script" not in shown
        assert "\x00" not in shown
    assert "&lt;script&gt;" in html(rows)
    assert "3 bytes" in html(rows)


def test_it_is_bounded_for_any_data():
    wide = from_table({f"column {place} {'x' * 1000}": ["y" * 100_000] * 6 for place in range(50)})
    long = pipe(from_table({"x" * 1000: range(6)}), *[take(5) for _ in range(100)])
    for value in (wide, long, next(iter(pipe(wide, batch(6))))):
        assert len(html(value)) < 50_000
    assert "and 38 more columns" in html(wide)
    assert "100,000 characters" in html(wide)


def test_arrays_and_long_lists_are_told_by_their_shape():
    shown = html(from_examples([{"image": np.zeros((8, 8, 3), np.uint8), "ids": list(range(500)), "share": 0.5}]))
    assert "[8, 8, 3]" in shown
    assert "500 values: 0, 1, 2" in shown
    assert "0.5000" in shown


def test_joined_datasets_are_indented():
    shown = html(concat([from_examples([{"x": 1}]), from_examples([{"x": 2}])]))
    assert shown.count("margin-left:1em") == 2


def fail(row):
    raise ValueError(HOSTILE)


def test_a_failing_function_is_told_and_nothing_is_raised():
    shown = html(pipe(from_examples([{"x": 1}]), filter(fail)))
    assert "The first rows cannot be shown: &lt;script&gt;" in shown


def test_a_dataset_without_items_says_so():
    assert "No items." in html(pipe(from_examples([{"x": 1}]), filter(lambda row: False)))


def test_a_whole_epoch_is_never_read_to_show_a_few_rows():
    read = []

    def rows():
        for place in range(1000):
            read.append(place)
            yield {"x": place}

    shuffled = pipe(from_iterable(rows), shuffle(seed=0))
    for dataset in (shuffled, concat([shuffled, shuffled])):
        assert "a whole epoch would be read" in html(dataset)
    assert len(read) < 1000  # the first rows, for their types


def test_batches_show_names_dtypes_and_shapes():
    shown = html(pipe(from_examples([{"x": place} for place in range(4)]), batch(4), collate(lambda group: {"x": mx.zeros((4, 2))})))
    assert "The first batch:" in shown
    assert "[4, 2]" in shown


@pytest.mark.parametrize("through_bytes", [False, True])
def test_a_cursor_shows_where_the_run_is(through_bytes):
    *_, (_, cursor) = iterate(pipe(from_examples([{"x": 1}, {"x": 2}]), batch(1)))
    shown = html(Cursor.from_bytes(cursor.to_bytes()) if through_bytes else cursor)
    assert "epoch" in shown
    assert "batch(size=1)" in shown
