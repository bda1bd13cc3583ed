"""Networks for tables by name, in files, and asked for predictions of rows as they were read."""

import json

import numpy as np
import pytest
from attrs import evolve
from mlx import nn
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CheckpointError, ConfigError, DataError, SchemaError, UnknownNameError
from tests.models.tables.samples import COLUMNS, ROWS, realmlp, table, tabm

MADE = [realmlp, tabm]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("kind", ["class", "labels", "value"])
def test_a_saved_network_predicts_rows_as_they_were_read(tmp_path, make, kind):
    model = make(kind, seed=4)
    fp.models.save(tmp_path, model)
    again = fp.models.load(tmp_path)
    assert (type(again), again.config, again.training) == (type(model), model.config, False)
    found = fp.models.predict_table(again, fp.drop_columns(["price"])(ROWS))
    assert np.array_equal(found, fp.models.predict_table(model, ROWS))
    assert found.shape == {"class": (40, 3), "labels": (40, 2), "value": (40,)}[kind]
    if kind == "class":
        assert found.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-5)


@pytest.mark.parametrize("name", ["realmlp", "tabm"])
def test_a_saved_network_keeps_the_names_of_its_classes(tmp_path, name):
    """Predict classes as words after `load`."""
    classes = ["good", "Größe", "poor"]
    model = fp.models.create_table_model(name, COLUMNS, fp.models.TableTarget("class", 3, classes=classes), size="tiny")
    fp.models.save(tmp_path, model)
    assert fp.models.load(tmp_path).config.target.classes == ("good", "Größe", "poor")


def test_a_target_needs_a_name_for_each_class():
    """Refuse names that do not fit the outputs."""
    with pytest.raises(ArgumentError, match=r"classes must name each output, got 2 names and outputs=3\. Pass outputs=2\."):
        fp.models.TableTarget("class", 3, classes=["a", "b"])
    with pytest.raises(ArgumentError, match="classes repeats 'a'"):
        fp.models.TableTarget("class", 2, classes=["a", "a"])


def test_values_are_in_the_units_of_the_target():
    target = fp.models.TableTarget("value", 1, mean=(2.0,), scale=(0.5,), log=True)
    model = fp.models.create_table_model("tabm", COLUMNS, target, size="tiny")
    plain = fp.models.create_table_model("tabm", COLUMNS, fp.models.TableTarget("value", 1), size="tiny")
    assert fp.models.predict_table(model, ROWS) == pytest.approx(
        np.maximum(np.expm1(fp.models.predict_table(plain, ROWS) * 0.5 + 2), 0), rel=1e-6
    )


@pytest.mark.parametrize("make", MADE)
def test_predictions_do_not_depend_on_the_other_rows_nor_change_the_model(make):
    model, rows = make("value"), table(9, seed=3)
    whole = fp.models.predict_table(model, rows)
    assert model.training
    assert np.array_equal(whole[:4], fp.models.predict_table(model, fp.take(4)(rows))) or whole[:4] == pytest.approx(
        fp.models.predict_table(model, fp.take(4)(rows)), abs=1e-5
    )
    assert fp.models.predict_table(model, fp.filter_by([("size", ">", 1e9)])(rows)).shape == (0,)


def test_unseen_categories_and_missing_values_are_predicted():
    odd = fp.from_examples([{"size": None, "age": float("inf"), "sex": "x", "deck": None}])
    assert all(np.isfinite(fp.models.predict_table(make(), odd)).all() for make in MADE)


@pytest.mark.parametrize("name", sorted(fp.models.TABLE_MODELS))
def test_networks_have_names_and_sizes(name):
    sizes = {
        size: fp.models.create_table_model(name, COLUMNS, fp.models.TableTarget("class", 2), size=size)
        for size in fp.models.TABLE_MODELS[name].sizes
    }
    counts = {size: sum(array.size for _, array in tree_flatten(model.parameters())) for size, model in sizes.items()}
    assert counts["tiny"] < counts["small"] < counts["base"]
    assert fp.models.create_table_model(name, COLUMNS, fp.models.TableTarget("class", 2), size="tiny", dropout=0.0).config.dropout == 0
    with pytest.raises(UnknownNameError, match="No size is named 'huge'"):
        fp.models.create_table_model(name, COLUMNS, fp.models.TableTarget("class", 2), size="huge")


@pytest.mark.parametrize(("name", "argument", "value"), [("realmlp", "sigma", 2.0), ("tabm", "members", 4)])
def test_other_fields_of_their_configs_are_arguments(name, argument, value):
    assert argument in fp.models.TABLE_MODELS[name].arguments
    made = fp.models.create_table_model(
        name, COLUMNS, fp.models.TableTarget("class", 2), size="tiny", dropout=0.3, arguments={argument: value}
    )
    plain = fp.models.create_table_model(name, COLUMNS, fp.models.TableTarget("class", 2), size="tiny", dropout=0.3)
    assert made.config == evolve(plain.config, **{argument: value}) != plain.config
    with pytest.raises(ConfigError, match=f"{argument}: expected (a number|an integer), got 'much'"):
        fp.models.create_table_model(name, COLUMNS, fp.models.TableTarget("class", 2), arguments={argument: "much"})


def test_weights_follow_from_the_seed():
    for make in MADE:
        assert np.array_equal(fp.models.predict_table(make(seed=1), ROWS), fp.models.predict_table(make(seed=1), ROWS))
        assert not np.array_equal(fp.models.predict_table(make(seed=1), ROWS), fp.models.predict_table(make(seed=2), ROWS))


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_damaged_files_are_refused(tmp_path):
    fp.models.save(tmp_path, realmlp())
    config = json.loads((tmp_path / "config.json").read_text())["config"]
    changed(tmp_path, config={**config, "hidden_sizes": [5]})
    with pytest.raises(CheckpointError, match=r"do not match the RealMLP in config.json:\n  unexpected: activations.1.share"):
        fp.models.load(tmp_path)
    changed(tmp_path, config={**config, "dropout": "much"})
    with pytest.raises(ConfigError, match="dropout: expected a number, got 'much'"):
        fp.models.load(tmp_path)
    changed(tmp_path, config=None)
    with pytest.raises(DataError, match="the section config is missing"):
        fp.models.load(tmp_path)


def test_what_is_not_for_networks_for_tables_is_refused(tmp_path):
    with pytest.raises(ArgumentTypeError, match="predict_table needs a table network, got Linear"):
        fp.models.predict_table(nn.Linear(2, 2), ROWS)
    with pytest.raises(SchemaError, match=r"^predict_table needs the column 'age', which is missing"):
        fp.models.predict_table(realmlp(), fp.drop_columns(["age"])(ROWS))
    tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "a b"}]), vocab_size=300)
    with pytest.raises(ArgumentError, match="A RealMLP has no tokenizer"):
        fp.models.save(tmp_path, realmlp(), tokenizer=tokenizer)
