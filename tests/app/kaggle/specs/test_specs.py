"""Facts that contradict each other are refused when a spec is made."""

import pickle
from typing import Any, get_args

import pytest
from attrs import evolve
from hypothesis import given

import mlxfp as fp
from mlxfp.app.kaggle.specs.kinds import METRIC_NAMES, TASK_KINDS, Kind
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec, SubmissionSpec, humanize
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from tests.app.kaggle.drawing import dataset_specs

_COLUMNS = [ColumnSpec(name="age", type="numerical")]
SPEC = DatasetSpec(
    name="cats", kind="binary", train=FileSpec(name="train.csv"), target=["y"], classes=["0", "1"], columns=_COLUMNS, metric="f1"
)


@given(spec=dataset_specs())
def test_a_spec_is_a_value(spec: DatasetSpec):
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec
    assert hash(copy) == hash(spec)
    assert fp.inspect.fingerprint(copy) == fp.inspect.fingerprint(spec)
    assert fp.inspect.fingerprint(evolve(spec, name=spec.name + "x")) != fp.inspect.fingerprint(spec)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": []}, "target is empty"),
        ({"id": "age"}, "must not see the id or the target"),
        ({"target": ["age"]}, "must not see the id or the target"),
        ({"classes": []}, "kind='binary' needs 2 classes, got 0"),
        ({"classes": ["a", "b", "c"]}, "kind='binary' needs 2 classes, got 3"),
        ({"classes": ["a", "a"]}, "classes repeats 'a'"),
        ({"kind": "regression"}, "kind='regression' needs 0 classes, got 2"),
        ({"kind": "multiclass", "classes": ["a"]}, "kind='multiclass' needs at least 2 classes, got 1"),
        ({"target": ["x", "y"]}, "kind='binary' allows only one target, got 2"),
        (
            {"kind": "regression", "classes": []},
            r"f1 is a metric for binary or multilabel targets, got regression\. Choose mae, r2, rmse, ",
        ),
        ({"metric": "rmse"}, "rmse is a metric for multilabel, regression, ranking or time_series targets, got binary"),
        ({"kind": "time_series", "classes": []}, "kind='time_series' needs the name of a column in 'time'"),
        ({"kind": "ranking", "classes": []}, "kind='ranking' needs the name of a column in 'group'"),
        ({"columns": [*_COLUMNS, ColumnSpec(name="Age", type="text")]}, "titles of columns repeats 'age'"),
        ({"columns": _COLUMNS * 2}, "columns repeats 'age'"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        evolve(SPEC, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "y"}, r"A list of texts is needed, got the string 'y'. Write \['y'\]"),
        ({"columns": ["age"]}, "column 0 must be ColumnSpec, got str"),
        ({"name": 3}, "name must be a string"),
        ({"id": 3}, "id must be str or NoneType"),
    ],
)
def test_values_of_another_type_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ArgumentTypeError, match=message):
        evolve(SPEC, **changes)


def test_several_targets_of_labels_or_numbers_are_fine():
    assert evolve(SPEC, kind="multilabel", target=["x", "y"]).target == ("x", "y")
    assert evolve(SPEC, kind="regression", target=["x", "y"], classes=[], metric="mae").classes == ()


def test_columns_files_and_submissions_check_themselves():
    with pytest.raises(ArgumentError, match=r"is text, but only categorical columns can have values\. Set type='categorical'"):
        ColumnSpec(name="x", type="text", values={"1": "one"})
    with pytest.raises(ArgumentError, match=r"Column 'x' holds numbers, but the list absent=\[\.\.\.\] of this column contains 'none'"):
        ColumnSpec(name="x", type="numerical", absent=["none"])
    with pytest.raises(ArgumentError, match="names of the values of column 'x' repeats 'one'"):
        ColumnSpec(name="x", type="categorical", values={"1": "one", "01": "one"})
    with pytest.raises(ArgumentError, match="needs a name and a title"):
        ColumnSpec(name="", type="text")
    with pytest.raises(ArgumentTypeError, match="the name of the value '1' must be a string"):
        ColumnSpec(name="x", type="categorical", values={"1": 1})
    with pytest.raises(UnknownNameError, match="Did you mean 'integer'"):
        SubmissionSpec(columns=["id"], spelling="intger")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ArgumentError, match="rows must be at least 0"):
        FileSpec(name="a", rows=-1)


@pytest.mark.parametrize(
    ("name", "words"),
    [("Pclass", "pclass"), ("3SsnPorch", "3 ssn porch"), ("a__b", "a b"), ("été_max", "été max"), ("__", "__"), ("X1", "x 1")],
)
def test_names_are_split_into_words(name: str, words: str):
    assert humanize(name) == words


def test_a_metric_that_is_not_there_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"No metric is named 'acuracy'\. Did you mean 'accuracy'\? Known: accuracy, f1, "):
        evolve(SPEC, metric="acuracy")


def test_every_metric_says_which_targets_it_scores():
    assert tuple(fp.kaggle.METRICS) == METRIC_NAMES
    for name in METRIC_NAMES:
        kinds = {kind.name for kind in TASK_KINDS.values() if name in kind.metrics}
        assert (fp.kaggle.METRICS[name].needs == "values") == ("regression" in kinds)


def test_every_name_of_a_kind_has_one_entry():
    assert tuple(TASK_KINDS) == get_args(Kind) == tuple(kind.name for kind in TASK_KINDS.values())
