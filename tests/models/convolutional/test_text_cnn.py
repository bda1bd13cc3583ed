"""The convolutional network for texts: windows look at the tokens around each place, and at no others."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.models import TextCNN, TextCNNConfig
from mlxfp.support.errors import ArgumentError
from tests.models.samples import rows


@given(place=st.integers(0, 11), width=st.integers(1, 6))
def test_a_token_changes_the_windows_that_it_is_in_and_no_others(place, width):
    body = TextCNN(TextCNNConfig(vocab_size=20, hidden_size=8, kernel_sizes=(width,)), seed=0)
    body.windows[0].bias = body.windows[0].bias + 10  # no window is cut off by ReLU
    ids, _ = rows([12])
    changed = mx.where(mx.arange(12) == place, (ids + 7) % 19, ids)
    moved = (np.array(body(ids)) != np.array(body(changed))).any(axis=(0, 2))
    before = (width - 1) // 2
    assert moved.tolist() == [place - (width - 1 - before) <= at <= place + before for at in range(12)]


def test_a_window_is_a_linear_layer_of_its_tokens():
    body = TextCNN(TextCNNConfig(vocab_size=20, hidden_size=4, kernel_sizes=(1, 2)), seed=3)
    ids, (one, two) = mx.array([[4, 9]]), body.windows
    first, second = (body.tokens.weight[each] for each in (4, 9))
    pair = two(mx.concatenate([first, second]))
    assert mx.allclose(body(ids)[0, 0], mx.maximum(mx.concatenate([one(first), pair]), 0), atol=1e-6)


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ArgumentError, match="multiple of the number of kernel_sizes, got hidden_size=10 and kernel_sizes="):
        TextCNNConfig(vocab_size=20, hidden_size=10)
