import csv
import gzip
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.app.kaggle.submitting.submissions import check_submission, submission
from mlxfp.support.errors import ArgumentTypeError, DataError, MissingFileError, UnknownNameError

ids = st.lists(st.text("0123456789abc_-,\" é'", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)
LABELS = ["0", "1"]


def written(path: Path, header: list[str], *columns: Any) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *zip(*columns, strict=True)])
    return path


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("submissions")


@given(ids, st.data())
def test_a_submission_that_is_written_has_no_problems_and_every_id_as_it_was(folder: Path, names: list[str], data: st.DataObject):
    kind, truth = data.draw(st.sampled_from([("integer", "1"), ("number", "0.5"), ("boolean", "true"), ("text", "cat")]))
    values = {"integer": [0.0, 3.0], "number": [0.25, 1e-9], "boolean": [True, False], "text": ["cat", "dog, big"]}[kind]
    column = [data.draw(st.sampled_from(values)) for _ in names]
    sample = written(folder / "sample.csv", ["Id", "y"], data.draw(st.permutations(names)), [truth] * len(names))
    test = written(folder / "test.csv", ["x", "Id"], range(len(names)), names)
    made = submission({"y": column}, test=test, sample=sample)
    made.write(folder / "mine.csv")
    assert repr(made) == f"Submission(Id, y: {len(names)} rows)"
    assert check_submission(folder / "mine.csv", sample=sample) == ()
    back = read(folder / "mine.csv")
    assert back == [["Id", "y"], *map(list, made.rows)]
    assert [row[0] for row in back[1:]] == names
    spell = {"integer": lambda value: str(int(value)), "boolean": lambda value: str(value).lower()}.get(kind, str)
    assert [row[1] for row in back[1:]] == [spell(value) for value in column]
    assert sorted(each.name for each in folder.iterdir()) == ["mine.csv", "sample.csv", "test.csv"]  # no half-written ones


def test_the_id_may_be_any_column_of_the_sample(tmp_path: Path):
    test = written(tmp_path / "test.csv", ["x", "id"], [5, 6], ["007", "008"])
    sample = written(tmp_path / "sample.csv", ["y", "id"], [0, 0], ["007", "008"])
    result = submission({"y": [1.0, 0.0]}, test=test, sample=sample)
    assert result.rows == (("1", "007"), ("0", "008"))
    result.write(tmp_path / "mine.csv")
    assert check_submission(tmp_path / "mine.csv", sample=sample) == ()
    mine = written(tmp_path / "mine.csv", ["y", "id"], [1, 0.5], ["7", "008"])
    assert check_submission(mine, sample=sample) == (
        "missing ids of the sample (1): 007",
        "ids that are not in the sample (1): 7 (leading zeros are lost: read ids as text)",
        "'y': values that are not whole numbers as in the sample (1): 0.5 in row 2",
    )


GOOD = [["id", "label"], ["001", "0"], ["002", "1"], ["003", "0"]]


def broken(place: tuple[int, int], value: str) -> list[list[str]]:
    return [[value if (row, column) == place else old for column, old in enumerate(values)] for row, values in enumerate(GOOD)]


BREAKS = {
    "header": (broken((0, 1), "Label"), ["the header is id,Label, but the sample has id,label"]),
    "id column": (broken((0, 0), "Id"), ["the header is Id,label, but the sample has id,label"]),
    "index": (
        [["", *GOOD[0]], *([str(place), *row] for place, row in enumerate(GOOD[1:]))],
        ["the header is column_1,id,label, but the sample has id,label"],
    ),
    "missing": (GOOD[:3], ["number of rows: 2, but 3 in the sample", "missing ids of the sample (1): 003"]),
    "double": ([*GOOD, GOOD[1]], ["number of rows: 4, but 3 in the sample", "duplicate ids (1): 001"]),
    "extra": (broken((3, 0), "9"), ["missing ids of the sample (1): 003", "ids that are not in the sample (1): 9"]),
    "zeros": (
        broken((1, 0), "1"),
        ["missing ids of the sample (1): 001", "ids that are not in the sample (1): 1 (leading zeros are lost: read ids as text)"],
    ),
    "decimals": (
        broken((1, 0), "001.0"),
        ["missing ids of the sample (1): 001", "ids that are not in the sample (1): 001.0 (ids became decimals: read ids as text)"],
    ),
    "float": (broken((2, 1), "1.0"), ["'label': values that are not whole numbers as in the sample (1): 1.0 in row 2"]),
    "nan": (broken((2, 1), "nan"), ["'label': missing or infinite values (1): nan in row 2"]),
    "infinite": (broken((2, 1), "inf"), ["'label': missing or infinite values (1): inf in row 2"]),
    "empty": (broken((3, 1), ""), ["'label': missing or infinite values (1): an empty cell in row 3"]),
    "word": (broken((3, 1), "yes"), ["'label': values that are not whole numbers as in the sample (1): yes in row 3"]),
}


@pytest.mark.parametrize("name", BREAKS)
def test_every_way_to_break_a_file_is_found(tmp_path: Path, name: str):
    lines, problems = BREAKS[name]
    sample = written(tmp_path / "sample.csv", GOOD[0], *zip(*GOOD[1:], strict=True))
    mine = written(tmp_path / "mine.csv", lines[0], *zip(*lines[1:], strict=True))
    assert list(check_submission(mine, sample=sample)) == problems


def test_all_problems_come_at_once(tmp_path: Path):
    sample = written(tmp_path / "sample.csv", ["id", "ok", "p"], ["1", "2"], ["True", "False"], ["0.5", "0.1"])
    mine = written(tmp_path / "mine.csv", ["id", "p", "ok"], ["1", "1", "3"], ["0.5", "nan", "x"], ["TRUE", "1", "False"])
    assert check_submission(mine, sample=sample) == (
        "the header is id,p,ok, but the sample has id,ok,p",
        "number of rows: 3, but 2 in the sample",
        "duplicate ids (1): 1",
        "missing ids of the sample (1): 2",
        "ids that are not in the sample (1): 3",
        "'ok': values that are not spelled True or False as in the sample (2): TRUE in row 1",
        "'p': missing or infinite values (1): nan in row 2",
        "'p': values that are not numbers as in the sample (1): x in row 3",
    )
    with pytest.raises(DataError) as caught:
        submission({"ok": [True, 2], "p": [np.inf, 0.5]}, test=written(tmp_path / "test.csv", ["id"], ["1", "9"]), sample=sample)
    assert str(caught.value).splitlines()[1:] == [
        "- missing ids of the sample (1): 2",
        "- ids that are not in the sample (1): 9",
        "- 'ok': values that are not spelled True or False as in the sample (1): 2 in row 2",
        "- 'p': missing or infinite values (1): inf in row 1",
    ]


def test_the_spelling_may_be_given_where_the_sample_does_not_tell(tmp_path: Path):
    sample = written(tmp_path / "sample.csv", ["id", "y"], ["1", "2"], ["0", "0"])
    with pytest.raises(DataError, match=r"'y': values that are not whole numbers as in the sample \(2\): 0\.25 in row 1"):
        submission({"y": [0.25, 0.5]}, test=sample, sample=sample)
    assert submission({"y": [0.25, 1.0]}, test=sample, sample=sample, spelling={"y": "number"}).rows == (("1", "0.25"), ("2", "1.0"))
    assert submission({"y": [0.0, 1.0]}, test=sample, sample=sample, spelling={"y": "boolean"}).rows == (("1", "False"), ("2", "True"))
    assert submission({"y": [False, True]}, test=sample, sample=sample).rows == (("1", "0"), ("2", "1"))
    assert submission({"y": ["a", "b"]}, test=sample, sample=sample, spelling={"y": "text"}).rows == (("1", "a"), ("2", "b"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sample = written(tmp_path / "sample.csv", ["id", "y"], ["1"], ["0"])
    mine = tmp_path / "mine.csv"
    mine.write_text("old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        submission({"y": [1]}, test=sample, sample=sample).write(mine)
    assert mine.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"predictions": {}}, DataError, "- no predictions for the column 'y'"),
        ({"predictions": {"y": [1], "z": [2]}}, DataError, "- predictions for 'z', which is not in the sample"),
        ({"predictions": {"y": [[1]]}}, DataError, r"'y': predictions of shape \[1, 1\] for 1 rows of the test file"),
        ({"predictions": [1]}, ArgumentTypeError, "predictions must be Mapping, got list"),
        ({"spelling": {"x": "number"}}, UnknownNameError, "No column of the sample is named 'x'"),
        ({"spelling": {"y": "float"}}, UnknownNameError, "No spelling is named 'float'"),
        ({"test": "nothing.csv"}, MissingFileError, "There is no file at 'nothing.csv'"),
        ({"test": "a\n1\n"}, DataError, "has no column 'id', the id column of the sample submission"),
        ({"sample": "id,y\n"}, DataError, "is empty or has only a header"),
        ({"sample": ""}, DataError, "A file has no header"),
        ({"sample": "id,y\n1,2,3\n"}, DataError, r"A record has 3 fields, but there are 2 columns: got '1,2,3\\n', in line 2 of"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, options: dict[str, Any], kind: type[Exception], message: str):
    texts = {"test": "id\n1\n", "sample": "id,y\n1,0\n"} | {key: text for key, text in options.items() if key in ("test", "sample")}
    paths = {}
    for name, text in texts.items():
        paths[name] = text if text.endswith(".csv") else tmp_path / f"{name}.csv"
        if paths[name] != text:
            paths[name].write_text(text)
    with pytest.raises(kind, match=message):
        submission(options.get("predictions", {"y": [1]}), **paths, spelling=options.get("spelling"))


@pytest.mark.parametrize(("name", "target"), [("titanic", "Survived"), ("house_prices", "SalePrice")])
def test_real_samples_are_met(data_folder: Path, tmp_path: Path, name: str, target: str):
    sample = data_folder / name / ("gender_submission.csv" if name == "titanic" else "sample_submission.csv")
    wanted = [row[1] for row in read(sample)[1:]]
    made = submission({target: np.array(wanted, float)}, test=data_folder / name / "test.csv", sample=sample)
    made.write(tmp_path / "submission.csv")
    assert check_submission(tmp_path / "submission.csv", sample=sample) == ()
    assert [float(row[1]) for row in made.rows] == [float(value) for value in wanted]
    assert name != "titanic" or {row[1] for row in made.rows} == {"0", "1"}


@pytest.mark.parametrize(
    ("sample", "names", "written_as"),
    [
        ("007", ["012", "007"], ["012", "007"]),
        ("3", ["1.0", "2.0"], ["1", "2"]),
        ("0", ["True", "False"], ["1", "0"]),
        ("0.5", ["yes", "2.5"], ["1", "2.5"]),
        ("FALSE", ["yes", "0"], ["TRUE", "FALSE"]),
        ("cat", ["1.0", "True"], ["1.0", "True"]),
    ],
)
def test_names_of_classes_stay_as_they_are_or_say_the_same_as_the_sample_says_it(
    tmp_path: Path, sample: str, names: list[str], written_as: list[str]
):
    model = written(tmp_path / "sample.csv", ["id", "y"], "ab", [sample, sample])
    made = submission({"y": np.array(names)}, test=written(tmp_path / "test.csv", ["id"], "ab"), sample=model)
    assert [value for _, value in made.rows] == written_as


@pytest.mark.parametrize(("sample", "name"), [("0", "good"), ("True", "good"), ("0", "1.5"), ("True", "2")])
def test_names_that_the_sample_has_no_way_to_say_are_refused(tmp_path: Path, sample: str, name: str):
    model = written(tmp_path / "sample.csv", ["id", "y"], "a", [sample])
    with pytest.raises(DataError, match=rf"values that are not .* as in the sample \(1\): {name} in row 1"):
        submission({"y": np.array([name])}, test=written(tmp_path / "test.csv", ["id"], "a"), sample=model)


def test_files_that_are_no_csv_in_utf8_say_what_they_are(tmp_path: Path):
    test = written(tmp_path / "test.csv", ["id"], ["1"])
    (tmp_path / "latin.csv").write_bytes("id,y\n1,\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"not UTF-8: got the byte 0xe9.*latin\.csv"):
        submission({"y": [1]}, test=test, sample=tmp_path / "latin.csv")


def test_a_submission_for_a_sample_with_semicolons_has_commas_and_points(tmp_path: Path):
    """The sample shows decimal commas. Competition sites read commas between columns and decimal points."""
    test, sample = written(tmp_path / "test.csv", ["id"], ["1"]), tmp_path / "semi.csv"
    sample.write_text("id;y\n1;0,5\n")
    submission({"y": [0.25]}, test=test, sample=sample).write(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "id,y\n1,0.25\n"
    assert check_submission(tmp_path / "mine.csv", sample=sample) == ()


@pytest.mark.parametrize("form", ["plain", "zip", "gz", "bom", "crlf", "quoted"])
def test_case_a2_files_of_every_form_are_read_as_read_csv_reads_them(tmp_path: Path, form: str):
    long = "x" * 200_000
    files = {"test.csv": f'id,text\n007,"{long}"\n008,"a, b"\n', "sample_submission.csv": "id,y\n007,0\n008,1\n"}
    paths = {}
    for name, text in files.items():
        path = paths[name] = tmp_path / (f"{name}.{form}" if form in ("zip", "gz") else name)
        if form == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(name, text)
        elif form == "gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            ending = "\r\n" if form == "crlf" else "\n"
            cells = '"008","1"' if form == "quoted" else "008,1"
            encoding = "utf-8-sig" if form == "bom" else "utf-8"
            path.write_bytes(text.replace("\n", ending).replace("008,1", cells).encode(encoding))
    test, sample = paths.values()
    made = submission({"y": [1, 0]}, test=test, sample=sample)
    assert made.rows == (("007", "1"), ("008", "0"))


ABSENT = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), np.ma.masked, float("inf"), ""]


@pytest.mark.parametrize("absent", ABSENT, ids=repr)
@pytest.mark.parametrize(("cells", "present"), [(("a", "b"), "a"), (("0", "1"), 1), (("0.5", "1"), 0.5), (("True", "False"), True)])
def test_a_missing_prediction_is_refused_and_never_written_as_text(tmp_path: Path, cells: tuple[str, str], present: Any, absent: Any):
    test, sample = tmp_path / "test.csv", tmp_path / "sample.csv"
    test.write_text("id,x\n1,5\n2,6\n")
    sample.write_text(f"id,y\n1,{cells[0]}\n2,{cells[1]}\n")
    objects = np.array([present, None], object)
    objects[1] = absent
    with pytest.raises(DataError, match=r"'y': missing or infinite values \(1\): (an empty cell|inf) in row 2"):
        submission({"y": objects}, test=test, sample=sample)


@pytest.mark.parametrize(
    "predictions",
    [
        ["a", None],
        ["a", float("nan")],
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype="string"),
        pd.Series(["a", None], dtype="category"),
        pa.array(["a", None]),
        np.ma.array(["a", "b"], mask=[False, True]),
    ],
    ids=lambda values: type(values).__name__,
)
def test_a_column_with_a_missing_text_is_refused(tmp_path: Path, predictions: Any):
    test, sample = tmp_path / "test.csv", tmp_path / "sample.csv"
    test.write_text("id,x\n1,5\n2,6\n")
    sample.write_text("id,y\n1,a\n2,b\n")
    with pytest.raises(DataError, match=r"'y': missing or infinite values \(1\): an empty cell in row 2"):
        submission({"y": predictions}, test=test, sample=sample)


def test_a_class_named_none_stays_text(tmp_path: Path):
    test, sample = tmp_path / "test.csv", tmp_path / "sample.csv"
    test.write_text("id,x\n1,5\n2,6\n")
    sample.write_text("id,y\n1,None\n2,b\n")
    assert submission({"y": ["None", "b"]}, test=test, sample=sample).rows == (("1", "None"), ("2", "b"))


def test_the_id_is_the_shared_column_with_distinct_values(tmp_path: Path):
    """Kaggle has one id column. Other shared columns are copied, and must agree with the sample."""
    test, sample = tmp_path / "test.csv", tmp_path / "sample.csv"
    sample.write_text("day,id,y\n1,7,0\n1,8,1\n")
    test.write_text("id,day,x\n8,1,5\n7,1,6\n")
    assert submission({"y": [1, 0]}, test=test, sample=sample).rows == (("1", "8", "1"), ("1", "7", "0"))
    test.write_text("id,day,x\n8,2,5\n7,1,6\n")
    with pytest.raises(DataError, match=r"'day': values of the test file that differ from the sample \(1\): 2 for the id 8"):
        submission({"y": [1, 0]}, test=test, sample=sample)


def test_a_sample_without_one_id_column_is_refused_with_the_reason(tmp_path: Path):
    test, sample = tmp_path / "test.csv", tmp_path / "sample.csv"
    sample.write_text("shop,day,y\n1,1,0\n1,2,0\n2,1,1\n")
    test.write_text("shop,day,x\n1,1,5\n1,2,5\n2,1,6\n")
    with pytest.raises(DataError, match=r"needs one id column with distinct values, got the columns shop, day .* joined by '_'"):
        submission({"y": [1, 0, 0]}, test=test, sample=sample)
