"""Dropout: what it draws, and when it does nothing."""

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.models.layers import Dropout, random_key
from mlxfp.training.steps.state import same_arrays


def test_dropout_is_off_in_evaluation_and_keeps_the_mean_in_training():
    layer = Dropout(0.25).keyed(random_key(0))
    dropped = layer(mx.ones(10_000))
    assert set(np.unique(np.array(dropped))) == {np.float32(0), np.float32(4 / 3)}
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert same_arrays(layer(mx.ones(10_000)), dropped)
    assert layer.eval()(mx.ones(3)).tolist() == [1, 1, 1]
    assert Dropout(0.0)(mx.ones(3)).tolist() == [1, 1, 1]


def test_dropout_outside_a_step_draws_anew_like_that_of_mlx():
    mx.random.seed(0)
    layer = Dropout(0.5)
    assert not same_arrays(layer(mx.ones(64)), layer(mx.ones(64)))
    assert repr(layer) == "Dropout(rate=0.5)"


def test_dropout_keeps_the_dtype():
    assert Dropout(0.5)(mx.ones(4, mx.bfloat16)).dtype == mx.bfloat16
