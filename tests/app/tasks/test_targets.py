"""Targets: numbers of classes, labels that a model learns, and predictions read back from what it answers."""

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.tasks.targets import Labelled, NumberClasses, Target, fit_target, numbered
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing import laws
from tests.app.tasks.drawing import first_of, spec_of, tables

VALUES = st.floats(-1e6, 1e6)
AMOUNTS = st.floats(0, 1e9)


def labels_of(target: Target, table: pa.Table):
    return fp.to_table(Labelled(target)(fp.from_table(table)))["labels"].combine_chunks()


def answered(labels: pa.Array) -> np.ndarray:
    """Make an array of labels, as a model that answers with them would."""
    return np.array(labels.to_pylist(), np.float64)


@given(st.integers(1, 3).flatmap(lambda count: st.lists(st.tuples(*[VALUES] * count), min_size=1, max_size=8)))
def test_values_are_read_back_from_their_labels(rows):
    names = [f"t{place}" for place in range(len(rows[0]))]
    table = pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    target = fit_target(spec_of("regression", target=names), fp.from_table(table))
    labels = labels_of(target, table)
    assert labels.type == (pa.float32() if len(names) == 1 else pa.list_(pa.float32(), len(names)))
    read = target.read(answered(labels)).reshape(len(rows), -1)
    lost = np.finfo(np.float32).eps * np.abs(answered(labels)).reshape(len(rows), -1) * target.scale  # labels are float32
    assert (np.abs(read - rows) <= lost + 1e-9 * np.abs(rows).max()).all()


@given(st.lists(AMOUNTS, min_size=1, max_size=8))
def test_amounts_are_learned_as_logarithms_and_read_back(values):
    target = fit_target(spec_of("regression", metric="rmsle"), fp.from_table({"y": values}))
    assert target.log
    read = target.read(answered(labels_of(target, pa.table({"y": values}))))
    assert (read >= 0).all()
    assert np.log1p(read) == pytest.approx(np.log1p(values), rel=1e-5, abs=1e-5)


@given(
    data=st.data(), spec=st.sampled_from([spec_of("regression"), spec_of("regression", metric="rmsle"), spec_of(), spec_of("multilabel")])
)
def test_targets_know_their_training_rows_only(data, spec):
    train, some, others = (data.draw(tables(spec)) for _ in range(3))
    target = fit_target(spec, first_of(train, some))
    assert target == fit_target(spec, first_of(train, others)) == fit_target(spec, fp.from_table(train))


@pytest.mark.parametrize(
    ("target", "answers", "read"),
    [
        pytest.param(Target(("y",), "class", 2), [[0.75, 0.25]], [0.25], id="binary"),
        pytest.param(Target(("y",), "class", 3), [[0.5, 0.25, 0.25]], [[0.5, 0.25, 0.25]], id="multiclass"),
        pytest.param(Target(("y",), "labels", 1), [[0.75], [0.25]], [0.75, 0.25], id="one label"),
        pytest.param(Target(("y", "z"), "labels", 2), [[0.75, 0.25]], [[0.75, 0.25]], id="labels"),
        pytest.param(Target(("y",), "value", 1, (1.0,), (2.0,)), [[3.0], [-1.0]], [7.0, -1.0], id="value in a column"),
        pytest.param(Target(("y",), "value", 1, (0.0,), (1.0,), log=True), [-2.0], [0.0], id="no amount is below 0"),
        pytest.param(Target(("y", "z"), "value", 2, (1.0, 0.0), (2.0, 1.0)), [[3.0, 4.0]], [[7.0, 4.0]], id="values"),
        pytest.param(Target(("y",), "value", 1, (1.0,), (2.0,)), np.empty((0, 1)), [], id="no rows"),
    ],
)
def test_answers_are_read(target, answers, read):
    found = target.read(np.array(answers))
    assert found.tolist() == read
    assert found.dtype == np.float64


def test_labels_are_what_losses_take():
    table = pa.table({"y": [0, 2], "z": [1, 0]})
    assert labels_of(Target(("y",), "class", 3), table).equals(pa.array([0, 2], pa.int64()))
    assert labels_of(Target(("y", "z"), "labels", 2), table).equals(pa.array([[0, 1], [2, 0]], pa.list_(pa.float32(), 2)))
    assert labels_of(Target(("y",), "labels", 1), table).equals(pa.array([[0], [2]], pa.list_(pa.float32(), 1)))
    assert labels_of(Target(("y",), "value", 1, (1.0,), (2.0,)), table).equals(pa.array([-0.5, 0.5], pa.float32()))


def test_constant_values_are_learned_as_0():
    target = fit_target(spec_of("regression"), fp.from_table({"y": [0.1, 0.1, 0.1]}))
    assert target.scale == (1.0,)
    assert target.mean == (pytest.approx(0.1),)


@pytest.mark.parametrize(
    "column",
    [["3", "1", "2"], [3, 1, 2], [3.0, 1.0, 2.0], pa.array(["3", "1", "2"]).dictionary_encode()],
    ids=["text", "integer", "float", "dictionary"],
)
def test_classes_get_the_numbers_of_their_places(column):
    rows = fp.from_table(pa.table({"y": column}))
    spec = spec_of("multiclass", classes=["1", "2", "3"])
    assert fp.to_table(numbered(spec, rows)).to_pydict() == {"y": [2, 0, 1]}
    assert numbered(spec_of("regression"), rows) is rows


def test_every_column_of_labels_is_numbered():
    rows = fp.from_table({"y": ["0", "1"], "z": [True, False]})
    spec = spec_of("multilabel", classes=["0", "1"])
    with pytest.raises(DataError, match="The target 'z' must be one of the classes '0', '1', got 'True' in source row 0"):
        list(numbered(spec, rows))
    assert fp.to_table(numbered(spec, fp.from_table({"y": ["0", "1"], "z": ["1", "1"]}))).to_pydict() == {"y": [0, 1], "z": [1, 1]}


def test_the_stages_are_lawful():
    words = st.lists(st.fixed_dictionaries({"y": st.sampled_from(["no", "yes"]), "x": st.integers(0, 9)}), min_size=1, max_size=6)
    laws.check(NumberClasses(("y",), ("no", "yes")), schema=pa.schema({"y": pa.string(), "x": pa.int64()}), examples=words, ahead=0)
    amounts = st.lists(st.fixed_dictionaries({"y": AMOUNTS, "z": AMOUNTS}), min_size=1, max_size=6)
    schema = pa.schema({"y": pa.float64(), "z": pa.float64()})
    for target in (
        Target(("y", "z"), "value", 2, (1.0, 0.0), (2.0, 9.0), log=True),
        Target(("y", "z"), "labels", 2),
    ):
        laws.check(Labelled(target), schema=schema, examples=amounts, ahead=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["no", "maybe"],
            r"The target 'y' must be one of the classes 'no', 'yes', got 'maybe' in source row 3\. Correct the row, remove the row, or",
        ),
        (["no", None], r"must be one of the classes 'no', 'yes', got None in source row 3\."),
        (["no", "NO"], r"got 'NO' in source row 3\."),
    ],
)
def test_a_class_that_is_not_known_names_its_row(values, message: str):
    rows = fp.select(range(2, 4))(fp.from_table({"y": ["yes", "yes", *values]}))
    with pytest.raises(DataError, match=message):
        list(numbered(spec_of(), rows))


@pytest.mark.parametrize(
    ("metric", "values", "message"),
    [
        ("rmse", [1.0, None], r"The target 'y' must be finite, got nan in source row 3\. Remove the row\."),
        ("rmse", [1.0, np.inf], r"The target 'y' must be finite, got inf in source row 3\."),
        (
            "rmsle",
            [1.0, -2.5],
            r"rmsle needs targets of at least 0, but 'y' contains -2\.5 in source row 3\. Correct the value, or choose another",
        ),
    ],
)
def test_a_value_that_cannot_be_learned_names_its_row(metric, values, message: str):
    spec = spec_of("regression", metric=metric)
    rows = fp.select(range(2, 4))(fp.from_table({"y": [1.0, 1.0, *values]}))
    with pytest.raises(DataError, match=message):
        fit_target(spec, rows)
    target = fit_target(spec, fp.from_table({"y": [1.0, 2.0]}))
    with pytest.raises(DataError, match=message):
        list(Labelled(target)(rows))


def test_missing_classes_and_labels_are_no_labels():
    rows = fp.from_table({"y": pa.array([1, None], pa.int64()), "z": [1, 1]})
    for target in (Target(("y",), "class", 2), Target(("y", "z"), "labels", 2)):
        with pytest.raises(DataError, match="The target 'y' must be finite, got nan in source row 1"):
            list(Labelled(target)(rows))


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(SchemaError, match=r"The target 'y' must hold numbers, got string\."):
        list(Labelled(Target(("y",), "class", 2))(fp.from_examples([{"y": "yes"}])))
    with pytest.raises(SchemaError, match=r"The target 'y' must hold numbers, got string\."):
        fit_target(spec_of("regression"), fp.from_examples([{"y": "7"}]))
    with pytest.raises(
        SchemaError,
        match=r"The target 'y' must hold one class per row, as text or as a number, got the column type list<item: int64>\. Read the",
    ):
        list(NumberClasses(("y",), ("no", "yes"))(fp.from_examples([{"y": [1]}])))
    with pytest.raises(SchemaError, match="the target needs the column 'y'"):
        list(Labelled(Target(("y",), "class", 2))(fp.from_examples([{"x": 1}])))
    with pytest.raises(DataError, match=r"Scaling of the target 'y' needs training rows, but .* is empty\. Give at least one row\."):
        fit_target(spec_of("regression"), fp.from_table({"y": pa.array([], pa.float64())}))


def test_a_target_is_a_value():
    target = fit_target(spec_of("regression"), fp.from_table({"y": [1.0, 3.0]}))
    assert target == Target(("y",), "value", 1, (2.0,), (1.0,))
    assert hash(target) != hash(evolve(target, log=True))
