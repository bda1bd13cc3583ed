"""What a module may have changed of its buffers."""

import mlx.core as mx
import pytest
from mlx import nn

from mlxfp.support.errors import ArgumentError
from mlxfp.training.steps.modules import changed_arrays, copy_module, get_arrays, split_arrays, with_arrays
from mlxfp.training.steps.state import same_arrays


class Counting(nn.Module):
    """Statistics that are assigned, a counter that is changed in place, and a large frozen weight."""

    def __init__(self):
        super().__init__()
        self.frozen = mx.zeros((100, 100))
        self.norm = nn.BatchNorm(5000)
        self.calls = mx.array(0)
        self.freeze(keys=["frozen"], recurse=False)

    def __call__(self, x):
        self.calls += 1
        return self.norm(x).sum() + self.frozen.sum()


def test_what_was_assigned_or_is_small_may_have_changed_and_large_frozen_weights_have_not():
    model = copy_module(Counting())
    _, buffers = split_arrays(model)
    before = get_arrays(model, buffers)
    model(mx.ones((2, 5000)))
    after = get_arrays(model, buffers)
    news = changed_arrays(before, after)
    assert sorted(new.shape for new in news.values()) == [(), (5000,), (5000,)]
    assert same_arrays(with_arrays(buffers, news), after)
    assert with_arrays(buffers, news)["frozen"] is buffers["frozen"]
    assert after["calls"].item() == 1


@pytest.mark.parametrize("tree", [{}, {"a": mx.zeros(9999)}])
def test_nothing_changes_in_what_nobody_touched(tree):
    assert changed_arrays(tree, tree) == {}


def test_modules_in_a_tuple_are_named_because_they_would_not_train():
    model = nn.Sequential(nn.Linear(2, 2))
    model.layers[0].experts = (nn.Linear(2, 2), nn.Linear(2, 2))
    model.scales = (mx.ones(2), 0.5)  # constants may be in one
    with pytest.raises(ArgumentError, match=r"Sequential keeps modules in a tuple, at layers\.0\.experts\. .* neither train nor be saved"):
        split_arrays(model)
