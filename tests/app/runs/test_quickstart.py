"""A configuration to all that training needs, in one call, for every kind of competition."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.app.runs.from_config.parts import optimizer_of, step_of
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from tests.app.tasks.drawing import spec_of

TINY = fp.runs.ModelConfig(name="encoder", size="tiny")
SMALL = fp.runs.TextConfig(form="key_value", vocab_size=300, max_length=128, overflow="cut")


def config_of(folder: Path, *, model: fp.runs.ModelConfig = TINY, text: fp.runs.TextConfig = SMALL, **data) -> fp.runs.RunConfig:
    about = {"training": fp.runs.TrainingConfig(size=8), "validation": fp.runs.ValidationConfig(folds=3)}
    return fp.runs.RunConfig(data=fp.runs.DataConfig(path=str(folder), **data), model=model, text=text, **about)


def check(made: fp.runs.PreparedFold) -> None:
    """See that the parts of a prepared fold fit together: batches, model, loss, metric and predictions."""
    rows, outputs = fp.length(made.splits.valid), made.recipe.target.outputs
    batch = next(iter(made.batches))
    total, weight = made.objective.loss(made.model, batch)
    assert np.isfinite(total.item())
    assert weight.item() > 0
    assert batch["input_ids"].max().item() < made.recipe.tokenizer.vocab_size
    assert batch["input_ids"].shape[1] in made.recipe.lengths
    state = fp.train_state(made.model, optimizer_of(fp.runs.RunConfig(), updates=2), seed=0)
    measures = fp.evaluate(made.model, made.objective.measure)(state, made.held_out)
    assert np.isfinite(measures["loss"])
    predictions = made.predictor(state)(made.splits.valid)
    assert predictions.shape in ((rows,), (rows, outputs))
    targets = np.stack([fp.kaggle.column_values(made.splits.valid, name) for name in made.plan.data.spec.target], axis=1)
    assert np.isfinite(made.plan.metric(targets[:, 0] if targets.shape[1] == 1 else targets, predictions))
    if made.splits.test is not None:
        assert np.isfinite(made.predictor(state)(fp.select(range(5))(made.splits.test))).all()


@pytest.mark.parametrize("name", fp.kaggle.SPECS)
def test_the_known_data_sets_are_made_in_one_call(tmp_path: Path, name: str):
    fp.kaggle.write_synthetic(fp.kaggle.SPECS[name], tmp_path, rows=45, test_rows=9)
    model = evolve(TINY, numeric=name == "house_prices")
    made = fp.runs.prepare(config_of(tmp_path, spec=name, model=model))
    assert [fp.length(part) for part in (made.splits.train, made.splits.valid, made.splits.test)] == [30, 15, 9]
    check(made)


def test_a_folder_with_classes_that_are_texts(tmp_path: Path):
    spec = spec_of("multiclass", classes=["cat", "dog", "owl"], id="id", name="pets", metric="accuracy")
    fp.kaggle.write_synthetic(spec, tmp_path, rows=60)
    header, *lines = (tmp_path / "train.csv").read_text().splitlines()
    place = header.split(",").index("y")
    assert {line.split(",")[place] for line in lines} == {"cat", "dog", "owl"}
    fp.kaggle.save_spec(spec, tmp_path / "spec.yaml")
    made = fp.runs.prepare(config_of(tmp_path, spec=str(tmp_path / "spec.yaml")))
    assert made.recipe.target.outputs == 3
    check(made)
    (tmp_path / "test.csv").write_text("\n".join(line.rpartition(",")[0] for line in (header, *lines[:5])) + "\n")
    inferred = fp.runs.prepare(config_of(tmp_path))
    assert (inferred.plan.data.spec.kind, inferred.plan.data.spec.classes) == ("multiclass", ("cat", "dog", "owl"))
    check(inferred)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("regression", {}),
        ("regression", {"metric": "rmsle", "target": ["y", "z"]}),
        ("multilabel", {}),
        ("multiclass", {"kind": "ordinal", "metric": "qwk"}),
        ("regression", {"kind": "time_series", "time": "day", "metric": "mae"}),
        ("binary", {"group": "ship"}),
    ],
)
def test_a_folder_of_every_kind(tmp_path: Path, kind: str, changes):
    spec = evolve(spec_of(kind), **changes)
    fp.kaggle.write_synthetic(spec, tmp_path, rows=60)
    fp.kaggle.save_spec(spec, tmp_path / "spec.yaml")
    made = fp.runs.prepare(config_of(tmp_path, spec=str(tmp_path / "spec.yaml"), model=evolve(TINY, numeric=True)))
    assert made.plan.data.spec == spec
    assert made.splits.test is None
    check(made)
    if spec.time is not None:
        assert max(fp.kaggle.column_values(made.splits.train, "day")) < min(fp.kaggle.column_values(made.splits.valid, "day"))
    if spec.group is not None:
        assert not {*fp.kaggle.column_values(made.splits.train, "ship")} & {*fp.kaggle.column_values(made.splits.valid, "ship")}


def test_other_rows_change_nothing_that_is_learned(tmp_path: Path):
    """Change every validation and test row: the fold is the same in all that was fitted."""
    spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path, rows=40, test_rows=9)
    config = config_of(tmp_path, spec="titanic", model=evolve(TINY, numeric=True), text=evolve(SMALL, numbers="quantile", digits=5))
    made = fp.runs.prepare(config)
    valid = {int(number) for number in fp.kaggle.column_values(made.splits.valid, "PassengerId")}
    header, *lines = (tmp_path / "train.csv").read_text().splitlines()
    at = {name: header.split(",").index(name) for name in (spec.id, "Survived")}

    def changed(line: str) -> str:
        cells = line.split(",")
        if int(cells[at["PassengerId"]]) not in valid:
            return line
        return ",".join(cell if place in at.values() else str(1000 + place) for place, cell in enumerate(cells))

    (tmp_path / "train.csv").write_text("\n".join([header, *map(changed, lines)]) + "\n")
    assert spec.test is not None
    (tmp_path / spec.test.name).write_text((tmp_path / spec.test.name).read_text().replace("amber", "zebra"))
    again = fp.runs.prepare(config)
    assert fp.to_table(again.splits.train).equals(fp.to_table(made.splits.train))
    assert not fp.to_table(again.splits.valid).equals(fp.to_table(made.splits.valid))
    assert again.recipe == made.recipe
    one, other = (dict(tree_flatten(each.model.parameters())) for each in (made, again))
    assert all(mx.array_equal(one[name], other[name]).item() for name in one)


def test_a_step_of_training_and_another_order_in_each_epoch(tmp_path: Path):
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path, rows=45)
    config = config_of(tmp_path, spec="titanic", text=evolve(SMALL, permute=True, drop=0.1))
    made = fp.runs.prepare(evolve(config, competition=fp.runs.CompetitionConfig(metric="log_loss", views=2)))
    assert made.plan.metric.name == made.recipe.spec.metric == "log_loss"
    optimizer = optimizer_of(config, updates=4)
    step = step_of(config, made.model, made.objective, optimizer)
    state, metrics = step(step.start(fp.train_state(made.model, optimizer, seed=0)), next(iter(made.batches)))
    assert np.isfinite(metrics["loss"].item())
    assert made.predictor(state).views == 2
    epochs = [np.concatenate([np.array(batch["labels"]) for batch, _ in fp.iterate(made.batches, epoch=epoch)]) for epoch in (0, 0, 1)]
    assert len(epochs[0]) == 24  # whole batches only
    assert (epochs[0] == epochs[1]).all()
    assert (epochs[0] != epochs[2]).any()


@pytest.mark.parametrize("name", ["titanic", "house_prices"])
def test_the_real_files_are_made_in_one_call(data_folder: Path, name: str):
    text = {"titanic": fp.runs.TextConfig(), "house_prices": fp.runs.TextConfig(form="key_value", numbers="none", max_length=256)}[name]
    config = config_of(data_folder / name, spec=name, text=text, limit=60, model=evolve(TINY, numeric=name == "house_prices"))
    made = fp.runs.prepare(config)
    assert made.plan.data.mismatches == ""
    check(made)


def test_rows_that_are_too_long_are_refused_whatever_part_they_are_in(tmp_path: Path):
    spec = fp.kaggle.write_synthetic(fp.kaggle.SPECS["disaster_tweets"], tmp_path, rows=45, test_rows=9)
    text = fp.runs.TextConfig(form="key_value", max_length=64)
    fp.runs.prepare(config_of(tmp_path, spec="disaster_tweets", text=text))
    assert spec.test is not None
    with (tmp_path / spec.test.name).open("a") as file:
        file.write(f"999,,,{'word ' * 200}\n")
    assert spec.sample is not None
    with (tmp_path / spec.sample.name).open("a") as file:
        file.write("999,0\n")
    with pytest.raises(DataError, match=r"10\.0 % of 10 rows have more tokens than max_length=64"):
        fp.runs.prepare(config_of(tmp_path, spec="disaster_tweets", text=text))


def test_what_cannot_be_prepared_is_refused():
    with pytest.raises(ArgumentTypeError, match="config must be a RunConfig, got str"):
        fp.runs.prepare("titanic")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(
        ArgumentError, match=r"The run has no data\. Give the folder of your files as data\.path=FOLDER, or write synthetic rows"
    ):
        fp.runs.prepare(fp.runs.RunConfig())


def test_a_fold_is_prepared_as_a_run_trains_it(tmp_path: Path):
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path, rows=45)
    config = config_of(tmp_path, spec="titanic")
    made = fp.runs.prepare(config)
    assert [fp.length(part) for part in (made.splits.train, made.splits.valid)] == [30, 15]
    assert made.recipe.seed == made.plan.seed_of(made.fold)
    stops = fp.runs.prepare(evolve(config, observers=fp.runs.ObserversConfig(patience=1)))
    assert [fp.length(part) for part in (stops.splits.train, stops.splits.valid)] == [27, 3]
