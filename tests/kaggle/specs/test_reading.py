"""The files of a competition have the types that the spec says."""

from pathlib import Path

import pyarrow as pa
import pytest
from attrs import evolve

from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, DataError, MissingFileError, UnknownNameError
from mlxfp.kaggle.specs.checking import check_spec
from mlxfp.kaggle.specs.reading import read_part
from mlxfp.kaggle.specs.specs import ColumnSpec, FileSpec
from mlxfp.testing.laws import assert_pure_stages, assert_repeatable, assert_resumable, assert_value
from tests.kaggle.drawing import CATS


def test_values_stay_as_the_file_writes_them(folder: Path):
    (folder / "train.csv").write_text("id,class,age,y,more\n001,007,3,1,5\n")
    assert list(read_part(CATS, folder)) == [{"id": "001", "class": "007", "age": 3.0, "y": "1", "more": 5}]
    assert next(iter(read_part(CATS, folder, part="test"))) == {"id": "003", "class": "a", "age": 4.0}
    assert list(read_part(CATS, folder / "train.csv", part="sample")) == [{"id": "004", "y": "0"}, {"id": "003", "y": "0"}]


def test_targets_that_are_numbers_are_floats(folder: Path):
    spec = evolve(CATS, kind="time_series", classes=[], time="class", group="class")
    assert schema(read_part(spec, folder)).field("y").type == pa.float64()
    assert schema(read_part(spec, folder)).field("class").type == pa.string()


def test_files_and_columns_that_are_not_there_are_named(folder: Path):
    with pytest.raises(ArgumentError, match="names no test file"):
        read_part(evolve(CATS, test=None), folder, part="test")
    with pytest.raises(UnknownNameError, match="Did you mean 'train'"):
        read_part(CATS, folder, part="trian")  # type: ignore[arg-type]  # the mistake
    (folder / "test.csv").unlink()
    with pytest.raises(MissingFileError, match="There is no test file at"):
        read_part(CATS, folder, part="test")


def test_missing_is_what_pandas_says_but_where_the_spec_names_a_value(folder: Path):
    columns = [
        ColumnSpec(name="size", type="numerical"),
        ColumnSpec(name="veneer", type="categorical", absent=["None"]),
        ColumnSpec(name="note", type="text"),
    ]
    spec = evolve(CATS, target=["harm"], classes=["None", "null"], columns=columns)
    rows = ["1,None,None,None,None,7", "2, 1.5 ,NA,null,null,None", "3,2,Brick,fine,None,nan"]
    (folder / "train.csv").write_text("\n".join(["id,size,veneer,note,harm,more", *rows]))
    assert list(read_part(spec, folder)) == [
        {"id": "1", "size": None, "veneer": "None", "note": None, "harm": "None", "more": "7"},
        {"id": "2", "size": 1.5, "veneer": None, "note": None, "harm": "null", "more": "None"},
        {"id": "3", "size": 2.0, "veneer": "Brick", "note": "fine", "harm": "None", "more": None},
    ]
    check_spec(evolve(spec, train=FileSpec(name="train.csv"), test=None, sample=None), folder)
    (folder / "train.csv").write_text("id,size,veneer,note,harm\n1,2,,,None\n2,big,,,null\n")
    with pytest.raises(DataError, match=r"the column 'size' of numbers: got 'big' in source row 1\. Correct"):
        list(read_part(spec, folder))


def test_the_rows_of_a_spec_that_names_missing_values_resume_and_pickle(folder: Path):
    spec = evolve(CATS, classes=["1", "None"])
    (folder / "train.csv").write_text("id,class,age,y\n" + "".join(f"{row},a,{row},{['1', 'None'][row % 2]}\n" for row in range(9)))
    rows = read_part(spec, folder)
    assert_value(rows)
    for law in (assert_repeatable, assert_resumable, assert_pure_stages):
        law(rows)
