"""The encoder: what padding, seeds and dropout may and may not change."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn

from mlxfp.models import Classifier, Encoder, EncoderConfig
from mlxfp.models.layers import Dropout, random_key
from mlxfp.support.errors import ArgumentError, UnknownNameError
from mlxfp.support.trees import flatten
from mlxfp.testing.laws import assert_ignores_padding, assert_rows_stand_alone
from mlxfp.training.steps.state import same_arrays

CONFIG = EncoderConfig(vocab_size=20, hidden_size=8, num_attention_heads=2, max_position_embeddings=12)


def classifier(pooling="mean", seed=0):
    return Classifier(Encoder(CONFIG, seed=seed), 3, pooling=pooling, seed=seed).eval()


def rows(lengths, width, filler=0):
    random = np.random.default_rng(0)
    ids, mask = np.full((len(lengths), width), filler), np.zeros((len(lengths), width), np.int32)
    for row, length in enumerate(lengths):
        ids[row, :length], mask[row, :length] = random.integers(1, 20, 16)[:length], 1
    return mx.array(ids), mx.array(mask)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=3), st.integers(0, 4), st.integers(0, 19), st.sampled_from(["mean", "first"]))
def test_padding_changes_no_answer(lengths, extra, filler, pooling):
    assert_ignores_padding(classifier(pooling), *rows(lengths, max(lengths)), extra=extra, filler=filler, tolerance=1e-5)


def test_rows_do_not_see_each_other():
    assert_rows_stand_alone(classifier(), *rows([3, 5, 2], 5), tolerance=1e-5)


def test_without_a_mask_all_tokens_are_real():
    model = classifier()
    ids, _ = rows([5, 5], 5)
    assert np.allclose(np.array(model(ids)), np.array(model(ids, mx.ones_like(ids))), atol=1e-6)


@pytest.mark.parametrize("dtype", [mx.int32, mx.bool_, mx.float32, mx.uint8])
def test_a_mask_may_have_any_dtype(dtype):
    ids, mask = rows([3, 5], 5)
    assert same_arrays(classifier()(ids, mask.astype(dtype)), classifier()(ids, mask))


def test_a_row_of_nothing_but_padding_gives_numbers():
    ids, _ = rows([3, 5], 5)
    assert np.isfinite(np.array(classifier()(ids, mx.zeros_like(ids)))).all()


def test_positions_and_order_matter():
    ids, mask = rows([5], 5)
    assert not np.allclose(np.array(classifier()(ids, mask)), np.array(classifier()(ids[:, ::-1], mask)))


def test_weights_depend_on_the_seed_and_on_nothing_else():
    mx.random.seed(1)
    first = classifier(seed=3).parameters()
    mx.random.seed(2)
    assert same_arrays(first, classifier(seed=3).parameters())
    assert not same_arrays(first, classifier(seed=4).parameters())
    layers = [np.array(leaf) for leaf in flatten(first)[1] if leaf.ndim == 2]
    assert all(abs(layer).max() > 0 for layer in layers)


def test_a_model_trains_in_half_precision_too():
    model = classifier()
    model.set_dtype(mx.bfloat16)
    assert model(*rows([3, 5], 5)).dtype == mx.bfloat16


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


def test_impossible_sizes_are_refused_when_the_config_is_made():
    with pytest.raises(ArgumentError, match=r"hidden_size must be a multiple of num_attention_heads, got hidden_size=10 and .*=4"):
        EncoderConfig(vocab_size=5, hidden_size=10)
    with pytest.raises(ArgumentError, match="num_hidden_layers must be at least 1"):
        EncoderConfig(vocab_size=5, num_hidden_layers=0)
    with pytest.raises(ArgumentError, match=r"hidden_dropout_prob must be at least 0 and less than 1, got hidden_dropout_prob=1\.0"):
        Encoder(EncoderConfig(vocab_size=5, hidden_dropout_prob=1.0))
    with pytest.raises(UnknownNameError, match="No pooling is named 'median'"):
        classifier("median")
    with pytest.raises(ArgumentError, match="outputs must be at least 1"):
        Classifier(nn.Module(), 0)


def test_a_row_that_is_too_long_is_named():
    with pytest.raises(ArgumentError, match=r"has 12 positions, got rows of 13 tokens\. Truncate them in tokenize"):
        classifier()(*rows([13], 13))
