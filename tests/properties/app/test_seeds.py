"""Runs with several seeds: the same model several times on the same folds, averaged, as one run."""

import json

import numpy as np
import pytest

import mlxfp as fp
from tests.app.runs.competitions import table

QUICK = ("validation.folds=2", "observers.progress=false", "observers.plots=false", "data.spec=titanic")
TREES = ("model.name=lightgbm", "model.arguments.n_estimators=10", "model.arguments.subsample=0.5", "model.arguments.subsample_freq=1")
NETWORK = ("model.name=realmlp", "model.size=tiny", "observers.patience=null", "training.epochs=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder, rows=80, test_rows=20)
    return folder


def config_of(data, out, *overrides):
    return fp.runs.load_config(overrides=[*QUICK, f"data.path={data}", f"output={out}", *overrides]).config


def oof(run):
    return np.array([float(row["prediction"]) for row in table(run / "oof.csv")])


@pytest.mark.parametrize("model", [TREES, NETWORK])
def test_several_seeds_are_the_mean_of_runs_with_each(model, data, tmp_path):
    alone = [oof_of_one(data, tmp_path, f"name=alone-{seed}", f"training.seed={seed}", *model) for seed in (3, 4)]
    assert not np.array_equal(*alone)
    *_, end = fp.runs.run(config_of(data, tmp_path, "name=both", "training.seed=3", "training.seeds=2", *model))
    assert oof(tmp_path / "both") == pytest.approx(np.mean(alone, axis=0), abs=1e-9)
    targets = np.array([float(row["Survived"]) for row in table(data / "train.csv")])
    assert end.score.overall == fp.kaggle.METRICS["accuracy"](targets, oof(tmp_path / "both"))
    said = [float(row["prediction"]) for row in table(tmp_path / "both" / "test_predictions.csv")]
    assert fp.runs.predict(tmp_path / "both", data / "test.csv")["prediction"].tolist() == said
    assert len(fp.runs.export(tmp_path / "both", tmp_path / "models")) == 4
    numbers = json.loads((tmp_path / "both" / "metrics.json").read_text())
    assert {name: each["weight"] for name, each in numbers["members"].items()} == {"seed-3": 0.5, "seed-4": 0.5}
    assert list(fp.runs.run(config_of(data, tmp_path, "name=both", "training.seed=3", "training.seeds=2", *model)))[-1] == end


def test_a_note_is_made_once_for_all_seeds_and_their_mean(tmp_path):
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path, rows=80, test_rows=20)
    (tmp_path / "gender_submission.csv").unlink()
    events = list(fp.runs.run(config_of(tmp_path, tmp_path / "out", "name=both", "training.seeds=2", *TREES)))
    said = [event.message for event in events if isinstance(event, fp.runs.Noted)]
    assert len([message for message in said if message.startswith("No submission was written")]) == 1
    assert len(said) == len(set(said))


def oof_of_one(data, out, name, *overrides):
    list(fp.runs.run(config_of(data, out, name, *overrides)))
    return oof(out / name.removeprefix("name="))


def test_more_epochs_continue_every_seed(data, tmp_path):
    schedule = ("schedule.name=constant", "schedule.warmup=0", "optimizer.name=adamw", "optimizer.learning_rate=0.01", "model.name=tabm")
    options = (*NETWORK[1:3], *schedule, "training.seeds=2")
    list(fp.runs.run(config_of(data, tmp_path, "name=short", *options, "training.epochs=1")))
    *_, end = fp.runs.resume(tmp_path / "short", overrides=["training.epochs=2"])
    *_, whole = fp.runs.run(config_of(data, tmp_path, "name=whole", *options, "training.epochs=2"))
    assert np.array_equal(oof(tmp_path / "short"), oof(tmp_path / "whole"))
    assert end.score == whole.score


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.limit=60"], "data.limit: rows are drawn with training.seed"),
        (["competition.ensemble=vote"], "competition.ensemble: the models of several seeds are averaged"),
        (["model.name=auto"], "training.seeds: model.name=auto chooses this option"),
    ],
)
def test_options_that_do_not_fit_several_seeds_are_refused(overrides, message, data, tmp_path):
    with pytest.raises(fp.errors.ConfigError, match=message):
        list(fp.runs.run(config_of(data, tmp_path, "name=wrong", "training.seeds=2", *overrides)))


def test_seeds_are_not_for_tuning(data, tmp_path):
    with pytest.raises(fp.errors.ConfigError, match=r"training.seeds: tuning trains one model per fold"):
        list(fp.runs.tune(config_of(data, tmp_path, "name=tuned", "training.seeds=2", *TREES), trials=2))


def test_an_error_of_a_seed_is_an_error_of_the_run(data, tmp_path):
    with pytest.raises(fp.errors.DataError, match=r"text.max_length"):
        list(fp.runs.run(config_of(data, tmp_path, "name=long", "training.seeds=2", "model.name=encoder", "text.max_length=4")))
