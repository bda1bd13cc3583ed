"""Networks for tables by name, in files, and asked for predictions of rows as they were read."""

import json

import numpy as np
import pytest
from attrs import evolve
from mlx import nn
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.data.rows.columns import drop_columns
from mlxfp.data.rows.filtering import filter_by
from mlxfp.data.rows.map_filter import take
from mlxfp.models import TABLE_MODELS, TableTarget, create_table_model, describe, load, predict_table, save
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CheckpointError, ConfigError, DataError, SchemaError, UnknownNameError
from mlxfp.text.tokenizers.training import train_tokenizer
from tests.models.tables.samples import COLUMNS, ROWS, realmlp, table, tabm

MADE = [realmlp, tabm]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("kind", ["class", "labels", "value"])
def test_a_saved_network_predicts_rows_as_they_were_read(tmp_path, make, kind):
    model = make(kind, seed=4)
    save(tmp_path, model)
    again = load(tmp_path)
    assert (type(again), again.config, again.training) == (type(model), model.config, False)
    found = predict_table(again, drop_columns(["price"])(ROWS))
    assert np.array_equal(found, predict_table(model, ROWS))
    assert found.shape == {"class": (40, 3), "labels": (40, 2), "value": (40,)}[kind]
    if kind == "class":
        assert found.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-5)


def test_values_are_in_the_units_of_the_target():
    target = TableTarget("value", 1, mean=(2.0,), scale=(0.5,), log=True)
    model = create_table_model("tabm", COLUMNS, target, size="tiny")
    plain = create_table_model("tabm", COLUMNS, TableTarget("value", 1), size="tiny")
    assert predict_table(model, ROWS) == pytest.approx(np.maximum(np.expm1(predict_table(plain, ROWS) * 0.5 + 2), 0), rel=1e-6)


@pytest.mark.parametrize("make", MADE)
def test_predictions_do_not_depend_on_the_other_rows_nor_change_the_model(make):
    model, rows = make("value"), table(9, seed=3)
    whole = predict_table(model, rows)
    assert model.training
    assert np.array_equal(whole[:4], predict_table(model, take(4)(rows))) or whole[:4] == pytest.approx(
        predict_table(model, take(4)(rows)), abs=1e-5
    )
    assert predict_table(model, filter_by([("size", ">", 1e9)])(rows)).shape == (0,)


def test_unseen_categories_and_missing_values_are_predicted():
    odd = fp.from_examples([{"size": None, "age": float("inf"), "sex": "x", "deck": None}])
    assert all(np.isfinite(predict_table(make(), odd)).all() for make in MADE)


@pytest.mark.parametrize("name", sorted(TABLE_MODELS))
def test_networks_have_names_and_sizes(name):
    sizes = {size: create_table_model(name, COLUMNS, TableTarget("class", 2), size=size) for size in TABLE_MODELS[name].sizes}
    counts = {size: sum(array.size for _, array in tree_flatten(model.parameters())) for size, model in sizes.items()}
    assert counts["tiny"] < counts["small"] < counts["base"]
    assert create_table_model(name, COLUMNS, TableTarget("class", 2), size="tiny", dropout=0.0).config.dropout == 0
    assert "parameters" in describe(sizes["tiny"])
    with pytest.raises(UnknownNameError, match="No size is named 'huge'"):
        create_table_model(name, COLUMNS, TableTarget("class", 2), size="huge")


@pytest.mark.parametrize(("name", "argument", "value"), [("realmlp", "sigma", 2.0), ("tabm", "members", 4)])
def test_other_fields_of_their_configs_are_arguments(name, argument, value):
    assert argument in TABLE_MODELS[name].arguments
    made = create_table_model(name, COLUMNS, TableTarget("class", 2), size="tiny", dropout=0.3, arguments={argument: value})
    plain = create_table_model(name, COLUMNS, TableTarget("class", 2), size="tiny", dropout=0.3)
    assert made.config == evolve(plain.config, **{argument: value}) != plain.config
    with pytest.raises(ConfigError, match=f"{argument}: expected (a number|an integer), got 'much'"):
        create_table_model(name, COLUMNS, TableTarget("class", 2), arguments={argument: "much"})


def test_weights_follow_from_the_seed():
    for make in MADE:
        assert np.array_equal(predict_table(make(seed=1), ROWS), predict_table(make(seed=1), ROWS))
        assert not np.array_equal(predict_table(make(seed=1), ROWS), predict_table(make(seed=2), ROWS))


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_damaged_files_are_refused(tmp_path):
    save(tmp_path, realmlp())
    config = json.loads((tmp_path / "config.json").read_text())["config"]
    changed(tmp_path, config={**config, "hidden_sizes": [5]})
    with pytest.raises(CheckpointError, match=r"do not match the RealMLP: activations.0.share"):
        load(tmp_path)
    changed(tmp_path, config={**config, "dropout": "much"})
    with pytest.raises(ConfigError, match="dropout: expected a number, got 'much'"):
        load(tmp_path)
    changed(tmp_path, config=None)
    with pytest.raises(DataError, match="the section config is missing"):
        load(tmp_path)


def test_what_is_not_for_networks_for_tables_is_refused(tmp_path):
    with pytest.raises(ArgumentTypeError, match="predict_table needs a table network, got Linear"):
        predict_table(nn.Linear(2, 2), ROWS)
    with pytest.raises(SchemaError):
        predict_table(realmlp(), drop_columns(["age"])(ROWS))
    tokenizer = train_tokenizer(fp.from_examples([{"text": "a b"}]), vocab_size=300)
    with pytest.raises(ArgumentError, match="A RealMLP has no tokenizer"):
        save(tmp_path, realmlp(), tokenizer=tokenizer)
