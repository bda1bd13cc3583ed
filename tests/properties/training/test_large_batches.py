"""E18: sums over more than 2^24 values lose no ones. A plain float32 sum of ones stops at 2^24."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.evaluation.rows import sum_of
from mlxfp.models.heads import mean_over_tokens
from mlxfp.training.steps.accumulating import clip

COUNT = 2**24 + 1000
LOSSES = {
    "binary_cross_entropy": lambda: fp.losses.binary_cross_entropy(mx.zeros((COUNT,)), mx.ones((COUNT,), mx.int32)),
    "cross_entropy": lambda: fp.losses.cross_entropy(mx.zeros((COUNT, 2)), mx.zeros((COUNT,), mx.int32)),
    "mse": lambda: fp.losses.mse(mx.zeros((COUNT,)), mx.ones((COUNT,))),
    "huber": lambda: mx.compile(fp.losses.huber)(mx.zeros((COUNT,)), mx.ones((COUNT,))),
}
MEANS = {"binary_cross_entropy": 0.693147, "cross_entropy": 0.693147, "mse": 1.0, "huber": 0.5}


@pytest.mark.parametrize("name", LOSSES)
def test_e18_the_mean_loss_of_a_batch_beyond_2_to_the_24(name: str):
    total, weight = LOSSES[name]()
    assert weight.item() == COUNT
    assert total.item() / COUNT == pytest.approx(MEANS[name], rel=1e-4)


def test_e18_the_norm_of_a_large_gradient():
    _, norm = clip({"table": mx.ones((COUNT,))}, 1.0)
    assert norm.item() ** 2 == pytest.approx(COUNT, rel=1e-5)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 4096 * 4096 + 4])
def test_e18_a_sum_of_blocks_counts_each_value_once(size: int):
    assert sum_of(mx.ones((size,))).item() == size


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_e18_the_rows_of_each_class_are_all_counted(average: str):
    """F1 adds the rows of a batch by class."""
    logits, labels = mx.broadcast_to(mx.array([1.0, 0.0]), (COUNT, 2)), mx.arange(COUNT) % 1000 == 7
    counts = fp.metrics.f1(logits, labels.astype(mx.int32), average=average)
    ones = int(labels.sum().item())
    expected = ([COUNT - ones, 0], [COUNT, 0], [COUNT - ones, ones])
    assert [np.array(part).sum() for part in (counts.correct, counts.predicted, counts.labelled)] == [sum(part) for part in expected]
    if average == "macro":
        assert [np.array(part).tolist() for part in (counts.correct, counts.predicted, counts.labelled)] == list(map(list, expected))


def test_e18_totals_of_an_evaluation_count_every_row():
    """Sums and weights of batches are added in float64: 2^24 rows followed by single rows."""
    check = fp.evaluate(nn.Linear(1, 1), lambda model, batch: {"share": (batch["hits"].sum(), batch["rows"].sum())})
    batches = [{"hits": mx.array([2.0**24]), "rows": mx.array([2.0**24])}] + 300 * [{"hits": mx.array([0.0]), "rows": mx.array([1.0])}]
    assert check(batches)["share"] == 2**24 / (2**24 + 300)


def test_e18_the_mean_loss_of_an_epoch_counts_every_row():
    """The loss of an epoch is a mean in float64 over batches of very different weights."""
    step = fp.train_step(
        nn.Linear(1, 1), lambda model, batch: (batch["sum"].sum() + 0 * model.bias.sum(), batch["rows"].sum()), optimizers.SGD(0.0)
    )
    batches = [{"sum": mx.array([2.0**24]), "rows": mx.array([2.0**24])}] + 300 * [{"sum": mx.array([0.0]), "rows": mx.array([1.0])}]
    events = fp.fit(step, fp.train_state(nn.Linear(1, 1), optimizers.SGD(0.0)), batches, epochs=1)
    (loss,) = [event.metrics["loss"] for event in events if isinstance(event, fp.events.EpochEnded)]
    assert loss == 2**24 / (2**24 + 300)


@pytest.mark.parametrize("order", [1, -1])
def test_e18_accumulated_gradients_are_a_mean_over_all_rows(order: int):
    """Sums of gradients and weights are float32, as the gradients are. Rounding changes the mean by at most 2 * 2**-24 per batch."""
    model = nn.Linear(1, 1)
    rows = [(2.0**24, 1.0), *[(1.0, 3.0)] * 63][::order]
    step = fp.train_step(
        model, lambda model, batch: (model.bias.sum() * batch["sum"].sum(), batch["rows"].sum()), optimizers.SGD(1.0), accumulate=64
    )
    state = before = fp.train_state(model, optimizers.SGD(1.0))
    for weight, gradient in rows:
        state, _ = step(state, {"sum": mx.array([weight * gradient]), "rows": mx.array([weight])})
    expected = sum(weight * gradient for weight, gradient in rows) / sum(weight for weight, _ in rows)
    change = (before.params["bias"] - state.params["bias"]).item()
    assert change == pytest.approx(expected, rel=2 * 64 * 2**-24)


@pytest.mark.parametrize("mask", [None, mx.ones((1, 4000))])
def test_a_mean_over_many_tokens_in_float16_does_not_overflow(mask: mx.array | None):
    """The sum of 4,000 values of 100 exceeds the largest float16."""
    assert mean_over_tokens(mx.full((1, 4000, 2), 100, mx.float16), mask).tolist() == [[100, 100]]
    assert mean_over_tokens(mx.full((1, 4000, 2), 100, mx.float16), mask).dtype == mx.float16
