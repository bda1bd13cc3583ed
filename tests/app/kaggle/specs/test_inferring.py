"""What can be inferred from files is inferred, and nothing else."""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.runs.submission import make_submission
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, UnknownNameError

_ROWS = {"id": range(1, 5), "size": [1.5, 2, 2, 7], "colour": ["red", "blue", "red", None]}
_TESTS = {"id": [5, 6], "size": [1, 2], "colour": ["red", "green"]}


def write(folder: Path, **tables: Mapping[str, Any]) -> Path:
    for name, table in tables.items():
        arrow_csv.write_csv(pa.table({name: list(values) for name, values in table.items()}), folder / f"{name}.csv")
    return folder


def test_a_folder_is_recognized_by_its_files(tmp_path: Path):
    sample = {"id": [5, 6], "y": [0, 0]}
    spec = fp.kaggle.infer_spec(
        write(tmp_path, train=_ROWS | {"y": [0, 1, 1, 0], "y2": [1, 2, 3, 4]}, test=_TESTS, sample_submission=sample)
    )
    assert (spec.name, spec.kind, spec.id, spec.target, spec.classes) == (tmp_path.name, "binary", "id", ("y",), ("0", "1"))
    assert [(column.name, column.type) for column in spec.columns] == [("size", "numerical"), ("colour", "text")]
    assert spec.submission is not None
    assert (spec.submission.columns, spec.submission.spelling, spec.metric) == (("id", "y"), "integer", "accuracy")
    assert (spec.train.rows, spec.test and spec.test.rows) == (4, 2)


@pytest.mark.parametrize(
    ("values", "kind", "classes"),
    [
        ([0, 1, 0, 1], "binary", ("0", "1")),
        ([True, False, True, True], "binary", ("false", "true")),
        (["no", "yes", None, "no"], "binary", ("no", "yes")),
        ([2.5, 10.0, 2.5, 2.5], "binary", ("2.5", "10")),
        (["a", "c", "b", "a"], "multiclass", ("a", "b", "c")),
        ([2, 0, 1, 0], "multiclass", ("0", "1", "2")),
        ([1, 2, 3, 4], "multiclass", ("1", "2", "3", "4")),
        ([1, 2, 4, 8], "regression", ()),
        ([2, 3, 4, 5], "regression", ()),
        ([0.5, 1.5, 2.5, 3.5], "regression", ()),
    ],
)
def test_the_values_of_the_target_tell_the_kind(tmp_path: Path, values: list[Any], kind: str, classes: tuple[str, ...]):
    spec = fp.kaggle.infer_spec(write(tmp_path, train=_ROWS | {"y": values}, test=_TESTS))
    assert (spec.kind, spec.classes) == (kind, classes)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["None", "Mild", "", "None"], ("Mild", "None")),
        (["NA", "EU", "null", "NA"], ("EU", "NA", "null")),
        (["0", "1", "NA", "0"], ("0", "1")),
        (["True", "None", "False", "NA"], ("False", "True")),
    ],
)
def test_a_class_called_none_is_a_class_among_texts(tmp_path: Path, values: list[str], classes: tuple[str, ...]):
    (tmp_path / "pets.csv").write_text("size,y\n" + "".join(f"{size},{value}\n" for size, value in enumerate(values)))
    assert fp.kaggle.infer_spec(tmp_path / "pets.csv", target="y").classes == classes


def test_classes_with_two_spellings_are_named(tmp_path: Path):
    file = tmp_path / "train.csv"
    file.write_text("x,y\n1,0\n2,1\n3,1.0\n4,0\n")
    with pytest.warns(RuntimeWarning) as caught:
        assert fp.kaggle.infer_spec(file, target="y").kind == "regression"
    (warning,) = caught
    message, _, code = str(warning.message).partition(" in pandas with ")
    assert message == (
        f"The target 'y' in {str(file)!r} is read as numbers, not as classes, because whole numbers have two spellings: '1' and '1.0'. "
        "For classes, write one spelling,"
    )
    frame = pd.read_csv(file)
    exec(code.removesuffix("."))
    frame.to_csv(file, index=False)
    spec = fp.kaggle.infer_spec(file, target="y")
    assert (spec.kind, spec.classes) == ("binary", ("0", "1"))


@pytest.mark.parametrize("values", ["1,1.0,2.5,3", "1,1.0,30,4", "0.0,1.0,2.0", "1,2,5"])
def test_numbers_with_two_spellings_are_no_classes(tmp_path: Path, values: str):
    (tmp_path / "train.csv").write_text("x,y\n" + "".join(f"1,{value}\n" for value in values.split(",")))
    assert fp.kaggle.infer_spec(tmp_path / "train.csv", target="y").kind == "regression"


def test_several_targets_are_labels_or_numbers(tmp_path: Path):
    write(tmp_path, train=_ROWS | {"a": [0, 1, 0, 1], "b": [0, 0, 0, 0], "c": [1, 2, 3, 9], "d": ["x", "y", "z", "x"]}, test=_TESTS)
    assert (fp.kaggle.infer_spec(tmp_path, target=["a", "b"]).kind, fp.kaggle.infer_spec(tmp_path, target=["a", "b"]).classes) == (
        "multilabel",
        ("0", "1"),
    )
    assert fp.kaggle.infer_spec(tmp_path, target=["a", "c"]).kind == "regression"
    with pytest.raises(ArgumentError, match="Several targets must be columns of numbers"):
        fp.kaggle.infer_spec(tmp_path, target=["a", "d"])


def test_later_dates_in_the_test_file_make_a_time_series(tmp_path: Path):
    train = _ROWS | {"day": ["2020-01-01", "2020-01-02", "2020-01-02", "2020-01-03"], "y": [1.5, 2.5, 3.5, 4.5]}
    for days, kind in ((["2020-01-04", "2020-01-05"], "time_series"), (["2020-01-03", "2020-01-05"], "regression")):
        spec = fp.kaggle.infer_spec(write(tmp_path, train=train, test=_TESTS | {"day": days}))
        assert (spec.kind, spec.time) == (kind, "day" if kind == "time_series" else None)


@pytest.mark.parametrize(
    ("target", "columns", "kind", "metric"),
    [
        ([0, 1, 0, 1], {"y": [0.5, 0.5]}, "binary", "roc_auc"),
        (["no", "yes", "no", "no"], {"y": [0.25, 1.0]}, "binary", "roc_auc"),
        (["no", "yes", "no", "no"], {"chance": [0.5, 0.5]}, "binary", "roc_auc"),
        ([0, 1, 0, 1], {"y": [0, 0]}, "binary", "accuracy"),
        (["no", "yes", "no", "no"], {"y": ["no", "no"]}, "binary", "accuracy"),
        ([2.5, 10.0, 2.5, 2.5], {"y": [2.5, 2.5]}, "binary", "accuracy"),
        ([1, 2, 3, 4], {"y": [2.5, 2.5]}, "regression", "rmse"),
        ([1, 2, 3, 4], {"y": [2, 2]}, "multiclass", "accuracy"),
        (["a", "b", "c", "a"], {"a": [0, 0], "b": [0, 0], "c": [1, 1]}, "multiclass", "log_loss"),
    ],
)
def test_the_values_of_the_sample_choose_probabilities_classes_or_numbers(tmp_path: Path, target, columns, kind, metric):
    """A sample with fractions or with a column per class gets a metric of probabilities, or makes integers a regression."""
    spec = fp.kaggle.infer_spec(write(tmp_path, train=_ROWS | {"y": target}, test=_TESTS, sample_submission={"id": [5, 6], **columns}))
    assert (spec.kind, spec.metric) == (kind, metric)


def test_later_dates_are_compared_as_dates_and_not_as_texts(tmp_path: Path):
    """As text, 10/1/2020 is before 9/30/2020."""
    train = _ROWS | {"day": ["9/27/2020 0:00", "9/28/2020 0:00", "9/29/2020 0:00", "9/30/2020 0:00"], "y": [1.5, 2.5, 3.5, 4.5]}
    spec = fp.kaggle.infer_spec(write(tmp_path, train=train, test=_TESTS | {"day": ["10/1/2020 0:00", "10/2/2020 0:00"]}))
    assert (spec.kind, spec.time) == ("time_series", "day")


def grouped(values: Callable[[int], Any], tested: Callable[[int], Any]) -> dict[str, dict[str, list[Any]]]:
    train = {"id": [*range(80)], "storm": [values(row) for row in range(80)], "n": [row % 7 for row in range(80)]}
    test = {"id": [*range(80, 110)], "storm": [tested(row) for row in range(30)], "n": [row % 7 for row in range(30)]}
    return {"train": train | {"y": [row % 2 for row in range(80)]}, "test": test}


@pytest.mark.parametrize(
    ("values", "tested", "group"),
    [
        (lambda row: f"storm {row // 4}", lambda row: f"new {row // 5}", "storm"),
        (lambda row: 2 * (row // 4), lambda row: 2 * (row // 5) + 1, "storm"),  # patients with even and odd numbers
        (lambda row: f"storm {row // 4}", lambda row: "storm 3" if row == 7 else f"new {row // 5}", None),  # a value in both files
        (lambda row: 1950 + row // 4, lambda row: 1970 + row // 5, None),  # later years
        (lambda row: f"storm {row}", lambda row: f"new {row // 5}", None),  # no value repeats
        (lambda row: f"storm {row % 3}", lambda row: f"new {row // 5}", None),  # too few groups for folds
        (lambda row: f"storm {row // 4}", lambda row: "new", None),  # a single value
        (lambda row: f"storm {row // 4}" if row else None, lambda row: f"new {row // 5}", None),
    ],
)
def test_values_that_repeat_in_train_and_never_occur_in_test_are_groups(tmp_path: Path, values, tested, group):
    """Random folds would score on rows of known groups, although the test rows have new groups."""
    spec = fp.kaggle.infer_spec(write(tmp_path, **grouped(values, tested)), target="y")
    assert spec.group == group


def test_categories_of_new_groups_are_no_input(tmp_path: Path):
    """A category without any test row teaches nothing."""
    train = grouped(lambda row: f"s{row // 4}", lambda row: f"t{row // 5}")
    spec = fp.kaggle.infer_spec(write(tmp_path, **train), target="y")
    assert (spec.group, [column.name for column in spec.columns]) == ("storm", ["n"])


def test_one_file_needs_its_target_said(tmp_path: Path):
    path = write(tmp_path, pets=_ROWS | {"y": [0, 1, 1, 0]}) / "pets.csv"
    spec = fp.kaggle.infer_spec(path, target="y")
    assert (spec.name, spec.train.name, spec.test, spec.submission, spec.id) == ("pets", "pets.csv", None, None, "id")
    fp.kaggle.check_spec(spec, path)
    with pytest.raises(ArgumentError, match=r"cannot be inferred: there is no test file for comparison\. Pass target="):
        fp.kaggle.infer_spec(path)
    with pytest.raises(UnknownNameError, match="Did you mean 'size'"):
        fp.kaggle.infer_spec(path, target="sise")


def test_columns_without_values_are_left_out_and_equal_titles_get_numbers(tmp_path: Path):
    train = {"fooBar": [1, 2, 3], "foo_bar": [1, 2, 3], "empty": [None] * 3, "y": [0, 1, 1]}
    spec = fp.kaggle.infer_spec(write(tmp_path, train=train, test={name: values for name, values in train.items() if name != "y"}))
    assert [(column.name, column.title) for column in spec.columns] == [("fooBar", "foo bar"), ("foo_bar", "foo bar 2")]


def test_a_column_that_is_a_number_only_in_the_train_file_is_text(tmp_path: Path):
    spec = fp.kaggle.infer_spec(write(tmp_path, train=_ROWS | {"y": [0, 1, 1, 0]}, test=_TESTS | {"size": ["big", "2"]}))
    assert spec.columns[0].type == "text"


@pytest.mark.parametrize(
    ("value", "kind"), [(2**53 + 1, "categorical"), (-(2**63), "categorical"), (2**53, "numerical"), (1e300, "numerical")]
)
@pytest.mark.parametrize("name", ["train", "test"])
def test_integers_that_floats_would_round_are_categories(tmp_path: Path, value: float, kind: str, name: str):
    rows, tests = {"size": [1, 2, 3, 4], "y": [0, 1, 1, 0]}, {"size": [5, 6]}
    {"train": rows, "test": tests}[name]["size"][1] = value
    spec = fp.kaggle.infer_spec(write(tmp_path, train=rows, test=tests))
    assert [(column.name, column.type) for column in spec.columns] == [("size", kind)]
    data = fp.kaggle.read_competition(tmp_path)
    part = data.rows if name == "train" else data.test
    assert part is not None
    assert fp.kaggle.column_values(part, "size")[1] == (str(value) if kind == "categorical" else value)


@pytest.mark.parametrize(("form", "kind"), [("{:05}", "categorical"), ("{}", "numerical")])
def test_few_codes_with_leading_zeros_are_categories(tmp_path: Path, form: str, kind: str):
    """Codes such as 00123 are names. Many different codes become numbers, because the order of codes such as ZIP codes is informative."""
    codes = {"code": [form.format(row % 7) for row in range(60)], "many": [form.format(row) for row in range(60)]}
    train = {**codes, "y": [row % 2 for row in range(60)]}
    columns = fp.kaggle.infer_spec(write(tmp_path, train=train), target="y").columns
    assert [column.type for column in columns] == [kind, "numerical"]


_COUNTS = [4, 20, 45, 60, 81, 64, 66, 40, 22, 18, 9, 3, 1]  # rows with 0 visits, 1 visit, ...


@pytest.mark.parametrize(
    ("frequencies", "kind"),
    [
        (_COUNTS, "regression"),
        (sorted(_COUNTS), "regression"),
        (_COUNTS[::2] + _COUNTS[1::2], "multiclass"),
        ([30] * 13, "multiclass"),
        (_COUNTS[:8], "multiclass"),
    ],
)
def test_counts_are_numbers_and_class_numbers_are_classes(tmp_path: Path, frequencies: list[int], kind: str):
    """The frequencies of a count, such as a number of visits, have one peak. Numbered classes have other or equal frequencies."""
    y = [value for value, count in enumerate(frequencies) for _ in range(count)]
    spec = fp.kaggle.infer_spec(write(tmp_path, train={"x": range(len(y)), "y": y}), target="y")
    assert spec.kind == kind


def test_texts_that_many_rows_share_are_categories(tmp_path: Path):
    rows = range(100)
    train = {"few": [f"c{row % 20}" for row in rows], "many": [f"c{row % 60}" for row in rows], "y": [row % 2 for row in rows]}
    assert [column.type for column in fp.kaggle.infer_spec(write(tmp_path, train=train), target="y").columns] == ["categorical", "text"]


def test_ids_that_repeat_are_not_taken_for_ids(tmp_path: Path):
    train = {"user": [1, 1, 2], "size": [1, 2, 3], "y": [0, 1, 1]}
    spec = fp.kaggle.infer_spec(write(tmp_path, train=train, test={"user": [3], "size": [1]}, sample_submission={"user": [3], "y": [0]}))
    assert (spec.id, spec.target, spec.columns[0].name) == (None, ("y",), "user")


def test_ids_with_another_name_in_the_train_file_are_named(tmp_path: Path):
    """A spec has one name for the ids of all files. Without a sample, no file needs the ids."""
    train, test = {"id": [1, 2, 3], "size": [1, 2, 3], "y": [0, 1, 1]}, {"test_id": [4], "size": [1]}
    write(tmp_path, train=train, test=test)
    spec = fp.kaggle.infer_spec(tmp_path, target="y")
    assert (spec.id, [column.name for column in spec.columns]) == (None, ["size"])
    fp.kaggle.check_spec(spec, tmp_path)
    write(tmp_path, sample_submission={"test_id": [4], "y": [0]})
    with pytest.raises(DataError, match=r"two names: 'id' in .*train.* and 'test_id' in .*test.*\. Rename the column 'id' of the"):
        fp.kaggle.infer_spec(tmp_path)


def test_a_few_repeated_ids_of_the_sample_stay_ids_and_are_reported(tmp_path: Path):
    """The id column of the sample remains the id if one train row repeats an id."""
    train = {"key": [7, 7, *range(8, 16)], "size": range(10), "y": [0, 1] * 5}
    write(tmp_path, train=train, test={"key": [30], "size": [1]}, sample_submission={"key": [30], "y": [0]})
    spec = fp.kaggle.infer_spec(tmp_path)
    assert (spec.id, [column.name for column in spec.columns]) == ("key", ["size"])
    with pytest.raises(DataError, match=r"train\.csv: 1 duplicate id in 'key': '7' \(2 rows\)"):
        fp.kaggle.check_spec(spec, tmp_path)
    assert "'7' (2 rows)" in fp.kaggle.read_competition(tmp_path).mismatches


def test_a_target_of_free_text_is_refused_in_a_short_message(tmp_path: Path):
    """The message about a target of free text has the number of distinct values and one example instead of all values."""
    notes = [f"a note about {number}, " + "and more " * 20 for number in range(2200)]
    write(tmp_path, train={"x": range(3000), "note": [*notes, *notes[:799], None]})
    with pytest.raises(
        ArgumentError, match=r"'note' has 2,200 distinct values in 2,999 rows of .*; the values look like free text"
    ) as caught:
        fp.kaggle.infer_spec(tmp_path / "train.csv", target="note")
    assert "--target NAME" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("predictions", "spelling"),
    [([1, 0], "integer"), ([0.5, 1.5], "number"), (["True", "False"], "boolean"), (["a", "b"], "text"), ([None, None], "text")],
)
def test_the_sample_tells_how_predictions_are_spelled(tmp_path: Path, predictions: list[Any], spelling: str):
    spec = fp.kaggle.infer_spec(
        write(tmp_path, train=_ROWS | {"y": [0, 1, 1, 0]}, test=_TESTS, submission={"id": [5, 6], "y": predictions})
    )
    assert spec.submission is not None
    assert spec.submission.spelling == spelling


def test_what_cannot_be_inferred_is_refused(tmp_path: Path):
    with pytest.raises(
        MissingFileError, match=r"There is no train\.csv in .* The folder contains no CSV, Parquet or JSON lines file\. Give"
    ):
        fp.kaggle.infer_spec(tmp_path)
    (tmp_path / "train.zip").touch()
    with pytest.raises(
        MissingFileError, match=r"The folder contains no CSV, Parquet or JSON lines file, 'train\.zip'\. Give the unpacked folder"
    ):
        fp.kaggle.infer_spec(tmp_path)
    with pytest.raises(MissingFileError, match=r"There is no file or folder at 'nowhere'\."):
        fp.kaggle.infer_spec("nowhere")
    write(tmp_path, train=_ROWS | {"y": [1, 1, 1, None], "z": [1, 2, 3, 4]}, test=_TESTS)
    with pytest.raises(ArgumentError, match=r"the test file lacks 2 columns of the train file.*Candidates: 'y', 'z'"):
        fp.kaggle.infer_spec(tmp_path)
    with pytest.raises(ArgumentError, match=r"The target 'y' .* has 1 distinct values: there is nothing to learn"):
        fp.kaggle.infer_spec(tmp_path, target="y")
    with pytest.raises(ArgumentError, match="target is empty"):
        fp.kaggle.infer_spec(tmp_path, target=[])


_CELLS: dict[str, Callable[[int], st.SearchStrategy[list[Any]]]] = {
    "numbers": lambda count: st.lists(st.none() | st.floats(allow_nan=False), min_size=count, max_size=count),
    "texts": lambda count: st.lists(st.none() | st.text('ab\n,"1 .', max_size=3), min_size=count, max_size=count),
    "codes": lambda count: st.lists(st.integers(0, 2), min_size=count, max_size=count),
}


@st.composite
def competitions(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Draw the files of a competition: any columns, a target of any kind without gaps."""
    count, later = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    kinds = draw(st.dictionaries(st.text("abc_X1", min_size=1, max_size=4), st.sampled_from(sorted(_CELLS)), max_size=3))
    train, test = ({name: draw(_CELLS[kind](size)) for name, kind in kinds.items()} for size in (count, later))
    target = st.one_of(st.integers(0, 3), st.floats(-9, 9), st.booleans())
    y = draw(
        st.lists(target, min_size=count, max_size=count, unique_by=str) | st.permutations(["a", "b"] * count).map(lambda all_: all_[:count])
    )
    if len(set(map(str, y))) < 2:
        y = [str(place % 2) for place in range(count)]
    first = draw(st.sampled_from(["ident", "row"]))
    ids, more = {first: range(count)}, {first: range(count, count + later)}
    return {"train": ids | train | {"target": list(map(str, y))}, "test": more | test, "sample_submission": more | {"target": [0] * later}}


@given(files=competitions())
def test_an_inferred_spec_has_no_mismatch_with_its_files(tmp_path_factory: pytest.TempPathFactory, files: dict[str, dict[str, Any]]):
    folder = write(tmp_path_factory.getbasetemp(), **files)
    fp.kaggle.check_spec(fp.kaggle.infer_spec(folder), folder)


@pytest.mark.parametrize("values", [[0, 1, 1, 0], [0.5, 1.5, 2.5, 3.5]])
def test_the_columns_of_the_sample_that_the_test_file_has_are_ids(tmp_path: Path, values: list[float]):
    write(tmp_path, train={"x": [3, 1, 4, 1], "y": values, "id": range(1, 5)}, test={"x": [5, 9], "id": [5, 6]})
    spec = fp.kaggle.infer_spec(write(tmp_path, sample_submission={"y": [0.5, 0.5], "id": [5, 6]}))
    assert (spec.id, spec.target, [column.name for column in spec.columns]) == ("id", ("y",), ["x"])
    fp.kaggle.check_spec(spec, tmp_path)
    data = fp.kaggle.read_competition(tmp_path)
    made = make_submission(data, np.array([0.25, 0.75]))
    assert made is not None
    assert made.rows == (("0.25", "5"), ("0.75", "6"))


def test_the_real_competitions_are_inferred(data_folder: Path):
    titanic, houses = (fp.kaggle.infer_spec(data_folder / name) for name in ("titanic", "house_prices"))
    assert (titanic.kind, titanic.id, titanic.target, len(titanic.columns)) == ("binary", "PassengerId", ("Survived",), 10)
    assert (houses.kind, houses.id, houses.target, len(houses.columns)) == ("regression", "Id", ("SalePrice",), 79)
    assert titanic.sample == fp.kaggle.FileSpec(
        name="gender_submission.csv", sha256="7a262a7f4cb807f53911dccc84257ed3976b21b7b50ffc468b58446bff8bb6a4", rows=418
    )
    fp.kaggle.check_spec(titanic, data_folder / "titanic")
    fp.kaggle.check_spec(houses, data_folder / "house_prices")


def test_a_submission_of_the_user_is_not_taken_for_the_sample(tmp_path: Path):
    tables = {"train": _ROWS | {"y": [0, 1, 1, 0]}, "test": _TESTS, "sample_submission": {"id": [5, 6], "y": [0, 0]}}
    found = fp.kaggle.infer_spec(write(tmp_path, **tables, my_submission={"id": [5], "y": [1]}))
    assert found.sample is not None
    assert found.sample.name == "sample_submission.csv"


def test_case_a18_a_second_download_of_the_sample_is_not_taken_for_the_sample(tmp_path: Path):
    tables = {"train": _ROWS | {"y": [0, 1, 1, 0]}, "test": _TESTS, "sample_submission": {"id": [5, 6], "y": [0, 0]}}
    spec = fp.kaggle.infer_spec(write(tmp_path, **tables, **{"sample_submission (1)": {"id": [5, 6], "y": [0, 0]}}))
    assert spec.sample is not None
    assert spec.sample.name == "sample_submission.csv"


def test_case_a20_the_index_of_pandas_in_a_parquet_file_is_no_column(tmp_path: Path):
    for name, table in {"train": _ROWS | {"y": [0, 1, 1, 0]}, "test": _TESTS}.items():
        columns = {column: list(values) for column, values in table.items()}
        index = {"__index_level_0__": list(range(len(columns["id"])))}
        pq.write_table(pa.table(columns | index), tmp_path / f"{name}.parquet")
    spec = fp.kaggle.infer_spec(tmp_path)
    assert (spec.target, [column.name for column in spec.columns]) == (("y",), ["size", "colour"])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["<1.0" if index == 15 else str(index / 3) for index in range(120)], r"1 of 120 cells of the target 'y' .*'<1\.0', in line 17"),
        ([f"${1000 + index},5" for index in range(50)], r"50 of 50 cells .*'\$1000,5', in line 2"),
        ([f"{index}%" for index in range(50)], r"50 of 50 cells .*'0%', in line 2"),
        (["?" if index % 2 else str(index) for index in range(100)], r"50 of 100 cells .*'\?', in line 3"),
    ],
)
def test_case_a7_a_target_of_numbers_with_other_cells_is_no_target_of_classes(tmp_path, cells, message):
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "x", "y"], *([index, index % 7, cell] for index, cell in enumerate(cells))])
    with pytest.raises(DataError, match=message):
        fp.kaggle.infer_spec(tmp_path, target="y")


def test_lines_of_cells_with_newlines_are_counted(tmp_path):
    rows = [["id", "x", "y"], *([index, "two\nlines" if index < 3 else "", "bad" if index == 9 else index / 3] for index in range(120))]
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    with pytest.raises(DataError, match="'bad', in line 14 of"):
        fp.kaggle.infer_spec(tmp_path, target="y")


def test_case_a3_an_archive_of_all_files_says_how_to_unpack_it_and_the_advice_works(tmp_path: Path):
    """The download of a competition holds several files. The unpacked folder is accepted."""
    archive = tmp_path / "all files.zip"
    with ZipFile(archive, "w") as opened:
        opened.writestr("train.csv", "id,x,target\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40)))
        opened.writestr("test.csv", "id,x\n" + "".join(f"{i},{i % 7}\n" for i in range(40, 50)))
        opened.writestr("sample_submission.csv", "id,target\n" + "".join(f"{i},0\n" for i in range(40, 50)))
    for path in (archive, tmp_path):
        with pytest.raises(
            DataError, match=r"The archive '.*' has several files: 'train\.csv', .* Unpack the archive: unzip '.*' -d '.*'"
        ) as caught:
            fp.kaggle.infer_spec(path)
    folder = re.search(r"then give the folder '(.*)'\.$", str(caught.value))
    assert folder is not None
    with ZipFile(archive) as opened:
        opened.extractall(folder[1])
    assert fp.kaggle.infer_spec(folder[1]).target == ("target",)
