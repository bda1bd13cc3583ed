"""`schema`, `length` and `explain`: what a pipeline is, without running it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.describing import explain, known_length, length, schema
from mlxfp.core.sources import Position, Source
from mlxfp.support.errors import ArgumentTypeError, MissingFileError
from mlxfp.testing.strategies import pipelines

NUMBERS = fp.from_table({"x": range(5), "text": list("abcde")})


@given(pipelines())
def test_any_pipeline_can_be_explained(dataset: fp.Dataset[Any]):
    assert len(explain(dataset).splitlines()) >= 2 * len(dataset.parts)


def test_an_explanation_names_parts_columns_counts_and_costs():
    dataset = fp.pipe(
        NUMBERS, fp.shuffle(seed=0), fp.filter(bool), fp.shuffle(seed=0, buffer=2), fp.drop_columns(["text"]), fp.repeat(None), fp.batch(2)
    )
    assert explain(dataset) == (
        "from_table(5 rows)\n"
        "    5 examples: x int64, text string; random access\n"
        "shuffle(seed=0)\n"
        "    5 examples: same columns; random access\n"
        "    takes the rows of from_table(5 rows) in the new order\n"
        "filter(predicate=bool)\n"
        "    examples (number known after reading): same columns; no random access from here on\n"
        "shuffle(seed=0, buffer=2)\n"
        "    examples: same columns\n"
        "    buffers 2 rows; memory holds up to about twice as many\n"
        "drop_columns(columns=('text',))\n"
        "    examples: without text\n"
        "repeat(epochs=None)\n"
        "    endless examples: same columns\n"
        "batch(size=2)\n"
        "    groups: same columns"
    )


def test_an_explanation_calls_a_function_no_more_often_than_finding_the_schema_does():
    calls = list[int]()

    def count(row: Any) -> Any:
        calls.append(row["x"])
        return row

    def calls_of(function: Any) -> int:
        calls.clear()
        function(fp.pipe(NUMBERS, *[fp.map(count)] * 6))
        return len(calls)

    assert calls_of(explain) == calls_of(schema) == (6 + 5) * 5


def test_joined_datasets_are_explained_side_by_side():
    lines = explain(fp.concat([NUMBERS, fp.pipe(NUMBERS, fp.shuffle(seed=1))])).splitlines()
    assert [line for line in lines if line.startswith("  | ") and "examples: " not in line and "takes the rows" not in line] == [
        "  | from_table(5 rows)",
        "  | from_table(5 rows)",
        "  | shuffle(seed=1)",
    ]
    assert lines[-1] == "    10 examples: same columns; random access"


def test_a_pipeline_that_cannot_work_is_explained_all_the_same():
    text = explain(fp.pipe(NUMBERS, fp.select_columns(["nothing"]), fp.batch(2)))
    assert "schema not known (select_columns needs the column 'nothing', which is missing. Columns: 'x', 'text'.)" in text
    assert "batch(size=2)" in text


def test_a_reason_for_missing_columns_is_printed_once():
    text = explain(fp.pipe(NUMBERS, fp.select_columns(["nothing"]), fp.batch(2), fp.collate(lambda group: {})))
    assert text.count("which is missing") == 1
    assert text.count("schema not known, see above") == 2


def test_batches_are_arrays_without_a_schema():
    """The columns before `collate` say nothing about the arrays after `collate`."""
    dataset = fp.pipe(NUMBERS, fp.batch(2), fp.collate(lambda group: {}))
    assert explain(dataset).endswith("    3 batches: arrays")
    assert explain(dataset, columns=True).endswith("    3 batches: arrays of x int64, text string")


def test_a_join_is_described_without_the_datasets_above_the_join():
    assert "\nmix(2 datasets, weights=(3.0, 1.0))\n" in explain(fp.mix([NUMBERS, fp.pipe(NUMBERS, fp.shuffle(seed=1))], [3, 1]))
    assert "\nconcat(1 dataset)\n" in explain(fp.concat([NUMBERS]))


def test_a_dataset_without_columns_says_so():
    assert "5 examples: no columns" in explain(fp.pipe(NUMBERS, fp.drop_columns(["x", "text"])), columns=True)


def test_a_length_is_known_or_none():
    assert length(NUMBERS) == 5
    assert length(fp.pipe(NUMBERS, fp.batch(2))) == 3
    assert length(fp.pipe(NUMBERS, fp.batch(2, drop_last=True), fp.repeat(3))) == 6
    assert length(fp.pipe(NUMBERS, fp.filter(bool), fp.batch(2))) is None
    assert length(fp.from_iterable([{"x": 1}])) is None


def test_what_is_loaded_is_read_for_its_length_and_not_to_explain_it():
    dataset = fp.pipe(NUMBERS, fp.filter(lambda row: row["x"] > 1), fp.load())
    assert known_length(dataset) is None
    assert "number known after reading" in explain(dataset)
    assert length(dataset) == 3


def test_functions_of_datasets_say_what_they_need():
    for function in (schema, length, explain):
        with pytest.raises(ArgumentTypeError, match=rf"{function.__name__} works on a dataset, got int: 3. Start with a source"):
            function(3)  # type: ignore[operator]  # the mistake that is tested


def test_a_schema_is_that_of_the_rows_that_come_out():
    declared = pa.schema({"z": pa.float32()})
    assert schema(fp.pipe(NUMBERS, fp.map(lambda row: {"z": 0.5}, schema=declared), fp.batch(3))) == declared


@frozen(repr=False)
class Gone(Source):
    """A source whose file is no longer there."""

    def schema(self) -> Schema:
        raise MissingFileError("gone.csv is not there.")

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        return iter(())

    def length(self) -> int:
        raise MissingFileError("gone.csv is not there.")


def test_a_source_that_cannot_be_read_is_explained_all_the_same():
    assert explain(fp.Dataset(Gone())) == "gone()\n    examples (number not known): schema not known (gone.csv is not there.)"


def test_an_explanation_shows_only_the_columns_that_a_part_changes():
    """With many columns, repeated lists hide the change. `columns=True` lists all columns."""
    dataset = fp.pipe(NUMBERS, fp.map(lambda row: {"x": float(row["x"]), "size": 1}), fp.batch(2))
    assert "    5 examples: new size int64, changed x double, without text; random access\n" in explain(dataset)
    assert explain(dataset).endswith("    3 groups: same columns")
    assert explain(dataset, columns=True).count("x double, size int64") == 2
