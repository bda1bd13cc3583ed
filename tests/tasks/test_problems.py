"""A competition's data, however it is named, and its folds."""

from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.config.classes import DataConfig, ValidationConfig
from mlxfp.core.describing import length, schema
from mlxfp.core.errors import ArgumentError, ConfigError, DataError, MissingFileError, UnknownNameError
from mlxfp.data.sources.in_memory import from_table
from mlxfp.kaggle.specs.catalogue import SPECS
from mlxfp.kaggle.specs.spec_files import save_spec
from mlxfp.kaggle.specs.specs import DatasetSpec, FileSpec
from mlxfp.kaggle.specs.synthetic import write_synthetic
from mlxfp.kaggle.specs.tables import column_values, to_table
from mlxfp.tasks.problems import Problem, deal, problem
from tests.tasks.drawing import spec_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_synthetic(SPECS["titanic"], tmp_path / "titanic", rows=40, test_rows=10)
    return tmp_path / "titanic"


def found_of(values: dict, **changes) -> Problem:
    """Make a problem of rows in memory."""
    return Problem(spec_of(**changes), Path(), from_table(values))


def test_a_spec_is_known_by_name_or_read_from_a_file_or_inferred(folder: Path):
    named = problem(DataConfig(path=str(folder), spec="titanic"))
    assert named.spec == SPECS["titanic"]
    assert "the spec says 891" in named.mismatches  # the hashes and counts are those of the real files
    inferred = problem(DataConfig(path=str(folder)))
    assert (inferred.spec.name, inferred.spec.target, inferred.mismatches) == ("titanic", ("Survived",), "")
    own = evolve(
        SPECS["titanic"], name="own", train=FileSpec(name="train.csv"), test=None, sample=None, columns=SPECS["titanic"].columns[:2]
    )
    for suffix in ("yaml", "json"):
        save_spec(own, folder / f"own.{suffix}")
        read = problem(DataConfig(path=str(folder), spec=str(folder / f"own.{suffix}")))
        assert (read.spec, read.test, read.mismatches) == (own, None, "")
    for found in (named, inferred):
        assert length(found.rows) == 40
        assert sorted(set(found.targets.tolist())) == [0, 1]
        assert found.targets.tolist() == column_values(found.rows, "Survived").tolist()
        assert found.test is not None
        assert length(found.test) == 10
        assert found.path_of("train") == folder / "train.csv"
        assert found.metric().name == "accuracy"


def test_a_file_stands_for_its_folder(folder: Path):
    assert problem(DataConfig(path=str(folder / "train.csv"), spec="titanic")).folder == folder
    (folder / "test.csv").unlink()
    with pytest.raises(ArgumentError, match=r"The target in .* cannot be inferred: there is no test file to compare it with"):
        problem(DataConfig(path=str(folder / "train.csv")))


def test_rows_are_made_up_for_a_known_data_set(tmp_path: Path):
    found = problem(DataConfig(spec="spaceship_titanic", limit=30), made_up=tmp_path / "data", seed=1)
    assert found.mismatches == ""
    assert length(found.rows) == 30
    assert found.path_of("sample") == tmp_path / "data" / "sample_submission.csv"
    again = problem(DataConfig(spec="spaceship_titanic", limit=30), made_up=tmp_path / "data", seed=1)
    assert to_table(again.rows).equals(to_table(found.rows))
    with pytest.raises(ArgumentError, match="never replace an existing file"):
        problem(DataConfig(spec="spaceship_titanic"), made_up=tmp_path / "data", seed=2)


def test_a_limit_draws_rows_and_keeps_their_order(folder: Path):
    whole, few, same, more = (
        [int(row["PassengerId"]) for row in problem(DataConfig(path=str(folder), spec="titanic", limit=limit), seed=seed).rows]
        for limit, seed in ((None, 0), (15, 0), (15, 1), (400, 0))
    )
    assert whole == more == [*range(1, 41)]
    assert len(few) == len(same) == 15
    assert few == sorted(few)
    assert few != same


def test_a_metric_takes_the_place_of_that_of_the_spec(folder: Path):
    found = problem(DataConfig(path=str(folder)), metric="roc_auc")
    assert found.spec.metric == found.metric().name == "roc_auc"
    assert found.metric("log_loss").name == "log_loss"
    with pytest.raises(UnknownNameError, match="No metric is named 'roc_auk'"):
        problem(DataConfig(path=str(folder)), metric="roc_auk")


def test_a_test_file_never_shows_the_target(folder: Path):
    text = (folder / "test.csv").read_text().splitlines()
    (folder / "test.csv").write_text("\n".join([text[0] + ",Survived", *(f"{line}," for line in text[1:])]) + "\n")
    found = problem(DataConfig(path=str(folder), spec="titanic"))
    assert found.test is not None
    assert "Survived" not in schema(found.test).names
    assert "Survived" in schema(found.rows).names


def test_files_may_change_once_they_are_read(folder: Path):
    found = problem(DataConfig(path=str(folder)))
    before = to_table(found.rows)
    (folder / "train.csv").write_text("gone")
    assert to_table(found.rows).equals(before)


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({}, MissingFileError, r"There is no data: data\.path says nothing\. Give the folder of the competition, data\.path=FOLDER\."),
        ({"path": "nowhere"}, MissingFileError, "There is no folder 'nowhere'. Give the one that holds the competition's files"),
        ({"path": ".", "spec": "titanick"}, UnknownNameError, "No data set is named 'titanick'. Did you mean 'titanic'"),
        ({"path": ".", "spec": "nowhere.yaml"}, MissingFileError, "nowhere.yaml"),
        ({"path": ".", "spec": "broken.yaml"}, ConfigError, "broken.yaml"),
        ({"path": "."}, MissingFileError, r"There is no train\.csv in"),
        ({"path": ".", "spec": "titanic"}, MissingFileError, "There is no train file at"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch, config, kind, message: str):
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("name: x\nkind: binry\n")
    with pytest.raises(kind, match=message):
        problem(DataConfig(**config))


def test_rows_are_made_up_for_nothing_unknown(tmp_path: Path):
    with pytest.raises(ArgumentError, match=r"for a known data set only: give data\.spec, such as data\.spec=titanic, or data\.path\."):
        problem(DataConfig(), made_up=tmp_path)


def test_a_class_that_the_spec_lacks_names_its_row(folder: Path):
    save_spec(evolve(SPECS["titanic"], classes=["no", "yes"]), folder / "own.yaml")
    found = problem(DataConfig(path=str(folder), spec=str(folder / "own.yaml")))
    assert "the target 'Survived' has 2 values not among the classes 'no', 'yes'" in found.mismatches
    with pytest.raises(DataError, match=r"The target 'Survived' must be one of the classes 'no', 'yes', got '\d' in source row 0"):
        to_table(found.rows)


LABELS = st.lists(st.integers(0, 1), min_size=12, max_size=40)


@given(LABELS, st.integers(2, 4), st.integers(0, 9))
def test_classes_are_stratified_unless_a_column_says_otherwise(labels, count: int, seed: int):
    folds = deal(found_of({"y": labels}), ValidationConfig(folds=count, seed=seed))
    assert (folds.method, folds.count) == ("stratified", count)
    sizes = [sum(labels[row] for row in fold.valid) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=40, unique=True))
def test_numbers_are_stratified_by_their_tenths(values):
    folds = deal(found_of({"y": values}, kind="regression"), ValidationConfig(folds=2))
    assert folds.method == "stratified"
    half = np.median(values)
    shares = [np.mean(np.array(values)[fold.valid] > half) for fold in folds]
    assert shares == pytest.approx([0.5, 0.5], abs=0.21)


def test_labels_are_stratified_by_how_many_there_are():
    folds = deal(found_of({"y": [0, 0, 1, 1] * 3, "z": [0, 0, 1, 1] * 3}, kind="multilabel"), ValidationConfig(folds=3))
    assert [sorted(fold.valid % 4 // 2) for fold in folds] == [[0, 0, 1, 1]] * 3


@pytest.mark.parametrize(("kind", "method"), [("binary", "stratified_grouped"), ("regression", "grouped")])
def test_groups_are_never_parted(kind: str, method: str):
    groups = [place // 3 for place in range(24)]
    found = found_of({"y": [place % 2 for place in range(24)], "ship": groups}, kind=kind, group="ship")
    folds = deal(found, ValidationConfig(folds=4))
    assert folds.method == method
    for fold in folds:
        assert not {groups[row] for row in fold.train} & {groups[row] for row in fold.valid}


TIMES = [
    ["9", "10", "11", "8"],
    [9.0, 10.0, 11.0, 8.0],
    ["2019-01-09", "2019-10-01", "2020-01-01", "2018-12-31"],
    ["7e0", "30", "1e2", "-5"],
]


@pytest.mark.parametrize("times", TIMES, ids=["texts", "numbers", "dates", "texts of odd numbers"])
def test_what_validates_is_later_than_what_is_trained_on(times):
    found = found_of({"y": [0, 1, 0, 1], "day": times, "g": [1, 2, 3, 4]}, time="day", group="g")
    folds = deal(found, ValidationConfig(folds=3))
    assert folds.method == "time"
    assert [(fold.train.tolist(), fold.valid.tolist()) for fold in folds] == [([3], [0]), ([0, 3], [1]), ([0, 1, 3], [2])]


@pytest.mark.parametrize("method", ["kfold", "stratified", "grouped", "stratified_grouped"])
def test_rows_are_dealt_by_the_method_that_is_named_and_anew(method: str):
    found = found_of({"y": [0, 1] * 8, "day": [*range(16)], "g": [place // 2 for place in range(16)]}, time="day", group="g")
    folds = deal(found, ValidationConfig(method=method, folds=2, repeats=3, seed=4))
    assert (folds.method, folds.repeats, folds.count) == (method, 3, 2)
    assert folds == deal(found, ValidationConfig(method=method, folds=2, repeats=3, seed=4))
    assert folds != deal(found, ValidationConfig(method=method, folds=2, repeats=3, seed=5))


@pytest.mark.parametrize(
    ("changes", "config", "kind", "message"),
    [
        ({}, {"method": "time"}, ArgumentError, r"Folds by time need a column, and the spec of 'ships' has time=None\. Name one"),
        ({}, {"method": "grouped"}, ArgumentError, "Folds by group need a column, and the spec of 'ships' has group=None"),
        ({"group": "sea"}, {}, ArgumentError, "has group='sea'. Name one that is in the train file"),
        ({"time": "day"}, {"repeats": 2}, ArgumentError, r"Folds in time are dealt once, got validation\.repeats=2\. Leave it out\."),
        ({"time": "odd"}, {}, ArgumentError, r"Times must be numbers or begin with their year, as in 2026-11-21, got '3/1/2020'"),
        ({"time": "gap"}, {}, ArgumentError, "times must not be missing, got nan in row 1"),
        ({}, {"folds": 9}, ArgumentError, "at most one for each of the 4 rows, got count=9"),
        (
            {"target": ["gone"], "kind": "regression", "metric": "rmse", "classes": []},
            {"folds": 2},
            DataError,
            "The target 'gone' must be finite",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(changes, config, kind, message: str):
    rows = {"y": [0, 1, 0, 1], "day": ["1", "2", "3", "4"], "odd": ["3/1/2020", "1", "2", "3"], "gap": ["1", None, "2", "3"]}
    with pytest.raises(kind, match=message):
        deal(found_of(rows | {"gone": [1.0, None, 2.0, 3.0]}, **changes), ValidationConfig(**config))


def test_a_ranking_is_dealt_by_its_groups():
    about = {"train": FileSpec(name="train.csv"), "columns": [], "metric": "map_at_3"}
    spec = DatasetSpec(name="pages", kind="ranking", target=["y"], group="query", **about)
    found = Problem(spec, Path(), from_table({"y": [0.0, 1.0, 2.0, 0.0], "query": ["a", "a", "b", "b"]}))
    assert [sorted(fold.valid.tolist()) for fold in deal(found, ValidationConfig(folds=2))] in ([[0, 1], [2, 3]], [[2, 3], [0, 1]])


def test_columns_of_another_competition_say_whose_they_are(folder: Path):
    with pytest.raises(UnknownNameError, match="is named 'Id'") as caught:
        problem(DataConfig(path=str(folder), spec="house_prices"))
    assert "The columns are those of data.spec='house_prices'; with data.spec=null" in caught.value.__notes__[-1]
