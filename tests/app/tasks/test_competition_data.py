"""A competition's data, read with a spec or without, and its folds."""

import re
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, UnknownNameError
from tests.app.tasks.drawing import spec_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path / "titanic", rows=40, test_rows=10)
    return tmp_path / "titanic"


def found_of(values: dict, **changes) -> fp.kaggle.CompetitionData:
    """Make the data of a competition of rows in memory."""
    return fp.kaggle.CompetitionData(spec_of(**changes), Path(), fp.from_table(values))


def test_a_spec_is_given_or_inferred(folder: Path):
    named = fp.kaggle.read_competition(folder, spec=fp.kaggle.SPECS["titanic"])
    assert named.spec == fp.kaggle.SPECS["titanic"]
    assert "but the spec has 891" in named.mismatches  # the hashes and counts are those of the real files
    inferred = fp.kaggle.read_competition(str(folder))
    assert (inferred.spec.name, inferred.spec.target, inferred.mismatches) == ("titanic", ("Survived",), "")
    own = evolve(
        fp.kaggle.SPECS["titanic"],
        name="own",
        train=fp.kaggle.FileSpec(name="train.csv"),
        test=None,
        sample=None,
        columns=fp.kaggle.SPECS["titanic"].columns[:2],
    )
    for suffix in ("yaml", "json"):
        fp.kaggle.save_spec(own, folder / f"own.{suffix}")
        read = fp.kaggle.read_competition(folder, spec=fp.kaggle.load_spec(folder / f"own.{suffix}"))
        assert (read.spec, read.test, read.mismatches) == (own, None, "")
    for found in (named, inferred):
        assert fp.length(found.rows) == 40
        assert sorted(set(found.targets.tolist())) == [0, 1]
        assert found.targets.tolist() == fp.kaggle.column_values(found.rows, "Survived").tolist()
        assert found.test is not None
        assert fp.length(found.test) == 10
        assert found.path_of("train") == folder / "train.csv"
        assert found.metric.name == "accuracy"


def test_a_file_stands_for_its_folder(folder: Path):
    assert fp.kaggle.read_competition(folder / "train.csv", spec=fp.kaggle.SPECS["titanic"]).folder == folder
    (folder / "test.csv").unlink()
    with pytest.raises(ArgumentError, match=r"The target in .* cannot be inferred: there is no test file for comparison"):
        fp.kaggle.read_competition(folder / "train.csv")


def test_a_limit_draws_rows_and_keeps_their_order(folder: Path):
    whole, few, same, more = (
        [
            int(row["PassengerId"])
            for row in fp.kaggle.read_competition(folder, spec=fp.kaggle.SPECS["titanic"], limit=limit, seed=seed).rows
        ]
        for limit, seed in ((None, 0), (15, 0), (15, 1), (400, 0))
    )
    assert whole == more == [*range(1, 41)]
    assert len(few) == len(same) == 15
    assert few == sorted(few)
    assert few != same


def test_a_metric_takes_the_place_of_that_of_the_spec(folder: Path):
    found = fp.kaggle.read_competition(folder, metric="roc_auc")
    assert found.spec.metric == found.metric.name == "roc_auc"
    with pytest.raises(UnknownNameError, match="No metric is named 'roc_auk'"):
        fp.kaggle.read_competition(folder, metric="roc_auk")


def test_a_test_file_never_shows_the_target(folder: Path):
    text = (folder / "test.csv").read_text().splitlines()
    (folder / "test.csv").write_text("\n".join([text[0] + ",Survived", *(f"{line}," for line in text[1:])]) + "\n")
    found = fp.kaggle.read_competition(folder, spec=fp.kaggle.SPECS["titanic"])
    assert found.test is not None
    assert "Survived" not in fp.schema(found.test).names
    assert "Survived" in fp.schema(found.rows).names


def test_files_may_change_once_they_are_read(folder: Path):
    found = fp.kaggle.read_competition(folder)
    before = fp.to_table(found.rows)
    (folder / "train.csv").write_text("gone")
    assert fp.to_table(found.rows).equals(before)


@pytest.mark.parametrize(
    ("path", "spec", "message"),
    [
        ("nowhere", None, "There is no folder 'nowhere'. Give the folder with the competition's files"),
        (".", None, r"There is no train\.csv in"),
        (".", fp.kaggle.SPECS["titanic"], "There is no train file at"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch, path, spec, message: str):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingFileError, match=message):
        fp.kaggle.read_competition(path, spec=spec)


def test_a_class_that_the_spec_lacks_names_its_row(folder: Path):
    fp.kaggle.save_spec(evolve(fp.kaggle.SPECS["titanic"], classes=["no", "yes"]), folder / "own.yaml")
    found = fp.kaggle.read_competition(folder, spec=fp.kaggle.load_spec(folder / "own.yaml"))
    assert "the target 'Survived' has 2 values not among the classes 'no', 'yes'" in found.mismatches
    with pytest.raises(DataError, match=r"The target 'Survived' must be one of the classes 'no', 'yes', got '\d' in source row 0"):
        fp.to_table(found.rows)


LABELS = st.lists(st.integers(0, 1), min_size=12, max_size=40)


@given(LABELS, st.integers(2, 4), st.integers(0, 9))
def test_classes_are_stratified_unless_a_column_says_otherwise(labels, count: int, seed: int):
    folds = fp.kaggle.make_folds(found_of({"y": labels}), count=count, seed=seed)
    assert (folds.method, folds.count) == ("stratified", count)
    sizes = [sum(labels[row] for row in fold.valid) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=40, unique=True))
def test_numbers_are_stratified_by_their_tenths(values):
    folds = fp.kaggle.make_folds(found_of({"y": values}, kind="regression"), count=2)
    assert folds.method == "stratified"
    half = np.median(values)
    shares = [np.mean(np.array(values)[fold.valid] > half) for fold in folds]
    assert shares == pytest.approx([0.5, 0.5], abs=0.21)


def test_labels_are_stratified_by_how_many_there_are():
    folds = fp.kaggle.make_folds(found_of({"y": [0, 0, 1, 1] * 3, "z": [0, 0, 1, 1] * 3}, kind="multilabel"), count=3)
    assert [sorted(fold.valid % 4 // 2) for fold in folds] == [[0, 0, 1, 1]] * 3


@pytest.mark.parametrize(("kind", "method"), [("binary", "stratified_grouped"), ("regression", "grouped")])
def test_groups_are_never_parted(kind: str, method: str):
    groups = [place // 3 for place in range(24)]
    found = found_of({"y": [place % 2 for place in range(24)], "ship": groups}, kind=kind, group="ship")
    folds = fp.kaggle.make_folds(found, count=4)
    assert folds.method == method
    for fold in folds:
        assert not {groups[row] for row in fold.train} & {groups[row] for row in fold.valid}


TIMES = [
    ["9", "10", "11", "8"],
    [9.0, 10.0, 11.0, 8.0],
    ["2019-01-09", "2019-10-01", "2020-01-01", "2018-12-31"],
    ["7e0", "30", "1e2", "-5"],
    ["2023-01-01 9:00", "2023-01-01 10:00", "2023-01-01 11:00", "2023-01-01 8:00"],
    ["2023-01-01T10:00+03:00", "2023-01-01T09:00Z", "2023-01-01T05:00-05:00", "2023-01-01T12:00+06:00"],
    ["2023-W09", "2023-W10", "2024-W01", "2022-W52"],
    ["2023-09", "2023-10", "2024-01", "2022-12"],
    ["2023-01-05 07", "2023-01-05 17", "2023-10-01 00", "2022-12-31 23"],
]


@pytest.mark.parametrize(
    "times", TIMES, ids=["texts", "numbers", "dates", "texts of odd numbers", "hours", "offsets", "weeks", "months", "whole hours"]
)
def test_what_validates_is_later_than_what_is_trained_on(times):
    found = found_of({"y": [0, 1, 0, 1], "day": times, "g": [1, 2, 3, 4]}, time="day", group="g")
    folds = fp.kaggle.make_folds(found, count=3)
    assert folds.method == "time"
    assert [(fold.train.tolist(), fold.valid.tolist()) for fold in folds] == [([3], [0]), ([0, 3], [1]), ([0, 1, 3], [2])]


@pytest.mark.parametrize(
    ("times", "wrong"),
    [
        (["2023-W1", "2023-W2", "2023-W9", "2023-W10"], "2023-W10"),
        (["2023-1", "2023-2", "2023-9", "2023-10"], "2023-10"),
        (["2023.1", "2023.2", "2023.9", "2023.10"], "2023.10"),
        (["2023_1", "2023_2", "2023_9", "2023_10"], "2023_1"),
        (["2023-Jan", "2023-Feb", "2023-Nov", "2023-Dec"], "2023-Jan"),
        (["2023 April 05", "2023 August 05", "2023 May 05", "2023 June 05"], "2023 April 05"),
        (["2023-13-01", "2023-14-01", "2023-01-02", "2023-02-02"], "2023-13-01"),
        (["20230105T0700+0200", "20230105T0700-0200", "20230105T0700+0300", "20230105T0800+0200"], "20230105T0700+0200"),
    ],
)
def test_texts_that_do_not_sort_by_time_are_refused(times, wrong: str):
    message = f"Got {re.escape(repr(wrong))} in the column 'day'. Convert the times to numbers or to dates such as 2026-11-21"
    with pytest.raises(ArgumentError, match=message):
        fp.kaggle.make_folds(found_of({"y": [0, 1, 0, 1], "day": times}, time="day"), method="time", count=2)


@pytest.mark.parametrize("method", ["kfold", "stratified", "grouped", "stratified_grouped"])
def test_folds_are_made_by_the_method_that_is_named_and_repeated(method: str):
    found = found_of({"y": [0, 1] * 8, "day": [*range(16)], "g": [place // 2 for place in range(16)]}, time="day", group="g")
    folds = fp.kaggle.make_folds(found, method=method, count=2, repeats=3, seed=4)
    assert (folds.method, folds.repeats, folds.count) == (method, 3, 2)
    assert folds == fp.kaggle.make_folds(found, method=method, count=2, repeats=3, seed=4)
    assert folds != fp.kaggle.make_folds(found, method=method, count=2, repeats=3, seed=5)


@pytest.mark.parametrize(
    ("changes", "config", "kind", "message"),
    [
        (
            {},
            {"method": "time"},
            ArgumentError,
            r"Folds by time need a column, but the spec of 'ships' has time=None\. Set time to a column",
        ),
        ({}, {"method": "grouped"}, ArgumentError, "Folds by group need a column, but the spec of 'ships' has group=None"),
        ({"group": "sea"}, {}, ArgumentError, "has group='sea'. Set group to a column of the train file"),
        (
            {"time": "day"},
            {"repeats": 2},
            ArgumentError,
            r"Folds by time are equal in every repeat, so repeats must be 1, got repeats=2\. Remove repeats\.",
        ),
        (
            {"time": "odd"},
            {},
            ArgumentError,
            r"Times as text must be numbers, dates such as 2026-11-21 .* Got '3/1/2020' in the column 'odd'\. Convert the times",
        ),
        ({"time": "gap"}, {}, ArgumentError, "times must not be missing, got nan in row 1"),
        ({}, {"count": 9}, ArgumentError, "from 2 to 4 folds, because there are 4 rows, got count=9"),
        ({}, {"method": "kfolds"}, UnknownNameError, "No fold method is named 'kfolds'. Did you mean 'kfold'"),
        (
            {"target": ["gone"], "kind": "regression", "metric": "rmse", "classes": []},
            {"count": 2},
            DataError,
            "The target 'gone' must be finite",
        ),
    ],
)
def test_impossible_folds_are_refused(changes, config, kind, message: str):
    rows = {"y": [0, 1, 0, 1], "day": ["1", "2", "3", "4"], "odd": ["3/1/2020", "1", "2", "3"], "gap": ["1", None, "2", "3"]}
    with pytest.raises(kind, match=message):
        fp.kaggle.make_folds(found_of(rows | {"gone": [1.0, None, 2.0, 3.0]}, **changes), **config)


def test_folds_of_a_ranking_keep_its_groups():
    about = {"train": fp.kaggle.FileSpec(name="train.csv"), "columns": [], "metric": "map_at_3"}
    spec = fp.kaggle.DatasetSpec(name="pages", kind="ranking", target=["y"], group="query", **about)
    found = fp.kaggle.CompetitionData(spec, Path(), fp.from_table({"y": [0.0, 1.0, 2.0, 0.0], "query": ["a", "a", "b", "b"]}))
    assert [sorted(fold.valid.tolist()) for fold in fp.kaggle.make_folds(found, count=2)] in ([[0, 1], [2, 3]], [[2, 3], [0, 1]])


def test_columns_of_another_competition_say_whose_they_are(folder: Path):
    with pytest.raises(UnknownNameError, match="is named 'Id'") as caught:
        fp.kaggle.read_competition(folder, spec=fp.kaggle.SPECS["house_prices"])
    assert "The columns come from the spec of 'house_prices'. With data.spec=null, columns are inferred" in caught.value.__notes__[-1]
