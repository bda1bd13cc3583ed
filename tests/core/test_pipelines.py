"""`pipe` and `compose`."""

import pickle
from collections.abc import Iterable
from pathlib import PurePosixPath

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, PipelineError
from mlxfp.testing import laws

NUMBERS = fp.from_table({"x": range(5)})
ROWS = [
    fp.take(4, redraw=True),
    fp.skip(1, redraw=True),
    fp.shuffle(seed=0),
    fp.shuffle(seed=0, buffer=2),
    fp.repeat(2),
    fp.select_columns(["x"]),
    fp.compose(fp.batch(2), fp.unbatch()),
    fp.compose(),
]


@given(st.lists(st.sampled_from(ROWS), max_size=10))
def test_any_row_of_stages_can_be_composed_in_any_way(stages: list[object]):
    laws.assert_pipes(NUMBERS, *stages)  # type: ignore[arg-type]  # stages of many types


def test_composing_nothing_changes_nothing():
    assert fp.compose()(NUMBERS) is NUMBERS
    assert fp.pipe(NUMBERS) is NUMBERS
    assert repr(fp.compose()) == "compose()"


def test_a_composition_is_a_value():
    recipe = fp.compose(fp.take(4), fp.compose(fp.batch(2), fp.repeat(3)))
    assert recipe == fp.compose(fp.compose(fp.take(4), fp.batch(2)), fp.repeat(3)) != fp.compose(fp.take(4), fp.batch(2))
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    assert hash(recipe) == hash(fp.compose(fp.take(4), fp.batch(2), fp.repeat(3)))
    assert repr(recipe) == "compose(take(count=4), batch(size=2), repeat(epochs=3))"


def test_what_is_no_function_is_named_by_its_place():
    with pytest.raises(ArgumentTypeError, match=r"argument 3 of pipe must be a function, got argument 3 of pipe=5"):
        fp.pipe(NUMBERS, fp.batch(2), 5)  # type: ignore[arg-type, call-overload]  # the mistake that is tested
    with pytest.raises(ArgumentTypeError, match=r"argument 1 of compose must be a function, got argument 1 of compose=None"):
        fp.compose(None)  # type: ignore[arg-type, call-overload]  # the same


def test_a_misplaced_stage_says_where_it_belongs():
    with pytest.raises(
        PipelineError, match=r"^shuffle\(seed=0\) takes examples, got groups from batch\(size=2\). Move it before batch, or put"
    ):
        fp.pipe(NUMBERS, fp.batch(2), fp.shuffle(seed=0))  # type: ignore[call-overload]  # the mistake that is tested
    with pytest.raises(
        PipelineError, match=r"^unbatch\(\) takes groups, got examples from from_table\(5 rows\). Put batch\(size\) before it."
    ):
        fp.pipe(NUMBERS, fp.unbatch())  # type: ignore[call-overload]  # the same


def test_a_stage_on_what_is_no_dataset_says_how_to_begin():
    with pytest.raises(ArgumentTypeError, match=r"batch\(size=2\) works on a dataset, got list: \[1, 2\]. Start with a source, as in pipe"):
        fp.pipe([1, 2], fp.batch(2))  # type: ignore[call-overload]  # the mistake that is tested


@pytest.mark.parametrize(
    ("value", "shown", "source"),
    [
        (pd.DataFrame({"x": [1]}), "DataFrame: x 0 1", "from_table(frame)"),
        (pa.table({"x": [1]}), "Table: pyarrow.Table x: int64 ---- x: [[1]]", "from_table(table)"),
        ("data/train.csv", "str: 'data/train.csv'", "read_csv('data/train.csv')"),
        (PurePosixPath("Train.JSONL.gz"), "PurePosixPath: PurePosixPath('Train.JSONL.gz')", "read_jsonl('Train.JSONL.gz')"),
        ("a.parquet", "str: 'a.parquet'", "read_parquet('a.parquet')"),
        ("train", "str: 'train'", "from_examples(rows)"),
    ],
    ids=["pandas", "pyarrow", "csv", "path", "parquet", "text"],
)
def test_a_stage_on_a_table_or_a_path_names_the_source(value, shown, source):
    """The remedy contains the source for the type of the value or for the suffix of the path."""
    with pytest.raises(ArgumentTypeError) as caught:
        fp.pipe(value, fp.batch(2))
    assert str(caught.value) == f"batch(size=2) works on a dataset, got {shown}. Start with a source, as in pipe({source}, ...)."


@pytest.mark.parametrize("stage", [fp.batch(2), fp.map(dict), fp.compose(fp.shuffle(seed=0), fp.batch(2))], ids=repr)
@pytest.mark.parametrize(
    "mistake", [list, len, lambda stage: next(iter(stage)), lambda stage: stage[0], lambda stage: 3 in stage, lambda stage: [*stage]]
)
def test_a_stage_without_a_dataset_has_no_items(stage, mistake):
    """Iteration over a stage in place of a pipeline names the missing call."""
    with pytest.raises(ArgumentTypeError, match=r"A stage is a function and contains no items, got .* as in fp\.pipe\(rows, .*\)\.$"):
        mistake(stage)
    assert stage
    assert not isinstance(stage, Iterable)
