"""Schemas found before data, from the first rows where a function does not declare one."""

from collections import Counter
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.planning import SAMPLE_ROWS, head, resolve
from mlxfp.support.errors import SchemaError
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines, rechunkings

TABLE = pa.table({"x": range(300), "y": ["a"] * 300})
INT, TEXT = pa.schema({"x": pa.int64()}), pa.schema({"x": pa.string()})


@given(pipelines())
def test_every_part_states_what_comes_out_of_it(dataset: fp.Dataset[Any]):
    for place, stated in enumerate(resolve(dataset).schemas):
        so_far: fp.Dataset[Any] = fp.Dataset(dataset.source, dataset.stages[:place])
        assert stated.equals(fp.schema(so_far))
        laws.assert_described(so_far)


@given(st.data())
def test_what_is_inferred_does_not_depend_on_where_chunks_end(data: st.DataObject):
    table = TABLE.slice(0, data.draw(st.integers(0, 9)))
    stages = [fp.flat_map(lambda row: [row] * (row["x"] % 3)), fp.batch(2, drop_last=True), fp.map(lambda row: {"z": row["x"] / 2})]
    found = [fp.pipe(from_chunks(data.draw(rechunkings(table))), *stages) for _ in range(2)]
    assert fp.schema(found[0]) == fp.schema(found[1])


def test_a_function_is_run_on_the_first_rows_only():
    seen: list[int] = []

    def watch(row: Any) -> Any:
        seen.append(row["x"])
        return {"x": row["x"]}

    log: list[int] = []
    dataset = fp.pipe(from_chunks(TABLE.to_batches(max_chunksize=100), log=log), fp.map(watch))
    assert (seen, log) == ([], [])
    assert fp.schema(dataset) == INT
    assert seen == list(range(SAMPLE_ROWS))
    assert log == [100, 100]
    assert fp.schema(dataset) == INT
    assert len(seen) == SAMPLE_ROWS, "what was found is kept"


def test_functions_in_a_row_are_run_on_the_same_rows_once_more_at_most():
    calls = Counter[int]()

    def step(place: int, row: Any) -> Any:
        calls[place] += 1
        return {**row, f"y{place}": row["x"] + place}

    rows = from_chunks(pa.table({"x": range(300)}).to_batches(max_chunksize=SAMPLE_ROWS))
    dataset = fp.pipe(rows, *(fp.map(partial(step, place)) for place in range(8)))
    assert fp.schema(dataset).names == ["x", *(f"y{place}" for place in range(8))]
    assert calls == {place: SAMPLE_ROWS * (2 if place < 7 else 1) for place in range(8)}


def test_rows_that_a_filter_leaves_out_first_are_passed_over():
    dataset = fp.pipe(fp.from_table(TABLE), fp.filter(lambda row: row["x"] > 290), fp.map(lambda row: {"x": str(row["x"])}))
    assert fp.schema(dataset) == TEXT
    assert [row["x"] for row in dataset][:2] == ["291", "292"]


def test_an_endless_source_is_enough():
    numbers = fp.from_iterable(lambda: ({"x": x} for x in count()))
    assert fp.schema(fp.pipe(numbers, fp.map(lambda row: {"x": str(row["x"])}), fp.batch(2), fp.repeat(None))) == TEXT


def test_the_sample_is_the_same_before_and_after_a_shuffle():
    dataset = fp.pipe(fp.from_table(TABLE), fp.shuffle(seed=0), fp.map(lambda row: {"x": row["x"] if row["x"] < 128 else str(row["x"])}))
    assert fp.schema(dataset) == INT


def test_a_declared_schema_needs_no_rows():
    log: list[int] = []
    dataset = fp.pipe(from_chunks(TABLE.to_batches(), log=log), fp.map(lambda row: {"x": str(row["x"])}, schema=TEXT))
    assert fp.schema(dataset) == TEXT
    assert log == []


def test_a_later_row_that_does_not_fit_is_named():
    dataset = fp.pipe(fp.from_table(TABLE), fp.map(lambda row: {"x": row["x"] if row["x"] < 200 else "many"}))
    with pytest.raises(SchemaError, match=r"Column 'x' of row 200: 'many' does not fit the type int64. Make the values of a column one"):
        list(dataset)


def test_a_stage_that_does_not_fit_says_where():
    with pytest.raises(SchemaError, match=r"select_columns needs the column 'z', which is missing. Columns: 'y'.") as caught:
        fp.schema(fp.pipe(fp.from_table(TABLE), fp.drop_columns(["x"]), fp.select_columns(["z"])))
    assert caught.value.__notes__ == ["while inferring the schema after select_columns(columns=('z',)), stage 2 of from_table(300 rows)"]


def test_a_function_that_fails_on_the_sample_says_so():
    with pytest.raises(ZeroDivisionError) as caught:
        fp.schema(fp.pipe(fp.from_table(TABLE), fp.map(lambda row: {"x": 1 // row["x"]})))
    notes = "\n".join(caught.value.__notes__)
    assert "on source row 0" in notes
    assert "while inferring the schema after map(" in notes


def test_of_a_function_that_no_row_reaches_nothing_is_known():
    nothing = fp.pipe(fp.from_table(TABLE.slice(0, 0)), fp.map(lambda row: {"z": 1}))
    assert (fp.schema(nothing).names, list(nothing)) == ([], [])
    assert fp.schema(fp.pipe(fp.from_table(TABLE.slice(0, 0)), fp.map(dict, schema=TABLE.schema))) == TABLE.schema
    with pytest.raises(SchemaError, match=r"select_columns needs the column 'z', which is missing. Columns: none") as caught:
        list(fp.pipe(nothing, fp.select_columns(["z"])))
    assert "if an earlier function received no rows, declare its output with schema=" in caught.value.__notes__[0]


def test_rows_that_come_in_a_later_epoch_alone_need_a_declared_schema():
    draw = fp.map(lambda row, random: {"x": int(random.integers(100))}, seed=0, schema=INT)
    rows = fp.pipe(fp.from_table(TABLE.slice(0, 3)), draw, fp.filter(lambda row: row["x"] == 61))
    dataset = fp.pipe(rows, fp.map(lambda row: {"z": row["x"]}))
    epoch = next(epoch for epoch in count(1) if list(fp.iterate(rows, epoch=epoch)))
    assert list(dataset) == []
    with pytest.raises(
        SchemaError, match=r"Row \d has the column 'z', which the schema lacks. Columns: none. Declare the column with schema="
    ):
        list(fp.iterate(dataset, epoch=epoch))


def test_the_head_has_the_hidden_columns_of_epoch_0():
    chunks = list(head(from_chunks(TABLE.slice(0, 4).to_batches(max_chunksize=2))))
    assert [chunk.column("__row__").to_pylist() for chunk in chunks] == [[0, 1], [2, 3]]
