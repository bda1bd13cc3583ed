"""The known data sets, and those that a folder holds."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.support.errors import DataError, MissingFileError, UnknownNameError
from tests.app.kaggle.drawing import CATS

_TRAIN = "id,age,purrs\n1,3,True\n2,,False\n"


def test_the_known_data_sets_are_found_by_name_and_kind():
    assert list(fp.kaggle.SPECS) == ["disaster_tweets", "house_prices", "spaceship_titanic", "titanic"]
    assert list(fp.kaggle.find(fp.kaggle.SPECS, kind="binary")) == ["disaster_tweets", "spaceship_titanic", "titanic"]
    assert len(fp.kaggle.find(fp.kaggle.SPECS, kind="ranking")) == 0
    assert list(fp.kaggle.find(fp.kaggle.SPECS | {"cats": evolve(CATS, kind="ordinal")}, kind="ordinal")) == ["cats"]
    with pytest.raises(UnknownNameError, match=r"No data set is named 'titanc'\. Did you mean 'titanic'"):
        _ = fp.kaggle.SPECS["titanc"]
    with pytest.raises(UnknownNameError, match="Did you mean 'regression'"):
        fp.kaggle.find(fp.kaggle.SPECS, kind="regresion")  # type: ignore[arg-type]  # the mistake


def test_importing_and_printing_the_shipped_specs_reads_no_file():
    code = "import sys; from mlxfp.app.kaggle import SPECS; print(SPECS, len(SPECS), 'ruamel.yaml' in sys.modules, 'cattrs' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "Registry of 4 data sets: disaster_tweets, house_prices, spaceship_titanic, titanic 4 False False\n"


def test_a_spec_is_read_once_and_equals_a_registry_of_the_same_specs():
    assert fp.kaggle.SPECS["titanic"] is fp.kaggle.SPECS["titanic"]
    assert dict(fp.kaggle.SPECS) == fp.kaggle.SPECS == fp.kaggle.SPECS | {}
    assert pickle.loads(pickle.dumps(fp.kaggle.SPECS)) == fp.kaggle.SPECS


def test_without_the_extra_config_reading_names_it():
    code = "import sys; sys.modules['ruamel.yaml'] = None; from mlxfp.app.kaggle import SPECS; SPECS['titanic']"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "MissingExtraError" in said
    assert 'pip install "mlxfp[config]"' in said


@pytest.mark.parametrize("name", ["titanic", "house_prices"])
def test_the_known_data_sets_are_as_the_real_files_are(data_folder: Path, name: str):
    fp.kaggle.check_spec(fp.kaggle.SPECS[name], data_folder / name)


def test_a_folder_is_scanned_for_spec_files_and_competitions(tmp_path: Path):
    fp.kaggle.save_spec(fp.kaggle.SPECS["titanic"], tmp_path / "a.yaml")
    for name in ("cats", "dogs", "nothing"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "cats" / "train.csv").write_text(_TRAIN)
    (tmp_path / "cats" / "test.csv").write_text("id,age\n3,4\n")
    (tmp_path / "dogs" / "train.csv").write_text(_TRAIN)
    fp.kaggle.save_spec(evolve(CATS, name="dogs"), tmp_path / "dogs" / "spec.json")
    found = fp.kaggle.scan(tmp_path)
    assert (list(found), found["cats"].target, found["dogs"].metric) == (["cats", "dogs", "titanic"], ("purrs",), "accuracy")


def test_nothing_is_left_out_silently(tmp_path: Path):
    with pytest.raises(MissingFileError, match="There is no folder at"):
        fp.kaggle.scan(tmp_path / "nowhere")
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "train.csv").write_text(_TRAIN)
    with pytest.raises(DataError, match=r"No spec can be inferred from '.*cats': The target .* write spec\.yaml in this folder"):
        fp.kaggle.scan(tmp_path)
    fp.kaggle.save_spec(evolve(CATS, name="x"), tmp_path / "cats" / "spec.yml")
    fp.kaggle.save_spec(evolve(CATS, name="x"), tmp_path / "x.json")
    with pytest.raises(DataError, match=r"Two data sets in .* have the name 'x'; the second is 'x.json'"):
        fp.kaggle.scan(tmp_path)
