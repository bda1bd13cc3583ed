"""Blocks that are computed twice: the same gradients, with dropout too, and less memory."""

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

from mlxfp.models.layers import random_key
from mlxfp.support.trees import flatten
from mlxfp.training.steps.recomputing import blocks_of, recompute_blocks
from mlxfp.training.steps.state import same_arrays, trees_of
from mlxfp.training.steps.transforms import functional
from tests.models.samples import CLASSES, DROPOUTS, body, rows
from tests.training.samples import Block, Deep, deep, group, setting


def assert_recomputing_is_exact(make, batch, *, tolerance=1e-6):
    """Law: a step that computes blocks twice does what one that keeps their activations does, with the same masks.

    `make(checkpoint_blocks)` makes a step and its first state.
    """
    (kept, state), (twice, _) = make(False), make(True)
    (expected, _), (found, _) = kept(state, batch), twice(state, batch)
    for name, tree in trees_of(expected).items():
        for ours, theirs in zip(flatten(trees_of(found)[name])[1], flatten(tree)[1], strict=True):
            assert np.allclose(np.array(ours), np.array(theirs), rtol=tolerance, atol=tolerance), f"{name} differ: {ours}, {theirs}"


def making(model):
    return lambda twice: setting(model=model, optimizer=optimizers.SGD(1.0), checkpoint_blocks=twice)


@given(st.integers(2, 3), st.sampled_from([0.0, 0.3, 0.9]), st.integers(0, 3))
@settings(max_examples=8)
def test_gradients_are_exact_with_dropout(depth, rate, seed):
    assert_recomputing_is_exact(making(deep(rate, depth, seed)), group(seed=seed))


def test_the_law_catches_the_stock_way_with_the_dropout_of_mlx():
    """What mlx-lm's grad_checkpoint does: `mx.checkpoint` around a block whose dropout draws from a generator."""

    def gradients(checkpointed):
        model = deep(rate=0.5, depth=1)
        block = model.blocks[0]

        def objective(params):
            block.update(params)
            mx.random.seed(0)
            run = nn.utils.checkpoint(block) if checkpointed else block
            return run(model.first(group()["x"])).square().sum()

        return mx.value_and_grad(objective)(block.trainable_parameters())

    (kept, exact), (twice, wrong) = gradients(False), gradients(True)
    assert kept.item() == twice.item()  # the loss shows nothing
    assert not np.allclose(np.array(exact["outer"]["weight"]), np.array(wrong["outer"]["weight"]), atol=1e-3)


class Odd(nn.Module):
    """A block that takes and gives what models do: masks, keywords, None, attrs values; and that has statistics."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.dropout = nn.BatchNorm(8), nn.Linear(8, 8), nn.Dropout(0.5)
        self.calls = mx.array(0)

    def __call__(self, pair, places, mask="causal", *, cache=None):
        self.calls += 1
        x = pair.x + self.dropout(nn.relu(self.norm(self.linear(pair.x)))) * pair.scale
        return attrs.evolve(pair, x=x + places[:, None] * 0.01), {"mask": mask, "cache": cache}


@attrs.frozen
class Pair:
    x: mx.array
    scale: mx.array


class Oddly(Deep):
    def __init__(self):
        super().__init__()
        self.blocks = [Odd() for _ in range(2)]
        self.scale = mx.array(0.7)

    def __call__(self, x):
        pair = Pair(self.first(x), self.scale)
        for block in self.blocks:
            pair, rest = block(pair, mx.arange(len(x)), cache=None)
            assert rest == {"mask": "causal", "cache": None}
        return self.last(pair.x)


def test_blocks_may_take_and_give_any_tree_and_keep_statistics():
    model = Oddly()
    assert_recomputing_is_exact(making(model), group())
    step, state = making(model)(True)
    after, _ = step(state, group())
    assert [block["calls"].item() for block in after.buffers["blocks"]] == [1, 1]
    assert not np.array_equal(np.array(after.params["scale"]), np.array(state.params["scale"]))


def test_frozen_blocks_and_frozen_parts_of_blocks_stay():
    model = deep()
    model.blocks[0].freeze()
    model.blocks[1].inner.freeze()
    assert_recomputing_is_exact(making(model), group())


def test_blocks_that_share_weights_are_computed_twice_too():
    model = deep(depth=3)
    model.blocks[2] = model.blocks[0]
    assert_recomputing_is_exact(making(model), group())


def test_only_outermost_lists_of_one_type_are_blocks():
    model = deep(depth=2)
    model.blocks[0].experts = [nn.Linear(1, 1) for _ in range(2)]
    model.mixed = [nn.Linear(1, 1), nn.ReLU()]
    model.single = [nn.Linear(1, 1)]
    model.deeper = {"a": [[nn.Linear(1, 1), nn.Linear(1, 1)]]}
    assert [type(block) for block in blocks_of(model)] == [Block, Block, nn.Linear, nn.Linear]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_models_of_this_library_give_the_same_numbers_bit_for_bit(name):
    model, (ids, mask) = functional(body(name, **DROPOUTS[name])), rows([3, 8])

    def gradients(change, key):
        def measure(module):
            change(module)
            outputs = module(ids, mask)
            return (outputs * mx.cos(mx.arange(outputs.size).reshape(outputs.shape))).sum()

        return mx.value_and_grad(lambda params: model.apply(measure, params, model.buffers, key=key)[0])(model.params)

    kept = gradients(lambda module: None, random_key(3))
    assert same_arrays(kept, gradients(recompute_blocks, random_key(3)))
    drops = bool(DROPOUTS[name])  # a body without dropout, text_cnn, draws nothing from the key
    assert same_arrays(kept, gradients(recompute_blocks, random_key(4))) is not drops


def test_the_law_catches_another_mask():
    def making_another(twice):
        step, state = making(deep())(twice)
        return lambda state, batch: step(attrs.evolve(state, seed=int(twice)), batch), state

    with pytest.raises(AssertionError, match="params differ"):
        assert_recomputing_is_exact(making_another, group())


def test_less_memory_is_held():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = [Block(0.1) for _ in range(16)]
            self.last = nn.Linear(8, 2)

        def __call__(self, x):
            x = mx.pad(x, [(0, 0), (0, 5)])
            for block in self.blocks:
                x = block(x)
            return self.last(x)

    batch = {"x": mx.zeros((2_000, 3)), "label": mx.zeros(2_000, mx.int32)}

    def peak(twice):
        step, state = making(Wide())(twice)
        mx.eval(step(state, batch)[1])
        mx.reset_peak_memory()
        mx.eval(step(state, batch)[1])
        return mx.get_peak_memory()

    assert peak(True) < 0.5 * peak(False)
