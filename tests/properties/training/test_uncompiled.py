"""`compile=False`: the same step without `mx.compile`, for looking inside."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.models.bounds import BoundError
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.trees import flatten
from mlxfp.testing.laws import assert_pure_step
from mlxfp.training.steps.state import train_state, trees_of
from tests.training.samples import dataset, group, loss, net, setting

OPTIONS = {"plain": {}, "several": {"accumulate": 2, "clip_norm": 1.0, "ema": 0.9, "skip_nonfinite": True}}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_case_a16_a_run_without_compiling_ends_where_the_compiled_one_does(name):
    ends = []
    for compiles in (True, False):
        step, state = setting(compile=compiles, **OPTIONS[name])
        ends.append(fp.last(fp.fit(step, state, dataset(), epochs=2)).state)
        assert (step.variants > 0) == compiles
    for a, b in zip(*[flatten(trees_of(end))[1] for end in ends], strict=True):
        assert np.allclose(np.array(a), np.array(b), rtol=1e-4, atol=1e-5)


def test_a_step_without_compiling_is_pure():
    step, state = setting(compile=False)
    assert_pure_step(step, state, group())


def test_numbers_in_the_loss_can_be_printed_at_every_step():
    seen = []

    def printing(model, batch):
        found = loss(model, batch)
        seen.append(found[1].item())
        return found

    step = fp.train_step(net(), printing, fp.optimizers.adamw(0.1), compile=False)
    state = train_state(net(), fp.optimizers.adamw(0.1))
    for _ in range(3):
        state, _ = step(state, group())
    assert seen == [6.0] * 3


def test_an_error_in_the_loss_names_the_batch_and_says_nothing_of_compiling():
    step, state = setting(compile=False)
    with pytest.raises(ValueError, match="addmm") as raised:
        step(state, {**group(), "x": mx.zeros((6, 5))})
    [note] = raised.value.__notes__
    assert note.startswith("while running the loss on a batch of x float32[6, 5], label int32[6]; without name, ")


def test_ids_outside_of_their_table_are_found_too():
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2))
    step = fp.train_step(
        model, lambda model, batch: fp.losses.cross_entropy(model(batch["ids"]), batch["label"]), fp.optimizers.adamw(0.1), compile=False
    )
    with pytest.raises(BoundError, match="holds 4 at row 1"):
        step(train_state(model, fp.optimizers.adamw(0.1)), {"ids": mx.array([0, 4]), "label": mx.array([0, 1])})


def test_it_is_true_or_false():
    with pytest.raises(ArgumentTypeError, match="compile must be bool, got str: 'no'"):
        fp.train_step(net(), loss, fp.optimizers.adamw(0.1), compile="no")
