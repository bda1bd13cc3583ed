"""Batches that are accumulated give the update of one batch of all their rows."""

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

from mlxfp.support.trees import tree_map
from mlxfp.testing.laws import assert_accumulates
from mlxfp.training.optimization.schedules import linear_decay
from mlxfp.training.steps.accumulating import all_finite, mean_gradients
from mlxfp.training.steps.state import same_arrays
from tests.training.samples import dataset, deep, group, loss, net, setting


def rows(labels, seed=0):
    """A batch of given labels; -100 does not count."""
    return {"x": group(len(labels), seed)["x"], "label": mx.array(labels)}


def plain(accumulate):
    return setting(model=deep(rate=0.0, depth=1), optimizer=optimizers.SGD(0.5, momentum=0.9), accumulate=accumulate)


SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(SIZES, st.data())
@settings(max_examples=25)
def test_any_partition_of_a_batch_gives_the_same_update(sizes, data):
    labels = data.draw(st.lists(st.sampled_from([0, 1, -100]), min_size=sum(sizes), max_size=sum(sizes)))
    assert_accumulates(plain, rows(labels), sizes)


def test_the_law_catches_a_mean_of_means():
    def naive(accumulate):
        """What many trainers do: divide the loss of each batch by its own weight, and by the number of batches."""
        if accumulate == 1:
            return plain(1)

        def mean_of_means(model, batch):
            total, weight = loss(model, batch)
            return total / weight, 1.0

        step, state = plain(accumulate)
        step._loss = mean_of_means
        return step, state

    batch = rows([0, 1, -100, 1, 1, 1])  # two that count, then three
    with pytest.raises(AssertionError, match=r"parts of sizes \[2, 4\] give"):
        assert_accumulates(naive, batch, [2, 4])
    assert_accumulates(plain, batch, [2, 4])


def test_only_every_nth_batch_updates_and_the_optimizer_counts_updates():
    step, state = setting(model=deep(), optimizer=optimizers.SGD(linear_decay(1.0, steps=4)), accumulate=3)
    seen = []
    for number in range(1, 8):
        before = state
        state, _ = step(state, group(seed=number))
        seen.append((state.step, state.opt["step"].item(), round(state.opt["learning_rate"].item(), 2)))
        assert same_arrays(before.params, state.params) == (number % 3 != 0)
        assert state.extra["sums"]["weight"].item() == 6 * (number % 3)
    assert seen[-1][:2] == (7, 2)
    assert [rate for _, _, rate in seen] == [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.75]
    assert step.variants == 2


def test_every_batch_draws_masks_of_its_own():
    step, state = setting(model=deep(), optimizer=optimizers.SGD(0.0), accumulate=4)
    losses = [step(attrs.evolve(step.start(state), step=number), group())[1]["loss"].item() for number in range(4)]
    assert len(set(losses)) == 4


def test_running_statistics_follow_every_batch_and_the_norm_comes_with_updates():
    step, state = setting(model=net(), accumulate=2, clip_norm=1.0)
    first, metrics = step(state, group())
    assert not same_arrays(first.buffers, state.buffers)
    assert sorted(metrics) == ["loss", "weight"]
    second, metrics = step(first, group(seed=1))
    assert not same_arrays(second.buffers, first.buffers)
    assert sorted(metrics) == ["grad_norm", "loss", "weight"]


def test_a_rest_at_the_end_of_an_epoch_is_carried_into_the_next():
    batches = list(dataset(count=12, size=4))  # three, and an update after every second
    step, state = setting(model=deep(), accumulate=2)
    for _ in range(2):
        for batch in batches:
            state, _ = step(state, batch)
    assert (state.step, state.opt["step"].item(), state.extra["sums"]["weight"].item()) == (6, 3, 0.0)


@pytest.mark.filterwarnings("ignore:Small updates of parameters")
def test_gradients_of_lower_precision_are_added_up_in_float32():
    model = nn.Linear(1, 1)
    model.set_dtype(mx.bfloat16)
    step, state = setting(model=model, optimizer=optimizers.SGD(1.0), accumulate=300)
    step._loss = lambda model, batch: (model(batch["x"]).sum(), 1.0)
    params = state.params
    for _ in range(299):
        state, _ = step(state, {"x": mx.ones((1, 1), mx.bfloat16)})
    # In bfloat16 a sum of ones ends at 256.
    assert state.extra["sums"]["gradients"]["bias"].item() == 299
    state, _ = step(state, {"x": mx.ones((1, 1), mx.bfloat16)})
    assert state.params["bias"].dtype == mx.bfloat16
    assert state.params["bias"].item() == (params["bias"] - 1).item()


def test_batches_without_weight_give_no_gradients_and_no_nan():
    step, state = setting(model=deep(), optimizer=optimizers.SGD(1.0), accumulate=2)
    after = state
    for seed in range(2):
        after, metrics = step(after, rows([-100] * 4, seed))
    assert same_arrays(after.params, state.params)
    assert metrics["loss"].item() == 0.0


@given(st.lists(st.sampled_from([0.0, -1e38, mx.inf, mx.nan, -mx.inf]), min_size=1, max_size=5))
@settings(max_examples=20)
def test_finite_means_every_number(values):
    assert all_finite({"a": mx.array(values), "b": [mx.array(1.0)]}).item() == bool(np.isfinite(values).all())


def test_a_mean_has_the_dtypes_of_the_gradients():
    sums = {"gradients": {"w": mx.array([3.0]), "v": mx.array([0.0])}, "weight": mx.array(0.0)}
    like = {"w": mx.zeros(1, mx.bfloat16), "v": mx.zeros(1)}
    assert tree_map(lambda leaf: (leaf.dtype, leaf.item()), mean_gradients(sums, like)) == {"w": (mx.bfloat16, 3.0), "v": (mx.float32, 0.0)}
