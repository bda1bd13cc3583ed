"""Language model losses of models of mlx-lm equal those of the single rows."""

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp

llama, qwen3, gemma = (pytest.importorskip(f"mlx_lm.models.{name}") for name in ("llama", "qwen3", "gemma"))

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 40,
}
MODELS = {
    "llama": lambda: llama.Model(llama.ModelArgs(model_type="llama", **SIZES)),
    "qwen3": lambda: qwen3.Model(
        qwen3.ModelArgs(model_type="qwen3", head_dim=8, rope_theta=1e4, max_position_embeddings=64, tie_word_embeddings=False, **SIZES)
    ),
    "gemma": lambda: gemma.Model(gemma.ModelArgs(model_type="gemma", head_dim=8, **SIZES)),
}
ROWS = [{"input_ids": [5, 6, 7, 8]}, {"input_ids": [9, 4]}, {"input_ids": [1, 2, 3]}]


@pytest.mark.parametrize("name", MODELS)
def test_case_a14_the_loss_of_a_padded_batch_is_the_sum_over_single_rows(name):
    model, collate = MODELS[name](), fp.collators.causal(pad_id=0)
    total, weight = fp.losses.causal_lm(model, collate(ROWS))
    singles = [fp.losses.causal_lm(model, collate([row])) for row in ROWS]
    assert weight.item() == 6
    assert total.item() == pytest.approx(sum(single.item() for single, _ in singles), rel=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_of_answers_and_dpo_need_no_mask(name):
    model = MODELS[name]()
    rows = [{"prompt": [5, 6], "chosen": [7, 8], "rejected": [9]}, {"prompt": [1], "chosen": [2], "rejected": [3, 4]}]
    batch = fp.collators.preference(pad_id=0)(rows)
    chosen, rejected = fp.losses.answer_log_probabilities(model, batch)
    logits = model(mx.array([[5, 6, 7]]))
    expected = (logits - mx.logsumexp(logits, axis=-1, keepdims=True))[0, [1, 2], [7, 8]].sum()
    assert chosen[0].item() == pytest.approx(expected.item(), rel=1e-4)
    total, _ = fp.losses.dpo(model, batch | {"reference_chosen": chosen, "reference_rejected": rejected})
    assert total.item() == pytest.approx(2 * np.log(2), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_masked_tokens_and_a_compiled_step_work(name):
    model, optimizer = MODELS[name](), fp.optimizers.adamw(0.01)
    batch = fp.collators.causal(pad_id=0)(ROWS)
    assert fp.losses.masked_lm(model, batch)[1].item() == 6
    step, state = fp.train_step(model, fp.losses.causal_lm, optimizer), fp.train_state(model, optimizer)
    losses = []
    for _ in range(5):
        state, metrics = step(state, batch)
        losses.append(metrics["loss"].item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_packed_rows_is_the_sum_over_single_rows(name):
    model = MODELS[name]()
    (batch,) = fp.pipe(fp.from_examples(ROWS), fp.pack(9), fp.batch(1), fp.collate(fp.collators.causal(pad_id=0, packed=True)))
    total, weight = fp.losses.causal_lm(model, batch)
    singles = [fp.losses.causal_lm(model, fp.collators.causal(pad_id=0)([row])) for row in ROWS]
    assert weight.item() == 6
    assert total.item() == pytest.approx(sum(single.item() for single, _ in singles), rel=1e-4)
