"""Predictions are copies that are safe to keep."""

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.evaluation.metrics.totals import to_numpy
from mlxfp.support.errors import ArgumentTypeError


def test_writing_to_a_prediction_leaves_the_mlx_array_as_it_was():
    array = mx.zeros(3)
    to_numpy(array)[:] = 1
    assert array.tolist() == [0, 0, 0]
    np.asarray(array)[:] = 1
    assert array.tolist() == [1, 1, 1]  # the view that numpy makes writes through


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.int32, mx.uint8, mx.bool_])
def test_every_dtype_that_numpy_has_is_kept(dtype):
    assert str(to_numpy(mx.ones(2, dtype)).dtype) == str(dtype).removeprefix("mlx.core.").removesuffix("_")


def test_bfloat16_becomes_float32():
    converted = to_numpy((mx.array([0.1], mx.bfloat16), [mx.array(2, mx.bfloat16)]))
    assert converted[0].dtype == np.float32
    assert converted[0][0] == np.float32(0.10009765625)
    assert converted[1][0] == 2


def test_what_is_no_mlx_array_is_named():
    with pytest.raises(ArgumentTypeError, match="Predictions must be MLX arrays, got int: 3"):
        to_numpy({"p": 3})
