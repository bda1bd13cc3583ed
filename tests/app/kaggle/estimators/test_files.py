"""Files of estimators are data: nothing in them is run, and what is damaged or not trusted is refused by name."""

import json
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer

import mlxfp as fp
from mlxfp.app.kaggle.estimators.skops_files import dump, load
from tests.app.kaggle.estimators.tables import spec_of, table_of

RAN = []


class Own(BaseEstimator):
    def __setstate__(self, state):
        RAN.append(state)


@pytest.fixture
def folder(tmp_path):
    fp.kaggle.save_estimator(fp.kaggle.estimator(LogisticRegression(), spec_of("binary"))(fp.Splits(table_of("binary"))), tmp_path)
    return tmp_path


def test_types_that_are_not_trusted_are_neither_written_nor_built(tmp_path):
    model = Own()
    model.number = 3
    with pytest.raises(
        fp.errors.ArgumentError, match=r"A Own cannot be saved, .*test_files\.Own\. Choose another estimator, or use this estimator"
    ):
        dump(model, tmp_path / "a.skops")
    with pytest.raises(fp.errors.ArgumentError, match="FunctionTransformer cannot be saved"):
        dump(FunctionTransformer(zipfile.Path), tmp_path / "a.skops")
    skops.io.dump(model, tmp_path / "b.skops")
    with pytest.raises(fp.errors.DataError, match=r"has untrusted types: .*test_files\.Own\. Nothing was loaded"):
        load(tmp_path / "b.skops")
    assert RAN == []


def test_equal_forests_are_equal_bytes(tmp_path):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 3)), random.integers(2, size=40)
    for name in ("a", "b"):
        dump(RandomForestClassifier(3, random_state=0).fit(x, y), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert np.array_equal(load(tmp_path / "a").predict_proba(x), RandomForestClassifier(3, random_state=0).fit(x, y).predict_proba(x))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model-1.skops", r"model-1\.skops is missing, or its SHA-256 digest differs .*Save the estimator again"),
        ("model-columns.skops", r"model-columns\.skops is missing, or its SHA-256 digest differs"),
        ("model-texts.npz", r"model-texts\.npz is missing, or its SHA-256 digest differs .*Save the estimator again"),
        ("recipe.json", r"recipe\.json is damaged: .*Save the estimator again"),
    ],
)
def test_damaged_files_are_named(folder, name, message):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(fp.errors.DataError, match=message):
        fp.kaggle.load_estimator(folder)


def test_other_programs_read_the_files(folder):
    assert isinstance(skops.io.load(folder / "model-1.skops"), LogisticRegression)
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["spec"]["classes"] == ["no", "yes"]
    assert recipe["categories"] == [{"column": "kind", "values": ["k0", "k1", "k2"]}]


@pytest.mark.parametrize("end", [0, 100, -20])
def test_a_damaged_lightgbm_model_is_refused_before_lightgbm_reads_the_file(tmp_path, end):
    """LightGBM ends the process on some damaged models, so the digest must be compared first."""
    lightgbm = pytest.importorskip("lightgbm")
    fp.kaggle.save_estimator(
        fp.kaggle.estimator(lightgbm.LGBMClassifier(n_estimators=2), spec_of("binary"))(fp.Splits(table_of("binary"))), tmp_path
    )
    model = tmp_path / "model-1.txt"
    model.write_bytes(model.read_bytes()[:end])
    with pytest.raises(fp.errors.DataError, match=r"model-1\.txt is missing, or its SHA-256 digest differs .*Save the estimator again"):
        fp.kaggle.load_estimator(tmp_path)


def test_a_recipe_without_digests_and_a_deeply_nested_recipe_are_data_errors(folder):
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(json.loads(recipe.read_text()) | {"sha256": {}}))
    with pytest.raises(fp.errors.DataError, match=r"model-1\.skops is missing, or its SHA-256 digest differs"):
        fp.kaggle.load_estimator(folder)
    recipe.write_text("[" * 100_000)
    with pytest.raises(fp.errors.DataError, match=r"recipe\.json is damaged"):
        fp.kaggle.load_estimator(folder)
