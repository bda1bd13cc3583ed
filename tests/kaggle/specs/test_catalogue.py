"""The known data sets, and those that a folder holds."""

from pathlib import Path

import pytest
from attrs import evolve

from mlxfp.core.errors import DataError, MissingFileError, UnknownNameError
from mlxfp.kaggle.specs.catalogue import SPECS, find, scan
from mlxfp.kaggle.specs.checking import check_spec
from mlxfp.kaggle.specs.spec_files import save_spec
from tests.kaggle.specs.test_checking import SPEC

_TRAIN = "id,age,purrs\n1,3,True\n2,,False\n"


def test_the_known_data_sets_are_found_by_name_and_kind():
    assert list(SPECS) == ["disaster_tweets", "house_prices", "spaceship_titanic", "titanic"]
    assert list(find(SPECS, kind="binary")) == ["disaster_tweets", "spaceship_titanic", "titanic"]
    assert len(find(SPECS, kind="ranking")) == 0
    assert list(find(SPECS | {"cats": evolve(SPEC, kind="ordinal")}, kind="ordinal")) == ["cats"]
    with pytest.raises(UnknownNameError, match=r"No data set is named 'titanc'\. Did you mean 'titanic'"):
        _ = SPECS["titanc"]
    with pytest.raises(UnknownNameError, match="Did you mean 'regression'"):
        find(SPECS, kind="regresion")  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("name", ["titanic", "house_prices"])
def test_the_known_data_sets_are_as_the_real_files_are(data_folder: Path, name: str):
    check_spec(SPECS[name], data_folder / name)


def test_a_folder_is_scanned_for_spec_files_and_competitions(tmp_path: Path):
    save_spec(SPECS["titanic"], tmp_path / "a.yaml")
    for name in ("cats", "dogs", "nothing"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "cats" / "train.csv").write_text(_TRAIN)
    (tmp_path / "cats" / "test.csv").write_text("id,age\n3,4\n")
    (tmp_path / "dogs" / "train.csv").write_text(_TRAIN)
    save_spec(evolve(SPEC, name="dogs"), tmp_path / "dogs" / "spec.json")
    found = scan(tmp_path)
    assert (list(found), found["cats"].target, found["dogs"].metric) == (["cats", "dogs", "titanic"], ("purrs",), "accuracy")


def test_nothing_is_left_out_silently(tmp_path: Path):
    with pytest.raises(MissingFileError, match="There is no folder at"):
        scan(tmp_path / "nowhere")
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "train.csv").write_text(_TRAIN)
    with pytest.raises(DataError, match=r"No spec can be told from '.*cats': The target .* write it to spec\.yaml in that folder"):
        scan(tmp_path)
    save_spec(evolve(SPEC, name="x"), tmp_path / "cats" / "spec.yml")
    save_spec(evolve(SPEC, name="x"), tmp_path / "x.json")
    with pytest.raises(DataError, match=r"Two data sets in .* are named 'x'; 'x.json' is the second"):
        scan(tmp_path)
