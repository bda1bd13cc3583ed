"""RealMLP computes what its paper says, and its parts do."""

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.models.tables.inputs import one_hot, one_hot_scales, scaled
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_pure_step
from tests.models.tables.samples import COLUMNS, arrays, realmlp, table, tabm

X = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def test_a_layer_divides_by_the_root_of_its_inputs():
    layer = fp.models.NTKLinear(5, 3, seed=1)
    layer.bias = mx.array([1.0, 2.0, 3.0])
    assert np.array(layer(mx.array(X))) == pytest.approx(X @ np.array(layer.weight).T / 5**0.5 + [1, 2, 3], abs=1e-5)
    assert abs(np.array(fp.models.NTKLinear(100, 100).weight).std() - 1) < 0.03


def test_an_adapted_layer_varies_by_1_and_crosses_0_between_rows():
    x = np.random.default_rng(1).normal(3, 5, size=(200, 5)).astype(np.float32)
    layer = fp.models.NTKLinear(5, 64, seed=1)
    found = np.array(layer.adapted(mx.array(x), mx.random.key(0), mx.random.key(1)))
    assert found == pytest.approx(np.array(layer(mx.array(x))), abs=1e-4)
    assert found.std(axis=0) == pytest.approx(np.ones(64), abs=1e-3)
    assert (found.min(axis=0) < 0).all()
    assert (found.max(axis=0) > 0).all()


@pytest.mark.parametrize("rows", [2, 14, 100])
def test_a_layer_adapted_to_equal_rows_keeps_its_weights(rows):
    """The outputs of equal rows differ by rounding errors. A division by these errors would make weights of 1e9."""
    layer, fresh = fp.models.NTKLinear(5, 64, seed=1), fp.models.NTKLinear(5, 64, seed=1)
    layer.adapted(mx.repeat(mx.array(X[:1]), rows, axis=0), mx.random.key(0), mx.random.key(1))
    assert np.array_equal(layer.weight, fresh.weight)
    assert np.array(layer(mx.array(X[:1]))) == pytest.approx(np.zeros((1, 64)), abs=1e-5)


def test_an_activation_is_mixed_with_the_identity():
    layer = fp.models.MixedActivation(5, mx.abs)
    layer.share = mx.array([0.0, 0.25, 0.5, 1.0, 2.0])
    assert np.array(layer(mx.array(X))) == pytest.approx(X + (abs(X) - X) * np.array(layer.share), abs=1e-6)


def test_the_whole_network_is_what_the_parts_make():
    model = realmlp("class", seed=3, examples=arrays()).eval()
    inputs = arrays()
    numbers, categories = (np.array(inputs[name]) for name in ("numbers", "categories"))
    embedded = np.array(model.periodic(inputs["numbers"])).reshape(len(numbers), -1)
    sex, deck, missing = categories.T
    signs = np.array([0.0, 1.0, -1.0])
    codes = np.concatenate([signs[sex][:, None], np.eye(5)[deck][:, 1:], signs[missing][:, None]], axis=1)
    hidden = np.concatenate([embedded, as_numbers(codes)], axis=1) * np.array(model.scale)
    for layer, activation in zip(model.layers[:-1], model.activations, strict=True):
        hidden = hidden @ np.array(layer.weight).T / len(hidden[0]) ** 0.5 + np.array(layer.bias)
        selu = 1.0507009873554805 * np.where(hidden > 0, hidden, 1.6732632423543772 * (np.exp(np.minimum(hidden, 0)) - 1))
        hidden = hidden + (selu - hidden) * np.array(activation.share)
    wanted = hidden @ np.array(model.layers[-1].weight).T / len(hidden[0]) ** 0.5 + np.array(model.layers[-1].bias)
    assert np.array(model(**inputs)) == pytest.approx(wanted, abs=1e-3)


def as_numbers(codes):
    """Scale columns by their quartiles, or else their ends, and clip them smoothly."""
    low, median, high = np.quantile(codes, [0.25, 0.5, 0.75], axis=0)
    span = np.where(high > low, high - low, (codes.max(axis=0) - codes.min(axis=0)) / 2)
    scaled = (codes - median) / np.where(span > 0, span, np.inf)
    return scaled / np.sqrt(1 + scaled**2 / 9)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9).filter(any))
def test_the_codes_of_categories_are_scaled_as_columns_of_numbers_are(counts):
    rows = np.repeat(np.arange(len(counts)), counts)
    codes = np.array(one_hot(mx.array(rows), len(counts) - 1))
    scales = tuple(map(mx.array, zip(*one_hot_scales(counts), strict=True)))
    found = np.array(scaled(mx.array(codes), scales))
    assert found == pytest.approx(as_numbers(codes), abs=1e-6)


def test_the_codes_of_categories_are_those_of_the_authors():
    # Computed with pytabkit 1.7.3: what its RealMLP_TD_Regressor makes of these rows, before the scale of the inputs.
    sex, rare = ["m"] * 241 + ["f"] * 158 + [None], ["b"] * 358 + ["a"] * 42
    port = ["S"] * 263 + ["C"] * 80 + ["Q"] * 33 + [None] * 24
    columns = fp.models.fit_columns(fp.from_table({"sex": sex, "rare": rare, "port": port}), categories=["sex", "rare", "port"])
    model = realmlp("value", columns=columns)
    asked = fp.from_table({"sex": ["f", "m", "m", None, "m"], "rare": ["b", "b", "b", "a", "b"], "port": [None, "Q", "S", "S", "C"]})
    wanted = [
        [0.9487, 0, 0, 0, -0.9487],
        [0, 0, 0, 1.6641, -0.9487],
        [0, 0, 0, 0, 0],
        [0.4932, 1.6641, 0, 0, 0],
        [0, 0, 1.6641, 0, -0.9487],
    ]
    assert np.array(model._inputs(None, **arrays(asked, columns))) == pytest.approx(np.array(wanted), abs=5e-5)


def test_columns_without_counts_leave_the_codes_as_they_are():
    columns = fp.models.TableColumns((), (fp.models.CategoryColumn("sex", ("f", "m")), fp.models.CategoryColumn("deck", ("A", "B", "C"))))
    codes = realmlp(columns=columns)._inputs(None, mx.array([[1, 3], [2, 0]]))
    assert codes.tolist() == [[1, 0, 0, 1], [-1, 0, 0, 0]]


def test_many_categories_are_embedded_and_an_unseen_one_starts_at_0():
    rows = table(30)
    columns = fp.models.fit_columns(rows, numbers=["size"], categories=["deck"])
    model = realmlp(columns=columns, one_hot=3, embedding_size=4)
    assert model.layers[0].weight.shape[1] == 4 + 4
    assert [each["weight"].shape for each in model.categories] == [(5, 4)]
    assert not np.array(model.categories[0].weight[0]).any()
    numbers = mx.zeros((2, 1))
    assert np.array(model.eval()(numbers, mx.array([[5], [99]])))[0] == pytest.approx(
        np.array(model(numbers, mx.array([[4], [4]])))[1], abs=1e-6
    )  # a category beyond the last is taken for the last, and never read from other memory


def test_dropout_fades_out_and_the_steps_are_counted():
    model = realmlp("value", steps=4)
    x = arrays()
    first = [np.array(model(**x)) for _ in range(5)]
    assert model.steps_done.item() == 5
    assert np.array_equal(first[4], np.array(model(**x)))  # no dropout is left
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first[4], np.array(model.eval()(**x)))
    assert model.steps_done.item() == 6


def test_a_rate_that_fades_keeps_the_mean():
    layer = fp.models.FadingDropout(0.4).keyed(mx.random.key(0))
    for share in (1.0, 0.5, 0.0):
        made = np.array(layer(mx.ones(20_000), mx.array(share)))
        assert made.mean() == pytest.approx(1, abs=0.02)
        assert (made == 0).mean() == pytest.approx(0.4 * share, abs=0.02)
    assert layer.eval()(mx.ones(3)).tolist() == [1, 1, 1]


def test_values_stay_within_those_of_training_in_evaluation_only():
    target = fp.models.TableTarget("value", 1, low=(-0.01,), high=(0.01,))
    model = fp.models.RealMLP(fp.models.RealMLPConfig(columns=COLUMNS, target=target, hidden_sizes=(4,), dropout=0.0))
    assert np.abs(np.array(model(**arrays()))).max() > 0.01
    assert np.abs(np.array(model.eval()(**arrays()))).max() <= 0.0101


SHAPES = [("class", 3, (40, 3)), ("labels", 2, (40, 2)), ("value", 1, (40,)), ("value", 2, (40, 2))]


@pytest.mark.parametrize(("kind", "outputs", "shape"), SHAPES)
def test_outputs_have_the_shape_of_the_target(kind, outputs, shape):
    assert realmlp(kind, outputs=outputs)(**arrays()).shape == shape


def test_a_step_is_pure_and_compiles():
    model = realmlp(steps=10)
    batch = {**arrays(), "labels": mx.array([0, 1, 2, 1] * 10)}

    def loss(model, batch):
        return fp.losses.cross_entropy(model(batch["numbers"], batch["categories"]), batch["labels"])

    made = fp.optimizers.fading_adam(0.04, *fp.models.TABLE_MODELS["realmlp"].rates.groups, steps=10)
    step, state = fp.train_step(model, loss, made), fp.train_state(model, made, seed=0)
    assert_pure_step(step, state, batch)
    assert_compiled_equals_eager(step, state, batch, tolerance=1e-4)
    after, _ = step(state, batch)
    assert after.buffers["steps_done"].item() == 1


@pytest.mark.parametrize("make", [realmlp, tabm])
def test_other_inputs_are_refused(make):
    model = make()
    with pytest.raises(ArgumentError, match=r"The model needs numbers of shape \[B, 2\], got none"):
        model(None, mx.zeros((3, 3), mx.int32))
    with pytest.raises(ArgumentError, match=r"The model needs categories of shape \[B, 3\], got \[3, 1\]"):
        model(mx.zeros((3, 2)), mx.zeros((3, 1), mx.int32))


def test_impossible_configs_are_refused():
    with pytest.raises(ArgumentTypeError):
        fp.models.RealMLPConfig(columns=None, target=fp.models.TableTarget("class", 2))
    with pytest.raises(ArgumentError, match="low needs one number for each of 2 outputs, got 1"):
        fp.models.TableTarget("value", 2, low=(1.0,))
    with pytest.raises(ArgumentError, match="A RealMLP needs columns with values, got none"):
        realmlp(columns=fp.models.fit_columns(fp.from_table({"x": pa.array([None, None], pa.string())}), categories=["x"]))
