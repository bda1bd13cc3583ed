"""Steps of several trainings in one program: the same states and metrics as one after the other, bit for bit on the CPU."""

import gc
from weakref import ref

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

from mlxfp.distributed import connect
from mlxfp.models import RealMLP, RealMLPConfig, TableColumns, TableTarget, TabM, TabMConfig
from mlxfp.models.layers import MAPPED, Dropout, derived_key, random_key
from mlxfp.models.tables.columns import CategoryColumn, NumberColumn
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.training.loop.fitting import fit
from mlxfp.training.losses import cross_entropy
from mlxfp.training.optimization.optimizers import adamw, realmlp
from mlxfp.training.steps.joint import JointSteps
from mlxfp.training.steps.state import leaves_of, promise_of, train_state
from mlxfp.training.steps.steps import train_step

COUNT = 3
NUMBERS, KINDS = 2, (2, 3, 9)


def columns_of(seed):
    """Columns of one form whose bins are those of a fold."""
    bins = tuple(np.sort(np.random.default_rng(seed).normal(size=6)).tolist())
    numbers = tuple(NumberColumn(f"n{place}", median=0.0, factor=1.0, bins=bins) for place in range(NUMBERS))
    return TableColumns(numbers, tuple(CategoryColumn(f"c{count}", tuple(map(str, range(count)))) for count in KINDS))


def mlp(seed):
    return nn.Sequential(nn.Linear(NUMBERS, 8), nn.BatchNorm(8), nn.ReLU(), Dropout(0.3), nn.Dropout(0.5), nn.Linear(8, 3))


def of_numbers(model, batch):
    return cross_entropy(model(batch["numbers"]), batch["labels"])


def noisy(model, batch, key):
    """Draw from the key of the step, and from MLX's generator."""
    numbers = batch["numbers"] + mx.random.normal(batch["numbers"].shape, key=key)
    return cross_entropy(model(numbers * mx.random.uniform(shape=numbers.shape)), batch["labels"])


def of_table(model, batch):
    return cross_entropy(model(batch["numbers"], batch["categories"]), batch["labels"])


def of_members(model, batch):
    made = model.members(batch["numbers"], batch["categories"])
    return cross_entropy(made.flatten(0, 1), mx.repeat(batch["labels"], made.shape[1], axis=0))


def realmlp_of(seed):
    return RealMLP(RealMLPConfig(columns=columns_of(seed), target=TableTarget("class", 3), hidden_sizes=(8, 8), steps=20), seed=seed)


def tabm_of(seed):
    return TabM(TabMConfig(columns=columns_of(seed), target=TableTarget("class", 3), members=4, hidden_size=8, number_size=4), seed=seed)


MODELS = {
    "linear": (lambda seed: nn.Linear(NUMBERS, 3), of_numbers, lambda: optimizers.SGD(0.1, momentum=0.9)),
    "mlp": (mlp, of_numbers, lambda: adamw(optimizers.linear_schedule(1e-2, 1e-3, 9))),
    "noisy": (mlp, noisy, lambda: optimizers.Lion(1e-3)),
    "realmlp": (realmlp_of, of_table, lambda: realmlp(0.04, steps=20)),
    "tabm": (tabm_of, of_members, lambda: adamw(2e-3)),
}
OPTIONS = {
    "clip_norm": st.just(0.1),
    "accumulate": st.just(2),
    "ema": st.just(0.9),
    "skip_nonfinite": st.just(True),
}


def batch_of(seed, rows):
    random = np.random.default_rng(seed)
    categories = np.stack([random.integers(0, count + 1, rows) for count in KINDS], axis=1)
    return {
        "numbers": mx.array(random.normal(size=(rows, NUMBERS)).astype(np.float32)),
        "categories": mx.array(categories.astype(np.int32)),
        "labels": mx.array(random.integers(0, 3, rows).astype(np.int32)),
    }


def trainings(name, **options):
    """Steps and states of several trainings: each has its own weights, seed and number of steps made."""
    make, loss, optimizer = MODELS[name]
    mx.random.seed(0)
    models = [make(seed) for seed in range(COUNT)]
    steps = [train_step(model, loss, optimizer(), **options) for model in models]
    return steps, [train_state(model, optimizer(), seed=seed) for seed, model in enumerate(models)]


def one_after_the_other(steps, states, batches):
    return [list(made(step, state, several)) for step, state, several in zip(steps, states, batches, strict=True)]


def made(step, state, batches):
    for batch in batches:
        state, metrics = step(state, batch)
        yield state, metrics


def in_turns(steps, states, batches, *, read=lambda turn, place: False):
    """Make the steps in turns; some trainings have fewer batches, and some results are read at once."""
    joint = JointSteps()
    streams = [made(joint.step(step), state, several) for step, state, several in zip(steps, states, batches, strict=True)]
    found = [[] for _ in streams]
    for turn in range(max(map(len, batches))):
        for place, stream in enumerate(streams):
            result = next(stream, None)
            found[place] += [] if result is None else [result]
            if result is not None and read(turn, place):
                mx.eval(leaves_of(result[0])[1], dict(result[1]))
    return found, joint


def assert_same(found, expected):
    for several, others in zip(found, expected, strict=True):
        for (state, metrics), (other, numbers) in zip(several, others, strict=True):
            assert {name: value.item() for name, value in metrics.items()} == {name: value.item() for name, value in numbers.items()}
            assert state == other


@settings(max_examples=5)  # each compiles several programs
@given(data=st.data())
@pytest.mark.parametrize("name", MODELS)
def test_steps_together_are_steps_one_after_the_other_bit_for_bit(name, data):
    options = data.draw(st.fixed_dictionaries({}, optional=OPTIONS))
    sizes = data.draw(st.lists(st.lists(st.sampled_from([3, 5]), min_size=1, max_size=4), min_size=COUNT, max_size=COUNT))
    early = data.draw(st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, COUNT - 1)), max_size=3))
    batches = [[batch_of(100 * place + turn, rows) for turn, rows in enumerate(several)] for place, several in enumerate(sizes)]
    steps, states = trainings(name, **options)
    expected = one_after_the_other(steps, states, batches)
    found, joint = in_turns(steps, states, batches, read=lambda turn, place: (turn, place) in early)
    assert_same(found, expected)
    assert joint.alone is None


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_in_half_precision_they_are_close(dtype):
    """The compiler rounds less often where it fuses operations, and it fuses others."""
    steps, states = trainings("realmlp", compute_dtype=dtype)
    batches = [[batch_of(place, 5)] for place in range(COUNT)]
    expected = one_after_the_other(steps, states, batches)
    found, joint = in_turns(steps, states, batches)
    assert joint.alone is None
    for [(_, metrics)], [(_, numbers)] in zip(found, expected, strict=True):
        assert metrics["loss"].item() == pytest.approx(numbers["loss"].item(), rel=3e-2)


def same_sizes(count=3, rows=4):
    return [[batch_of(100 * place + turn, rows) for turn in range(count)] for place in range(COUNT)]


def test_all_steps_are_in_one_program_whose_results_are_not_taken_apart_between_them():
    steps, states = trainings("tabm")  # whose bins differ
    found, joint = in_turns(steps, states, same_sizes())
    assert joint.made == joint.joined == COUNT * 2  # those of the last turn were not asked for
    joint.compute()
    assert joint.made == joint.joined == COUNT * 3
    last = [promise_of(several[-1][0]) for several in found]
    assert [row for _, row in (each.place for each in last)] == [0, 1, 2]
    assert all(each.place[0] is last[0].place[0] for each in last)


def test_states_of_steps_that_are_done_are_forgotten():
    [step, other, _], [state, beside, _] = trainings("linear")
    joint = JointSteps()
    step, other = joint.step(step), joint.step(other)
    kept = []
    for turn in range(3):
        state, beside = step(state, batch_of(turn, 4))[0], other(beside, batch_of(turn, 4))[0]
        kept.append(ref(promise_of(state)))
    joint.compute()
    gc.collect()
    assert [each() is None for each in kept] == [True, True, False]


def test_steps_of_other_settings_are_computed_apart():
    models = [MODELS["linear"][0](seed) for seed in range(3)]
    made = [optimizers.SGD(optimizers.exponential_decay(rate, 0.9)) for rate in (0.1, 0.1, 0.2)]
    steps = [train_step(model, of_numbers, optimizer) for model, optimizer in zip(models, made, strict=True)]
    states = [train_state(model, step.optimizer) for model, step in zip(models, steps, strict=True)]
    batches = same_sizes()
    found, joint = in_turns(steps, states, batches)
    assert_same(found, one_after_the_other(steps, states, batches))
    assert (joint.made, joint.joined) == (9, 6)


def convolving(seed):
    class Convolving(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.last = nn.Conv1d(1, 2, 2), nn.Linear(2, 3)

        def __call__(self, numbers):
            return self.last(self.convolution(numbers[..., None]).mean(axis=1))

    return Convolving()


@pytest.mark.parametrize(
    ("model", "loss", "why"),
    [
        (convolving, of_numbers, "vmap"),
        (MODELS["linear"][0], lambda model, batch: of_numbers(model, {**batch, "labels": batch["labels"] & 1}), "&, | and ^"),
    ],
)
def test_what_cannot_be_computed_together_is_computed_alone(model, loss, why):
    models = [model(seed) for seed in range(COUNT)]
    steps = [train_step(model, loss, optimizers.SGD(0.1)) for model in models]
    states = [train_state(model, optimizers.SGD(0.1), seed=seed) for seed, model in enumerate(models)]
    found, joint = in_turns(steps, states, same_sizes())
    assert_same(found, one_after_the_other(steps, states, same_sizes()))
    assert why in joint.alone
    assert joint.joined == 0


def test_a_label_out_of_range_is_an_error_of_its_own_step_and_of_no_other():
    steps, states = trainings("mlp")
    expected = one_after_the_other(steps, states, same_sizes(count=1))
    joint = JointSteps()
    first, second, third = map(joint.step, steps)
    (batch, other, last), wrong = (each[0] for each in same_sizes()), batch_of(0, 4) | {"labels": mx.array([0, 1, 3, 0])}
    made = [first(states[0], batch)]
    with pytest.raises(DataError, match="labels holds 3 at row 2, and the model has 3 outputs"):
        second(states[1], wrong)
    made += [second(states[1], other), third(states[2], last)]
    assert_same([[each] for each in made], expected)
    assert joint.joined == COUNT


def test_numbers_that_are_not_finite_stay_in_their_own_training():
    steps, states = trainings("realmlp")
    batches = same_sizes()
    batches[1][1]["numbers"] = batches[1][1]["numbers"] * mx.nan
    expected = one_after_the_other(steps, states, batches)
    found, _ = in_turns(steps, states, batches)
    assert_same([found[0], found[2]], [expected[0], expected[2]])
    assert np.isnan(found[1][-1][1]["loss"].item())


def test_a_mistake_in_a_batch_is_the_error_of_the_step():
    [step, other, _], [state, beside, _] = trainings("mlp")
    joint = JointSteps()
    step, other = joint.step(step), joint.step(other)
    with pytest.raises(KeyError) as caught:
        step(state, {"x": mx.zeros((2, 2))})
    assert "on a batch of x float32[2, 2]" in caught.value.__notes__[0]
    with pytest.raises(ArgumentError, match="does not belong to the model"):
        other(train_state(nn.Linear(1, 1), optimizers.SGD(0.1)), batch_of(0, 4))
    made = step(state, batch_of(0, 4)), other(beside, batch_of(1, 4))
    assert (joint.alone, joint.waiting, made[0][1]["weight"].item(), joint.joined) == (None, 2, 4.0, 2)


@pytest.mark.parametrize("options", [{"ranks": connect()}, {"compile": False}], ids=str)
def test_steps_of_ranks_and_steps_that_are_not_compiled_are_refused(options):
    steps, _ = trainings("linear", **options)
    with pytest.raises(ArgumentError, match="are computed one after the other"):
        JointSteps().step(steps[0])


def test_a_run_of_joint_steps_says_when_a_step_waits_for_the_others():
    steps, states = trainings("linear")
    joint = JointSteps()
    runs = [fit(joint.step(step), state, several, log_every=2) for step, state, several in zip(steps, states, same_sizes(), strict=True)]
    found = [[type(event).__name__ for event in turn] for turn in zip(*runs, strict=True)]
    one = ["RunStarted", *["Queued", "Stepped"] * 3, "EpochEnded", "Stopped"]
    assert found == [[name] * COUNT for name in one]
    assert joint.made == joint.joined == COUNT * 3


def test_keys_that_are_derived_of_several_are_those_of_each():
    keys = [random_key(seed) for seed in range(3)]
    token = MAPPED.set(True)
    found = mx.vmap(lambda key: derived_key(key, "layer"))(mx.stack(keys))
    MAPPED.reset(token)
    assert found.tolist() == [(key ^ random_key(0, "layer")).tolist() for key in keys]
