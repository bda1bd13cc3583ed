"""Laws of every body with every head: what padding, packing, rows beside them, later tokens and seeds may and may not change."""

import mlx.core as mx
import numpy as np
import pytest
from attrs import fields
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

from mlxfp.models import BertConfig, DecoderConfig, EncoderConfig, MaskedLM, ModernBertConfig
from mlxfp.models.layers import named_arrays
from mlxfp.support.errors import ArgumentError, UnknownNameError
from mlxfp.testing.laws import assert_causal, assert_documents_stand_alone, assert_ignores_padding, assert_rows_stand_alone
from mlxfp.training.steps.state import same_arrays
from tests.models.samples import CONFIGS, PACKED, VOCABULARY, body, gap, models, real_outputs, rows

MODELS = models()
NAMES = st.sampled_from(sorted(MODELS))
LENGTHS = st.lists(st.integers(1, 10), min_size=1, max_size=3)


@settings(max_examples=150)
@given(NAMES, LENGTHS, st.integers(0, 8), st.sampled_from(["left", "right"]), st.integers(0, 19))
def test_padding_changes_no_answer(name, lengths, extra, side, filler):
    assert_ignores_padding(MODELS[name], *rows(lengths), extra=extra, side=side, filler=filler)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_do_not_see_each_other(name):
    assert_rows_stand_alone(MODELS[name], *rows([3, 8, 1]), tolerance=1e-5)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_without_a_mask_all_tokens_are_real_and_a_mask_may_have_any_dtype(name):
    ids, mask = rows([6, 6])
    for dtype in (mx.int32, mx.bool_, mx.float32, mx.uint8):
        assert gap(MODELS[name](ids), MODELS[name](ids, mask.astype(dtype))) < 1e-5


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_row_of_nothing_but_padding_gives_numbers(name):
    ids, _ = rows([3, 8])
    assert np.isfinite(np.array(MODELS[name](ids, mx.zeros_like(ids)))).all()


@pytest.mark.parametrize("name", [*CONFIGS, "bert pooler", "modernbert masked", "decoder untied", "encoder regressor"])
def test_half_precision_goes_through_and_is_near(name):
    ids, mask = rows([3, 8])
    exact = real_outputs(MODELS[name](ids, mask), mask)
    for dtype in (mx.bfloat16, mx.float16):
        model = models()[name]
        model.set_dtype(dtype)
        outputs = model(ids, mask)
        assert outputs.dtype == dtype
        assert gap(real_outputs(outputs.astype(mx.float32), mask), exact) < 0.05 * max(1, abs(exact).max())


TOKEN_MODELS = [
    name for name in sorted(MODELS) if name.split()[0] in PACKED and name.split()[-1] in (*PACKED, "tokens", "masked", "causal")
]


@settings(max_examples=30)
@given(st.sampled_from(TOKEN_MODELS), st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_packed_rows_equal_separate_rows(name, lengths):
    random = np.random.default_rng(0)
    assert_documents_stand_alone(MODELS[name], [random.integers(1, VOCABULARY, length).tolist() for length in lengths], 20)


@pytest.mark.parametrize("window", [2, 4, 128])
def test_unpadded_modernbert_equals_padded(window):
    model = body("modernbert", local_attention=window)
    ids, mask = rows([9, 4, 6])
    real = np.array(mask) != 0
    flat, segments = np.array(ids)[real], np.repeat([1, 2, 3], [9, 4, 6])
    unpadded = model(mx.array(flat)[None], segment_ids=mx.array(segments)[None])
    assert gap(np.array(unpadded)[0], np.array(model(ids, mask))[real]) < 1e-5


@settings(max_examples=20)
@given(st.sampled_from(["decoder", "decoder causal", "decoder untied", "decoder tokens"]), st.data())
def test_future_tokens_do_not_matter_to_a_decoder(name, data):
    ids, _ = rows([data.draw(st.integers(1, 12))])
    assert_causal(MODELS[name], ids, data.draw(st.integers(0, ids.shape[1] - 1)), changed=(ids + 7) % 19)


def test_local_attention_sees_nearby_tokens_and_no_others():
    model = body("modernbert", local_attention=4, global_attn_every_n_layers=2, num_hidden_layers=2)
    ids, _ = rows([12])
    changed = mx.where(mx.arange(12) == 0, (ids + 7) % 19, ids)

    def moved():
        return (abs(np.array(model(ids)) - np.array(model(changed))).max(axis=(0, 2)) > 1e-7).tolist()

    assert moved() == [True] * 12  # the first block is global
    model.blocks[0] = lambda hidden, *_: hidden
    assert moved() == [True] * 3 + [False] * 9


@pytest.mark.parametrize("name", ["bert", "encoder"])
def test_positions_and_order_matter(name):
    ids, mask = rows([5])
    assert gap(MODELS[f"{name} mean"](ids, mask), MODELS[f"{name} mean"](ids[:, ::-1], mask)) > 1e-3


def test_types_of_tokens_matter_to_bert_and_are_0_unless_given():
    ids, mask = rows([5, 3])
    for name in ("bert", "bert pooler", "bert regressor", "bert tokens", "bert masked"):
        model = MODELS[name]
        zeros, ones = mx.zeros_like(ids), mx.ones_like(ids)
        assert gap(model(ids, mask), model(ids, mask, token_type_ids=zeros)) < 1e-6
        assert gap(model(ids, mask), model(ids, mask, token_type_ids=ones)) > 1e-3


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_weights_depend_on_the_seed_and_on_nothing_else(name):
    mx.random.seed(1)
    first = body(name, seed=3).parameters()
    mx.random.seed(2)
    assert same_arrays(first, body(name, seed=3).parameters())
    assert not same_arrays(first, body(name, seed=4).parameters())
    assert all(abs(np.array(weight)).max() > 0 for path, weight in named_arrays(body(name)).items() if path.endswith("weight"))


@pytest.mark.parametrize("name", [*CONFIGS, "bert pooler", "modernbert masked", "decoder causal", "encoder regressor", "bert tokens"])
def test_models_train_with_mlx_alone_and_keep_their_weights_in_its_files(name, tmp_path):
    model = models()[name]
    ids, mask = rows([3, 8])

    def loss(model):
        return (model(ids, mask) - 1).square().mean()

    optimizer = optimizers.Adam(1e-3)
    before = loss(model).item()
    for _ in range(3):
        optimizer.update(model, nn.value_and_grad(model, loss)(model)[1])
    assert loss(model).item() < before
    model.save_weights(f"{tmp_path}/weights.safetensors")
    other = models()[name]
    other.load_weights(f"{tmp_path}/weights.safetensors")
    assert same_arrays(other(ids, mask), model(ids, mask))


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_row_that_is_too_long_is_named(name):
    with pytest.raises(ArgumentError, match=r"has 24 positions, got rows of 25 tokens\. Truncate the rows: tokenize"):
        MODELS[name](mx.ones((1, 25), mx.int32))


def test_bert_wants_positions_with_segments():
    ids, _ = rows([5])
    with pytest.raises(ArgumentError, match=r"segment_ids need positions, got None\. Pass both arrays from the output of pack"):
        MODELS["bert"](ids, segment_ids=mx.ones_like(ids))


def test_impossible_sizes_are_refused_when_the_config_is_made():
    for make in (BertConfig, DecoderConfig, EncoderConfig, ModernBertConfig):
        for field in fields(make):
            if field.type is int:
                with pytest.raises(ArgumentError, match=f"{field.name} must be at least 1, got {field.name}=0"):
                    make(**{"vocab_size": 5} | {field.name: 0})
            elif "dropout" in field.name:
                with pytest.raises(ArgumentError, match=f"{field.name} must be at least 0 and less than 1, got {field.name}=1"):
                    make(vocab_size=5, **{field.name: 1})
            elif field.type is float:
                with pytest.raises(ArgumentError, match=f"{field.name} must be a number above 0, got {field.name}=0"):
                    make(vocab_size=5, **{field.name: 0})
        with pytest.raises(ArgumentError, match=r"hidden_size must be a multiple of num_attention_heads, got hidden_size=10 and num_.*=4"):
            make(vocab_size=5, hidden_size=10, num_attention_heads=4)
    for make in (DecoderConfig, ModernBertConfig):
        even = r"hidden_size / num_attention_heads must be even, got hidden_size=12 and num_attention_heads=4, so the quotient is 3\."
        with pytest.raises(ArgumentError, match=even):
            make(vocab_size=5, hidden_size=12, num_attention_heads=4)
    shared = "num_attention_heads must be a multiple of num_key_value_heads, got num_attention_heads=4 and num_key_value_heads=3"
    with pytest.raises(ArgumentError, match=shared):
        DecoderConfig(vocab_size=5, num_key_value_heads=3)
    with pytest.raises(UnknownNameError, match=r"No hidden_act is named 'gelo'\. Did you mean 'gelu'\?"):
        BertConfig(vocab_size=5, hidden_act="gelo")
    with pytest.raises(UnknownNameError, match=r"No hidden_activation is named 'tanh'"):
        ModernBertConfig(vocab_size=5, hidden_activation="tanh")


def test_a_transform_uses_the_activation_and_biases_of_the_body():
    assert "bias" not in MaskedLM(body("modernbert")).transform.linear
    assert "bias" in MaskedLM(body("bert")).transform.linear
    assert MaskedLM(body("bert", hidden_act="relu")).transform.activation is nn.relu
