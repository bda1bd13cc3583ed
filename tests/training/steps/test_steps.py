"""A step is a pure function, and does what a loop written by hand does."""

import copy
import re
from functools import partial
from io import StringIO

import attrs
import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers
from mlx.utils import tree_map

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.trees import flatten
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_pure_step
from mlxfp.training.steps.accumulating import clip
from mlxfp.training.steps.state import same_arrays, train_state, trees_of
from tests.training.samples import group, loss, net, setting

NO_LABELS = (
    "The batch has no labels. Name the column of the labels with the argument label= of the collator, "
    'for example fp.collators.text(label="column").'
)


def test_the_law_catches_a_step_that_edits_the_state():
    step, state = setting()

    def editing(state, batch):
        after, metrics = step(state, batch)
        state.params["first"]["bias"] += 1
        return after, metrics

    with pytest.raises(AssertionError, match=r"changed its input at \[0\]\.params\.first\.bias"):
        assert_pure_step(editing, state, group())


def test_the_law_catches_a_step_that_draws_from_hidden_randomness():
    def hidden(state, batch):
        return state, {"noise": mx.random.uniform()}

    with pytest.raises(AssertionError, match=r"a second call differs at \[1\]\.noise"):
        assert_pure_step(hidden, setting()[1], group())


def test_the_law_catches_a_trace_that_took_a_number_with_it():
    traced = []

    def stale(state, batch):
        traced.append(1)
        return state, {"calls": mx.array(float(len(traced)))}

    with pytest.raises(AssertionError, match=r"compiled and eager differ at \[1\]\.calls"):
        assert_compiled_equals_eager(stale, setting()[1], group())


def test_steps_equal_a_loop_written_by_hand():
    model, optimizer = net(rate=0.0), optimizers.AdamW(0.01, bias_correction=True)
    step, state = setting(rate=0.0)
    batches = [group(seed=seed) for seed in range(4)]
    gradient = nn.value_and_grad(model, lambda x, label: nn.losses.cross_entropy(model(x), label, reduction="mean"))
    for batch in batches:
        value, gradients = gradient(batch["x"], batch["label"])
        optimizer.update(model, gradients)
        state, metrics = step(state, batch)
        assert metrics["loss"].item() == pytest.approx(value.item(), rel=1e-5)
    for ours, theirs in zip(flatten(state.params)[1], flatten(model.trainable_parameters())[1], strict=True):
        assert np.allclose(np.array(ours), np.array(theirs), rtol=1e-4, atol=1e-6)
    assert state.step == 4


def test_dropout_draws_another_mask_every_step_and_seed():
    frozen = optimizers.SGD(0.0)
    step, state = setting(optimizer=frozen)
    losses = [step(attrs.evolve(state, step=number, seed=seed), group())[1]["loss"].item() for number in range(3) for seed in range(2)]
    assert len(set(losses)) == 6


def test_the_dropout_of_mlx_in_a_compiled_step_draws_the_same_mask_for_ever():
    layer = nn.Dropout(0.5)
    naive = mx.compile(layer)
    assert naive(mx.ones(64)).tolist() == naive(mx.ones(64)).tolist()


def test_carried_text_does_not_reach_the_compiled_step():
    step, state = setting()
    for name in ("a", "b", "c"):
        state, _ = step(state, {**group(), "name": (name,) * 6})
    assert step.variants == 1
    step(state, group(size=4))
    assert step.variants == 2


def test_another_order_of_the_columns_gives_the_same_result():
    step, state = setting()
    batch = group()
    assert step(state, batch)[0] == step(state, dict(reversed(batch.items())))[0]


def test_a_batch_of_ignored_labels_changes_nothing_and_gives_no_nan():
    step, state = setting(optimizer=optimizers.SGD(0.1))
    after, metrics = step(state, {**group(), "label": mx.full(6, -100)})
    assert (metrics["loss"].item(), metrics["weight"].item()) == (0.0, 0.0)
    assert same_arrays(after.params, state.params)


def test_metrics_hold_the_norm_only_where_it_is_asked_for():
    for clip_norm, names in ((None, ["loss", "weight"]), (float("inf"), ["grad_norm", "loss", "weight"])):
        step, state = setting(clip_norm=clip_norm)
        assert sorted(step(state, group())[1]) == names


def test_measuring_the_norm_does_not_change_the_update():
    (plain, state), (measured, _) = setting(), setting(clip_norm=float("inf"))
    for name, a, b in zip("ab", flatten(plain(state, group())[0].params)[1], flatten(measured(state, group())[0].params)[1], strict=False):
        assert np.allclose(np.array(a), np.array(b), atol=1e-6), name


@pytest.mark.parametrize("norm", [0.5, 5.0, 50.0, float("inf")])
def test_clipping_is_that_of_mlx(norm):
    gradients = {"a": mx.array([3.0, -4.0]), "b": [mx.array([[12.0]]), {}]}
    clipped, before = clip(gradients, norm)
    expected, total = optimizers.clip_grad_norm(gradients, norm)
    assert before.item() == total.item() == 13.0
    for ours, theirs in zip(flatten(clipped)[1], flatten(expected)[1], strict=True):
        assert np.allclose(np.array(ours), np.array(theirs), rtol=1e-5)


def test_clipping_no_gradients_or_zeros_is_no_division_by_zero():
    assert clip({"a": mx.zeros(2)}, 1.0)[0]["a"].tolist() == [0.0, 0.0]
    assert clip({}, 1.0)[1].item() == 0.0


def test_a_step_keeps_no_weights_alive_and_does_not_see_later_changes_of_the_optimizer():
    model, optimizer = net(rate=0.0), optimizers.SGD(0.1)
    step, state = fp.train_step(model, loss, optimizer), train_state(model, optimizer)
    optimizer.learning_rate = 100.0
    expected, _ = setting(rate=0.0, optimizer=optimizers.SGD(0.1))
    assert step(state, group())[0] == expected(state, group())[0]
    _, weights = flatten([step._model.params, step._model.buffers, step._model._skeleton.parameters()])
    assert all(leaf.size == 1 for leaf in weights)


def test_frozen_layers_are_buffers_and_stay_as_they_are():
    model, optimizer = net(), fp.optimizers.adamw(0.1)
    model.first.freeze()
    step, state = fp.train_step(model, loss, optimizer), train_state(model, optimizer)
    after, _ = step(state, group())
    assert sorted(state.params["first"]) == []
    assert same_arrays(after.buffers["first"], state.buffers["first"])
    assert not same_arrays(after.params["last"], state.params["last"])


def test_a_state_of_another_model_or_optimizer_is_refused():
    step, _ = setting()
    model = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match=r"does not belong to the model and optimizer of this step\. Missing: params\.first\.weight"):
        step(train_state(model, fp.optimizers.adamw(0.1)), group())
    with pytest.raises(ArgumentError, match=r"Missing: opt\.first\.weight\.exp_avg_sq_row, .* Unexpected: opt\.learning_rate, "):
        setting(optimizer=optimizers.Adafactor())[0](setting(optimizer=optimizers.SGD(0.1))[1], group())
    with pytest.raises(ArgumentTypeError, match="state must be a TrainState, got dict"):
        step({}, group())


def test_a_state_changed_by_hand_is_checked_even_if_the_step_made_it():
    step, state = setting()
    state, _ = step(state, group())
    with pytest.raises(ArgumentError, match="does not belong"):
        step(attrs.evolve(state, buffers={}), group())


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": np.zeros(3)}, "The batch has ndarray at 'x', but needs an MLX array"),
        ({"x": 3}, "The batch has int at 'x'"),
        ([1, 2], "A batch is a dict of MLX arrays, got list"),
    ],
)
def test_what_is_no_batch_is_named(batch, message):
    step, state = setting()
    with pytest.raises(ArgumentTypeError, match=message):
        step(state, batch)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda logits, label: logits.mean(), r"must return two scalars, \(sum, weight\), got one scalar: array\[\]\. Return \(values"),
        (
            lambda logits, label: (logits.sum() * (1 + 2j), mx.array(1.0)),
            r"must return real numbers, got a complex sum or weight\. Return values",
        ),
        (
            lambda logits, label: 0.5,
            r"two scalars, \(sum, weight\), got one scalar: array\[\].* or \(mean \* count, count\) for the mean",
        ),
        (lambda logits, label: logits[:, 0], r"two scalars, \(sum, weight\), got \(array\[6\]\)"),
        (lambda logits, label: (logits.sum(axis=0), label.size), r"two scalars, \(sum, weight\), got \(array\[2\], array\[\]\)"),
        (lambda logits, label: (logits.sum(), None), r"two scalars, \(sum, weight\), got \(array\[\], NoneType\[\]\)"),
    ],
)
def test_a_loss_must_be_a_sum_and_a_weight(result, message):
    model = net()
    step = fp.train_step(model, lambda model, batch: result(model(batch["x"]), batch["label"]), fp.optimizers.adamw(0.1))
    with pytest.raises(ArgumentTypeError, match=message):
        step(train_state(model, fp.optimizers.adamw(0.1)), group())


def test_a_weight_may_be_a_python_number():
    model = net(rate=0.0)
    numbered = fp.train_step(model, lambda model, batch: (loss(model, batch)[0], len(batch["label"])), fp.optimizers.adamw(0.01))
    counted, state = setting(rate=0.0)
    assert numbered(state, group())[1]["loss"].item() == counted(state, group())[1]["loss"].item()


@pytest.mark.parametrize("clip_norm", [0, -1.0, float("nan")])
def test_an_impossible_norm_is_refused_when_the_step_is_made(clip_norm):
    with pytest.raises(ArgumentError, match="clip_norm must be above 0"):
        fp.train_step(net(), fp.losses.cross_entropy, fp.optimizers.adamw(0.1), clip_norm=clip_norm)


def test_a_mean_times_an_integer_weight_is_a_loss_though_mlx_cannot_compile_it_plainly():
    def mean_times_count(params, labels):
        counted = (labels >= 0).sum()
        return params.square().mean() * counted, counted

    def plain(params, labels):
        def objective(params):
            total, weight = mean_times_count(params, labels)
            weight = weight.astype(mx.float32)
            return total / weight, weight

        (mean, weight), gradient = mx.value_and_grad(objective)(params)
        return params - gradient, mean, weight

    with pytest.raises(IndexError):  # once this fails, the last line of sum_and_weight can be simpler
        mx.compile(plain)(mx.ones(3), mx.array([1, 0, -100]))
    model = net(rate=0.0)
    step = fp.train_step(model, lambda model, batch: mean_times_count(model(batch["x"]), batch["label"]), optimizers.SGD(0.1))
    _, metrics = step(train_state(model, optimizers.SGD(0.1)), group())
    assert metrics["weight"].item() == 6.0


def test_a_model_that_nothing_of_trains_is_named():
    frozen = net()
    frozen.freeze()
    with pytest.raises(ArgumentError, match=r"The model, a Net, has no parameters that train.*all are frozen\. Unfreeze parameters"):
        fp.train_step(frozen, loss, fp.optimizers.adamw(0.1))


def test_a_batch_may_have_trees_of_arrays():
    model, optimizer = nn.Linear(3, 2), fp.optimizers.adamw(0.1)

    def nested(model, batch):
        return fp.losses.cross_entropy(model(batch["both"]["x"] + batch["pair"][1]), batch["label"])

    step, batch = fp.train_step(model, nested, optimizer), group()
    trees = {"both": {"x": batch["x"], "more": [batch["x"]]}, "pair": (batch["x"], batch["x"]), "label": batch["label"]}
    _, metrics = step(train_state(model, optimizer), {**trees, "name": ("a", "b"), "none": (), "mixed": ("a", batch["x"])})
    assert np.isfinite(metrics["loss"].item())


def test_a_batch_may_have_the_parameters_of_another_model_some_of_whose_layers_have_none():
    other = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    apart = fp.functional(other)

    def follow(model, batch):
        wanted, _ = apart.apply(lambda module, x: module(x), batch["other"], {}, batch["x"])
        return fp.losses.mse(model(batch["x"]), wanted)

    model, optimizer = nn.Linear(2, 1), optimizers.SGD(0.1)
    step, state = fp.train_step(model, follow, optimizer), train_state(model, optimizer)
    scaled = [tree_map(partial(mx.multiply, times), apart.params) for times in (0, 1)]
    found = [step(state, {"x": mx.eye(2), "other": params})[1]["loss"].item() for params in scaled]
    alone, apart_from = model(mx.eye(2)), model(mx.eye(2)) - other(mx.eye(2))
    assert found == pytest.approx([mx.square(alone).mean().item(), mx.square(apart_from).mean().item()], rel=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_loss_may_call_another_module_as_long_as_its_weights_stay(compiled):
    teacher, model, optimizer = nn.Linear(2, 1), nn.Linear(2, 1), optimizers.SGD(0.1)

    def follow(model, batch):
        return fp.losses.mse(model(batch["x"]), teacher(batch["x"]))

    step, state = fp.train_step(model, follow, optimizer, compile=compiled), train_state(model, optimizer)
    for _ in range(3):
        state, _ = step(state, {"x": mx.eye(2)})
    teacher.update({"weight": teacher.weight + 1})
    if compiled:
        with pytest.raises(ArgumentError, match=r"weights \(Linear\) that are not among its arguments, and the weights have changed"):
            step(state, {"x": mx.eye(2)})
    else:
        bound = model.update(state.params)
        expected = mx.square(bound(mx.eye(2)) - teacher(mx.eye(2))).mean().item()
        assert step(state, {"x": mx.eye(2)})[1]["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_an_error_in_a_loss_says_what_the_loss_was_given():
    step, state = setting()
    with pytest.raises(ValueError, match="addmm") as raised:
        step(state, {**group(), "x": mx.zeros((6, 5)), "ids": [1, 2]})
    [note] = raised.value.__notes__
    assert note == (
        "while tracing the loss for compilation (arrays have no values yet) on a batch of x float32[6, 5], label int32[6]; "
        "without name, ids, because only MLX arrays are passed"
    )


def test_a_batch_without_labels_gets_the_remedy_for_the_collator():
    """The note names `label=`, in training and in evaluation, and only if the batch has no labels."""

    def labelled(model, batch):
        return fp.losses.cross_entropy(model(batch["x"]), batch["labels"])

    def other(model, batch):
        return fp.losses.cross_entropy(model(batch["x"]), batch["classes"])

    model, optimizer = net(), fp.optimizers.adamw(0.1)
    state = train_state(model, optimizer)
    check = fp.evaluate(model, lambda model, batch: {"loss": labelled(model, batch)})
    for run in (fp.train_step(model, labelled, optimizer), fp.train_step(model, labelled, optimizer, compile=False)):
        with pytest.raises(KeyError, match="labels") as raised:
            run(state, group())
        assert raised.value.__notes__[-1] == NO_LABELS
    with pytest.raises(KeyError, match="labels") as raised:
        check(state, [group()])
    assert NO_LABELS in raised.value.__notes__
    with pytest.raises(KeyError, match="classes") as raised:
        fp.train_step(model, other, optimizer)(state, group())
    assert NO_LABELS not in raised.value.__notes__


def operations(arrays):
    """The names of the operations that compute arrays, and those of compiled kernels."""
    drawn = StringIO()
    mx.export_to_dot(drawn, *arrays)
    return re.findall(r'label ="([^"]*)", shape=rectangle', drawn.getvalue())


@pytest.mark.parametrize("grouped", [False, True])
def test_choosing_between_old_and_new_arrays_takes_no_kernels_of_its_own(grouped, monkeypatch):
    """An update is one kernel for each parameter, as in a loop by hand, though each array stays as it was where a batch weighs nothing."""
    model = net(rate=0.0)
    optimizer = (
        optimizers.MultiOptimizer([fp.optimizers.adamw(0.1), fp.optimizers.adamw(0.01)], [lambda path, array: array.ndim < 2])
        if grouped
        else fp.optimizers.adamw(0.1)
    )
    theirs = copy.deepcopy(optimizer)
    theirs.init(model.trainable_parameters())
    mx.eval(model.parameters(), theirs.state)
    state = [model.state, theirs.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def by_hand(batch):
        def mean(model, batch):
            total, weight = loss(model, batch)
            return total / weight

        value, gradients = nn.value_and_grad(model, mean)(model, batch)
        theirs.update(model, gradients)
        return value

    batch = {name: value for name, value in group().items() if name != "name"}
    step, first = fp.train_step(model, loss, optimizer), train_state(model, optimizer)
    arrays = [by_hand(batch), *flatten([model.parameters(), theirs.state])[1]]
    monkeypatch.setattr(mx, "async_eval", lambda *results: None)
    after, metrics = step(first, batch)
    ours = operations([*flatten(trees_of(after))[1], *metrics.values()])
    assert len(ours) <= len(operations(arrays)) + 7  # scalars: the weight, and the count of steps of each group


@pytest.mark.parametrize("option", ["clip_norm", "ema"])
def test_a_number_that_is_text_is_named(option):
    with pytest.raises(ArgumentTypeError, match=f"{option} must be NoneType or int or float, got str: '0.5'"):
        fp.train_step(net(), loss, fp.optimizers.adamw(0.1), **{option: "0.5"})


def test_a_loss_that_takes_the_mean_of_a_pair_gets_the_remedy():
    model = nn.Linear(2, 2)
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"]).mean(), fp.optimizers.adamw(1e-3))
    with pytest.raises(AttributeError) as caught:
        step(train_state(model, fp.optimizers.adamw(1e-3)), {"x": mx.ones((1, 2))})
    note = "The functions of fp.losses return two arrays: the sum of losses and the weight. Return both, without mean()."
    assert note in caught.value.__notes__
    with pytest.raises(ArgumentTypeError) as wrong:
        step(model, {"x": mx.ones((1, 2))})
    assert str(wrong.value) == "state must be a TrainState, got Linear. Make one with train_state(model, optimizer)."


def test_swapped_arguments_of_a_loss_get_the_remedy():
    model = nn.Linear(2, 2)
    step = fp.train_step(model, lambda batch, model: fp.losses.mse(model(batch["x"]), batch["x"]), fp.optimizers.adamw(1e-3))
    with pytest.raises(KeyError) as caught:
        step(train_state(model, fp.optimizers.adamw(1e-3)), {"x": mx.ones((1, 2))})
    assert "The batch has the array 'x'. Perhaps arguments are swapped: the loss takes (model, batch)." in caught.value.__notes__
