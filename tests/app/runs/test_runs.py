"""A configuration to a folder: what is in it, that it is the same each time, and that nothing is ever overwritten."""

import csv
import json
import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.run_folders.folders import config_fingerprint
from mlxfp.app.runs.outcomes import claim_environment
from mlxfp.support.blas import blas_threads
from mlxfp.support.yaml_files import read_document
from tests.app.runs.competitions import write

SMALL = (
    "model.name=encoder",
    "data.limit=80",
    "text.vocab_size=300",
    "training.epochs=2",
    "training.size=16",
    "validation.folds=2",
    "observers.progress=false",
    "observers.every=1",
    "observers.checkpoint_every=2",
    "observers.plots=false",
)


TINY = ("model.size=tiny", "data.limit=20", "training.epochs=1", "observers.every=10")


def configured(output, *overrides, preset="titanic"):
    return fp.runs.load_config(preset=preset, overrides=[*SMALL, f"output={output}", *overrides]).config


def contents(folder):
    """What a run leaves behind that must not depend on when it was interrupted: all but the logs, which have times in them."""
    skipped = {"log.jsonl", ".lock", "report.html", "mlflow.json"}  # pictures: only some of these runs draw
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped and "checkpoints" not in path.parts
    }


def table(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def limited(output, *overrides):
    pytest.importorskip("sklearn")
    config = configured(output, "model.name=sklearn.tree:DecisionTreeClassifier", "validation.folds=3", *overrides)
    return [event.message for event in fp.runs.run(config) if isinstance(event, fp.runs.Noted)]


def test_estimators_that_cannot_stop_end_after_the_time_limit_with_a_message(tmp_path):
    """Fits of scikit-learn cannot stop early. The message names the remaining folds and the remedy."""
    (message,) = limited(tmp_path, "observers.minutes=0.0001")
    assert re.fullmatch(
        r"The first fold took \d+ seconds, so the remaining 2 folds probably end after the time limit observers\.minutes=0\.0001\. "
        r"For a faster run, set a lower validation\.folds or a lower data\.limit\.",
        message,
    )
    assert limited(tmp_path, "observers.minutes=60", "name=long") == []


def test_the_folds_of_a_network_share_the_time_limit_of_the_run(tmp_path):
    """The limit counts from `since`, once for all folds. A run over its limit trains each fold only for a moment."""
    config = configured(tmp_path, "observers.minutes=2", "training.epochs=100000")
    events = [event.event for event in fp.runs.run(config, since=time.monotonic() - 3600) if isinstance(event, fp.runs.Trained)]
    assert [event.reason for event in events if isinstance(event, fp.events.Stopped)] == ["time_budget", "time_budget"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("runs")
    events = list(fp.runs.run(configured(output, "observers.plots=true")))
    return output / "titanic", events


def test_a_run_is_a_stream_of_events(run):
    folder, events = run
    assert isinstance(events[0], fp.runs.Summarized)
    assert next(event for event in events if isinstance(event, fp.runs.Began)) == fp.runs.Began(folder, folds=2, done=0)
    assert [event.fold for event in events if isinstance(event, fp.runs.FoldBegan)] == [1, 2]
    assert [event.fold for event in events if isinstance(event, fp.runs.FoldEnded)] == [1, 2]
    assert {type(event.event) for event in events if isinstance(event, fp.runs.Trained)} >= {fp.events.Stepped, fp.events.Evaluated}
    assert isinstance(events[-1], fp.runs.Ended)


def test_the_folder_holds_everything_that_came_out(run):
    folder, _ = run
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        *("config.yaml", "spec.yaml", "data.json", "environment.json", "folds.csv", "oof.csv", "test_predictions.csv", "metrics.json"),
        *("submission.csv", "receipt.json", "report.html", "fold-01", "fold-02"),
    }
    stored = fp.runs.load_config(folder / "config.yaml").config
    assert fp.runs.plan(configured(folder.parent, "observers.plots=true")).settings == fp.runs.unstructure(stored)


def test_every_row_is_predicted_once_by_a_model_that_had_not_seen_it(run):
    folder, events = run
    rows, dealt = table(folder / "oof.csv"), table(folder / "folds.csv")
    assert len(rows) == len(dealt) == 80
    assert {row["repeat_1"] for row in dealt} == {"1", "2"}
    plan = fp.runs.plan(configured(folder.parent))
    assert [int(row["repeat_1"]) - 1 for row in dealt] == plan.folds.assignments[0].tolist()
    assert [float(row["target"]) for row in rows] == plan.data.targets.tolist()
    chances = np.array([float(row["1"]) for row in rows])
    assert ((chances > 0) & (chances < 1)).all()
    score = events[-1].score
    assert score.overall == fp.kaggle.METRICS["accuracy"](plan.data.targets, chances)
    assert json.loads((folder / "metrics.json").read_text())["oof"] == score.overall


def test_the_submission_fits_the_sample(run):
    folder, events = run
    assert events[-1].submission == folder / "submission.csv"
    assert fp.kaggle.check_submission(folder / "submission.csv", sample=folder / "data" / "gender_submission.csv") == ()
    chances = [float(row["1"]) for row in table(folder / "test_predictions.csv")]
    assert [row["Survived"] for row in table(folder / "submission.csv")] == [str(int(chance > 0.5)) for chance in chances]


def test_the_receipt_says_what_the_run_was_made_of_and_is_that_of_its_repetition(run, tmp_path):
    folder, _ = run
    list(fp.runs.run(configured(tmp_path)))
    again, first = (json.loads((each / "receipt.json").read_text()) for each in (tmp_path / "titanic", folder))
    assert set(first) == {"config", "versions", "data", "folds", "outputs"}
    assert {key: value for key, value in again.items() if key != "config"} == {
        key: value for key, value in first.items() if key != "config"
    }
    assert contents(tmp_path / "titanic")["fold-01/model.safetensors"] == contents(folder)["fold-01/model.safetensors"]


def test_running_again_says_how_it_ended_and_changes_no_byte(run):
    folder, events = run
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
    assert list(fp.runs.run(configured(folder.parent))) == [fp.runs.Began(folder, folds=2, done=2), events[-1]]
    assert list(fp.runs.resume(folder))[-1] == events[-1]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()} == before


def test_another_configuration_is_refused_and_nothing_is_touched(run):
    folder, _ = run
    before = contents(folder)
    with pytest.raises(fp.errors.ConfigError) as caught:
        list(fp.runs.run(configured(folder.parent, "training.epochs=3")))
    assert str(caught.value) == (
        f"The folder {folder} has a run with a different configuration: training.epochs is 2 in the folder and 3 now. Nothing was changed. "
        f"To continue with the options in the folder, run: mlxfp resume {folder}. To use the new options, add another run name, such as "
        f"name=second, or remove the folder. To train longer, run: mlxfp resume {folder} training.epochs=N."
    )
    assert contents(folder) == before


def test_a_run_of_an_earlier_version_is_named(run, tmp_path):
    """Options and fields with default values have no influence on the fingerprints, because later versions add such options and fields."""
    folder = shutil.copytree(run[0], tmp_path / "titanic")
    identities = json.loads((folder / "data.json").read_text())
    assert identities["spec"] == fp.inspect.fingerprint(read_document(folder / "spec.yaml").values)
    settings = fp.runs.unstructure(fp.runs.RunConfig(name="x", training=fp.runs.TrainingConfig(epochs=7)))
    assert config_fingerprint(settings) == fp.inspect.fingerprint({"training.epochs": 7})
    (folder / "data.json").write_text(json.dumps(identities | {"rows": "others"}))
    versions = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(versions | {"mlxfp": "0.0.1"}))
    with pytest.raises(fp.errors.DataError) as caught:
        list(fp.runs.resume(folder))
    assert str(caught.value) == (
        f"The data of the run in {folder} have changed since the start of the run: rows (see data.json). Restore the original data, such "
        "as train.csv.original if code of a warning has changed train.csv, or add another name, such as name=second, to start a new run. "
        f"The run was started with mlxfp 0.0.1, and this is mlxfp "
        f"{versions['mlxfp']}. To continue the run, install mlxfp 0.0.1."
    )


def test_what_changes_no_result_may_change(run):
    folder, events = run
    assert list(fp.runs.run(configured(folder.parent, "observers.every=5", "data.prefetch=0")))[-1] == events[-1]


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "titanic").mkdir()
    (tmp_path / "titanic" / "thesis.txt").write_text("mine")
    with pytest.raises(fp.errors.ConfigError, match=r"not empty and is not the folder of a run: config\.yaml is missing"):
        list(fp.runs.run(configured(tmp_path)))
    assert {path.name for path in (tmp_path / "titanic").iterdir()} <= {"thesis.txt", ".lock"}


def test_data_that_have_changed_are_refused(tmp_path):
    data = tmp_path / "data"
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], data, rows=60, test_rows=20)
    config = configured(tmp_path, f"data.path={data}", "training.epochs=1")
    events = fp.runs.run(config)
    assert isinstance(next(events), fp.runs.Summarized)
    assert isinstance(next(events), fp.runs.Noted)  # synthetic files have other hashes than Kaggle's
    events.close()
    lines = (data / "train.csv").read_text().splitlines()
    (data / "train.csv").write_text("\n".join([*lines[:-1], lines[1]]) + "\n")
    with pytest.raises(fp.errors.DataError, match=r"The data of the run in .* have changed since the start of the run: rows"):
        list(fp.runs.run(config))


def test_two_processes_do_not_run_in_one_folder(tmp_path):
    first = fp.runs.run(configured(tmp_path))
    next(first)
    with pytest.raises(fp.errors.ConfigError, match="Another process uses the run folder"):
        next(fp.runs.run(configured(tmp_path)))
    first.close()
    assert isinstance(next(fp.runs.run(configured(tmp_path))), fp.runs.Summarized)


@pytest.mark.parametrize("stop", [1, 9, 17])
def test_a_run_that_was_stopped_goes_on_and_ends_the_same(run, tmp_path, stop):
    folder, _ = run
    events = fp.runs.run(configured(tmp_path))
    for _ in range(stop):
        next(events)
    events.close()
    *_, end = fp.runs.resume(tmp_path / "titanic")
    assert end.submission == tmp_path / "titanic" / "submission.csv"
    ours, whole = contents(tmp_path / "titanic"), contents(folder)
    for name in whole:
        if name not in ("config.yaml", "receipt.json"):  # the output folder is another one
            assert ours[name] == whole[name], name


def test_a_finished_run_predicts_other_rows_as_it_predicted_the_test_rows(run):
    folder, _ = run
    found = fp.runs.predict(folder, folder / "data" / "test.csv")
    rows = table(folder / "test_predictions.csv")
    assert found["PassengerId"] == [row["PassengerId"] for row in rows]
    assert found["1"].tolist() == [float(row["1"]) for row in rows]


def test_predictions_of_rows_without_an_id_have_the_number_of_the_row(run, tmp_path):
    # Without an id or a row number, predictions cannot be joined with the rows of the file.
    folder, _ = run
    rows = [{name: cell for name, cell in row.items() if name != "PassengerId"} for row in table(folder / "data" / "test.csv")]
    write(tmp_path / "new.csv", rows)
    for probabilities in (False, True):
        with pytest.warns(RuntimeWarning, match="has no id column 'PassengerId'"):
            found = fp.runs.predict(folder, tmp_path / "new.csv", probabilities=probabilities)
        assert next(iter(found.items())) == ("row", [*range(len(rows))])


def test_a_prediction_names_all_columns_that_a_file_lacks(run, tmp_path):
    """Without the check before reading, the error of the reader would name the first missing column alone."""
    folder, _ = run
    rows = [{name: row[name] for name in row if name not in ("Sex", "Fare")} for row in table(folder / "data" / "test.csv")]
    write(tmp_path / "less.csv", rows)
    with pytest.raises(
        fp.errors.SchemaError, match=r"A prediction of '.*less\.csv' needs the columns 'Sex', 'Fare', which are missing\. Columns: 'Pass"
    ):
        fp.runs.predict(folder, tmp_path / "less.csv")


def test_a_run_that_is_not_done_does_not_predict(tmp_path):
    events = fp.runs.run(configured(tmp_path))
    next(events)
    events.close()
    with pytest.raises(fp.errors.DataError, match=r"is not finished\. Continue the run first: mlxfp resume"):
        fp.runs.predict(tmp_path / "titanic", tmp_path / "titanic" / "data" / "test.csv")


def test_early_stopping_looks_at_rows_that_are_never_judged(tmp_path):
    config = configured(tmp_path, "observers.patience=1", "training.epochs=4", "data.limit=200")
    events = list(fp.runs.run(config))
    names = {
        name
        for event in events
        if isinstance(event, fp.runs.Trained) and isinstance(event.event, fp.events.Evaluated)
        for name in event.event.metrics
    }
    assert names == {"stopping/loss", "stopping/accuracy"}
    plan = fp.runs.plan(config)
    for fold, result in zip(plan.folds, sorted((tmp_path / "titanic").glob("fold-*/result.json")), strict=True):
        kept = json.loads(result.read_text())["rows"]
        assert kept["predicted"] == len(fold.valid)
        assert kept["train"] == len(fold.train) - round(0.1 * len(fold.train))


def test_rows_that_are_too_long_are_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(fp.errors.DataError, match="rows have more tokens than max_length=16") as caught:
        list(fp.runs.run(configured(tmp_path, "text.max_length=16")))
    assert "text.max_length, text.form=key_value and text.overflow=cut" in caught.value.__notes__[0]
    assert not list((tmp_path / "titanic").glob("fold-*/checkpoints"))


def test_cut_rows_are_told(tmp_path):
    events = list(fp.runs.run(configured(tmp_path, "text.max_length=16", "text.overflow=cut", "training.epochs=1")))
    assert any("rows are cut off at 16 tokens" in event.message for event in events if isinstance(event, fp.runs.Noted))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "competition.metric=rmse",
            r"does not fit the target of 'titanic': rmse is a metric for .* targets, got binary\. Choose accuracy, ",
        ),
        ("competition.metric=log_loss", None),
        ("optimizer.name=adm", r"optimizer\.name \(command line\): expected .* \(did you mean 'adam'\?\), got 'adm'"),
        ("competition.metric=acuracy", r"competition\.metric \(command line\): expected .* \(did you mean 'accuracy'\?\), got 'acuracy'"),
    ],
)
def test_what_means_nothing_is_refused_before_training(tmp_path, override, message):
    if message is None:
        assert fp.runs.plan(configured(tmp_path, override)).metric.name == "log_loss"
        return
    with pytest.raises(fp.MlxfpError, match=message):
        fp.runs.plan(configured(tmp_path, override))


def test_a_threshold_is_tuned_on_other_folds_and_applied_to_the_test_rows(tmp_path):
    events = list(fp.runs.run(configured(tmp_path, "competition.threshold=true", "training.epochs=1")))
    metrics = json.loads((tmp_path / "titanic" / "metrics.json").read_text())
    assert 0 <= metrics["threshold"] <= 1
    assert metrics["oof"] == events[-1].score.overall
    assert {row["1"] for row in table(tmp_path / "titanic" / "test_predictions.csv")} <= {"0.0", "1.0"}


def test_views_are_averaged(tmp_path):
    config = configured(tmp_path, "competition.views=2", "training.epochs=1", "text.permute=true")
    assert isinstance(list(fp.runs.run(config))[-1], fp.runs.Ended)
    one = evolve(config, name="one", competition=evolve(config.competition, views=1))
    list(fp.runs.run(one))
    assert table(tmp_path / "titanic" / "oof.csv") != table(tmp_path / "one" / "oof.csv")


def test_repeats_have_a_column_each(tmp_path):
    list(fp.runs.run(configured(tmp_path, "validation.repeats=2", "training.epochs=1")))
    assert set(table(tmp_path / "titanic" / "oof.csv")[0]) == {"PassengerId", "target", "repeat_1_1", "repeat_2_1"}
    assert len(list((tmp_path / "titanic").glob("fold-*"))) == 4


def test_numbers_reach_the_model_in_addition_to_the_text(tmp_path):
    *_, end = fp.runs.run(configured(tmp_path, "model.numeric=true", "text.numbers=none", "training.epochs=1"))
    assert isinstance(end, fp.runs.Ended)
    recipe = json.loads((tmp_path / "titanic" / "fold-01" / "recipe.json").read_text())
    assert {scale["column"] for scale in recipe["scales"]["scales"]} == {"Age", "SibSp", "Parch", "Fare"}


@pytest.mark.filterwarnings("ignore")  # MLflow and what it stands on warn of each other
def test_mlflow_has_a_parent_with_a_child_for_each_fold(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    config = configured(tmp_path, f"observers.mlflow={uri}", "observers.mlflow_model=passengers", "training.epochs=1")
    *_, end = fp.runs.run(config)
    client = mlflow.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("titanic").experiment_id])
    (parent,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    children = [run for run in runs if run is not parent]
    assert sorted(run.info.run_name for run in children) == ["fold 1", "fold 2"]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert parent.data.metrics["oof/accuracy"] == end.score.overall
    assert [each.value for each in client.get_metric_history(parent.info.run_id, "fold/accuracy")] == list(end.score.folds)
    assert parent.data.params["training.epochs"] == "1"
    assert {file.path for file in client.list_artifacts(parent.info.run_id)} >= {"submission.csv", "metrics.json", "config.yaml"}
    assert (tmp_path / "mlflow-artifacts").is_dir()  # next to the database, wherever the process runs
    assert all("train/loss" in run.data.metrics for run in children)
    (version,) = client.search_model_versions("name = 'passengers'")
    assert version.run_id == parent.info.run_id
    registered = mlflow.artifacts.download_artifacts(artifact_uri=version.source, dst_path=tmp_path / "registered", tracking_uri=uri)
    assert mlflow.models.Model.load(registered).flavors["mlxfp"] == {"run": "."}
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path / "new", rows=40, test_rows=10)
    ours, theirs = (fp.runs.predict(run, tmp_path / "new" / "test.csv") for run in (end.folder, registered))
    assert str(ours) == str(theirs)


@pytest.mark.filterwarnings("ignore")
def test_a_tracking_server_that_is_not_there_ends_nothing(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    events = list(fp.runs.run(configured(tmp_path, "observers.mlflow=http://127.0.0.1:9", "training.epochs=1")))
    assert isinstance(events[-1], fp.runs.Ended)
    assert any(event.message.startswith("MLflow: ") for event in events if isinstance(event, fp.runs.Noted))


@pytest.mark.parametrize("dies", ["in a fold", "between folds"])
def test_a_tracking_server_that_dies_in_the_middle_ends_nothing(tmp_path, monkeypatch, dies):
    calls = []

    class Client:
        """A fake of MLflow's client: any method answers, until the server dies."""

        def __init__(self, tracking_uri):
            self.answer("a new client" if dies == "between folds" else "")

        def __getattr__(self, name):
            return lambda *_, **__: self.answer("log_batch" if dies == "in a fold" and name == "log_batch" else "")

        def answer(self, name):
            calls.extend([name] if name else [])
            if len(calls) > 2 and name:
                raise ConnectionError("the server is gone")
            return Run()

    class Run(str):
        __slots__ = ()
        info = experiment_id = run_id = property(lambda self: self)

        def __iter__(self):
            return iter(())

    made = SimpleNamespace(MlflowClient=Client, entities=SimpleNamespace(Metric=lambda *_: 0, Param=lambda *_: 0))
    monkeypatch.setitem(sys.modules, "mlflow", made)
    events = list(fp.runs.run(configured(tmp_path, "observers.mlflow=fake", *TINY)))
    said = [event.event.message for event in events if isinstance(event, fp.runs.Trained) and isinstance(event.event, fp.events.Warned)]
    said += [event.message for event in events if isinstance(event, fp.runs.Noted)]
    assert isinstance(events[-1], fp.runs.Ended)
    assert any("the server is gone" in message for message in said)


@pytest.mark.filterwarnings("ignore")  # of what TensorBoard stands on
def test_tensorboard_has_a_folder_for_each_fold_and_the_scores(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    *_, end = fp.runs.run(configured(tmp_path, f"observers.tensorboard={tmp_path}/board", *TINY))

    def scalars(folder):
        read = accumulator.EventAccumulator(str(tmp_path / "board" / end.folder.name / folder))
        read.Reload()
        return {tag: [each.value for each in read.Scalars(tag)] for tag in read.Tags()["scalars"]}

    assert sorted(path.name for path in (tmp_path / "board" / end.folder.name).glob("fold-*")) == ["fold-01", "fold-02"]
    assert "epoch/loss" in scalars("fold-02")
    assert scalars("")["oof/accuracy"] == [pytest.approx(end.score.overall)]
    assert scalars("")["fold/accuracy"] == [pytest.approx(score) for score in end.score.folds]


def test_a_run_that_continues_multiplies_with_as_many_threads_as_before(tmp_path):
    if blas_threads() is None:
        pytest.skip("MLX does not use OpenBLAS here")
    list(claim_environment(tmp_path))
    threads = json.loads((tmp_path / "environment.json").read_text())["blas_threads"]
    try:
        blas_threads(threads + 1)
        assert list(claim_environment(tmp_path)) == []
        assert blas_threads() == threads
    finally:
        blas_threads(threads)


@pytest.mark.parametrize("refused", ["text.max_length=4", "model.size=giant"])
def test_a_run_that_is_refused_before_its_training_leaves_no_folder(tmp_path, refused):
    """Errors about rows and models, which appear after the start of a run, remove its new folder."""
    config = fp.runs.load_config(preset="titanic", overrides=[f"output={tmp_path}/runs", "model.name=encoder", refused]).config
    with pytest.raises(fp.MlxfpError):
        list(fp.runs.run(config))
    assert not (tmp_path / "runs").exists()
