"""MLflow runs say what happened here, and MLflow never fails the training."""

import threading
from itertools import islice

import pytest

import mlxfp as fp
from mlxfp.support import optional as optional_imports
from mlxfp.support.errors import ArgumentTypeError, MissingExtraError
from mlxfp.training.observers import mlflow_runs
from tests.training.observers.runs import run
from tests.training.samples import dataset, setting

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")

# MLflow's own code warns; the errors of the project's settings are for ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def server(mlflow_store):
    return mlflow_store


def runs(server, name="runs"):
    return server.search_runs([server.get_experiment_by_name(name).experiment_id])


def test_a_run_here_is_a_run_there(server, tmp_path):
    step, state = setting(clip_norm=1.0)
    parent = server.create_run(server.get_experiment_by_name("runs").experiment_id)
    log = tmp_path / "log.jsonl"
    observers = [
        fp.observers.evaluate_every(lambda state: {"accuracy": state.step / 10}),
        fp.observers.log_memory(),
        fp.observers.log_metrics(log),
        fp.observers.log_mlflow(
            "runs",
            uri=server.tracking_uri,
            name="fold 1",
            parent=parent.info.run_id,
            params={"rate": 0.01, "folds": [1, 2]},
            artifacts=[log],
            model="passengers",
        ),
    ]
    events = list(fp.pipe(fp.fit(step, state, dataset(), epochs=2, log_every=2), *observers))
    assert not any(isinstance(event, fp.events.Warned) for event in events)
    [found] = [each for each in runs(server) if each.info.run_name == "fold 1"]
    assert found.info.status == "FINISHED"
    assert found.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert found.data.params == {"rate": "0.01", "folds": "[1, 2]"}
    history = {name: server.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    assert [(each.step, each.value) for each in history["accuracy"]] == [(3, 0.3), (6, 0.6)]
    assert [each.step for each in history["train/loss"]] == [2, 4, 6]
    assert [each.value for each in history["learning_rate"]] == pytest.approx([0.01] * 3)
    assert {"train/grad_norm", "train/weight", "epoch/loss", "memory/active"} <= set(history)
    assert [file.path for file in server.list_artifacts(found.info.run_id)] == ["log.jsonl", "model"]
    [version] = server.search_model_versions("name = 'passengers'")
    folder = mlflow.artifacts.download_artifacts(run_id=found.info.run_id, artifact_path="model", tracking_uri=server.tracking_uri)
    assert version.run_id == found.info.run_id
    assert "mlxfp" in mlflow.models.Model.load(folder).flavors
    assert fp.load_state(f"{folder}/state.safetensors", state).state == events[-1].state


def test_how_a_run_ended_is_told(server):
    def failing():
        yield from islice(run(), 3)
        raise ZeroDivisionError("in the run")

    observer = fp.observers.log_mlflow("runs", uri=server.tracking_uri, name="failing")
    with pytest.raises(ZeroDivisionError):
        list(observer(failing()))
    stream = fp.observers.log_mlflow("runs", uri=server.tracking_uri, name="stopped")(run())
    next(stream)
    stream.close()
    status = {each.info.run_name: each.info.status for each in runs(server)}
    assert (status["failing"], status["stopped"]) == ("FAILED", "KILLED")


def test_one_thing_that_goes_wrong_does_not_hinder_the_others(server, tmp_path):
    observer = fp.observers.log_mlflow(
        "runs", uri=server.tracking_uri, name="halfway", params={"x" * 999: 1}, artifacts=[tmp_path / "not there"]
    )
    warned = [event.message.partition(": ")[2].partition(":")[0] for event in observer(run()) if isinstance(event, fp.events.Warned)]
    assert warned == ["MlflowException", "FileNotFoundError"]
    [found] = [each for each in runs(server) if each.info.run_name == "halfway"]
    assert (found.info.status, found.data.metrics["train/loss"]) == ("FINISHED", 0.25)


def test_a_server_that_does_not_answer_does_not_slow_the_training(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(mlflow_runs, "begin_mlflow_run", lambda *_, **__: go_on.wait(60) and 1 / 0)
    stream = fp.observers.log_mlflow("runs")(run())
    assert [event.step for event in islice(stream, 7)] == [0, 1, 2, 2, 3, 4, 4]
    go_on.set()
    assert [type(event).__name__ for event in stream] == ["Warned", "Stopped"]


def test_a_server_that_died_is_soon_left_alone(monkeypatch):
    tried = []

    class Dead:
        def log_batch(self, *args, **kwargs):
            tried.append(args)
            raise ConnectionError("refused")

        set_terminated = log_batch

    monkeypatch.setattr(mlflow_runs, "begin_mlflow_run", lambda *_, **__: mlflow_runs.MlflowRun(mlflow, Dead(), "x"))
    events = list(fp.observers.log_mlflow("runs")(run()))
    assert [event.message for event in events if isinstance(event, fp.events.Warned)] == ["log_mlflow: ConnectionError: refused"]
    assert len(tried) == 3


def test_mistakes_are_named_when_the_observer_is_made(monkeypatch):
    with pytest.raises(ArgumentTypeError, match="experiment must be a string, got experiment=3"):
        fp.observers.log_mlflow(3)
    with pytest.raises(ArgumentTypeError, match="parent must be a string"):
        fp.observers.log_mlflow("runs", parent=3)

    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(optional_imports, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"observers\.log_mlflow needs mlflow\. Install it with: pip install \"mlxfp\[tracking\]\""):
        fp.observers.log_mlflow("runs")


def test_what_mlflow_would_refuse_is_left_out_or_cut(server):
    metrics = iter([{"loss": float("nan")}, {"loss": float("nan"), "a(b)": 0.5}, {"loss": 0.25}] * 9)
    observer = fp.observers.log_mlflow(
        "runs", uri=server.tracking_uri, name="odd", params={"text": "x" * 10_000, "k{1}": 1}, model="odd-model"
    )
    events = list(fp.pipe(run(), fp.observers.evaluate_every(lambda state: next(metrics), name="v"), observer))
    assert [event.message for event in events if isinstance(event, fp.events.Warned)] == []
    [found] = [each for each in runs(server) if each.info.run_name == "odd"]
    assert (len(found.data.params["text"]), found.data.params["k_1_"]) == (6000, "1")
    assert found.data.metrics["v/a_b_"] == 0.5
    assert "v/loss" not in found.data.metrics
    assert len(server.search_model_versions("name = 'odd-model'")) == 1
