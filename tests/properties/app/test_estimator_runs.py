"""Runs of estimators of other libraries: the same folders, receipts and laws as those of networks."""

import json

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.run_folders.files import read_array
from tests.app.runs.competitions import competition, configured, table, texts

BOOSTED = ("model.name=lightgbm", "model.arguments.n_estimators=8", "model.arguments.min_child_samples=2")
RESULTS = ("oof.csv", "test_predictions.csv", "submission.csv", "metrics.json")


@pytest.fixture
def data(tmp_path):
    train = [{**row, "n": place % 5, "y": int("cat" in row["text"])} for place, row in enumerate(texts(48))]
    test = [{**row, "n": place % 5} for place, row in enumerate(texts(20, 900))]
    return competition(tmp_path / "data", train, test, [{"id": row["id"], "y": 0} for row in test])


def ran(data, *overrides):
    *_, end = fp.runs.run(configured(data, *overrides))
    return end


@pytest.mark.parametrize(
    "model", [("model.name=tfidf",), ("model.name=sklearn.ensemble:ExtraTreesClassifier", "model.arguments.n_estimators=5")]
)
def test_a_run_of_an_estimator_predicts_the_same_rows_again_and_from_what_it_exports(data, tmp_path, model, capsys):
    end = ran(data, *model)
    run = tmp_path / "out"
    assert end.score.overall > 0.75
    assert fp.kaggle.check_submission(end.submission, sample=data / "sample_submission.csv") == ()
    said = table(run / "test_predictions.csv")
    predicted = fp.runs.predict(run, data / "test.csv")
    assert [str(value) for value in predicted["1"].tolist()] == [row["1"] for row in said]
    assert main(["export", str(run), "--out", str(tmp_path / "models")]) == 0
    rows = fp.kaggle.read_part(fp.kaggle.load_spec(run / "spec.yaml"), data, part="test")
    for number, folder in enumerate(capsys.readouterr().out.split(), 1):
        assert np.array_equal(fp.kaggle.load_estimator(folder)(rows), read_array(run / f"fold-0{number}" / "test.npy"))
    receipt = json.loads((run / "receipt.json").read_text())
    assert receipt["config"]["model.name"] == model[0].partition("=")[2]
    assert {"model-1.skops", "recipe.json"} <= {*receipt["folds"][0]["files"]}
    assert receipt["versions"]["scikit-learn"]


@pytest.mark.parametrize("model", [BOOSTED, ("model.name=sklearn.linear_model:LogisticRegression",)])
def test_what_is_exported_is_read_by_its_library_alone_and_predicts_the_same(data, tmp_path, model):
    ran(data, *model)
    rows = fp.kaggle.read_part(fp.kaggle.load_spec(tmp_path / "out" / "spec.yaml"), data, part="test")
    for number, folder in enumerate(fp.runs.export(tmp_path / "out", tmp_path / "models"), 1):
        columns = fp.kaggle.load_estimator(folder).columns
        numbers = columns(rows)
        known = ~columns.novel(numbers).any(axis=1)  # mlxfp alone averages over values missing only in new rows
        assert known.any()
        if model is BOOSTED:
            made = pytest.importorskip("lightgbm").Booster(model_file=folder / "model-1.txt").predict(numbers)
        else:
            made = pytest.importorskip("skops.io").load(folder / "model-1.skops", trusted=[]).predict_proba(numbers)[:, 1]
        assert np.array_equal(made[known], read_array(tmp_path / "out" / f"fold-0{number}" / "test.npy")[known])


def test_a_run_that_ends_in_the_middle_continues_to_the_same_bytes(data, tmp_path):
    pytest.importorskip("lightgbm")
    ran(data, *BOOSTED, "name=whole")
    events = fp.runs.run(configured(data, *BOOSTED, "name=part"))
    for event in events:
        if isinstance(event, fp.runs.FoldEnded):
            break
    events.close()
    (tmp_path / "part" / "fold-01" / "model-1.txt").write_text("damaged")
    messages = [event.message for event in fp.runs.run(configured(data, *BOOSTED, "name=part")) if isinstance(event, fp.runs.Noted)]
    assert any("model-1.txt is missing or damaged, and is computed again" in message for message in messages)
    for name in (*RESULTS, *(f"fold-0{fold}/{file}" for fold in (1, 2) for file in ("model-1.txt", "recipe.json", "oof.npy", "test.npy"))):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    receipts = [json.loads((tmp_path / name / "receipt.json").read_text())["folds"] for name in ("whole", "part")]
    assert receipts[0] == receipts[1]
    with pytest.raises(fp.errors.ConfigError, match=r"model\.arguments\.n_estimators is 8 in the folder and None now"):
        ran(data, "model.name=lightgbm", BOOSTED[2], "name=part")


def test_patience_sets_rows_aside_where_the_library_can_stop(data):
    pytest.importorskip("lightgbm")
    events = list(fp.runs.run(configured(data, *BOOSTED, "observers.patience=2", "name=stops")))
    assert [event.rows for event in events if isinstance(event, fp.runs.FoldBegan)] == [22, 22]
    events = list(fp.runs.run(configured(data, "model.name=tfidf", "observers.patience=2", "name=goes_on")))
    assert [event.rows for event in events if isinstance(event, fp.runs.FoldBegan)] == [24, 24]
    assert "tfidf has no early stopping, so observers.patience is ignored." in [e.message for e in events if isinstance(e, fp.runs.Noted)]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model.name=encoder", "model.arguments.C=1"],
            r"model\.arguments: model\.name=encoder takes no arguments; arguments need an estimator \(catboost, kernel, lightgbm, tfidf",
        ),
        (
            ["model.name=tfidf", "own.loss=mine:loss"],
            r"own\.loss: model\.name=tfidf is an estimator and does not use this option; leave out the option",
        ),
        (["model.name=sklearn.svm:SVX"], r"model\.name: No part of the module 'sklearn\.svm' is named 'SVX'"),
        (["model.name=sklearn.svm:LinearSVC"], r"LinearSVC cannot predict probabilities"),
        (["model.name=tfidf", "model.arguments.X=1"], r"model\.arguments do not fit model\.name=tfidf"),
    ],
)
def test_options_that_cannot_work_are_named(data, overrides, message):
    config = configured(data, *overrides)
    with pytest.raises(fp.MlxfpError, match=message):
        list(fp.runs.run(config, code=str(data) if "own" in overrides[-1] else None) if "own" not in overrides[-1] else problems(config))


def problems(config):
    from mlxfp.app.runs.from_config.problems import config_problems

    raise fp.errors.ConfigError("".join(f"{path}: {said}" for path, said in config_problems(config)))


def test_an_estimator_of_a_users_own_needs_permission(data, tmp_path):
    (tmp_path / "own_estimators.py").write_text(
        "from sklearn.linear_model import LogisticRegression\n\ndef weak(strength):\n    return LogisticRegression(C=strength)\n"
    )
    named = ("model.name=own_estimators:weak", "model.arguments.strength=0.1")
    with pytest.raises(
        fp.errors.ConfigError, match=r"The configuration runs code from modules: model\.name=own_estimators:weak\. Nothing was imported"
    ):
        ran(data, *named)
    *_, end = fp.runs.run(configured(data, *named, "name=allowed"), code=tmp_path)
    assert end.score.overall > 0.5
    assert "module own_estimators" in json.loads((tmp_path / "allowed" / "data.json").read_text())


def test_an_estimator_and_a_network_are_blended(data, tmp_path):
    ran(data, "model.name=tfidf", "name=tfidf")
    ran(data, "name=network", "training.epochs=1")
    made = fp.runs.blend([tmp_path / name for name in ("tfidf", "network")], tmp_path / "both", method="greedy")
    assert made.score.overall >= 0.5
    with pytest.raises(fp.errors.ConfigError, match=r"model\.name=tfidf is an estimator and has no batches\. Use fp\.kaggle\.estimator"):
        fp.runs.prepare(configured(data, "model.name=tfidf"))
