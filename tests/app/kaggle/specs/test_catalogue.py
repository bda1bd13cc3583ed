"""The known data sets."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import mlxfp as fp
from mlxfp.support.errors import UnknownNameError


def test_the_known_data_sets_are_found_by_name():
    assert list(fp.kaggle.SPECS) == ["disaster_tweets", "house_prices", "spaceship_titanic", "titanic"]
    with pytest.raises(UnknownNameError, match=r"No data set is named 'titanc'\. Did you mean 'titanic'"):
        _ = fp.kaggle.SPECS["titanc"]


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
