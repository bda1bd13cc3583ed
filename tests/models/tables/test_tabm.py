"""TabM is as many networks as it has members: they share their layers, and nothing else."""

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_pure_step
from tests.models.tables.samples import arrays, table, tabm


def inputs_of(model, batch):
    """The inputs of the first layer, before the scales of the members: float[B, inputs]."""
    numbers = np.array(model.piecewise(batch["numbers"])).reshape(len(batch["numbers"]), -1)
    categories = np.array(batch["categories"])
    hot = [np.eye(count + 1)[categories[:, place]][:, 1:] for place, count in enumerate(model.config.columns.kinds)]
    return np.concatenate([numbers, *hot], axis=1)


@pytest.mark.parametrize("kind", ["class", "labels", "value"])
def test_each_member_is_a_network_of_its_own_with_shared_layers(kind):
    model, batch = tabm(kind, seed=2).eval(), arrays()
    model.piecewise.weight = mx.random.normal(model.piecewise.weight.shape, key=mx.random.key(1))
    found = np.array(model.members(**batch)).reshape(40, 4, -1)
    inputs = inputs_of(model, batch)
    for member in range(4):
        hidden = inputs * np.array(model.scale[member])
        for layer in model.layers:
            hidden = np.maximum(hidden @ np.array(layer.weight).T + np.array(layer.bias), 0)
        wanted = hidden @ np.array(model.output_weight[member]) + np.array(model.output_bias[member])
        assert found[:, member] == pytest.approx(wanted, abs=1e-4)


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_the_answer_is_the_mean_of_the_members_probabilities_or_values():
    batch = arrays()
    for kind, link in (("class", softmax), ("labels", lambda logits: 1 / (1 + np.exp(-logits))), ("value", lambda values: values)):
        model = tabm(kind).eval()
        model.output_weight = model.output_weight * 20  # members that differ
        members = np.array(model.members(**batch), np.float64)
        assert link(np.array(model(**batch), np.float64)) == pytest.approx(link(members).mean(axis=1), abs=1e-5)


def test_answers_of_certain_members_are_finite():
    model = tabm("labels").eval()
    model.output_weight = model.output_weight * 1e4
    assert np.isfinite(np.array(model(**arrays()))).all()


def test_the_inputs_of_a_column_have_one_scale_in_each_member_at_first():
    model = tabm(seed=1)
    sections = [16, 16, 2, 4, 2]
    scale, start = np.array(model.scale), 0
    assert scale.shape == (4, sum(sections))
    for size in sections:
        own = scale[:, start : start + size]
        assert (own == own[:, :1]).all()
        start += size
    assert len(np.unique(scale)) == 4 * len(sections)


def test_gradients_are_those_of_the_mean_loss_of_the_members():
    model, batch, labels = tabm(dropout=0.0), arrays(), mx.array([0, 1, 2, 1] * 10)

    def mean(params):
        model.update(params)
        members = model.members(**batch)
        total, weight = fp.losses.cross_entropy(members.flatten(0, 1), mx.repeat(labels, 4, axis=0))
        return total / weight

    def by_hand(params):
        model.update(params)
        members = model.members(**batch)
        each = [fp.losses.cross_entropy(members[:, place], labels) for place in range(4)]
        return sum(total / weight for total, weight in each) / 4

    params = model.parameters()
    left, right = mx.grad(mean)(params), mx.grad(by_hand)(params)
    for name in ("scale", "output_weight"):
        assert np.array(left[name]) == pytest.approx(np.array(right[name]), abs=1e-6)


def test_a_step_is_pure_and_compiles():
    model, batch = tabm(), {**arrays(), "labels": mx.array([0, 1, 2, 1] * 10)}

    def loss(model, batch):
        return fp.losses.cross_entropy(
            model.members(batch["numbers"], batch["categories"]).flatten(0, 1), mx.repeat(batch["labels"], 4, axis=0)
        )

    optimizer = fp.optimizers.adamw(2e-3)
    step, state = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer, seed=0)
    assert_pure_step(step, state, batch)
    assert_compiled_equals_eager(step, state, batch, tolerance=1e-4)


def test_a_table_may_have_numbers_or_categories_alone():
    rows = table(20)
    for options in ({"numbers": ["size"], "bins": 3}, {"categories": ["deck"]}):
        columns = fp.models.fit_columns(rows, **options)
        assert isinstance(model := tabm(columns=columns), fp.models.TabM)
        assert model(**arrays(rows, columns)).shape == (20, 3)
