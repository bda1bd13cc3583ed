"""MLflow, Weights & Biases and TensorBoard: the same numbers in each, whatever happens to the run or to the tracker."""

import json
import logging
from itertools import islice
from math import inf, nan

import pytest

import mlxfp as fp
from mlxfp.support import optional as optional_imports
from mlxfp.support.errors import ArgumentTypeError, MissingExtraError
from mlxfp.testing.laws import assert_keeps_events, assert_observes_lazily
from mlxfp.training import observers
from tests.training.observers.runs import run, state
from tests.training.samples import dataset, setting

# The code of these packages warns; the errors of the project's settings are for ours.
pytestmark = pytest.mark.filterwarnings("ignore")


class Mlflow:
    """A store in SQLite."""

    package, extra = "mlflow", "tracking"

    def __init__(self, request):
        self.client = request.getfixturevalue("mlflow_store")
        self.uri = self.client.tracking_uri

    def observer(self, name, **given):
        return observers.log_mlflow("trackers", uri=self.uri, name=name, **given)

    def broken(self, folder):
        (folder / "file").touch()  # no folder, so there can be no store in it
        return observers.log_mlflow("trackers", uri=f"sqlite:///{folder}/file/mlflow.db")

    def runs(self, name):
        """Return of each run with this name its settings and its metrics: (step, value) by name."""
        client = self.client
        found = client.search_runs([client.get_experiment_by_name("trackers").experiment_id], f"attributes.run_name = '{name}'")
        return [
            (
                each.data.params,
                {
                    metric: [(point.step, point.value) for point in client.get_metric_history(each.info.run_id, metric)]
                    for metric in each.data.metrics
                },
            )
            for each in found
        ]


class Wandb:
    """A folder of offline runs."""

    package, extra = "wandb", "wandb"

    def __init__(self, request):
        self.folder = request.getfixturevalue("wandb_folder")

    def observer(self, name, **given):
        return observers.log_wandb("trackers", name=name, **given)

    def broken(self, folder):
        return observers.log_wandb("a project with a /")

    def runs(self, name):
        """Return the settings and curves of each run, joined from the parts of a continued run as `wandb sync` does."""
        from wandb.proto.wandb_internal_pb2 import Record

        found = {}
        for path in sorted(self.folder.glob("*run-*/run-*.wandb")):
            records = [Record.FromString(data) for data in logged(path.read_bytes())]
            run = next(record.run for record in records if record.HasField("run"))
            if run.display_name == name:
                settings, curves = found.setdefault(run.run_id, ({}, {}))
                settings |= {update.key: json.loads(update.value_json) for update in run.config.update}
                for record in records:
                    for item in record.history.item:
                        metric = item.key or item.nested_key[0]
                        if metric[0] != "_":
                            curves.setdefault(metric, []).append((record.history.step.num, json.loads(item.value_json)))
        return list(found.values())


def logged(data):
    """Yield the entries of a log in the format of LevelDB, after the 7 bytes of the header."""
    at, entry = 7, b""
    while len(data) - at >= 7:
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        entry, at = entry + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # a whole entry, or the last part
            yield entry
            entry = b""


class Tensorboard:
    """Event files, read as TensorBoard reads them."""

    package, extra = "tensorboard", "tensorboard"

    def __init__(self, request):
        self.folder = request.getfixturevalue("tmp_path_factory").mktemp("events")

    def observer(self, name, **given):
        return observers.log_tensorboard(self.folder / name, **given)

    def broken(self, folder):
        (folder / "file").touch()
        return observers.log_tensorboard(folder / "file" / "events")

    def runs(self, name):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams.metadata import PLUGIN_NAME, SESSION_START_INFO_TAG, parse_session_start_info_plugin_data

        read = EventAccumulator(str(self.folder / name))
        read.Reload()
        settings = {}
        if SESSION_START_INFO_TAG in read.summary_metadata:
            start = parse_session_start_info_plugin_data(read.PluginTagToContent(PLUGIN_NAME)[SESSION_START_INFO_TAG])
            settings = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
        return [(settings, {tag: [(each.step, each.value) for each in read.Scalars(tag)] for tag in read.Tags()["scalars"]})]


@pytest.fixture(scope="module", params=[Mlflow, Wandb, Tensorboard], ids=lambda kind: kind.package)
def tracker(request):
    made = request.param(request)
    pytest.importorskip(made.package, reason=f"{made.package} is not installed")
    return made


def test_settings_and_metrics_are_there_by_step(tracker):
    step, first = setting()
    events = fp.fit(step, first, dataset(), epochs=2, log_every=2)
    observer = tracker.observer("whole", params={"rate": 0.25, "folds": [1, 2], "name": "x"})
    seen = list(fp.pipe(events, fp.observers.evaluate_every(lambda state: {"accuracy": state.step / 8}), observer))
    assert not any(isinstance(event, fp.events.Warned) for event in seen)
    [(settings, curves)] = tracker.runs("whole")
    assert {key: str(settings[key]) for key in ("rate", "folds", "name")} == {"rate": "0.25", "folds": "[1, 2]", "name": "x"}
    assert curves["accuracy"] == [(3, 0.375), (6, 0.75)]
    losses = [(event.step, event.metrics["loss"]) for event in seen if isinstance(event, fp.events.Stepped) and event.metrics]
    assert [at for at, _ in losses] == [2, 4, 6]
    assert curves["train/loss"] == [(at, pytest.approx(loss, rel=1e-6)) for at, loss in losses]
    assert {"train/weight", "epoch/loss", "learning_rate"} <= curves.keys()


def test_the_laws_of_observers_hold(tracker):
    for law in (assert_keeps_events, assert_observes_lazily):
        law(tracker.observer("laws"), list(run()))


def test_numbers_that_are_not_finite_and_odd_names_break_nothing(tracker):
    metrics = iter([{"loss": nan, "odd": inf}, {"loss": nan, "step": -inf}, {"loss": 0.25, "step": 1.0, "__x__": 2.0, "a(b)": 3.0}] * 2)
    observed = tracker.observer("odd", params={"nothing": None, "bad": nan, "large": inf, "_own": 1})
    seen = list(fp.pipe(run(), fp.observers.evaluate_every(lambda state: next(metrics)), observed))
    assert [event.message for event in seen if isinstance(event, fp.events.Warned)] == []
    [(_, curves)] = tracker.runs("odd")
    assert curves["train/loss"] == [(2, 0.5), (4, 0.25)]
    assert "odd" not in curves
    assert all(abs(value) < inf for points in curves.values() for _, value in points)


def evaluated(*steps):
    """A run that continues from the step before these, and evaluates after each."""
    yield fp.events.RunStarted(state(steps[0] - 1), None, 0, None)
    for step in steps:
        yield fp.events.Evaluated(state(step), None, 0, {"loss": 1 / step})
    yield fp.events.Stopped(state(steps[-1]), None, 0, "steps")


def test_a_run_that_continues_goes_on_in_the_same_tracked_run_with_each_number_once(tracker):
    killed = tracker.observer("killed", params={"rate": 0.5})(evaluated(1, 2, 3, 4))
    list(islice(killed, 5))
    killed.close()  # after step 4, with a checkpoint of step 2
    list(tracker.observer("killed", params={"rate": 0.5})(evaluated(3, 4, 5)))
    [(settings, curves)] = tracker.runs("killed")
    assert curves == {"loss": [(step, pytest.approx(1 / step)) for step in (1, 2, 3, 4, 5)]}
    assert str(settings["rate"]) == "0.5"


def test_a_run_from_the_start_is_another_run(tracker):
    for loss in (0.5, 0.75):
        list(
            tracker.observer("again")(
                [fp.events.Evaluated(state(0), None, 0, {"loss": loss}), fp.events.Stopped(state(1), None, 0, "steps")]
            )
        )
    assert [curves["loss"] for _, curves in tracker.runs("again")] in ([[(0, 0.5)], [(0, 0.75)]], [[(0, 0.75)], [(0, 0.5)]], [[(0, 0.75)]])


def test_a_tracker_that_fails_becomes_one_warning_and_the_training_goes_on(tracker, tmp_path, caplog):
    step, first = setting()
    with caplog.at_level(logging.WARNING, logger="mlxfp"):
        events = list(fp.pipe(fp.fit(step, first, dataset(), epochs=2, log_every=1), tracker.broken(tmp_path)))
    warned = [event.message for event in events if isinstance(event, fp.events.Warned)]
    assert len(warned) == 1, warned  # every call fails for the same reason, as there is no run
    assert warned[0].startswith(f"log_{tracker.package}: ")
    assert [message for message in caplog.messages if message.startswith("log_")] == warned
    assert fp.last(events).state == fp.last(fp.fit(step, first, dataset(), epochs=2)).state


def test_a_missing_package_is_named_when_the_observer_is_made(tracker, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(optional_imports, "import_module", missing)
    with pytest.raises(MissingExtraError, match=rf"log_{tracker.package} needs {tracker.package}\. .*mlxfp\[{tracker.extra}\]"):
        tracker.observer("missing")


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentTypeError, match="project must be a string, got project=3"):
        observers.log_wandb(3)
    with pytest.raises(ArgumentTypeError, match="folder must be str or PathLike, got int: 3"):
        observers.log_tensorboard(3)
