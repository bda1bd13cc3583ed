"""Models and losses that draw random numbers: each step draws its own, from the seed and the number of the step alone."""

from functools import cache, partial
from threading import Thread

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.models.layers import draw_weights
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, paths
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_pure_step
from mlxfp.training.steps.drawing import drawing_from
from mlxfp.training.steps.state import train_state, trees_of
from tests.test_distributed import Silent
from tests.training.samples import Block, Deep, group, loss


class Vae(nn.Module):
    """A variational autoencoder, whose code is drawn as in mlx-examples: by `mx.random.normal`, without a key."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 8), nn.Linear(4, 3)

    def __call__(self, x):
        mean, log_variance = mx.split(self.encoder(x), 2, axis=-1)
        code = mean + mx.random.normal(mean.shape) * mx.exp(log_variance / 2)
        return self.decoder(code), mean, log_variance


def evidence(model, batch):
    made, mean, log_variance = model(batch["x"])
    divergence = 0.5 * (mx.exp(log_variance) + mean.square() - 1 - log_variance).sum()
    return (made - batch["x"]).square().sum() + divergence, len(batch["x"])


def denoising(model, batch):
    """A loss that draws times and noise itself."""
    x = batch["x"]
    time, noise = mx.random.uniform(shape=(len(x), 1)), mx.random.normal(x.shape)
    return fp.losses.mse(model(x * (1 - time) + noise * time), noise)


def denoising_with_a_key(model, batch, key):
    x, (first, second) = batch["x"], mx.random.split(key)
    time, noise = mx.random.uniform(shape=(len(x), 1), key=first), mx.random.normal(x.shape, key=second)
    return fp.losses.mse(model(x * (1 - time) + noise * time), noise)


class Sometimes(Block):
    """A block that is left out for some rows, as in stochastic depth; it keeps the numbers that it drew."""

    def __init__(self, rate):
        super().__init__(rate)
        self.drawn = mx.zeros(2, mx.int32)

    def __call__(self, x):
        if not self.training:
            return super().__call__(x)
        self.drawn = mx.random.randint(0, 2**30, (2,))
        kept = mx.random.bernoulli(0.7, (len(x), 1))
        return x + (super().__call__(x) - x) * kept / 0.7


class StochasticDepth(Deep):
    def __init__(self):
        super().__init__(0.2, 3)
        self.blocks = [Sometimes(0.2) for _ in range(3)]
        self.after = mx.zeros(2, mx.int32)

    def __call__(self, x):
        result = super().__call__(x)
        self.after = mx.random.randint(0, 2**30, (2,))
        return result


CASES = {
    "vae": (Vae, evidence),
    "diffusion": (partial(nn.Linear, 3, 3), denoising),
    "diffusion with a key": (partial(nn.Linear, 3, 3), denoising_with_a_key),
    "stochastic depth": (StochasticDepth, loss),
}


def make(name, optimizer, **options):
    module, objective = CASES[name]
    model = module()
    draw_weights(model, 0)
    return fp.train_step(model, objective, optimizer, **options), train_state(model, optimizer, seed=7)


made = cache(lambda name: make(name, fp.optimizers.adamw(0.05)))  # compiled once for all tests


def leaves(state):
    structure, arrays = flatten(trees_of(state))
    return dict(zip(paths(structure), map(np.array, arrays), strict=True))


def assert_close(found, expected):
    expected = leaves(expected)
    for name, array in leaves(found).items():
        assert np.allclose(array, expected[name], rtol=1e-5, atol=1e-6), f"{name} differs: {array}, {expected[name]}"


def losses(step, state, steps):
    found = []
    for _ in range(steps):
        state, metrics = step(state, group())
        found.append(metrics["loss"].item())
    return found


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_step_that_draws_is_pure_and_compiled_equals_eager(name):
    step, state = made(name)
    assert_pure_step(step, state, group())
    assert_compiled_equals_eager(step, state, group())


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_step_and_seed_draws_other_numbers(name):
    step, state = made(name)
    still = [attrs.evolve(state, step=number, seed=seed) for number in range(3) for seed in range(2)]
    assert len({step(each, group())[1]["loss"].item() for each in still}) == 6


@pytest.mark.parametrize("name", sorted(CASES))
@given(st.integers(0, 5), st.integers(0, 2**31))
@settings(max_examples=10)
def test_a_run_that_continues_draws_what_the_uninterrupted_run_drew(tmp_path_factory, name, stop, seed):
    step, state = made(name)
    batches = [group(seed=number) for number in range(6)]
    whole = fp.last(fp.fit(step, attrs.evolve(state, seed=seed), batches)).state
    mx.random.seed(stop)  # the generator of the process has nothing to do with it
    half = fp.last(fp.fit(step, attrs.evolve(state, seed=seed), batches, steps=stop)).state if stop else attrs.evolve(state, seed=seed)
    path = tmp_path_factory.mktemp("state") / "half.safetensors"
    fp.save_state(path, half)
    half = fp.load_state(path, state).state
    for batch in batches[stop:]:
        half, _ = step(half, batch)
    assert half == whole


@given(st.integers(0, 2**31), st.booleans())
@settings(max_examples=8)
def test_numbers_drawn_by_a_compiled_step_are_those_of_an_eager_one_bit_for_bit(seed, recomputed):
    step, state = made_for_draws(recomputed)
    state = attrs.evolve(state, seed=seed)
    after, _ = step(state, group())
    mx.disable_compile()
    try:
        eager, _ = step(state, group())
    finally:
        mx.enable_compile()
    expected, _ = made_for_draws(False)[0](state, group())
    for found in (eager, expected):
        assert drawn(found) == drawn(after)
    assert len(set(map(tuple, drawn(after)))) == 4


@cache
def made_for_draws(recomputed):
    return make("stochastic depth", optimizers.SGD(0.1), checkpoint_blocks=recomputed)


def drawn(state):
    return [*(block["drawn"].tolist() for block in state.buffers["blocks"]), state.buffers["after"].tolist()]


@given(st.integers(0, 2**31))
@settings(max_examples=8)
def test_blocks_that_are_computed_twice_draw_the_same_numbers_both_times(seed):
    (kept, state), (twice, _) = made_for_draws(False), made_for_draws(True)
    state = attrs.evolve(state, seed=seed)
    assert_close(twice(state, group())[0], kept(state, group())[0])


def test_mx_checkpoint_itself_draws_other_numbers_so_it_is_refused():
    class Stock(Sometimes):
        def __call__(self, x):
            return mx.checkpoint(super().__call__)(x)

    model = Deep(0.0)
    model.blocks = [Stock(0.0)]
    step = fp.train_step(model, loss, optimizers.SGD(0.1))
    for compiled in (True, False):
        (mx.enable_compile if compiled else mx.disable_compile)()
        try:
            with pytest.raises(ArgumentError, match=r"draws random numbers in the backward pass too: .* pass checkpoint_blocks=True"):
                step(train_state(model, optimizers.SGD(0.1)), group())
        finally:
            mx.enable_compile()


def test_every_batch_of_an_update_draws_its_own_numbers():
    plain, state = make("vae", optimizers.SGD(0.1))
    step, _ = make("vae", optimizers.SGD(0.1), accumulate=2)
    after = state
    for seed in range(2):
        after, _ = step(after, group(seed=seed))
    first, _ = plain(state, group(seed=0))
    second, _ = plain(attrs.evolve(state, step=1), group(seed=1))
    for name, found in leaves(attrs.evolve(after, extra={}, opt={}, buffers={})).items():
        mean = (leaves(first)[name] + leaves(second)[name]) / 2
        assert np.allclose(found, mean, rtol=1e-5, atol=1e-6), name
    assert not np.array_equal(leaves(first)["params.decoder.weight"], leaves(second)["params.decoder.weight"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_rank_draws_numbers_of_its_own(name):
    found = []
    for rank in range(2):
        step, state = make(name, optimizers.SGD(0.1), ranks=Silent(fp.distributed.World(rank, 2), None))
        found.append(step(state, group())[1]["loss"].item())
    assert found[0] != found[1]


@pytest.mark.parametrize("compiles", [True, False])
def test_the_generator_of_the_caller_stays_as_it_was(compiles):
    step, state = make("vae", optimizers.SGD(0.1))
    check = fp.evaluate(Vae(), lambda model, batch: {"loss": evidence(model, batch)})
    mx.random.seed(3)
    mx.random.normal((4,))
    held = mx.random.state[0]
    before, expected = held.tolist(), mx.random.normal((4,), key=mx.random.split(held)[1]).tolist()
    (mx.enable_compile if compiles else mx.disable_compile)()
    try:
        step(state, group())
        check(state, [group()])
        with pytest.raises(KeyError):
            step(state, {"y": mx.ones(3)})
    finally:
        mx.enable_compile()
    assert held.tolist() == mx.random.state[0].tolist() == before
    assert mx.random.normal((4,)).tolist() == expected


def test_a_step_that_was_traced_in_one_thread_draws_the_same_in_another():
    step, state = made("vae")
    found = []

    def train():
        found.extend(losses(step, state, 2))

    thread = Thread(target=train)
    thread.start()
    thread.join()
    assert found == losses(step, state, 2)


def test_a_loss_gets_a_key_where_it_has_three_parameters_without_a_default():
    keys = []

    def keyed(model, batch, key):
        keys.append(key)
        return loss(model, batch)

    def weighted(scale, model, batch, key):
        return keyed(model, batch, key)

    class Callable:
        def __call__(self, model, batch, key):
            return keyed(model, batch, key)

    for function in (keyed, partial(weighted, 2.0), Callable()):
        fp.train_step(Deep(0.0), function, fp.optimizers.adamw(0.1)).look(train_state(Deep(0.0), fp.optimizers.adamw(0.1)), group())
    assert [(key.shape, key.dtype) for key in keys] == [((2,), mx.uint32)] * 3
    given = []
    for function in (lambda model, batch, more="default": given.append(more) or loss(model, batch), loss):
        fp.train_step(Deep(0.0), function, fp.optimizers.adamw(0.1)).look(train_state(Deep(0.0), fp.optimizers.adamw(0.1)), group())
    assert given == ["default"]


@pytest.mark.parametrize("name", ["vae", "diffusion with a key"])
def test_evaluations_draw_the_same_numbers_every_time_and_others_for_every_batch(name):
    module, objective = CASES[name]
    _, state = made(name)
    keyed = objective is denoising_with_a_key
    measure = (
        (lambda model, batch, key: {"loss": objective(model, batch, key)})
        if keyed
        else (lambda model, batch: {"loss": objective(model, batch)})
    )
    check = fp.evaluate(module(), measure)
    one, two = check(state, [group()])["loss"], check(state, [group(), group()])["loss"]
    mx.random.seed(0)
    assert check(state, [group()])["loss"] == one
    assert check(attrs.evolve(state, seed=3), [group()])["loss"] == one
    assert one != two  # the mean of two equal batches would be the same


def test_predictions_draw_the_same_numbers_every_time():
    _, state = made("vae")
    answers = fp.predict(Vae(), lambda model, batch: model(batch["x"])[0])
    first, second = answers(state, [group(), group()])
    again = next(iter(answers(state, [group()])))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    samples = fp.predict(Vae(), lambda model, batch, key: model.decoder(mx.random.normal((2, 4), key=key)))
    assert np.array_equal(*[next(iter(samples(state, [group()]))) for _ in range(2)])


def test_what_the_message_of_jit_advises_can_be_done():
    model, x = fp.functional(Vae()), group()["x"]
    with pytest.raises(ArgumentError, match=r"draws from MLX's global generator.*functional\(model\)\.apply\(\.\.\., key=key\)"):
        fp.jit(lambda params, x: model.bind(params, {})(x)[0])(model.params, x)
    with_key = fp.jit(lambda params, x, key: model.apply(lambda module, x: module(x)[0], params, {}, x, key=key)[0])
    made = [with_key(model.params, x, mx.random.key(number)).tolist() for number in (0, 1, 0)]
    assert made[0] == made[2] != made[1]
    given_key = fp.jit(lambda x, key: x + mx.random.normal(x.shape, key=key))
    assert given_key(x, mx.random.key(0)).tolist() != given_key(x, mx.random.key(1)).tolist()


def test_an_optimizer_that_draws_is_refused():
    class Noisy(optimizers.SGD):
        def apply_single(self, gradient, parameter, state):
            return super().apply_single(gradient + mx.random.normal(gradient.shape), parameter, state)

    step, state = make("vae", Noisy(0.1))
    with pytest.raises(ArgumentError, match=r"The optimizer, Noisy, draws random numbers, which is not supported"):
        step(state, group())


def test_draws_inside_of_another_scope_do_not_count():
    with drawing_from(mx.random.key(0)) as outer:
        with drawing_from(mx.random.key(1)) as inner:
            mx.random.uniform()
            assert inner.drawn
        assert not outer.drawn
        first = mx.random.uniform().item()
        assert outer.drawn
        with drawing_from(mx.random.key(1)):
            pass
        assert outer.drawn
    with drawing_from(mx.random.key(0)):
        assert mx.random.uniform().item() == first
