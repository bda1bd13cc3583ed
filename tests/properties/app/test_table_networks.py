"""Runs of networks for tables: from a name in a configuration to predictions that come back from files."""

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.support.errors import ConfigError
from tests.app.runs.competitions import table

QUICK = ("validation.folds=2", "model.size=tiny", "observers.progress=false", "observers.plots=false", "data.limit=60")


def config_of(tmp_path, name, *overrides):
    changes = [*QUICK, "data.spec=titanic", f"model.name={name}", "training.epochs=3", f"output={tmp_path}", f"name={name}", *overrides]
    return fp.runs.load_config(overrides=changes).config


@pytest.fixture(scope="module", params=["realmlp", "tabm"])
def finished(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder / request.param, list(fp.runs.run(config_of(folder, request.param)))


def test_a_run_trains_and_predicts(finished):
    folder, events = finished
    assert events[-1].submission.name == "submission.csv"
    assert len(table(folder / "oof.csv")) == 60


def test_a_finished_run_predicts_and_exports_models_that_read_rows_as_they_are(finished, tmp_path):
    folder, _ = finished
    test = folder / "data" / "test.csv"
    expected = np.array(fp.runs.predict(folder, test)["1"], np.float64)
    models = [fp.models.load(each) for each in fp.runs.export(folder, tmp_path / "models")]
    rows = fp.from_table(fp.to_table(fp.kaggle.read_part(fp.kaggle.SPECS["titanic"], folder / "data", part="test")))
    assert expected == pytest.approx(np.mean([fp.models.predict_table(model, rows)[:, 1] for model in models], axis=0), abs=1e-6)


def test_a_fold_that_lost_its_result_ends_with_the_same_bytes(finished):
    folder, _ = finished
    fold = FoldFolder(folder, 1)
    before = {name: (fold / name).read_bytes() for name in ("oof.npy", "model.safetensors", "result.json")}
    for name in ("result.json", "model.safetensors", "oof.npy"):
        (fold / name).unlink()
    list(fp.runs.resume(folder))
    assert before == {name: (fold / name).read_bytes() for name in before}


def test_arguments_of_a_network_are_those_of_its_config(tmp_path):
    made = fp.runs.prepare(config_of(tmp_path, "realmlp", "model.arguments.sigma=1.5", "model.arguments.hidden_sizes=[8, 4]")).model.config
    assert (made.sigma, made.hidden_sizes) == (1.5, (8, 4))


def test_all_states_come_from_the_training_rows_and_the_best_is_chosen_by_inner_rows(tmp_path):
    config = config_of(tmp_path, "realmlp", "observers.patience=3")
    prepared = fp.runs.prepare(config)
    assert fp.length(prepared.splits.train) + fp.length(prepared.splits.valid) == 30
    assert prepared.model.config.steps == 3
    *_, end = fp.runs.run(config)
    assert len(end.score.folds) == 2


def test_a_model_brings_its_defaults_before_a_preset_that_does_not_name_it(tmp_path):
    resolved = fp.runs.load_config(preset="titanic", overrides=["model.name=realmlp", "training.size=64"])
    config = resolved.config
    assert (config.training.epochs, config.training.size, config.training.ema) == (256, 64, None)
    assert (config.optimizer.name, config.optimizer.learning_rate, config.schedule.name) == ("realmlp", None, "coslog")
    assert resolved.origin("training.epochs") == "model realmlp"
    assert resolved.origin("training.size") == "command line"
    assert resolved.origin("data.spec") == "preset titanic"
    (tmp_path / "run.yaml").write_text("model: {name: tabm}\ntraining: {epochs: 7}\n")
    resolved = fp.runs.load_config(tmp_path / "run.yaml")
    assert (resolved.config.training.epochs, resolved.config.observers.patience) == (7, 16)
    assert fp.runs.load_config(tmp_path / "run.yaml", overrides=["model.name=bert"]).config.observers.patience is None


@pytest.mark.parametrize(
    ("part", "said"),
    [("preview", "numbers"), ("tokens", "The model realmlp reads columns, so there are no tokens."), ("shapes", "1 batches of 4")],
)
def test_a_fold_is_inspected(capsys, part, said):
    assert main(["inspect", "titanic", "--part", part, "model.name=realmlp", "data.limit=60", "model.size=tiny"]) == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["competition.views=2"], "competition.views: realmlp does not use this option"),
        (["model.numeric=true"], "model.numeric: realmlp does not use this option"),
        (["training.checkpoint_blocks=true"], "training.checkpoint_blocks: realmlp does not use this option"),
        (["model.arguments.sigm=1"], "model.arguments: realmlp has no argument 'sigm'. Did you mean 'sigma'"),
        (["model.size=huge"], "model.size: realmlp has no size 'huge'; use base or small or tiny"),
        (["optimizer.name=adamw"], "optimizer.learning_rate: null works only with optimizer.name=realmlp; give a number"),
        (["model.name=bert", "optimizer.name=realmlp"], "optimizer.name: realmlp works only with model.name=realmlp; use adamw"),
    ],
)
def test_options_that_cannot_work_are_named_before_anything_is_trained(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        list(fp.runs.run(config_of(tmp_path, "realmlp", *overrides)))
