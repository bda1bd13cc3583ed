"""E18: sums over more than 2^24 values lose no ones. A plain float32 sum of ones stops at 2^24."""

import mlx.core as mx
import pytest

from mlxfp.evaluation.rows import sum_of
from mlxfp.training.losses import binary_cross_entropy, cross_entropy, huber, mse
from mlxfp.training.steps.accumulating import clip

COUNT = 2**24 + 1000
LOSSES = {
    "binary_cross_entropy": lambda: binary_cross_entropy(mx.zeros((COUNT,)), mx.ones((COUNT,), mx.int32)),
    "cross_entropy": lambda: cross_entropy(mx.zeros((COUNT, 2)), mx.zeros((COUNT,), mx.int32)),
    "mse": lambda: mse(mx.zeros((COUNT,)), mx.ones((COUNT,))),
    "huber": lambda: mx.compile(huber)(mx.zeros((COUNT,)), mx.ones((COUNT,))),
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
