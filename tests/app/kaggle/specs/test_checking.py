"""Every mismatch between a spec and its files is found, and all are said at once."""

import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.support.errors import DataError
from tests.app.kaggle.drawing import CATS, CATS_FILES

_TRAIN, _TEST, _SAMPLE = CATS_FILES.values()


def mismatches(spec: fp.kaggle.DatasetSpec, folder: Path) -> list[str]:
    with pytest.raises(DataError) as caught:
        fp.kaggle.check_spec(spec, folder)
    text, advice, code = str(caught.value).partition(f"\nFix the files, or correct the spec of {spec.name!r}.")
    head, *lines = text.splitlines()
    assert re.fullmatch(rf"Found \d problems? in the files in {re.escape(repr(str(folder)))}:", head)
    assert advice
    assert not code or "duplicate id" in text
    return [line.strip() for line in lines]


def test_files_that_are_as_the_spec_says_pass(folder: Path):
    fp.kaggle.check_spec(CATS, folder)
    fp.kaggle.check_spec(CATS, folder / "train.csv")
    fp.kaggle.check_spec(evolve(CATS, train=fp.kaggle.FileSpec(name="train.csv", sha256=hash_file(folder / "train.csv"))), folder)


_BROKEN = [
    ("train.csv", _TRAIN.replace("002", "001"), "train.csv: 1 duplicate id in 'id': '001' (2 rows)"),
    ("train.csv", _TRAIN.replace("001,a", ",a"), "train.csv: 1 of the ids in 'id' are missing"),
    ("train.csv", _TRAIN.replace("3,0", "3,2"), "train.csv: the target 'y' has 1 value not among the classes '0', '1': '2'"),
    ("train.csv", _TRAIN.replace("3,0", "3,"), "train.csv: the target 'y' is missing in 1 row"),
    ("train.csv", _TRAIN.replace("3,0", "old,0"), "train.csv: the numerical column 'age' has 1 value not written as numbers: 'old'"),
    ("train.csv", _TRAIN.replace("a,3", "c,3"), "train.csv: the categorical column 'class' has 1 value not named in the spec: 'c'"),
    ("train.csv", _TRAIN.replace("age", "aged"), "train.csv: the column 'age' is missing; the file has 'id', 'class', 'aged', 'y'"),
    ("train.csv", _TRAIN + "003,a,3,0\n", "train.csv: the file has 3 rows, but the spec has 2"),
    ("test.csv", _TEST.replace("b,5.5", "c,5.5"), "test.csv: the categorical column 'class' has 1 value not named in the spec: 'c'"),
    ("test.csv", _TEST.replace("class,age", "x,z"), "test.csv: the columns 'class', 'age' are missing; the file has 'id', 'x', 'z'"),
    ("sample.csv", _SAMPLE.replace("y", "Y"), "sample.csv: the columns are 'id', 'Y', but the spec has 'id', 'y'"),
    ("sample.csv", _SAMPLE.replace(",0", ",0.0"), "sample.csv: the column 'y' has 2 values not spelled as integer: '0.0', '0.0'"),
]


@pytest.mark.parametrize(("name", "text", "line"), _BROKEN)
def test_each_mismatch_is_said(folder: Path, name: str, text: str, line: str):
    (folder / name).write_text(text)
    assert mismatches(CATS, folder) == [line]


def test_all_mismatches_are_said_at_once(folder: Path):
    (folder / "train.csv").write_text("id,class,age\n1,c,x\n1,d,y\n,e,z\n")
    (folder / "sample.csv").write_text("id,y\n003,0\n005,True\n")
    (folder / "test.csv").unlink()
    assert mismatches(evolve(CATS, train=fp.kaggle.FileSpec(name="train.csv", rows=4, sha256="0")), folder) == [
        "train.csv: the file has 3 rows, but the spec has 4",
        f"train.csv: sha256 is {hash_file(folder / 'train.csv')}, but the spec has 0",
        "train.csv: the column 'y' is missing; the file has 'id', 'class', 'age'",
        "train.csv: 1 of the ids in 'id' are missing",
        "train.csv: 1 duplicate id in 'id': '1' (2 rows)",
        "train.csv: the categorical column 'class' has 3 values not named in the spec: 'c', 'd', 'e'",
        "train.csv: the numerical column 'age' has 3 values not written as numbers: 'x', 'y', 'z'",
        "test.csv: the file is missing",
        "sample.csv: the column 'y' has 1 value not spelled as integer: 'True'",
    ]


def test_ids_of_the_sample_are_those_of_the_test_file_in_any_order(folder: Path):
    (folder / "sample.csv").write_text("id,y\n4,0\n003,0\n")
    assert mismatches(CATS, folder) == [
        "sample.csv: 1 id of the test file not in the sample: '004'",
        "sample.csv: 1 id of the sample not in the test file: '4'",
    ]


def test_a_file_that_cannot_be_read_is_a_mismatch_like_others(folder: Path):
    (folder / "train.csv").write_text('id,class\n1,"a\n')
    (folder / "test.csv").unlink()
    first, second = mismatches(CATS, folder)
    assert first.startswith("train.csv: A quote is never closed")
    assert second == "test.csv: the file is missing"


def test_many_values_are_cut_short(folder: Path):
    (folder / "train.csv").write_text("id,class,age,y\n" + "".join(f"{row},a,n{row},0\n" for row in range(7)))
    assert mismatches(evolve(CATS, train=fp.kaggle.FileSpec(name="train.csv")), folder) == [
        "train.csv: the numerical column 'age' has 7 values not written as numbers: 'n0', 'n1', 'n2', 'n3', 'n4', ..."
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"kind": "regression", "classes": [], "metric": "rmse"}, "train.csv: the target 'y' has 1 value not written as numbers: 'b'"),
        ({"kind": "regression", "classes": [], "metric": "mae"}, "train.csv: the target 'y' must be finite, got '-Inf' in row 1"),
        ({"group": "pack", "classes": ["0", "b"]}, "train.csv: the column 'pack' is missing; the file has 'id', 'class', 'age', 'y'"),
    ],
)
def test_what_is_checked_follows_the_spec(folder: Path, changes: dict[str, Any], line: str):
    (folder / "train.csv").write_text(_TRAIN.replace(",,1", ",,-Inf" if "-Inf" in line else ",,b"))
    assert mismatches(evolve(CATS, test=None, sample=None, **changes), folder) == [line]


def test_a_spec_without_an_id_or_a_submission_checks_the_rest(folder: Path):
    fp.kaggle.check_spec(evolve(CATS, id=None, submission=None), folder)
