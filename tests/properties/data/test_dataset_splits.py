"""Training, validation and test data: disjoint, complete, in proportion."""

from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, PipelineError, SchemaError


def numbers(dataset: Any) -> list[int]:
    return [row["x"] for row in dataset]


@given(st.integers(10, 99), st.floats(0.01, 0.5), st.none() | st.floats(0.01, 0.4), st.integers(0, 9), st.booleans())
def test_parts_are_a_partition_in_proportion(count: int, valid: float, test: float | None, seed: int, by_class: bool):
    rows = fp.from_table({"x": np.arange(count), "y": np.arange(count) % 3})
    parts = fp.train_valid_test(rows, seed=seed, valid=valid, test=test, stratify="y" if by_class else None)
    found = [numbers(part) for part in (parts.train, parts.valid, parts.test) if part is not None]
    assert len(found) == (2 if test is None else 3)
    assert sorted(chain(*found)) == list(range(count))
    assert fp.train_valid_test(rows, seed=seed, valid=valid, test=test, stratify="y" if by_class else None) == parts
    if by_class:
        for kind, total in Counter(row["y"] for row in rows).items():
            assert abs(sum(row["y"] == kind for row in parts.valid) - valid * total) < 1.01
    else:
        assert abs(len(found[1]) - valid * count) < 1.01


def test_another_seed_gives_other_parts():
    rows = fp.from_table({"x": np.arange(100)})
    assert numbers(fp.train_valid_test(rows, seed=0).valid) != numbers(fp.train_valid_test(rows, seed=1).valid)


def test_streams_are_split_by_the_hash_of_rows():
    stream = fp.from_iterable(lambda: ({"x": place} for place in range(200)))
    parts = fp.train_valid_test(stream, seed=0, valid=0.25)
    assert sorted(numbers(parts.train) + numbers(parts.valid)) == list(range(200))
    assert 25 < len(numbers(parts.valid)) < 75
    with pytest.raises(PipelineError, match="train_valid_test by the values in 'y' needs random access"):
        fp.train_valid_test(fp.pipe(stream, fp.map(lambda row: {**row, "y": 0})), seed=0, stratify="y")


def test_data_that_comes_in_parts_is_put_together():
    train, valid = (fp.from_examples([{"x": place}]) for place in (1, 2))
    assert fp.Splits(train, valid=valid) == fp.Splits(train=train, valid=valid, test=None)
    with pytest.raises(ArgumentTypeError, match="valid must be Dataset or NoneType, got list"):
        fp.Splits(train, valid=[{"x": 1}])


@pytest.mark.parametrize("data", ["train.csv", [{"x": 1}], {"x": [1]}, np.zeros(3), pa.table({"x": [1]})])
def test_what_is_no_dataset_is_refused_with_the_way_to_make_one(data: Any):
    with pytest.raises(
        ArgumentTypeError, match=r"train_valid_test takes a dataset, got \w+\. Create one: read_csv\(path\) and the other readers for files"
    ):
        fp.train_valid_test(data, seed=0)


def test_arguments_that_cannot_be_are_refused_at_once():
    rows = fp.from_table({"x": np.arange(20)})
    with pytest.raises(
        ArgumentError, match=r"Every part needs a share above 0, got valid=0\.6 and test=0\.5, which leaves -0\.1 to train on"
    ):
        fp.train_valid_test(rows, seed=0, valid=0.6, test=0.5)
    with pytest.raises(ArgumentError, match="got valid=0 and test=None"):
        fp.train_valid_test(rows, seed=0, valid=0)
    with pytest.raises(ArgumentTypeError, match="valid must be int or float, got str"):
        fp.train_valid_test(rows, seed=0, valid="10%")
    with pytest.raises(ArgumentTypeError, match="stratify must be str or NoneType"):
        fp.train_valid_test(rows, seed=0, stratify=3)
    with pytest.raises(SchemaError, match="train_valid_test needs the column 'y', which is missing"):
        fp.train_valid_test(rows, seed=0, stratify="y")
    with pytest.raises(ArgumentTypeError, match="seed must be an int"):
        fp.train_valid_test(rows, seed=None)
