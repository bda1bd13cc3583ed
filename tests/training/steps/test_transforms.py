"""`jit` and `functional`: each trap of MLX that they are there for."""

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.support.trees import flatten, paths, tree_map
from mlxfp.training.steps.state import same_arrays
from tests.support.test_trees import Frozen, Pair, nodes
from tests.training.samples import Net, group, net

ARRAYS = st.lists(st.integers(0, 3), max_size=2).map(mx.zeros)
CONSTANTS = st.one_of(st.integers(-1, 1), st.sampled_from([0.0, -0.0, 1.0, float("nan")]), st.booleans(), st.text(max_size=2))
TREES = st.recursive(st.one_of(ARRAYS, CONSTANTS, st.none()), nodes, max_leaves=10)


def shape_of(tree):
    """The structure, the constants as they print, and the shapes: all that tells two trees of zeros apart."""
    structure, leaves = flatten(tree)
    return structure, [(leaf.shape if isinstance(leaf, mx.array) else repr(leaf)) for leaf in leaves]


def assert_trees_pass_through(compile_function, trees):
    """Law: a compiled identity is the identity, whatever it was called with before."""
    same = compile_function(lambda tree: tree)
    for tree in trees:
        assert shape_of(same(tree)) == shape_of(tree), f"{tree} came out as {same(tree)}"


@given(st.lists(TREES, min_size=1, max_size=6))
@settings(max_examples=30)
def test_any_tree_passes_through_whatever_came_before(trees):
    assert_trees_pass_through(fp.jit, trees)


def test_the_law_catches_the_cache_of_mx_compile_that_forgets_where_containers_end():
    trees = [[[mx.zeros(2)], mx.zeros(3)], [[mx.zeros(2), mx.zeros(3)]]]
    with pytest.raises(AssertionError, match="came out as"):
        assert_trees_pass_through(mx.compile, trees)
    assert_trees_pass_through(fp.jit, trees)


def test_the_law_catches_constants_that_are_equal_and_not_the_same():
    def careless(function):
        compiled = {}
        return lambda tree: compiled.setdefault((str(flatten(tree)[0]), *flatten(tree)[1]), tree)

    for trees in ([[0.0], [-0.0]], [[1], [True]], [[1], [1.0]]):
        with pytest.raises(AssertionError, match="came out as"):
            assert_trees_pass_through(careless, trees)
        assert_trees_pass_through(fp.jit, trees)


def test_attrs_results_do_not_leak_tracers_as_they_do_from_mx_compile():
    def add(a, b):
        return Frozen(a + b)

    leaked = mx.compile(add)(mx.array(1), mx.array(2))
    with pytest.raises((ValueError, RuntimeError)):
        leaked.value.item()
    assert fp.jit(add)(mx.array(1), mx.array(2)).value.item() == 3


def test_a_function_is_traced_once_for_each_structure_constant_and_shape():
    double = fp.jit(lambda tree, factor: tree_map(lambda leaf: leaf * factor, tree))
    for _ in range(2):
        for tree in ([mx.ones(2)], [mx.ones(3)], (mx.ones(2),), Pair(mx.ones(2), None)):
            double(tree, 2)
        double([mx.ones(2)], 3)
    assert double.variants == 5


def test_results_may_have_another_structure_for_another_shape():
    split = fp.jit(lambda x: list(x) if x.ndim else {"scalar": x})
    for _ in range(2):
        assert [each.item() for each in split(mx.array([1, 2]))] == [1, 2]
        assert split(mx.array(3))["scalar"].item() == 3


def test_keyword_arguments_keep_their_names():
    subtract = fp.jit(lambda a, b: a - b)
    assert [subtract(a=mx.array(3), b=mx.array(1)).item(), subtract(b=mx.array(3), a=mx.array(1)).item()] == [2, -2]


def test_after_an_exception_in_a_trace_the_function_works():
    def fails_once(x):
        if not calls:
            calls.append(1)
            raise RuntimeError("once")
        return x + 1

    calls, compiled = [], fp.jit(fails_once)
    with pytest.raises(RuntimeError, match="once"):
        compiled(mx.array(1))
    assert compiled(mx.array(1)).item() == 2


@pytest.mark.parametrize("leaf", [np.zeros(2), nn.Linear(1, 1), {1, 2}], ids=["numpy", "module", "set"])
def test_what_mlx_would_not_take_is_named_going_in_and_coming_out(leaf):
    with pytest.raises(ArgumentTypeError, match=rf"takes .* got {type(leaf).__name__} at \[0\]\[0\]\.x\. Convert it to an mx\.array"):
        fp.jit(lambda tree: tree)({"x": leaf})
    with pytest.raises(ArgumentTypeError, match=rf"returns .* got {type(leaf).__name__} at y"):
        fp.jit(lambda x: {"x": x, "y": leaf})(mx.array(1))


def test_drawing_from_the_global_generator_is_refused_since_it_would_repeat():
    def draw(x):
        return x + mx.random.uniform(shape=(8,))

    with pytest.raises(ArgumentError, match="draws from MLX's global generator"):
        fp.jit(draw)(mx.zeros(8))


def test_too_many_variants_warn_once():
    compiled = fp.jit(lambda x: x, warn_above=2)
    with pytest.warns(RuntimeWarning, match=r"compiled for 3 different inputs.*float32\[3\]"):
        [compiled(mx.zeros(size)) for size in (1, 2, 3)]
    compiled(mx.zeros(4))


def call(module, x):
    return module(x)


class Odd(nn.Module):
    """Everything that makes a module hard to copy or to split."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(2, 2), nn.Dropout(0.5), {"inner": nn.BatchNorm(2)}]
        self.shared = self.layers[0]
        self.weights = [mx.ones(2), mx.arange(2)]
        self.count = mx.array(0)
        self.activation = nn.relu
        self.own = self.double
        self._table = mx.ones(2)
        self.layers[0].freeze(keys="bias")

    def double(self, x):
        return x * self.weights[0] * 2

    def __call__(self, x):
        self.count += 1
        self._table = self._table * x[0]
        x = self.own(self.activation(self.shared(self.layers[0](x))))
        return self.layers[2]["inner"](self.layers[1](x))


def test_params_are_what_trains_and_buffers_are_the_rest():
    model = fp.functional(Odd())
    params = "layers[0].weight layers[2].inner.weight layers[2].inner.bias shared.weight weights[0]"
    buffers = "layers[0].bias layers[2].inner.running_mean layers[2].inner.running_var shared.bias weights[1] count"
    assert paths(flatten(model.params)[0]) == tuple(params.split())
    assert paths(flatten(model.buffers)[0]) == tuple(buffers.split())


@pytest.mark.parametrize(
    ("change", "rests"),
    [
        (lambda model: model.layers[0].freeze().eval(), True),
        (lambda model: model.layers[0].freeze(), False),
        (lambda model: model.layers[0].eval(), False),  # it trains
        (lambda model: model.freeze().eval().layers[1].unfreeze(), False),  # generated with before, and adapted now
    ],
    ids=["frozen and evaluating", "frozen", "evaluating", "all evaluating"],
)
def test_a_frozen_part_in_evaluation_mode_keeps_its_statistics_and_drops_nothing(change, rests):
    original = nn.Sequential(nn.Sequential(nn.BatchNorm(2), nn.Dropout(0.5), nn.Linear(2, 2)), nn.Linear(2, 2))
    change(original)
    model, x = fp.functional(original), mx.random.normal((64, 2), key=mx.random.key(0)) + 1
    outputs, buffers = model.apply(call, model.params, model.buffers, x, key=mx.random.key(1))
    original.eval()
    assert mx.allclose(outputs, original(x)).item() == rests
    assert same_arrays(buffers, model.buffers) == rests


def test_applying_a_module_changes_neither_it_nor_the_arrays_and_returns_the_buffers():
    original = Odd()
    model = fp.functional(original)
    before = tree_map(np.array, (model.params, model.buffers, original.parameters()))
    x, key = mx.ones((3, 2)), mx.random.key(0)
    first, buffers = model.apply(call, model.params, model.buffers, x, key=key)
    second, again = model.apply(call, model.params, model.buffers, x, key=key)
    assert buffers["count"].item() == 1
    assert same_arrays([first, buffers], [second, again])
    after = tree_map(np.array, (model.params, model.buffers, original.parameters()))
    assert all(map(np.array_equal, flatten(before)[1], flatten(after)[1]))


def test_a_module_works_after_an_exception_inside_a_trace():
    model = fp.functional(Odd())

    def fails(module, x):
        module(x)
        raise RuntimeError("in the trace")

    step = mx.compile(lambda params, x: model.apply(fails, params, model.buffers, x)[0])
    with pytest.raises(RuntimeError, match="in the trace"):
        step(model.params, mx.ones((3, 2)))
    output, _ = model.apply(call, model.params, model.buffers, mx.ones((3, 2)))
    assert output.shape == (3, 2)
    assert not any(leaf.size > 1 for leaf in flatten(model._skeleton.parameters())[1]), "the skeleton keeps arrays alive"


def test_what_is_shared_in_a_module_stays_shared():
    model = fp.functional(Odd())
    bound = model.bind(model.params, model.buffers)
    assert bound.shared is bound.layers[0]
    assert bound.own.__self__ is bound


def test_running_statistics_are_updated_in_training_and_used_in_evaluation():
    model, x = fp.functional(net(rate=0.0)), group()["x"]
    _, trained = model.apply(call, model.params, model.buffers, x, key=mx.random.key(0))
    _, evaluated = model.apply(call, model.params, trained, x)
    assert not same_arrays(trained, model.buffers)
    assert same_arrays(trained, evaluated)


def test_dropout_of_mlx_becomes_ours_at_the_same_rate_and_shape():
    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.flat, self.channels = nn.Dropout(0.25), nn.Dropout2d(0.5)

        def __call__(self, x):
            return self.flat(x), self.channels(x)

    model = fp.functional(Images())
    bound = model.bind({"flat": {}, "channels": {}}, {}, key=mx.random.key(0))
    assert [type(bound.flat), type(bound.channels)] == [fp.models.Dropout, fp.models.Dropout]
    flat, channels = bound(mx.ones((4, 8, 8, 16)))
    assert abs((flat == 0).astype(mx.float32).mean().item() - 0.25) < 0.05
    rows = channels.reshape(4, 64, 16)
    assert mx.all(rows == rows[:, :1]).item()
    assert {0.0, 2.0} == set(rows[:, 0].reshape(-1).tolist())


def test_masks_differ_by_layer_and_by_key_and_are_off_without_one():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.drops = [nn.Dropout(0.5), nn.Dropout(0.5)]

        def __call__(self, x):
            return [drop(x) for drop in self.drops]

    model, ones = fp.functional(Two()), mx.ones(64)
    params = model.params
    masks = [*model.bind(params, {}, key=mx.random.key(0))(ones), *model.bind(params, {}, key=mx.random.key(1))(ones)]
    assert len({tuple(mask.tolist()) for mask in masks}) == 4
    assert all(mask.tolist() == ones.tolist() for mask in model.bind(params, {})(ones))


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.linear.weight = mx.arange(16).reshape(4, 4) / 10
        self.linear.bias = mx.zeros(4)
        self.dropout = dropout
        self.checkpointed = False

    def forward(self, x):
        return mx.tanh(self.dropout(self.linear(x)))

    def __call__(self, x):
        return (nn.utils.checkpoint(self, self.forward) if self.checkpointed else self.forward)(x)


def gradients(*, checkpointed):
    block = Block(nn.Dropout(0.5))
    block.checkpointed = checkpointed
    model = fp.functional(block)

    def value(params, key):
        return model.apply(lambda module: module(mx.ones((8, 4))).sum(), params, model.buffers, key=key)[0]

    return mx.compile(mx.value_and_grad(value))(model.params, mx.random.key(3))


def test_checkpointing_recomputes_the_same_mask():
    assert same_arrays(gradients(checkpointed=False), gradients(checkpointed=True))


def test_arrays_of_another_module_are_named():
    model = fp.functional(Net())
    with pytest.raises(
        ArgumentError, match=r"The arrays in params do not fit this Net\. Missing: first\.weight, .* Unexpected: weight, bias"
    ):
        model.bind(nn.Linear(1, 1).parameters(), model.buffers)


def test_only_modules_can_be_functional():
    with pytest.raises(ArgumentTypeError, match=r"model must be an mlx\.nn\.Module, got dict"):
        fp.functional({})


def test_a_method_of_an_attrs_class_can_be_compiled():
    @attrs.frozen
    class Line:
        slope: mx.array
        start: float

        @fp.jit
        def __call__(self, x):
            return self.slope * x + self.start

        @fp.jit
        def shifted(self, *, by):
            return attrs.evolve(self, slope=self.slope + by)

    line = Line(mx.array(2.0), 1.0)
    assert line(mx.array(3.0)).item() == 7
    assert line.shifted(by=mx.array(1.0)).slope.item() == 3
    assert Line(mx.array(0.0), 5.0)(mx.array(3.0)).item() == 5
    assert Line.shifted.variants == 1
