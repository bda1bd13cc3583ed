"""The files of a competition have the types that the spec says."""

from pathlib import Path

import pyarrow as pa
import pytest
from attrs import evolve

from mlxfp.core.describing import schema
from mlxfp.core.errors import ArgumentError, MissingFileError, UnknownNameError
from mlxfp.kaggle.reading import read_part
from tests.kaggle.test_checking import SPEC, folder

__all__ = ["folder"]


def test_values_stay_as_the_file_writes_them(folder: Path) -> None:
    (folder / "train.csv").write_text("id,class,age,y,more\n001,007,3,1,5\n")
    assert list(read_part(SPEC, folder)) == [{"id": "001", "class": "007", "age": 3.0, "y": "1", "more": 5}]
    assert next(iter(read_part(SPEC, folder, part="test"))) == {"id": "003", "class": "a", "age": 4.0}
    assert list(read_part(SPEC, folder / "train.csv", part="sample")) == [{"id": "004", "y": "0"}, {"id": "003", "y": "0"}]


def test_targets_that_are_numbers_are_floats(folder: Path) -> None:
    spec = evolve(SPEC, kind="time_series", classes=[], time="class", group="class")
    assert schema(read_part(spec, folder)).field("y").type == pa.float64()
    assert schema(read_part(spec, folder)).field("class").type == pa.string()


def test_files_and_columns_that_are_not_there_are_named(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="names no test file"):
        read_part(evolve(SPEC, test=None), folder, part="test")
    with pytest.raises(UnknownNameError, match="Did you mean 'train'"):
        read_part(SPEC, folder, part="trian")  # type: ignore[arg-type]  # the mistake
    (folder / "test.csv").unlink()
    with pytest.raises(MissingFileError, match="There is no test file at"):
        read_part(SPEC, folder, part="test")
