"""The laws of a step hold with every option of it, alone and all together."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CheckpointError
from mlxfp.support.trees import flatten
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_continues, assert_pure_step, assert_saves
from mlxfp.training.steps.state import same_arrays, trees_of
from tests.training.samples import dataset, deep, group, loss, net, setting

ALONE = [
    {"clip_norm": 0.1},
    {"accumulate": 3},
    {"compute_dtype": mx.bfloat16},
    {"compute_dtype": mx.float16},
    {"checkpoint_blocks": True},
    {"skip_nonfinite": True},
    {"ema": 0.9},
    {"ranks": fp.distributed.connect()},
]
TOGETHER = {name: value for options in ALONE for name, value in options.items()}
OPTIONS = pytest.mark.parametrize("options", [{}, *ALONE, TOGETHER], ids=lambda options: "+".join(options) or "none")


def made(options, **more):
    """A step of a model with dropout, and a state a few steps on, in the middle of an accumulation."""
    step, state = setting(model=deep(), **options, **more)
    for seed in range(4):
        state, _ = step(state, group(seed=seed))
    return step, state


@OPTIONS
def test_a_step_is_pure_and_compiled_equals_eager(options):
    step, state = made(options)
    for _ in range(2):  # with an update and without
        assert_pure_step(step, state, group())
        # In half precision the compiler rounds less often, as it fuses operations.
        assert_compiled_equals_eager(step, state, group(), tolerance=3e-2 if "compute_dtype" in options else 1e-5)
        state, _ = step(state, group(seed=9))


@OPTIONS
def test_a_state_is_saved_and_a_run_continues_bit_for_bit(options, tmp_path):
    step, state = made(options)
    assert_saves(state, tmp_path)
    assert_continues(step, step.start(setting(model=deep())[1]), dataset(), stop=4, steps=8, folder=tmp_path)


def test_a_run_that_continues_without_its_sums_is_caught(tmp_path):
    step, state = setting(model=deep(), accumulate=3)

    def forgetful(state, batch):
        return step(step.start(state) if state.step == 4 else state, batch)

    with pytest.raises(AssertionError, match=r"after stopping at step 4 the run differs"):
        assert_continues(_after_a_stop(step, forgetful), step.start(state), dataset(), stop=4, steps=8, folder=tmp_path)


def _after_a_stop(step, other):
    """A step that is another one from the second visit of the fifth step on."""
    visits = []

    def changing(state, batch):
        visits.append(state.step)
        return (other if visits.count(4) > 1 else step)(state, batch)

    return changing


@OPTIONS
def test_what_comes_out_is_finite_and_what_goes_in_stays(options):
    step, state = made(options)
    before = [np.array(leaf) for leaf in flatten(trees_of(state))[1]]
    after, metrics = step(state, group())
    assert all(np.isfinite(np.array(leaf.astype(mx.float32))).all() for leaf in flatten([trees_of(after), metrics])[1])
    assert all(np.array_equal(a, np.array(b)) for a, b in zip(before, flatten(trees_of(state))[1], strict=True))


def test_without_options_a_state_holds_nothing_extra_and_a_step_gives_no_more_metrics():
    step, state = made({})
    after, metrics = step(state, group())
    assert (after.extra, sorted(metrics)) == ({}, ["loss", "weight"])


def test_a_plain_state_is_taken_up_by_a_step_with_options_and_not_the_other_way_round():
    step, plain = setting(ema=0.9, accumulate=2)
    assert step(plain, group())[0] == step(step.start(plain), group())[0]
    other, _ = setting()
    message = r"belongs to a step with other options\. Unexpected: extra\.sums\.gradients\.first\.weight.*pass step\.start\(state\) instead"
    with pytest.raises(ArgumentError, match=message):
        other(step.start(plain), group())
    assert other(other.start(step.start(plain)), group())[0] == other(plain, group())[0]


def test_a_checkpoint_of_a_step_with_options_is_loaded_into_what_the_step_starts_with(tmp_path):
    step, plain = setting(ema=0.9)
    state, _ = step(plain, group())
    fp.save_state(tmp_path / "a", state)
    assert fp.load_state(tmp_path / "a", step.start(plain)).state == state
    with pytest.raises(CheckpointError, match=r"unexpected: extra\.average\.updates int32\[\]"):
        fp.load_state(tmp_path / "a", plain)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"accumulate": 0}, ArgumentError, "accumulate must be at least 1, got accumulate=0"),
        ({"accumulate": 2.0}, ArgumentTypeError, "accumulate must be an int"),
        ({"compute_dtype": mx.int8}, ArgumentError, r"compute_dtype must be mx\.bfloat16 or mx\.float16, got compute_dtype=.*int8"),
        ({"compute_dtype": mx.float32}, ArgumentError, r"compute_dtype must be mx\.bfloat16 or mx\.float16, got compute_dtype=.*float32"),
        ({"compute_dtype": "bfloat16"}, ArgumentTypeError, "compute_dtype must be a dtype of MLX, got "),
        ({"checkpoint_blocks": 1}, ArgumentTypeError, "checkpoint_blocks must be bool, got int"),
        ({"checkpoint_blocks": True}, ArgumentError, "checkpoint_blocks needs a list of two or more modules of one type, and Net has none"),
        ({"skip_nonfinite": None}, ArgumentTypeError, "skip_nonfinite must be bool"),
        ({"ema": 1.0}, ArgumentError, r"ema must be above 0 and below 1, got ema=1\.0"),
        ({"ema": 0}, ArgumentError, "ema must be above 0 and below 1, got ema=0"),
        ({"ranks": 2}, ArgumentTypeError, "ranks must be NoneType or Ranks, got int"),
    ],
)
def test_an_impossible_option_is_refused_when_the_step_is_made(options, error, message):
    with pytest.raises(error, match=message):
        fp.train_step(net(), loss, fp.optimizers.adamw(0.1), **options)


def test_the_model_and_the_class_of_its_blocks_stay_as_they_were():
    model = deep()
    step, state = setting(model=model, checkpoint_blocks=True, compute_dtype=mx.bfloat16)
    step(state, group())
    assert {type(block).__call__.__name__ for block in model.blocks} == {"__call__"}
    assert {type(block).__bases__ for block in model.blocks} == {(nn.Module,)}
    assert same_arrays(state.params, setting(model=model)[1].params)
