"""A module at two places trains as one weight, and an array that was assigned to two modules is named."""

import warnings
from copy import deepcopy

import mlx.core as mx
import pytest
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.training.steps.shared_arrays import warn_of_tied_arrays
from mlxfp.training.steps.state import same_arrays, train_state

BATCH = {"x": mx.array([0, 1, 2, 3]), "y": mx.array([1, 2, 3, 4])}


class Tied(nn.Module):
    """The matrix of its inputs is that of its outputs."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(5, 4)
        self.norms = [nn.LayerNorm(4)] * 2
        self.head = self.tokens

    def __call__(self, ids):
        x = self.tokens(ids)
        for norm in self.norms:
            x = norm(x)
        return self.head.as_linear(x)


def loss(model, batch):
    return fp.losses.cross_entropy(model(batch["x"]), batch["y"])


@pytest.mark.parametrize("options", [{}, {"ema": 0.5}, {"accumulate": 2}, {"checkpoint_blocks": True}, {"compile": False}], ids=str)
def test_a_module_at_two_places_has_one_weight_in_the_state_as_in_a_loop_of_mlx(options):
    model, optimizer = Tied(), fp.optimizers.adamw(0.1, weight_decay=0.5)
    step, state = fp.train_step(model, loss, optimizer, **options), train_state(model, optimizer)
    plain, own = deepcopy(model), optimizers.AdamW(0.1, weight_decay=0.5, bias_correction=True)
    gradient = nn.value_and_grad(plain, lambda model: fp.losses.cross_entropy(model(BATCH["x"]), BATCH["y"])[0] / 4)
    for _ in range(3):
        for _ in range(options.get("accumulate", 1)):
            state, _ = step(state, BATCH)
        own.update(plain, gradient(plain)[1])
    found, expected = dict(tree_flatten(state.params)), dict(tree_flatten(plain.trainable_parameters()))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert mx.allclose(found[name], array, atol=1e-5), name
    for tree in (state, fp.optimizers.ema_weights(state)) if "ema" in options else (state,):
        assert same_arrays(tree.params["tokens"], tree.params["head"])
        assert same_arrays(*tree.params["norms"])


def test_one_array_in_two_modules_is_named_because_it_would_become_two():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model.layers[1].weight = model.layers[0].weight
    with pytest.warns(RuntimeWarning, match=r"same array at layers\.0\.weight and at layers\.1\.weight\. MLX updates both") as caught:
        fp.train_step(model, loss, fp.optimizers.adamw(0.1))
    assert caught[0].filename == __file__


def test_shared_modules_copies_and_arrays_that_do_not_train_are_not_named():
    frozen, copied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    frozen.layers[1].update(frozen.layers[0].parameters()).freeze()  # the target of a mean teacher
    copied.layers[1].weight = mx.array(copied.layers[0].weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (Tied(), frozen, copied):
            warn_of_tied_arrays(model)
