"""Losses of language models take what the collators make."""

import mlx.core as mx
import pytest
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError

ROWS = [{"input_ids": [5, 6, 7, 8]}, {"input_ids": [9, 8, 7]}, {"input_ids": [3, 4, 5, 6, 7]}]
PACKED = [{"input_ids": [5, 6, 7, 8, 9], "segment_ids": [1, 1, 1, 2, 2], "positions": [0, 1, 2, 0, 1]}]


def values(pair):
    return [part.item() for part in pair]


def decoder():
    return fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)


def test_causal_lm_predicts_the_next_tokens_of_a_collated_batch():
    model, batch = decoder(), fp.collators.causal(pad_id=0)(ROWS)
    logits = model(batch["input_ids"], batch["attention_mask"])
    assert values(fp.losses.causal_lm(model, batch)) == values(fp.losses.cross_entropy(logits, batch["labels"]))
    assert fp.losses.causal_lm(model, batch)[1].item() == 3 + 2 + 4


def test_packed_documents_do_not_see_each_other():
    model, apart = decoder(), fp.collators.causal(pad_id=0)([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    packed = fp.collators.causal(pad_id=0, packed=True)(PACKED)
    assert values(fp.losses.causal_lm(model, packed)) == pytest.approx(values(fp.losses.causal_lm(model, apart)), rel=1e-5)


def test_masked_lm_predicts_the_hidden_tokens_of_a_collated_batch():
    model = fp.models.create("bert", size="tiny", head="masked_lm", vocab_size=20).eval()
    batch = fp.collators.masked(pad_id=0, mask_id=1, special_ids=[2], vocab_size=20, rate=0.5, seed=1)(ROWS)
    logits = model(batch["input_ids"], batch["attention_mask"])
    assert values(fp.losses.masked_lm(model, batch)) == values(fp.losses.cross_entropy(logits, batch["labels"]))
    types = batch | {"token_type_ids": mx.ones_like(batch["input_ids"])}
    assert values(fp.losses.masked_lm(model, types))[0] != values(fp.losses.masked_lm(model, batch))[0]


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_hidden_tokens_of_packed_documents_are_predicted_as_without_packing(name):
    """A masked language model sees only the document of each token."""
    model = fp.models.create(name, size="tiny", head="masked_lm", vocab_size=20).eval()
    collator = {"pad_id": 0, "mask_id": 1, "special_ids": [2], "vocab_size": 20, "seed": 1}
    packed = fp.collators.masked(**collator, packed=True)(PACKED)
    labels = mx.array([[-100, 6, -100, 8, 9]])
    shown = mx.where(labels == -100, packed["input_ids"], 1)
    apart = [{"input_ids": shown[:, :3], "labels": labels[:, :3]}, {"input_ids": shown[:, 3:], "labels": labels[:, 3:]}]
    sums = [fp.losses.masked_lm(model, batch | {"attention_mask": mx.ones_like(batch["input_ids"])})[0].item() for batch in apart]
    assert values(fp.losses.masked_lm(model, packed | {"input_ids": shown, "labels": labels})) == pytest.approx([sum(sums), 3], rel=1e-5)


def test_rows_that_pad_a_shard_do_not_count():
    model, batch = decoder(), fp.collators.causal(pad_id=0, length=4)(ROWS)
    shorter = fp.collators.causal(pad_id=0, length=4)(ROWS[:2])
    weighted = batch | {"weight": mx.array([1.0, 1.0, 0.0])}
    assert values(fp.losses.causal_lm(model, weighted)) == pytest.approx(values(fp.losses.causal_lm(model, shorter)), rel=1e-6)


def test_a_chunked_vocabulary_trains_like_the_whole():
    model, optimizer = decoder(), optimizers.SGD(0.1)
    batch = fp.collators.causal(pad_id=0)(ROWS)

    def chunked(model, batch):
        hidden = model.body(batch["input_ids"], batch["attention_mask"])
        return fp.losses.linear_cross_entropy(hidden, model.body.tokens.weight, batch["labels"], chunk=7)

    ends = [fp.train_step(model, loss, optimizer)(fp.train_state(model, optimizer), batch) for loss in (fp.losses.causal_lm, chunked)]
    (one, metrics), (other, of_chunks) = ends
    assert metrics["loss"].item() == pytest.approx(of_chunks["loss"].item(), rel=1e-5)
    weight, of_chunks = (state.params["body"]["tokens"]["weight"] for state in (one, other))
    assert mx.allclose(weight, of_chunks, rtol=1e-4, atol=1e-5).item()
    assert not mx.allclose(weight, model.body.tokens.weight).item()


class Ignorant(nn.Module):
    """A model of another library: it knows nothing of documents in a row."""

    def __init__(self):
        super().__init__()
        self.model = decoder()

    def __call__(self, inputs, mask=None):
        return self.model(inputs, mask)


def test_a_model_that_does_not_know_segments_is_refused_and_not_trained_across_documents():
    model, optimizer = Ignorant(), optimizers.SGD(0.1)
    packed = fp.collators.causal(pad_id=0, packed=True)(PACKED)
    message = r"The batch has segment_ids, positions, but the model does not accept these arguments: .* Use rows without packing"
    with pytest.raises(ArgumentTypeError, match=message):
        fp.train_step(model, fp.losses.causal_lm, optimizer)(fp.train_state(model, optimizer), packed)
    assert values(fp.losses.causal_lm(model, fp.collators.causal(pad_id=0)(ROWS))) == values(
        fp.losses.causal_lm(model.model, fp.collators.causal(pad_id=0)(ROWS))
    )
    with pytest.raises(ArgumentTypeError, match="The batch has segment_ids, positions"):
        fp.losses.causal_lm(fp.models.CausalLM(fp.models.Encoder(fp.models.EncoderConfig(vocab_size=20, hidden_size=8))), packed)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        fp.losses.causal_lm(lambda ids, mask, **inputs: model(ids, other=1), packed)


def test_a_missing_reference_with_weight_0_has_the_gradient_0():
    model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    batch = fp.collators.preference(pad_id=0)([{"prompt": [5, 6], "chosen": [7, 8], "rejected": [9]}] * 2)
    batch |= {"reference_chosen": mx.array([-3.0, mx.nan]), "reference_rejected": mx.array([-2.0, -2.0]), "weight": mx.array([1.0, 0.0])}
    alone = {name: value[:1] for name, value in batch.items()}
    slopes = [nn.value_and_grad(model, lambda model, part: fp.losses.dpo(model, part)[0])(model, part) for part in (batch, alone)]
    (total, gradients), (expected, others) = slopes
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    pairs = zip(tree_flatten(gradients), tree_flatten(others), strict=True)
    assert all(mx.allclose(mine, other, rtol=1e-4, atol=1e-6).item() for (_, mine), (_, other) in pairs)
