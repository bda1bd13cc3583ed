"""Every optimizer of MLX as a pure function gives what it gives as an object."""

import copy
from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from mlxfp.support.trees import flatten, tree_map
from mlxfp.training.steps.state import TrainState, same_arrays, train_state

MAKERS = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.1),
    "adamw": lambda: fp.optimizers.adamw(0.1),
    "scheduled": lambda: fp.optimizers.adamw(fp.schedules.cosine_decay(0.1, steps=4, warmup=2)),
    "adafactor": optimizers.Adafactor,
    "lion": lambda: optimizers.Lion(0.1),
    "rmsprop": lambda: optimizers.RMSprop(0.1),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adadelta": lambda: optimizers.AdaDelta(0.1),
    "adamax": lambda: optimizers.Adamax(0.1),
    "muon": lambda: optimizers.Muon(0.1),
    "grouped": lambda: fp.optimizers.grouped(
        (fp.optimizers.matching("a.*"), fp.optimizers.frozen()),
        (fp.optimizers.vectors, fp.optimizers.adamw(0.1, weight_decay=0.0)),
        rest=optimizers.Muon(fp.schedules.flat_cosine(0.1, steps=9)),
    ),
    "several": lambda: optimizers.MultiOptimizer([fp.optimizers.adamw(0.1), optimizers.SGD(0.2)], [lambda name, value: value.ndim > 1]),
}


def params():
    return {"z": {"weight": mx.arange(6).reshape(2, 3) / 3, "empty": {}}, "a": [{"bias": mx.ones(3)}, {}], "m": {"scale": mx.ones(())}}


def gradients(step):
    weight = mx.arange(6).reshape(2, 3) / 7 - step
    return {"z": {"weight": weight, "empty": {}}, "a": [{"bias": mx.ones(3) * step}, {}], "m": {"scale": mx.ones(())}}


@pytest.mark.parametrize("name", MAKERS)
def test_pure_updates_equal_those_of_the_object_and_change_nothing(name):
    stateful, optimizer = MAKERS[name](), MAKERS[name]()
    theirs, ours, state = params(), params(), fp.optimizers.start(optimizer, params())
    configuration = copy.deepcopy(optimizer.state)
    stateful.init(theirs)
    for step in range(3):
        theirs = stateful.apply_gradients(gradients(step), theirs)
        inputs = [gradients(step), state, ours]
        before = copy.deepcopy(inputs)
        after, following = fp.optimizers.update(optimizer, *inputs)
        assert same_arrays(inputs, before)
        assert flatten(after)[0] == flatten(ours)[0]
        assert flatten(following)[0] == flatten(state)[0]
        ours, state = after, following
        assert same_arrays(ours["z"]["weight"], theirs["z"]["weight"])
        assert same_arrays(ours["a"][0], theirs["a"][0])
        assert same_arrays(ours["m"], theirs["m"])
    assert same_arrays(optimizer.state, configuration)


@pytest.mark.parametrize("name", MAKERS)
def test_compiled_updates_equal_eager_ones(name):
    optimizer = MAKERS[name]()
    own = {"z": {"w": mx.arange(4.0).reshape(2, 2), "b": mx.ones(4)}, "a": {"b": mx.ones(4)}}  # small: compiling takes long
    state = fp.optimizers.start(optimizer, own)
    (structure, compiled), (other, eager) = (
        flatten(run(tree_map(mx.sin, own), state, own))
        for run in (fp.jit(partial(fp.optimizers.update, optimizer)), partial(fp.optimizers.update, optimizer))
    )
    assert structure == other
    for left, right in zip(compiled, eager, strict=True):
        assert np.allclose(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_is_saved_and_continues_bit_for_bit(name, tmp_path):
    optimizer = MAKERS[name]()
    ours, opt = fp.optimizers.update(optimizer, gradients(0), fp.optimizers.start(optimizer, params()), params())
    state = TrainState(ours, {}, opt, step=1, seed=0)
    fp.save_state(tmp_path / "state.safetensors", state)
    loaded = fp.load_state(tmp_path / "state.safetensors", state).state
    assert loaded == state
    again = fp.optimizers.update(
        MAKERS[name](), gradients(1), loaded.opt, loaded.params
    )  # as in another process, with an optimizer made anew
    assert same_arrays(again, fp.optimizers.update(optimizer, gradients(1), opt, ours))


def test_every_optimizer_of_mlx_is_in_the_battery():
    theirs = {kind for kind in vars(optimizers).values() if isinstance(kind, type) and issubclass(kind, optimizers.Optimizer)}
    assert {type(make()) for make in MAKERS.values()} == theirs - {optimizers.Optimizer}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = [nn.Linear(3, 3), nn.LayerNorm(3)], nn.Linear(3, 1)

    def __call__(self, x):
        for layer in self.body:
            x = layer(x)
        return self.head(x)


def loss(model, batch):
    return fp.losses.mse(model(batch["x"]), batch["y"])


BATCH = {"x": mx.arange(6.0).reshape(2, 3), "y": mx.ones((2, 1))}


def test_groups_are_updated_each_with_its_own_optimizer():
    sgd = optimizers.SGD
    model, optimizer = (
        Model(),
        fp.optimizers.grouped(
            (fp.optimizers.matching("body.0.*"), fp.optimizers.frozen()), (fp.optimizers.vectors, sgd(0.0)), rest=sgd(0.1)
        ),
    )
    before = train_state(model, optimizer)
    after, _ = fp.train_step(model, loss, optimizer)(before, BATCH)
    moved = {
        "body.0": not same_arrays(before.params["body"][0], after.params["body"][0]),
        "body.1": not same_arrays(before.params["body"][1], after.params["body"][1]),
        "head.weight": not same_arrays(before.params["head"]["weight"], after.params["head"]["weight"]),
        "head.bias": not same_arrays(before.params["head"]["bias"], after.params["head"]["bias"]),
    }
    assert moved == {"body.0": False, "body.1": False, "head.weight": True, "head.bias": False}


def test_one_group_with_everything_is_the_optimizer_itself():
    grouped_one = fp.optimizers.grouped((lambda path, array: True, fp.optimizers.adamw(0.1)), rest=optimizers.SGD(9.0))
    one, _ = fp.optimizers.update(grouped_one, gradients(1), fp.optimizers.start(grouped_one, params()), params())
    other, _ = fp.optimizers.update(
        fp.optimizers.adamw(0.1), gradients(1), fp.optimizers.start(fp.optimizers.adamw(0.1), params()), params()
    )
    assert same_arrays(one, other)


def test_one_optimizer_in_two_groups_is_two():
    same = optimizers.SGD(0.1, momentum=0.9)
    optimizer = fp.optimizers.grouped((fp.optimizers.vectors, same), rest=same)
    _, state = fp.optimizers.update(optimizer, gradients(1), fp.optimizers.start(optimizer, params()), params())
    assert [part["step"].item() for part in state["states"]] == [1, 1]


def test_layers_have_their_own_rates():
    depth = 3
    layers = [(fp.optimizers.matching(f"layers.{place}.*"), optimizers.SGD(0.5 ** (depth - place))) for place in range(depth)]
    optimizer, own = (
        fp.optimizers.grouped(*layers, rest=optimizers.SGD(1.0)),
        {"layers": [{"w": mx.zeros(1)} for _ in range(depth)], "head": mx.zeros(1)},
    )
    ones = {"layers": [{"w": mx.ones(1)} for _ in range(depth)], "head": mx.ones(1)}
    after, _ = fp.optimizers.update(optimizer, ones, fp.optimizers.start(optimizer, own), own)
    assert [layer["w"].item() for layer in after["layers"]] + [after["head"].item()] == [-0.125, -0.25, -0.5, -1.0]


def test_gradients_of_frozen_groups_are_never_computed(tmp_path):
    def products(optimizer):
        """Count the matrix products that the new parameters of two layers need."""
        params = {"body": mx.eye(3), "head": mx.eye(3)}
        gradients = mx.grad(lambda params: ((BATCH["x"] @ params["body"]) @ params["head"]).square().sum())(params)
        after, state = fp.optimizers.update(optimizer, gradients, fp.optimizers.start(optimizer, params), params)
        mx.export_to_dot(str(tmp_path / "graph.dot"), *flatten((after, state))[1])
        return (tmp_path / "graph.dot").read_text().count("Matmul")

    whole, part = (
        products(optimizers.SGD(0.1)),
        products(fp.optimizers.grouped((fp.optimizers.matching("body"), fp.optimizers.frozen()), rest=optimizers.SGD(0.1))),
    )
    assert (whole, part) == (5, 3)  # forward 2, gradients of the weights 2, of what is between 1


def test_a_group_without_parameters_is_named():
    with pytest.raises(
        ArgumentError, match=r"No parameter is in the group matching\(patterns=\('boddy\.\*',\)\), or .* Parameters: body\.0\.weight, body"
    ):
        train_state(
            Model(), fp.optimizers.grouped((fp.optimizers.matching("boddy.*"), fp.optimizers.frozen()), rest=fp.optimizers.adamw(0.1))
        )
    with pytest.raises(ArgumentError, match=r"No parameter is in the group vectors, or earlier groups have all of its parameters"):
        train_state(
            Model(),
            fp.optimizers.grouped(
                (fp.optimizers.matching("*"), fp.optimizers.frozen()),
                (fp.optimizers.vectors, fp.optimizers.frozen()),
                rest=fp.optimizers.adamw(0.1),
            ),
        )


def test_what_is_no_group_is_refused():
    with pytest.raises(ArgumentTypeError, match=r"where must be a function, got where='body'"):
        fp.optimizers.grouped(("body", fp.optimizers.frozen()), rest=fp.optimizers.frozen())
    with pytest.raises(ArgumentTypeError, match=r"must be an mlx\.optimizers\.Optimizer, got float"):
        fp.optimizers.grouped((fp.optimizers.vectors, 0.1), rest=fp.optimizers.frozen())
    with pytest.raises(ArgumentError, match="matching needs at least one pattern"):
        fp.optimizers.matching()
    with pytest.raises(ArgumentTypeError, match="pattern 0 must be a string, got pattern 0=3"):
        fp.optimizers.matching(3)


def test_choices_of_parameters_are_values():
    assert fp.optimizers.matching("a", "b") == fp.optimizers.matching("a", "b") != fp.optimizers.matching("b")
    assert hash(fp.optimizers.matching("a")) == hash(fp.optimizers.matching("a"))


def test_what_an_update_leaves_alone_are_the_same_arrays_so_that_a_step_need_not_choose_between_two():
    params = {"body": mx.ones(2), "head": mx.ones(2)}
    optimizer = fp.optimizers.grouped((fp.optimizers.matching("body"), fp.optimizers.frozen()), rest=fp.optimizers.adamw(0.5))
    state = fp.optimizers.start(optimizer, params)
    after, opt = fp.optimizers.update(optimizer, params, state, params)
    assert after["body"] is params["body"]
    assert opt["states"][1]["learning_rate"] is state["states"][1]["learning_rate"]
    assert opt["states"][1]["step"].item() == 1
    assert after["head"].tolist() != [1.0, 1.0]


def test_what_an_optimizer_edits_in_place_is_not_taken_for_what_it_leaves_alone():
    class Slowing(optimizers.SGD):
        def apply_single(self, gradient, parameter, state):
            self.state["learning_rate"] *= 0.5
            parameter -= self.state["learning_rate"] * gradient
            return parameter

    params = {"w": mx.ones(2)}
    state = fp.optimizers.start(Slowing(1.0), params)
    plain = partial(fp.optimizers.update, Slowing(1.0))
    for run in (plain, fp.jit(plain)):
        after, opt = run(params, state, params)
        assert (after["w"].tolist(), opt["learning_rate"].item()) == ([0.5, 0.5], 0.5)
    assert (params["w"].tolist(), state["learning_rate"].item()) == ([1.0, 1.0], 1.0)


def test_adamw_corrects_its_bias_unlike_that_of_mlx():
    sizes = []
    for optimizer in (fp.optimizers.adamw(0.1, weight_decay=0.0), optimizers.AdamW(0.1, weight_decay=0.0)):
        first, _ = fp.optimizers.update(
            optimizer, {"w": mx.array(1.0)}, fp.optimizers.start(optimizer, {"w": mx.array(0.0)}), {"w": mx.array(0.0)}
        )
        sizes.append(abs(first["w"].item()))
    assert sizes == pytest.approx([0.1, 0.3162], rel=1e-3)


def test_the_first_update_of_a_warmup_moves_the_weights():
    for schedule, moves in ((fp.schedules.cosine_decay(0.1, steps=9, warmup=3), True), (optimizers.linear_schedule(0, 0.1, 3), False)):
        optimizer = optimizers.SGD(schedule)
        first, _ = fp.optimizers.update(
            optimizer, {"w": mx.array(1.0)}, fp.optimizers.start(optimizer, {"w": mx.array(0.0)}), {"w": mx.array(0.0)}
        )
        assert (first["w"].item() != 0) == moves


def test_a_used_optimizer_is_refused():
    for optimizer in (fp.optimizers.adamw(0.1), MAKERS["several"]()):
        optimizer.apply_gradients(gradients(1), params())
        with pytest.raises(ArgumentError, match="has made 1 updates already"):
            fp.optimizers.start(optimizer, params())


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(ArgumentTypeError, match=r"must be an mlx\.optimizers\.Optimizer, got float"):
        fp.optimizers.start(0.1, params())


def test_an_optimizer_that_grows_its_state_is_named():
    class Late(optimizers.SGD):
        def apply_single(self, gradient, parameter, state):
            state["late"] = gradient
            return parameter

    optimizer = Late(0.1)
    with pytest.raises(ArgumentError, match=r"Late changed the structure of its state in an update\. Unexpected: z\.weight\.late"):
        fp.optimizers.update(optimizer, gradients(0), fp.optimizers.start(optimizer, params()), params())


def test_a_state_that_is_not_arrays_is_named():
    class Counting(optimizers.SGD):
        def init_single(self, parameter, state):
            state["calls"] = 0

    with pytest.raises(ArgumentTypeError, match="state of an optimizer must be MLX arrays, got int"):
        fp.optimizers.start(Counting(0.1), params())


@pytest.mark.parametrize("name", fp.optimizers.OPTIMIZERS)
def test_every_optimizer_of_the_table_takes_a_rate_or_a_schedule_and_decays_matrices_only(name):
    params = {"matrix": mx.ones((4, 4)), "vector": mx.ones(4)}
    gradients = {"matrix": mx.full((4, 4), 0.5), "vector": mx.full(4, 0.5)}

    def after(rate, decay):
        optimizer = fp.optimizers.by_name(name, rate, weight_decay=decay)
        return fp.optimizers.update(optimizer, gradients, fp.optimizers.start(optimizer, params), params)[0]

    plain, decayed = after(0.1, 0.0), after(fp.schedules.constant(0.1), 0.5)
    assert np.allclose(np.array(decayed["vector"]), np.array(plain["vector"]), atol=1e-6)
    assert plain["matrix"].sum().item() < 16
    assert name == "adam" or decayed["matrix"].sum().item() < plain["matrix"].sum().item()  # of its first update only the sign counts


def test_an_unknown_optimizer_is_named():
    with pytest.raises(UnknownNameError, match=r"No optimizer is named 'adamm'\. Did you mean 'adam'\? Known: adafactor, adam, adamw"):
        fp.optimizers.by_name("adamm", 0.1)


RATES = [-1.0, float("nan"), float("inf"), "1e-3", None, True]


@pytest.mark.parametrize("rate", RATES, ids=repr)
def test_a_rate_that_is_not_a_number_of_at_least_0_is_refused_wherever_it_is_given(rate):
    wrong = (ArgumentError, ArgumentTypeError)
    for make in (
        fp.optimizers.adamw,
        lambda rate: fp.optimizers.adamw(0.1, weight_decay=rate),
        *(partial(fp.optimizers.by_name, name) for name in fp.optimizers.OPTIMIZERS),
        fp.schedules.constant,
        partial(fp.schedules.linear_decay, steps=9),
        partial(fp.schedules.cosine_decay, steps=9),
        partial(fp.schedules.flat_cosine, steps=9),
        lambda rate: fp.schedules.linear_decay(0.1, steps=9, end=rate),
        partial(fp.schedules.by_name, "cosine", steps=9),
    ):
        with pytest.raises(wrong, match=r"must be a (finite )?number.*, got (learning_rate|rate|weight_decay|end)="):
            make(rate)


def test_a_text_that_is_a_number_is_written_without_quotes():
    with pytest.raises(ArgumentTypeError, match=r"learning_rate must be a number, got learning_rate='1e-3'\. Remove the quotes: 0\.001"):
        fp.optimizers.adamw("1e-3")
    with pytest.raises(ArgumentTypeError, match=r"learning_rate must be a number, got learning_rate='fast'\.$"):
        fp.optimizers.adamw("fast")
    assert fp.optimizers.adamw(0).learning_rate.item() == 0.0
    assert fp.optimizers.adamw(np.float32(0.5)).learning_rate.item() == 0.5


def test_the_rates_of_other_optimizers_are_checked_when_a_state_is_made():
    for optimizer in (
        optimizers.SGD(-0.1),
        optimizers.Adam(lambda step: -step - 1.0),
        fp.optimizers.grouped((fp.optimizers.vectors, fp.optimizers.adamw(0.1)), rest=optimizers.Lion(float("nan"))),
    ):
        with pytest.raises(ArgumentError, match=r"at least 0, got (-0\.1|-1|nan) from"):
            fp.optimizers.start(optimizer, {"w": mx.zeros((2, 2)), "b": mx.zeros(2)})


def test_the_optimizer_of_realmlp_is_adam_with_rates_and_decays_by_groups():
    names = {"scale": (6.0, 0.02), "layers.0.weight": (1.0, 0.02), "layers.0.bias": (0.1, 0.0), "activations.0.share": (0.1, 0.02)}
    params = {
        "scale": mx.array([1.0]),
        "layers": [{"weight": mx.array([[1.0]]), "bias": mx.array([1.0])}],
        "activations": [{"share": mx.array([1.0])}],
        "periodic": {"phase": mx.array([1.0])},
    }
    names["periodic.phase"] = names["activations.0.share"]
    optimizer = fp.optimizers.fading_adam(fp.schedules.coslog(0.2, steps=10), *fp.models.TABLE_MODELS["realmlp"].rates.groups, steps=10)
    state, wanted = fp.optimizers.start(optimizer, params), dict.fromkeys(names, 1.0)
    for number in range(10):
        gradient = np.sin(number + 1.0)
        params, state = fp.optimizers.update(optimizer, tree_map(lambda each, g=gradient: mx.full(each.shape, g), params), state, params)
        rate, fading = fp.schedules.coslog(0.2, steps=10)(number).item(), fp.schedules.flat_cosine(1.0, steps=10)(number).item()
        before = [np.sin(place + 1.0) for place in range(number + 1)]
        first = sum(0.1 * 0.9 ** (number - place) * each for place, each in enumerate(before)) / (1 - 0.9 ** (number + 1))
        second = sum(0.05 * 0.95 ** (number - place) * each**2 for place, each in enumerate(before)) / (1 - 0.95 ** (number + 1))
        for name, (factor, decay) in names.items():
            kept = wanted[name] * (1 - rate * factor * decay * factor * fading)
            wanted[name] = kept - rate * factor * first / (second**0.5 + 1e-8)
    found = {name: array.item() for name, array in tree_flatten(params)}
    assert found == pytest.approx(wanted, rel=1e-4)


def _moved(optimizer, params):
    """How far one update moves each parameter, with gradients of 1."""
    gradients = tree_map(mx.ones_like, params)
    after, _ = fp.optimizers.update(optimizer, gradients, fp.optimizers.start(optimizer, params), params)
    return {
        name: float(mx.abs(one - other).max()) for (name, one), (_, other) in zip(tree_flatten(after), tree_flatten(params), strict=True)
    }


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_layers_learn_the_slower_the_deeper_they_are(weight_decay):
    model = fp.models.create("bert", size="tiny", head="classifier", labels=2, vocab_size=20)
    params = model.trainable_parameters()
    rate, decay, depth = 1e-3, 0.5, len(model.body.blocks)
    made = fp.optimizers.layerwise("adamw", rate, params, decay=decay, weight_decay=weight_decay)
    zeros = tree_map(mx.zeros_like, params)  # nothing to decay
    for name, moved in _moved(made, zeros).items():
        block = name.partition("blocks.")[2].partition(".")[0]
        embedding = name in ("body.tokens.weight", "body.positions.weight", "body.types.weight")
        below = depth - int(block) if block else depth + 1 if embedding else 0
        assert moved == pytest.approx(rate * decay**below, rel=1e-3), name


def test_layers_with_one_rate_are_those_of_the_plain_optimizer():
    params = fp.models.create("encoder", size="tiny", head="classifier", labels=2, vocab_size=20).trainable_parameters()
    plain, layered = (
        fp.optimizers.by_name("adamw", 1e-2, weight_decay=0.1),
        fp.optimizers.layerwise("adamw", 1e-2, params, decay=1.0, weight_decay=0.1),
    )
    assert _moved(plain, params) == pytest.approx(_moved(layered, params), rel=1e-6)


@pytest.mark.parametrize(
    ("decay", "message"), [(0.0, "decay must be above 0 and at most 1"), (0.9, "a model with blocks, but no path contains")]
)
def test_a_model_without_layers_has_no_rates_by_layers(decay, message):
    with pytest.raises(ArgumentError, match=message):
        fp.optimizers.layerwise("adamw", 1e-3, {"weight": mx.zeros((2, 2))}, decay=decay)
