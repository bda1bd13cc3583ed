"""Parts of a user's own in a run: imported only where that is allowed, and then used."""

import sys

import mlx.core as mx
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from tests.app.runs.competitions import competition, configured, table, texts

MODULE = """
import mlxfp as fp
from mlxfp.app.kaggle import ColumnSpec, DatasetSpec, FileSpec

SEEN = []
NUMBER = 3
SPEC = DatasetSpec(
    name="mine", kind="binary", train=FileSpec(name="train.csv"), test=FileSpec(name="test.csv"), id="id", target=["y"],
    classes=["0", "1"], columns=[ColumnSpec(name="text", type="text")], metric="accuracy",
)


def model(recipe, seed):
    SEEN.append("model")
    return fp.models.create("encoder", size="tiny", labels=2, vocab_size=recipe.tokenizer.vocab_size, seed=seed)


def loss(outputs, labels):
    SEEN.append("loss")
    return fp.losses.cross_entropy(outputs, labels)


def step(model, loss, optimizer, **options):
    SEEN.append(sorted(options))
    inner = fp.train_step(model, loss, optimizer, **options)

    def counted(state, batch):
        SEEN.append("step")
        state, metrics = inner(state, batch)
        return state, {**metrics, "twice": 2 * metrics["loss"]}

    return counted


def no_step(model, loss, optimizer, **options):
    return None


def watch(events):
    for event in events:
        SEEN.append(type(event).__name__)
        yield event


def rows(path, part):
    SEEN.append(part)
    made = [{"id": place, "text": f"word {place % 3}", "more": 0.5} for place in range(24)]
    return fp.from_examples([row | {"y": row["id"] % 2} for row in made] if part == "train" else made[:4])
"""
OWN = ("own.model=%s:model", "own.loss=%s:loss", "own.spec=%s:SPEC", "own.rows=%s:rows", "own.observers=['%s:watch']")


@pytest.fixture
def named(tmp_path):
    """Write the module under a name that no other test has imported, and return the overrides that name its parts."""
    name = f"parts_{tmp_path.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def data(tmp_path):
    train = [{**row, "y": place % 2} for place, row in enumerate(texts(24))]
    return competition(tmp_path / "data", train, texts(4, 900))


def test_a_configuration_with_code_is_refused_and_nothing_is_imported(named, data, capsys):
    config = configured(data, f"own.loss={named}:loss")
    for use in (fp.runs.plan, fp.runs.prepare, lambda config: list(fp.runs.run(config))):
        with pytest.raises(
            fp.errors.ConfigError,
            match=rf"runs code from modules: own\.loss={named}:loss\. Nothing was imported\. If you trust the configuration",
        ):
            use(config)
    assert main(["run", "development", "--data", str(data), f"own.loss={named}:loss", f"output={data.parent}", "name=cli"]) == 1
    assert "--code FOLDER on the command line, code=FOLDER in Python" in capsys.readouterr().err
    assert named not in sys.modules


def test_all_parts_of_ones_own_are_used(named, data, tmp_path):
    config = configured(data, *(each % named for each in OWN))
    *_, end = fp.runs.run(config, code=tmp_path)
    assert {"model", "loss", "train", "test", "RunStarted", "Stopped"} <= set(sys.modules[named].SEEN)
    assert end.score is not None
    predictions = [float(row["1"]) for row in table(tmp_path / "out" / "test_predictions.csv")]
    (tmp_path / "new.csv").write_text("id,text\n" + "".join(f"{place},word {place % 3}\n" for place in range(4)))
    with pytest.raises(fp.errors.ConfigError, match="runs code from modules"):
        fp.runs.predict(tmp_path / "out", tmp_path / "new.csv")
    assert fp.runs.predict(tmp_path / "out", tmp_path / "new.csv", code=tmp_path)["1"].tolist() == predictions
    (tmp_path / f"{named}.py").write_text(MODULE + "\n# changed\n")
    with pytest.raises(fp.errors.DataError, match=rf"data of the run in .* have changed since the start of the run: module {named}"):
        list(fp.runs.resume(tmp_path / "out", code=tmp_path))


def test_the_loss_of_ones_own_trains(named, data, tmp_path):
    made = fp.runs.prepare(configured(data, f"own.loss={named}:loss"), code=tmp_path)
    batch = next(iter(made.batches))
    made.model.eval()  # without dropout
    loss, weight = made.objective.loss(made.model, batch)
    assert mx.allclose(loss, fp.losses.cross_entropy(made.objective.outputs(made.model, batch), batch["labels"])[0]).item()
    assert weight.item() == len(batch["labels"])
    assert sys.modules[named].SEEN == ["loss"]


def test_the_step_of_ones_own_trains_with_the_options_of_the_run(named, data, tmp_path):
    """A run with own.step reaches the same weights as train_step, and logs the additional metrics."""
    *_, plain = fp.runs.run(configured(data, "name=plain", "training.ema=0.9"))
    *events, end = fp.runs.run(configured(data, f"own.step={named}:step", "training.ema=0.9"), code=tmp_path)
    seen = sys.modules[named].SEEN
    options = ["accumulate", "checkpoint_blocks", "clip_norm", "compute_dtype", "ema", "ranks", "skip_nonfinite"]
    assert seen[0] == options
    assert "step" in seen
    assert end.score == plain.score
    trained = [event.event for event in events if isinstance(event, fp.runs.Trained)]
    metrics = [event.metrics for event in trained if isinstance(event, fp.events.EpochEnded)]
    assert metrics
    assert all(each["twice"] == pytest.approx(2 * each["loss"]) for each in metrics)


def test_a_step_that_is_no_function_is_named(named, data, tmp_path):
    with pytest.raises(fp.errors.ConfigError, match=rf"own\.step: '{named}:no_step' must return a step, .* got NoneType\. Return"):
        list(fp.runs.run(configured(data, f"own.step={named}:no_step"), code=tmp_path))


@pytest.mark.parametrize(
    ("part", "kind", "message"),
    [
        (
            "own.loss=no_such_module:loss",
            fp.errors.ConfigError,
            r"own\.loss: the module 'no_such_module' of 'no_such_module:loss' cannot be imported",
        ),
        ("own.loss={}:los", fp.errors.UnknownNameError, r"No part of the module '.*' \(.*\) is named 'los'\. Did you mean 'loss'\?"),
        ("own.loss={}:NUMBER", fp.errors.ConfigError, r"own\.loss: '.*:NUMBER' must be a function, got int: 3"),
        ("own.spec={}:NUMBER", fp.errors.ConfigError, r"own\.spec: '.*:NUMBER' must be a DatasetSpec, got int: 3"),
        ("own.rows={}:rows", fp.errors.ArgumentError, r"own\.rows needs a spec, which describes the columns of the rows\. Give own\.spec"),
    ],
)
def test_mistakes_in_names_are_said(named, data, tmp_path, part, kind, message):
    with pytest.raises(kind, match=message):
        fp.runs.plan(configured(data, part.format(named)), code=tmp_path)
    with pytest.raises(fp.errors.ArgumentError, match="code must be the folder with the modules, got code='nowhere'"):
        fp.runs.plan(configured(data, part.format(named)), code="nowhere")
    assert str(tmp_path) not in sys.path
