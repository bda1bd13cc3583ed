"""Arrays that a compiled function reads without being given them."""

import copy
from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.support.errors import ArgumentError
from mlxfp.training.steps.outside import Outside

X = mx.ones((2, 3))


def _distance(model, teacher, batch):
    return ((model(batch["x"]) - teacher(batch["x"])) ** 2).sum(), mx.array(1.0)


class _Attribute:
    def __init__(self, teacher):
        self.teacher = teacher

    def loss(self, model, batch):
        return _distance(model, self.teacher, batch)


class _Called(_Attribute):
    def score(self, batch):
        return self.teacher(batch["x"])

    def __call__(self, model, batch):
        return ((model(batch["x"]) - self.score(batch)) ** 2).sum(), mx.array(1.0)


class _Slots:
    __slots__ = ("teacher",)

    def __init__(self, teacher):
        self.teacher = teacher


class _Property(_Attribute):
    @property
    def target(self):
        return self.teacher

    @classmethod
    def loss_of(cls, model, batch):
        return _distance(model, cls.shared, batch)


def _helper(teacher):
    def help_out(batch):
        return teacher(batch["x"])

    return lambda model, batch: ((model(batch["x"]) - help_out(batch)) ** 2).sum() + 0 * batch["x"].sum()


GLOBAL: list[nn.Module] = []


def _global(model, batch):
    return _distance(model, GLOBAL[0], batch)


def _by_global(teacher):
    GLOBAL[:] = [teacher]
    return _global


def _by_slots(teacher):
    held = _Slots(teacher)
    return lambda model, batch: _distance(model, held.teacher, batch)


def _by_name(teacher):
    held = _Attribute(teacher)
    return lambda model, batch: _distance(model, getattr(held, "teacher"), batch)  # noqa: B009  # the name is a text in the code


def _by_import(teacher):
    GLOBAL[:] = [teacher]

    def loss(model, batch):
        from tests.training.steps import test_outside  # noqa: PLW0406  # a function can import any module

        return _distance(model, test_outside.GLOBAL[0], batch)

    return loss


def _by_property(teacher):
    held = _Property(teacher)
    return lambda model, batch: _distance(model, held.target, batch)


def _by_class(teacher):
    _Property.shared = teacher
    return _Property.loss_of


def _by_container(modules, key):
    return lambda model, batch: _distance(model, modules[key], batch)


def _by_call(call):
    return lambda model, batch: _distance(model, call, batch)


def _by_helper(teacher):
    inner = _helper(teacher)
    return lambda model, batch: (inner(model, batch), mx.array(1.0))


WAYS = {
    "closure": lambda teacher: lambda model, batch: _distance(model, teacher, batch),
    "default": lambda teacher: lambda model, batch, teacher=teacher: _distance(model, teacher, batch),
    "partial": lambda teacher: partial(lambda teacher, model, batch: _distance(model, teacher, batch), teacher),
    "method": lambda teacher: _Attribute(teacher).loss,
    "callable": _Called,
    "list": lambda teacher: _by_container([teacher], 0),
    "dict": lambda teacher: _by_container({"teacher": teacher}, "teacher"),
    "helper": _by_helper,
    "global": _by_global,
    "slots": _by_slots,
    "getattr": _by_name,
    "import": _by_import,
    "property": _by_property,
    "class": _by_class,
    "compiled": lambda teacher: _by_call(fp.jit(lambda x: teacher(x) * 1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_case_a12_changed_weights_are_refused_however_the_loss_reaches_them(way):
    teacher, model, optimizer = nn.Linear(3, 2), nn.Linear(3, 2), fp.optimizers.adamw(0.1)
    step, state = fp.train_step(model, WAYS[way](teacher), optimizer), fp.train_state(model, optimizer)
    step(state, {"x": X})
    step(state, {"x": X})
    teacher.update({"weight": mx.zeros((2, 3))})
    with pytest.raises(ArgumentError, match="weights have changed"):
        step(state, {"x": X})


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_and_jit_refuse_them_too(way):
    teacher, model = nn.Linear(3, 2), nn.Linear(3, 2)
    loss, state = WAYS[way](teacher), fp.train_state(model, fp.optimizers.adamw(0.1))
    check = fp.evaluate(model, lambda model, batch: {"loss": loss(model, batch)})
    predict, compiled = (
        fp.predict(model, lambda model, batch: loss(model, batch)[0]),
        fp.jit(lambda x: loss(lambda x: x[:, :2], {"x": x})[0]),
    )
    calls = [lambda: check(state, [{"x": X}]), lambda: list(predict(state, [{"x": X}])), lambda: compiled(X)]
    for call in calls:
        call()
    teacher.update({"weight": mx.zeros((2, 3))})
    for call in calls:
        with pytest.raises(ArgumentError, match="weights have changed"):
            call()


class _ByGlobal(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) + GLOBAL[0](x)


class _ByClass(nn.Linear):
    teacher = None

    def __call__(self, x):
        return super().__call__(x) + self.teacher(x)


class _ByFunction(nn.Linear):
    def __init__(self, teacher):
        super().__init__(3, 2)
        self.function = lambda x: teacher(x)  # noqa: PLW0108  # the closure holds the teacher

    def __call__(self, x):
        return super().__call__(x) + self.function(x)


def _model_by_global(teacher):
    GLOBAL[:] = [teacher]
    return _ByGlobal(3, 2)


def _model_by_class(teacher):
    _ByClass.teacher = teacher
    return _ByClass(3, 2)


MODELS = {
    "global": _model_by_global,
    "class": _model_by_class,
    "function": _ByFunction,
    "layer": lambda teacher: nn.Sequential(nn.Linear(3, 3), _ByFunction(teacher)),
    "list": lambda teacher: nn.Sequential(nn.Linear(3, 3), lambda x: x[:, :2] + teacher(x)),
}


@pytest.mark.parametrize("way", MODELS)
def test_changed_weights_are_refused_however_the_model_reaches_them(way):
    teacher, optimizer = nn.Linear(3, 2), fp.optimizers.adamw(0.1)
    model = MODELS[way](teacher)
    step, state = (
        fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), X[:, :2]), optimizer),
        fp.train_state(model, optimizer),
    )
    predict, module = fp.predict(model, lambda model, batch: model(batch["x"])), fp.functional(model)
    apply = fp.jit(lambda params, x: module.apply(lambda model, x: model(x), params, module.buffers, x)[0])
    calls = [
        lambda: step(state, {"x": X}),
        lambda: list(predict(state, [{"x": X}])),
        lambda: apply(state.params, X),
    ]
    for call in (*calls, *calls):
        call()
    teacher.update({"weight": mx.zeros((2, 3))})
    for call in calls:
        with pytest.raises(ArgumentError, match="weights have changed"):
            call()


class _Wrapper(nn.Module):
    positions = np.zeros((0, 3))  # a cache that grows

    def __init__(self):
        super().__init__()
        self.model = nn.Linear(3, 2)

    def __call__(self, x):
        if len(_Wrapper.positions) < len(x):
            _Wrapper.positions = np.zeros((len(x), 3), np.float32)
        return self.model(x + mx.array(_Wrapper.positions[: len(x)]))


def test_names_of_attributes_are_no_globals_and_caches_of_a_model_may_grow():
    """A script often has a global `model` beside an attribute with the same name."""
    globals()["model"] = model = _Wrapper()
    optimizer = fp.optimizers.adamw(0.1)
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"][:, :2]), optimizer)
    state, predict = fp.train_state(model, optimizer), fp.predict(model, lambda model, batch: model(batch["x"]))
    for rows in (2, 4, 2, 8):
        state, _ = step(state, {"x": mx.ones((rows, 3))})
        list(predict(state, [{"x": mx.ones((rows, 3))}]))
        model.update(state.params)


def test_a_module_put_in_the_place_of_another_is_refused():
    held, model, optimizer = _Attribute(nn.Linear(3, 2)), nn.Linear(3, 2), fp.optimizers.adamw(0.1)
    step, state = fp.train_step(model, held.loss, optimizer), fp.train_state(model, optimizer)
    step(state, {"x": X})
    held.teacher = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match="Linear"):
        step(state, {"x": X})


def test_other_attributes_of_the_object_may_change():
    held, model, optimizer = _Attribute(nn.Linear(3, 2)), nn.Linear(3, 2), fp.optimizers.adamw(0.1)
    held.latest = model
    step, state = fp.train_step(model, held.loss, optimizer), fp.train_state(model, optimizer)
    for _ in range(3):
        state, _ = step(state, {"x": X})
        model.update(state.params)


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: nn.Linear(3, 2).update(model.parameters()),
        lambda model: nn.Linear(3, 2),
        lambda model: nn.Linear(3, 2).load_weights(list(model.parameters().items())),
    ],
)
def test_case_a13_a_teacher_copied_from_the_model_gives_the_same_as_without_compiling(copied):
    model, optimizer = nn.Linear(3, 2), fp.optimizers.adamw(0.1)
    teacher = copied(model)
    for _ in range(2):  # a teacher that is computed, and one that is not yet
        state, losses = fp.train_state(model, optimizer), []
        for compile in (True, False):
            after, metrics = fp.train_step(model, lambda model, batch: _distance(model, teacher, batch), optimizer, compile=compile)(
                state, {"x": X}
            )
            losses.append((metrics["loss"].item(), np.array(after.params["weight"])))
        assert losses[0][0] == pytest.approx(losses[1][0], abs=1e-6)
        np.testing.assert_allclose(losses[0][1], losses[1][1], atol=1e-6)


def test_a_loss_that_calls_the_outer_model_is_refused():
    model, optimizer = nn.Linear(3, 2), fp.optimizers.adamw(0.1)
    step = fp.train_step(model, lambda _, batch: (model(batch["x"]).sum(), mx.array(1.0)), optimizer)
    with pytest.raises(ArgumentError, match="does not use its argument model"):
        step(fp.train_state(model, optimizer), {"x": X})


def test_values_are_reached_once_in_cycles_and_large_containers():
    cycle: list = [nn.Linear(2, 2)]
    cycle.extend([cycle, list(range(100_000)), {"x": cycle}])
    outside = Outside.of(lambda x: cycle[0](x) + 1)
    assert len(outside.arrays) == 2
    assert not outside.has_changed()
    cycle.clear()
    assert outside.has_changed()
