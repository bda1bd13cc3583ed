"""The convolutional network: a row does not see the others, sizes are checked, weights come from the seed."""

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.models.layers import named_arrays


@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_an_answer_depends_on_its_own_row(size):
    model = fp.models.ConvNet(fp.models.ConvNetConfig(outputs=3, **fp.models.CONVNET_SIZES[size])).eval()
    images = mx.random.normal((4, 17, 23, 3), key=mx.random.key(0))
    together = np.array(model(images))
    alone = np.concatenate([np.array(model(images[row : row + 1])) for row in range(4)])
    assert together.shape == (4, 3)
    assert np.allclose(together, alone, atol=1e-5)
    assert np.ptp(together, axis=0).min() > 1e-3


def test_weights_are_those_of_the_seed():
    first, same, other = (named_arrays(fp.models.ConvNet(fp.models.ConvNetConfig(outputs=2), seed=seed)) for seed in (0, 0, 1))
    assert all(mx.array_equal(first[name], same[name]) for name in first)
    assert not mx.array_equal(first["stem.weight"], other["stem.weight"])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden_sizes": (16, 24)}, r"hidden_sizes must be multiples of 16, .*got hidden_sizes=\(16, 24\)"),
        ({"hidden_sizes": (16,)}, r"hidden_sizes and depths need one entry per stage, got hidden_sizes=\(16,\) and depths=\(1, 1, 1\)"),
        ({"depths": (1, 0, 1)}, r"depths\[1\]"),
        ({"outputs": 0}, "outputs"),
    ],
)
def test_sizes_that_make_no_network_are_refused(sizes, message):
    depths = {"depths": (1, 1)} if "24" in message else {}
    with pytest.raises(fp.errors.ArgumentError, match=message):
        fp.models.ConvNetConfig(**{"outputs": 2, **depths, **sizes})
