"""Recipes of networks for tables know their training rows only, and the networks learn every kind of target."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.tasks.recipes import labelled_batches, training_batches
from tests.app.tasks.drawing import first_of, rows_of, spec_of, tables

KINDS = ["binary", "multiclass", "multilabel", "regression"]


@settings(max_examples=20)
@given(data=st.data(), kind=st.sampled_from(KINDS), name=st.sampled_from(["realmlp", "tabm"]))
def test_a_recipe_knows_its_training_rows_only(data, kind, name):
    spec = spec_of(kind)
    train, others = data.draw(tables(spec)), data.draw(tables(spec))
    recipe = fp.kaggle.fit_table_recipe(spec, first_of(train, others), name)
    assert recipe == fp.kaggle.fit_table_recipe(spec, fp.from_table(train), name)
    assert fp.runs.structure(fp.runs.unstructure(recipe), fp.kaggle.TableRecipe) == recipe
    made = fp.to_table(recipe(first_of(others, train)))
    assert made.num_rows == others.num_rows
    assert np.isfinite(made["numbers"].combine_chunks().to_numpy_ndarray()).all()


def trained(recipe, rows, *, steps, rate):
    model = fp.kaggle.make_table_model(recipe, size="tiny", seed=0, steps=steps, rows=rows)
    goal, optimizer = fp.kaggle.objective(recipe), fp.optimizers.adamw(rate)
    step, state = fp.train_step(model, goal.loss, optimizer), fp.train_state(model, optimizer, seed=0)
    batches = iter(fp.pipe(training_batches(recipe, rows, size=16, seed=0), fp.repeat(steps)))
    for _ in range(steps):
        state, _ = step(state, next(batches))
    return fp.kaggle.Predictor(recipe, model, state), goal


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["realmlp", "tabm"])
def test_every_kind_of_target_is_learned(name, kind):
    spec, rows = spec_of(kind), rows_of(kind, 32)
    recipe = fp.kaggle.fit_table_recipe(spec, rows, name)
    predict, goal = trained(recipe, rows, steps=60, rate=0.02)
    targets = np.stack([fp.to_table(rows)[column].to_numpy() for column in spec.target], axis=1)
    found = predict(fp.drop_columns(list(spec.target))(rows))
    if kind == "regression":
        assert np.abs(found - targets[:, 0]).mean() < 0.4 * targets.std()
    else:
        guesses = found.argmax(axis=1)[:, None] if kind == "multiclass" else (found.reshape(targets.shape) > 0.5)
        assert (guesses == targets).mean() > 0.9
    assert fp.kaggle.Predictor(recipe, predict.model, predict.state)(rows) == pytest.approx(found)
    measured = goal.measure(predict.model.eval(), next(iter(labelled_batches(recipe, rows))))
    assert sorted(measured) == (["accuracy", "loss"] if kind in ("binary", "multiclass") else ["loss"])


def test_several_values_are_scaled_each_by_its_own_training_rows():
    rows = fp.from_table({"x": [1.0, 2.0, 3.0], "a": [10.0, 20.0, 30.0], "b": [0.0, 0.0, 3.0]})
    spec = spec_of("regression", columns=[fp.kaggle.ColumnSpec(name="x", type="numerical")], target=["a", "b"])
    recipe = fp.kaggle.fit_table_recipe(spec, rows, "realmlp")
    assert recipe.low == pytest.approx((-1.2247, -0.7071), abs=1e-3)
    assert recipe.high == pytest.approx((1.2247, 1.4142), abs=1e-3)
    model = fp.kaggle.make_table_model(recipe, size="tiny", seed=0)
    assert model.config.target.scale == recipe.target.scale


def test_labels_are_smoothed_unless_probabilities_are_scored():
    rows = rows_of("binary")
    found = {
        (name, metric): fp.kaggle.objective(fp.kaggle.fit_table_recipe(spec_of("binary", metric=metric), rows, name)).smoothing
        for name in ("realmlp", "tabm")
        for metric in ("accuracy", "f1", "log_loss", "roc_auc")
    }
    assert {each for each, smoothing in found.items() if smoothing} == {("realmlp", "accuracy"), ("realmlp", "f1")}
    assert set(found.values()) == {0.0, 0.1}


def test_a_network_adapts_to_rows_from_all_over_the_table():
    rows = fp.from_table({"Age": np.arange(5000.0), "y": [0, 1] * 2500})
    spec = spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="Age", type="numerical")])
    model = fp.kaggle.make_table_model(fp.kaggle.fit_table_recipe(spec, rows, "realmlp"), size="tiny", seed=0, rows=rows).eval()
    batch = next(iter(labelled_batches(fp.kaggle.fit_table_recipe(spec, rows, "realmlp"), rows)))
    first = model.layers[0](model.periodic(batch["numbers"]).reshape(len(batch["numbers"]), -1))
    assert np.array(first).shape == (1024, 64)
    assert 0.05 < np.array(first).std(axis=0).mean() < 1.5


@pytest.mark.parametrize("name", ["realmlp", "tabm"])
def test_a_network_learns_from_texts_alone(name):
    spec = spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="Name", type="text")])
    rows = rows_of("binary", 32)
    recipe = fp.kaggle.fit_table_recipe(spec, rows, name)
    predict, _ = trained(recipe, rows, steps=100, rate=0.005)
    assert ((predict(rows) > 0.5) == (fp.to_table(rows)["y"].to_numpy() == 1)).all()
    assert np.isfinite(predict(fp.from_table({"Name": ["never seen", None, ""]}))).all()
