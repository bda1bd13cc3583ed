"""Banded attention equals attention with the mask of the whole row: values and gradients, for all kinds of masks."""

from functools import partial
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.models.attention import attend, bias_of, earlier, nearby, visible
from mlxfp.models.banded import Band, Blocks, band_of, blocks_within
from mlxfp.models.bounds import BoundError
from mlxfp.models.layers import Dropout, random_key
from mlxfp.support.errors import ArgumentError
from mlxfp.testing.laws import assert_documents_stand_alone
from tests.models.samples import PACKED, VOCABULARY, body, gap

TOLERANCE = 1e-5


def arrays(length, *, rows=2, heads=4, shared=2, width=4, seed=0):
    """Return random queries, keys and values. Groups of query heads share key and value heads."""
    random = np.random.default_rng(seed)
    return [mx.array(random.standard_normal((rows, count, length, width)), mx.float32) for count in (heads, shared, shared)]


def segments_of(lengths, row_length):
    """Return the segment ids of documents of the given lengths, int[row_length]. The rest of the row is padding, 0."""
    numbers = np.repeat(np.arange(1, len(lengths) + 1), lengths)[:row_length]
    return np.pad(numbers, (0, row_length - len(numbers)))


def masks(length, lengths, side, *, with_mask, with_segments):
    """Return the mask and the segment ids of two rows. The second row has the documents in reverse order, and padding on one side."""
    rows = [segments_of(lengths, length), segments_of(lengths[::-1], length)]
    if side == "left":
        rows[1] = rows[1][::-1]
    segments = mx.array(np.stack(rows))
    return (segments != 0).astype(mx.int32) if with_mask else None, segments if with_segments else None


def whole_bias(length, mask, segments, *, reach, causal):
    """Return the bias for whole rows that hides the same keys as a band."""
    bias = bias_of(mx.float32, visible(mask, segments), nearby(length, reach), earlier(length, length) if causal else None)
    return mx.zeros((1, 1, length, length)) if bias is None else bias


def band(blocks, mask, segments, *, reach, causal):
    """Return a band with the given blocks, however small the row."""
    return Band(blocks, mx.where(blocks.seen(mask, segments, reach=reach, causal=causal), 0.0, -1e4))


def answers(bias, inputs, real, dropout=None):
    """Return attention at real tokens, and the gradients of all inputs."""

    def total(*inputs):
        out = attend(*inputs, bias, dropout) * real[:, None, :, None]
        return (out * mx.sin(mx.arange(out.size).reshape(out.shape))).sum(), out

    (_, out), gradients = mx.value_and_grad(total, argnums=(0, 1, 2))(*inputs)
    return [out, *gradients]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 12),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["left", "right"]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_banded_attention_equals_attention_to_whole_rows(length, size, reach, lengths, side, kinds):
    """Segments, padding on either side, windows and causal masks give the same values and gradients."""
    causal, with_mask, with_segments = kinds
    mask, segments = masks(length, lengths, side, with_mask=with_mask, with_segments=with_segments)
    distant = -(-reach // size)
    blocks = Blocks(length, size, distant, 0 if causal else distant)
    real = mx.ones((2, length)) if mask is None else mask
    inputs = arrays(length)
    whole = answers(whole_bias(length, mask, segments, reach=reach, causal=causal), inputs, real)
    banded = answers(band(blocks, mask, segments, reach=reach, causal=causal), inputs, real)
    assert max(map(gap, whole, banded)) < TOLERANCE


@pytest.mark.parametrize("causal", [True, False])
def test_a_band_hides_a_key_beyond_the_reach(causal):
    """The test above can fail: with a smaller reach, the results differ."""
    inputs, real = arrays(16), mx.ones((2, 16))
    whole = answers(whole_bias(16, None, None, reach=5, causal=causal), inputs, real)
    narrow = answers(band(Blocks(16, 2, 2, 0 if causal else 2), None, None, reach=4, causal=causal), inputs, real)
    assert gap(whole[0], narrow[0]) > 1e-3


@pytest.mark.parametrize("transform", [mx.compile, mx.vmap, lambda f: mx.compile(mx.vmap(f)), lambda f: mx.vmap(mx.grad(f))])
def test_banded_attention_under_compile_and_vmap_equals_attention_to_whole_rows(transform):
    """Compiled, mapped and mapped gradients of attention are equal."""
    queries, keys, values = (mx.stack([some, some + 1]) for some in arrays(24))
    segments = mx.stack([mx.array(segments_of([5, 7, 3, 4], 24))[None]] * 2)

    def whole(queries, keys, values, segments):
        bias = whole_bias(24, None, segments.reshape(-1, 24)[:1], reach=6, causal=True)
        return attend(queries.reshape(-1, 4, 24, 4), keys.reshape(-1, 2, 24, 4), values.reshape(-1, 2, 24, 4), bias).square().sum()

    def banded(queries, keys, values, segments):
        bias = band(Blocks(24, 4, 2, 0), None, segments.reshape(-1, 24)[:1], reach=6, causal=True)
        return attend(queries.reshape(-1, 4, 24, 4), keys.reshape(-1, 2, 24, 4), values.reshape(-1, 2, 24, 4), bias).square().sum()

    inputs = queries, keys, values, segments
    assert gap(transform(whole)(*inputs), transform(banded)(*inputs)) < 1e-3


def test_dropout_on_the_weights_keeps_the_mean_and_hides_the_same_keys():
    """Dropout scales the remaining weights, and no gradient reaches a value of another document."""
    segments = mx.array(segments_of([10, 6, 8], 24))[None]
    queries, keys, values = arrays(24, rows=1)
    bias = band(Blocks(24, 4, 3, 0), None, segments, reach=9, causal=True)
    sums = [attend(queries, keys, mx.ones_like(values), bias, Dropout(0.3).keyed(random_key(seed))) for seed in range(40)]
    assert abs(mx.mean(mx.stack(sums)).item() - 1) < 0.02
    assert mx.stack(sums).max().item() > 1.1
    gradient = mx.grad(lambda values: attend(queries, keys, values, bias, Dropout(0.3).keyed(random_key(0)))[:, :, 10:].sum())(values)
    assert not gradient[:, :, :10].any()
    assert gradient[:, :, 10:].any()


@pytest.mark.parametrize(
    ("length", "reach", "causal", "blocks"),
    [
        (4096, 511, True, Blocks(4096, 128, 4, 0)),
        (2048, 255, True, Blocks(2048, 128, 2, 0)),
        (2048, 64, False, Blocks(2048, 64, 1, 1)),
        (512, 255, True, None),
        (320, 64, False, None),
        (128, 63, True, None),
    ],
)
def test_short_rows_have_attention_to_the_whole_row(length, reach, causal, blocks):
    """Blocks are used only if each query sees fewer keys than the row has."""
    assert blocks_within(length, reach, causal=causal) == blocks
    kept = partial(band_of, mx.float32, length, None, None, reach=reach, causal=causal)()
    assert (None if kept is None else kept.blocks) == blocks


@pytest.fixture(scope="module")
def wide():
    """Return models of all kinds with positions for long rows, by name."""
    return {name: body(name, max_position_embeddings=512) for name in PACKED}


def packed(lengths, length):
    """Return the arrays of a batch with a packed row, padded on the right to `length`."""
    random = np.random.default_rng(1)
    segments = segments_of(lengths, length)
    positions = np.concatenate([*(np.arange(size) for size in lengths), np.zeros(length, np.int64)])[:length]
    ids = np.where(segments, random.integers(1, VOCABULARY, length), 0)
    return {name: mx.array(some)[None] for name, some in (("ids", ids), ("segment_ids", segments), ("positions", positions))}


@pytest.mark.parametrize("name", PACKED)
def test_documents_in_long_rows_equal_single_documents(wide, name):
    """A whole model with `longest` gives each document of a packed row the outputs of the document alone."""
    random = np.random.default_rng(0)
    documents = [random.integers(1, VOCABULARY, size).tolist() for size in random.integers(1, 30, 20)]
    assert_documents_stand_alone(partial_call(wide[name], 30), documents, 300)


def partial_call(model, longest):
    """Return a model that passes `longest` for packed rows."""
    return lambda ids, mask=None, **more: model(ids, mask, **more, **({"longest": longest} if more else {}))


@pytest.mark.parametrize("name", PACKED)
def test_gradients_with_longest_equal_gradients_without(wide, name):
    """Parameters get the same gradients, compiled and with checkpointed blocks."""
    batch = packed([30, 17, 29, 30, 5, 28, 30, 30, 1, 9, 30], 256)
    real = (batch["segment_ids"] != 0)[..., None]

    def gradients(**settings):
        model = wide[name]

        def total(parameters):
            model.update(parameters)
            return (model(**batch, **settings) * real * mx.cos(mx.arange(256))[:, None]).sum()

        parameters = model.trainable_parameters()
        computed = tree_flatten(mx.compile(mx.grad(total))(parameters))
        model.update(parameters)
        return computed

    for (path, expected), (_, banded) in zip(gradients(), gradients(longest=30), strict=True):
        assert gap(expected, banded) < 1e-4 * max(1, abs(expected).max().item()), path


@pytest.mark.parametrize("checkpoint_blocks", [False, True])
def test_a_training_step_with_longest_equals_a_step_without(checkpoint_blocks):
    """`causal_lm` passes `longest` to the model, in the compiled step and with checkpointed blocks."""
    batch = packed([30, 17, 29, 30, 5, 28, 30, 30, 1, 9, 30], 256)
    batch |= {
        "input_ids": batch.pop("ids"),
        "attention_mask": batch["segment_ids"] != 0,
        "labels": mx.where(batch["segment_ids"] != 0, 1, -100),
    }
    states = []
    for loss in (fp.losses.causal_lm, partial(fp.losses.causal_lm, longest=30)):
        model, optimizer = fp.models.CausalLM(body("decoder", max_position_embeddings=512)), optimizers.SGD(0.1)
        step = fp.train_step(model, loss, optimizer, checkpoint_blocks=checkpoint_blocks)
        states.append(step(fp.train_state(model, optimizer), batch)[0].params)
    for (path, expected), (_, banded) in zip(*map(tree_flatten, states), strict=True):
        assert gap(expected, banded) < 1e-5, path


@pytest.mark.parametrize("name", PACKED)
def test_a_document_longer_than_longest_is_an_error_with_its_row(wide, name):
    """The error names the row, the value and the remedy. No token is cut."""
    batch = packed([5, 31, 5], 256)
    two = {key: mx.concatenate([some[:, ::-1] * 0 + some[:, :1], some]) for key, some in batch.items()}
    message = r"holds 30 at row 1, position 35, and longest=30 allows documents of 30 tokens: 0 to 29\. Increase longest .*max_length=30"
    with pytest.raises(BoundError, match=message):
        wide[name](**two, longest=30)


def test_a_long_document_in_a_training_step_is_an_error_with_the_name_of_the_column():
    """The compiled step checks each batch."""
    batch = packed([5, 31, 5], 256)
    batch |= {"input_ids": batch.pop("ids"), "attention_mask": batch["segment_ids"] != 0, "labels": batch["positions"] % 7}
    model, optimizer = fp.models.CausalLM(body("decoder", max_position_embeddings=512)), optimizers.SGD(0.1)
    step = fp.train_step(model, partial(fp.losses.causal_lm, longest=30), optimizer)
    with pytest.raises(BoundError, match=r"positions holds 30 at row 0, position 35"):
        step(fp.train_state(model, optimizer), batch)


def test_long_documents_among_computed_positions_become_nan(wide):
    """A compiled function cannot check positions that it computes: the outputs are NaN, and no value is silently wrong."""
    batch = packed([31, 5], 256)
    run = mx.compile(lambda ids, segment_ids, positions: wide["decoder"](ids, segment_ids=segment_ids, positions=positions + 0, longest=30))
    assert mx.isnan(run(batch["ids"], batch["segment_ids"], batch["positions"])[0, 30]).all()


def test_longest_without_segments_is_an_error(wide):
    """`longest` describes packed rows."""
    with pytest.raises(ArgumentError, match=r"longest=30 is for packed rows, .* Pass both arrays from the output of pack"):
        wide["decoder"](mx.ones((1, 256), mx.int32), longest=30)


def test_a_window_in_long_rows_equals_the_mask_of_the_row():
    """ModernBERT gives the same outputs and gradients with padding on either side, with blocks in the local layers."""
    model = body("modernbert", max_position_embeddings=512, local_attention=8)
    ids = mx.array(np.random.default_rng(0).integers(1, VOCABULARY, (2, 200)))
    padded = {
        side: (mx.pad(ids, [(0, 0), ends]), mx.pad(mx.ones_like(ids), [(0, 0), ends])) for side, ends in (("l", (90, 0)), ("r", (0, 90)))
    }
    short = [model(ids[:, start : start + 100]) for start in (0, 100)]  # rows of 100 tokens have attention to the whole row
    assert gap(short[0], model(*(mx.pad(some, [(0, 0), (200, 0)]) for some in (ids[:, :100], mx.ones((2, 100)))))[:, 200:]) < 1e-4
    for side, here in (("l", slice(90, 290)), ("r", slice(0, 200))):
        assert gap(model(*padded[side])[:, here], model(ids)) < 1e-4


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16, "num_attention_heads": 4, "rms_norm_eps": 1e-5}
GROUPED = SIZES | {"num_key_value_heads": 2, "vocab_size": VOCABULARY}
NEIGHBOURS = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"max_position_embeddings": 512, "rope_theta": 1e4, "head_dim": 4, "tie_word_embeddings": True},
    "gemma": GROUPED | {"head_dim": 4},
    "gemma3_text": GROUPED | {"head_dim": 4, "sliding_window": 8, "sliding_window_pattern": 2},
    "ministral3": GROUPED
    | {
        "head_dim": 4,
        "max_position_embeddings": 512,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 512},
    },
}


def neighbour(name):
    """Return a small model of mlx-lm with random weights."""
    module = pytest.importorskip(f"mlx_lm.models.{name}", reason="mlx-lm is not installed: pip install 'mlxfp[mlx-lm]'")
    mx.random.seed(0)
    return module.Model(module.ModelArgs.from_dict({"model_type": name, **NEIGHBOURS[name]}))


LENGTHS = [30, 17, 29, 30, 5, 28, 30, 30, 1, 9, 30]


@pytest.mark.parametrize("longest", [None, 30])
@pytest.mark.parametrize("name", sorted(NEIGHBOURS))
def test_packed_rows_of_a_model_of_mlx_lm_equal_single_documents(name, longest):
    """Logits and gradients of two packed rows equal those of the documents alone, with grouped heads and sliding windows."""
    model = neighbour(name)
    rows = [packed(LENGTHS, 260), packed(LENGTHS[::-1], 260)]
    batch = {key: mx.concatenate([row[key] for row in rows]) for key in rows[0]}
    batch["input_ids"] = batch.pop("ids")
    bounds = [(row, *ends) for row, sizes in enumerate((LENGTHS, LENGTHS[::-1])) for ends in pairwise(np.cumsum([0, *sizes]).tolist())]
    logits = fp.models.call_packed(model, batch, longest=longest)
    for row, start, end in bounds:
        assert gap(logits[row, start:end], model(batch["input_ids"][row : row + 1, start:end])[0]) < 1e-4
    weights = mx.cos(mx.arange(VOCABULARY))

    def together(model):
        return (fp.models.call_packed(model, batch, longest=longest) * weights * (batch["segment_ids"] != 0)[..., None]).sum()

    def alone(model):
        return sum((model(batch["input_ids"][row : row + 1, start:end]) * weights).sum() for row, start, end in bounds)

    gradients = [tree_flatten(nn.value_and_grad(model, total)(model)[1]) for total in (together, alone)]
    for (path, expected), (_, computed) in zip(*gradients, strict=True):
        assert gap(expected, computed) < 1e-3 * max(1, abs(expected).max().item()), path


@pytest.mark.parametrize("checkpoint_blocks", [False, True])
def test_a_model_of_mlx_lm_trains_on_packed_rows_and_checks_each_batch(checkpoint_blocks):
    """A compiled step with adapters gives the same parameters with and without `longest`, and names a document that is too long."""
    batch = packed(LENGTHS, 260)
    batch |= {"input_ids": batch.pop("ids"), "labels": mx.where(batch["segment_ids"] != 0, 1, -100)}
    states = []
    for longest in (None, 30, 29):
        model, optimizer = fp.models.lora(neighbour("llama"), rank=2), optimizers.SGD(0.1)

        def loss(model, batch, longest=longest):
            return fp.losses.cross_entropy(fp.models.call_packed(model, batch, longest=longest), batch["labels"])

        step = fp.train_step(model, loss, optimizer, checkpoint_blocks=checkpoint_blocks)
        if longest == 29:
            with pytest.raises(BoundError, match=r"positions holds 29 at row 0, position 29, and longest=29 allows documents of 29 tokens"):
                step(fp.train_state(model, optimizer), batch)
        else:
            states.append(step(fp.train_state(model, optimizer), batch)[0].params)
    for (path, expected), (_, banded) in zip(*map(tree_flatten, states), strict=True):
        assert gap(expected, banded) < 1e-5, path


def test_models_with_other_layers_are_refused():
    """A model with recurrent layers, or with its attention scores in code of its own, would see other documents."""
    models = [neighbour("llama") for _ in range(2)]
    models[0].model_type = "gemma2"
    models[1].make_cache = lambda: [object()]
    for model in models:
        with pytest.raises(ArgumentError, match=r"rotary attention in all layers, got a model of type .* Use rows without packing"):
            fp.models.call_packed(model, {"input_ids": mx.ones((1, 3), mx.int32)})
