"""Folds of a run that train together, in one program: the same files as one after the other, whatever happens in one of them."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.runs.joining import check_ranks
from mlxfp.distributed import connect
from mlxfp.support.errors import ConfigError

QUICK = ("data.spec=titanic", "model.size=tiny", "observers.progress=false", "observers.plots=false", "validation.folds=3")
RESULTS = ("submission.csv", "oof.csv", "test_predictions.csv", "metrics.json", "folds.csv", "spec.yaml")
TIMED = ("CheckpointSaved",)  # when a thread has written a file


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder, rows=120, test_rows=20)
    return folder


def config_of(data, out, *overrides):
    return fp.runs.load_config(preset="titanic", overrides=[*QUICK, f"data.path={data}", f"output={out}", *overrides]).config


def files(folder):
    """The names of all files of a run, and the content of those that do not have the path or the time in them."""
    paths = {str(path.relative_to(folder)): path for path in sorted(Path(folder).rglob("*")) if path.is_file()}
    names = [name for name in paths if name in RESULTS or name.endswith((".npy", ".safetensors", "result.json", "recipe.json"))]
    return set(paths), {name: paths[name].read_bytes() for name in names}


def log(folder, fold):
    lines = map(json.loads, (folder / f"fold-{fold:02}" / "log.jsonl").read_text().splitlines())
    return [{**line, "seconds": 0} for line in lines if line["event"] not in TIMED]


def names_of(events, fold):
    names = [type(getattr(event, "event", event)).__name__ for event in events if getattr(event, "fold", None) == fold]
    return [name for name in names if name not in TIMED]


def notes(events):
    return [event.message for event in events if isinstance(event, fp.runs.Noted) and "together" in event.message]


@pytest.mark.parametrize(
    "options",
    [
        ("model.name=realmlp", "training.epochs=2", "observers.patience=null", "training.ema=0.9", "training.size=32"),
        ("model.name=tabm", "training.epochs=12", "observers.patience=1", "optimizer.learning_rate=0.02", "observers.evaluate_every=3"),
        ("model.name=encoder", "training.epochs=1", "text.vocab_size=300", "training.accumulate=2", "observers.every=1"),
    ],
    ids=lambda options: options[0],
)
def test_folds_together_write_what_they_write_one_after_the_other(options, data, tmp_path):
    alone = list(fp.runs.run(config_of(data, tmp_path, "name=alone", *options)))
    events = list(fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=3", *options)))
    assert files(tmp_path / "joint") == files(tmp_path / "alone")
    for fold in (1, 2, 3):
        assert log(tmp_path / "joint", fold) == log(tmp_path / "alone", fold)
    for number in (1, 2, 3):  # each fold on its own has the same events, in the same order
        assert names_of(events, number) == names_of(alone, number)
    assert events[-1].score == alone[-1].score
    (said,) = notes(events)
    assert "encoder" in options[0] or int(said.split("%")[0].rpartition(" ")[2]) >= 50  # lengths of texts differ between folds


def test_folds_end_at_their_own_epochs_and_the_next_ones_begin(data, tmp_path):
    options = ("model.name=tabm", "training.epochs=20", "observers.patience=1", "optimizer.learning_rate=0.003", "validation.folds=4")
    options += ("training.size=16",)
    list(fp.runs.run(config_of(data, tmp_path, "name=alone", *options)))
    events = list(fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=2", *options)))
    assert files(tmp_path / "joint") == files(tmp_path / "alone")
    assert len({log(tmp_path / "joint", fold)[-1]["step"] for fold in (1, 2, 3, 4)}) > 1
    order = [event for event in events if isinstance(event, fp.runs.FoldBegan | fp.runs.FoldEnded)]
    assert [event.fold for event in order[:2]] == [1, 2]
    assert live_at_most(order) == 2


@pytest.mark.parametrize("together", [2, 4, 9])  # fewer than the folds of a seed, more, and more than all
def test_folds_of_several_seeds_train_together(together, data, tmp_path):
    options = ("model.name=realmlp", "training.epochs=2", "observers.patience=null", "training.seeds=2", "training.size=16")
    *_, alone = fp.runs.run(config_of(data, tmp_path, "name=alone", *options))
    *events, end = fp.runs.run(config_of(data, tmp_path, "name=joint", f"training.together={together}", *options))
    assert files(tmp_path / "joint") == files(tmp_path / "alone")
    assert end.score == alone.score
    assert live_at_most(events) == min(together, 6)
    (said,) = notes(events)
    assert said == "training.together: of 60 steps, 100% were computed with those of other folds."
    assert not [event for event in events if type(getattr(event, "event", None)).__name__ == "Queued"]
    names = {event.folder.name for event in events if isinstance(event, fp.runs.Ended)}
    assert names == {"seed-0", "seed-1"}


def live_at_most(events):
    live = [
        1 if isinstance(event, fp.runs.FoldBegan) else -1 for event in events if isinstance(event, fp.runs.FoldBegan | fp.runs.FoldEnded)
    ]
    return np.cumsum(live).max()


def test_seeds_end_at_their_own_epochs_and_the_next_folds_begin(data, tmp_path):
    options = ("model.name=tabm", "training.epochs=12", "observers.patience=1", "optimizer.learning_rate=0.003", "training.seeds=3")
    list(fp.runs.run(config_of(data, tmp_path, "name=alone", *options)))
    events = list(fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=4", *options)))
    assert files(tmp_path / "joint") == files(tmp_path / "alone")
    order = [(event.folder.name, event.fold) for event in events if isinstance(event, fp.runs.FoldBegan)]
    assert order == [(f"seed-{seed}", fold) for seed in (0, 1, 2) for fold in (1, 2, 3)]
    assert live_at_most(events) == 4


def test_several_seeds_that_were_stopped_together_go_on(data, tmp_path):
    options = ("model.name=realmlp", "training.epochs=3", "training.size=16", "observers.checkpoint_every=1", "training.seeds=2")
    list(fp.runs.run(config_of(data, tmp_path, "name=alone", *options)))
    events = fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=6", *options))
    saved = set()
    while saved != {"seed-0", "seed-1"}:  # a thread writes them: how many there are by now is not known
        event = next(events)
        saved |= {event.folder.name} if type(getattr(event, "event", None)).__name__ == "CheckpointSaved" else set()
    events.close()
    assert not (tmp_path / "joint" / "members" / "seed-0" / "oof.csv").exists()
    again = list(fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=4", *options)))
    assert max(event.step for event in again if isinstance(event, fp.runs.FoldBegan)) > 0
    assert files(tmp_path / "joint")[1] == files(tmp_path / "alone")[1]


def test_how_many_folds_train_together_may_change_while_a_run_goes_on(data, tmp_path):
    options = ("model.name=realmlp", "training.epochs=3", "observers.checkpoint_every=1", "observers.every=1")
    list(fp.runs.run(config_of(data, tmp_path, "name=alone", *options)))
    events = fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=3", *options))
    stepped = 0
    for event in events:
        stepped += type(getattr(event, "event", None)).__name__ == "CheckpointSaved"
        if stepped == 4:
            break
    events.close()
    list(fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=2", *options)))
    assert files(tmp_path / "joint")[1] == files(tmp_path / "alone")[1]


KILLED = (
    "model.name=tabm",
    "training.seeds=2",
    "training.together=4",
    "training.epochs=6",
    "observers.patience=2",
    "observers.every=1",
    "observers.checkpoint_every=2",
)


def start(data, output):
    command = ["titanic", *QUICK, *KILLED, f"data.path={data}", f"output={output}", "name=killed"]
    return subprocess.Popen([sys.executable, "-m", "mlxfp", "run", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_a_killed_run_ends_with_the_same_bytes(data, tmp_path):
    list(fp.runs.run(config_of(data, tmp_path / "whole", "name=killed", *KILLED)))
    first = start(data, tmp_path)
    while not list((tmp_path / "killed").glob("**/fold-*/**/*.safetensors")) and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)  # in the middle, however fast the machine is
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    second, chance = start(data, tmp_path), random.Random(0)
    try:
        said, _ = second.communicate(timeout=chance.uniform(2, 4))
    except subprocess.TimeoutExpired:
        second.send_signal(signal.SIGKILL)
        second.communicate()
    last = start(data, tmp_path)
    said, _ = last.communicate()
    assert last.returncode == 0, said.decode()
    assert files(tmp_path / "killed")[1] == files(tmp_path / "whole" / "killed")[1]


OWN = """
from pathlib import Path


def spoiled(events):
    for event in events:
        if type(event).__name__ == "Stepped" and event.step == 3 and event.state.seed == {seed} and Path({flag!r}).exists():
            raise ValueError("spoiled")
        yield event
"""


def test_an_error_in_a_fold_names_it_and_the_others_go_on_from_their_checkpoints(data, tmp_path):
    options = ("model.name=realmlp", "training.epochs=6", "observers.checkpoint_every=1", "observers.every=1", "training.together=3")
    list(fp.runs.run(config_of(data, tmp_path, "name=whole", *options)))
    config = config_of(data, tmp_path, "name=broken", *options, "own.observers=[broken_parts:spoiled]")
    made = fp.runs.plan(config_of(data, tmp_path, "name=broken", *options))
    code = tmp_path / "code"
    code.mkdir()
    flag = tmp_path / "flag"
    flag.touch()
    (code / "broken_parts.py").write_text(OWN.format(seed=made.seed_of(list(made.folds)[1]), flag=str(flag)))
    with pytest.raises(ValueError, match="spoiled") as caught:
        list(fp.runs.run(config, code=code))
    assert f"in fold 2 of {tmp_path / 'broken'}" in caught.value.__notes__
    for fold in (1, 3):
        assert list((tmp_path / "broken" / f"fold-{fold:02}" / "checkpoints").glob("step-*.safetensors"))
    flag.unlink()
    *events, _ = fp.runs.run(config, code=code)
    begun = {event.fold: event.step for event in events if isinstance(event, fp.runs.FoldBegan)}
    assert min(begun.values()) > 0
    assert files(tmp_path / "broken")[1] == files(tmp_path / "whole")[1]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.name=lightgbm"], "training.together: model.name=lightgbm is an estimator, and does not use it"),
        (["model.name=realmlp", "observers.minutes=1"], "observers.minutes: it is the time of one fold"),
        (["model.name=auto"], "training.together: model.name=auto chooses it"),
        (["task=images", "model.name=convnet"], "training.together: task=images does not use it"),
    ],
)
def test_what_cannot_train_together_is_refused(overrides, message, data, tmp_path):
    with pytest.raises(ConfigError, match=message):
        list(fp.runs.run(config_of(data, tmp_path, "name=wrong", "training.together=2", *overrides)))


def test_ranks_do_not_train_folds_together(data, tmp_path):
    with pytest.raises(ConfigError, match=r"training\.together: ranks train one fold after the other, got 2"):
        check_ranks(config_of(data, tmp_path, "model.name=realmlp", "training.together=2"), connect())


MASKED = """
import mlxfp as fp


def masked(outputs, labels):
    return fp.losses.cross_entropy(outputs, labels & 1)
"""


def test_a_network_that_mlx_cannot_map_is_trained_alone_and_a_note_says_so(data, tmp_path):
    (tmp_path / "masked_loss.py").write_text(MASKED)
    options = ("model.name=realmlp", "training.epochs=1", "observers.patience=null", "own.loss=masked_loss:masked")
    list(fp.runs.run(config_of(data, tmp_path, "name=alone", *options), code=tmp_path))
    events = list(fp.runs.run(config_of(data, tmp_path, "name=joint", "training.together=3", *options), code=tmp_path))
    (said,) = notes(events)
    assert said.startswith("training.together: MLX cannot compute steps of this network together, so each is computed alone: ")
    assert files(tmp_path / "joint") == files(tmp_path / "alone")
