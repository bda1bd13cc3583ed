"""The laws of models catch each way to look at what must not be seen. The tests of models hold ours to them."""

import mlx.core as mx
import pytest

from mlxfp.models import CausalLM, generate
from mlxfp.testing.laws import (
    assert_causal,
    assert_documents_stand_alone,
    assert_generates_the_likeliest,
    assert_ignores_padding,
    assert_rows_stand_alone,
)
from tests.models.samples import body, rows

BERT, MODERN = body("bert"), body("modernbert")
DECODER = CausalLM(body("decoder")).eval()
IDS, MASK = rows([3, 5])


@pytest.mark.parametrize("side", ["left", "right"])
def test_models_that_are_right_pass_the_laws(side):
    for model in (BERT, MODERN, DECODER):
        assert_ignores_padding(model, IDS, MASK, extra=2, side=side, filler=7)
        assert_rows_stand_alone(model, IDS, MASK)
    assert_documents_stand_alone(MODERN, [[4, 5, 6], [7, 8]], 8)
    assert_causal(DECODER, IDS[1:], 2, changed=IDS[1:] + 1)
    assert_generates_the_likeliest(DECODER, [[3, 9], [5]], generate(DECODER, [[3, 9], [5]], max_tokens=3))


def test_a_model_without_a_mask_is_caught():
    with pytest.raises(AssertionError, match=r"2 padding tokens 7 on the right change outputs by"):
        assert_ignores_padding(lambda ids, mask: BERT(ids), IDS, MASK, extra=2, filler=7)


def test_a_model_that_counts_positions_over_padding_is_caught():
    def counting(ids, mask):
        return BERT(ids, mask, positions=mx.arange(ids.shape[1])[None])

    with pytest.raises(AssertionError, match="on the left"):
        assert_ignores_padding(counting, IDS, MASK, extra=2, side="left")


def test_a_model_that_averages_over_the_batch_is_caught():
    with pytest.raises(AssertionError, match="the output for row 0 of 2 is off by"):
        assert_rows_stand_alone(lambda ids, mask: BERT(ids, mask) - BERT(ids, mask).mean(axis=0, keepdims=True), IDS, MASK)


def test_a_model_that_lets_documents_see_each_other_is_caught():
    with pytest.raises(AssertionError, match="documents in a row do not affect each other, but one of"):
        assert_documents_stand_alone(lambda ids, mask=None, **_: MODERN(ids, mask), [[4, 5, 6], [7, 8]], 8)


def test_a_model_that_sees_the_future_is_caught():
    with pytest.raises(AssertionError, match="tokens after position 2 change outputs up to this position by"):
        assert_causal(MODERN, IDS[1:], 2, changed=IDS[1:] + 1)


def test_a_cache_that_forgets_is_caught():
    wrong = generate(DECODER, [[7], [1]], max_tokens=5)
    with pytest.raises(AssertionError, match=r"continues with \[.*\], but \[.*\] was generated"):
        assert_generates_the_likeliest(DECODER, [[3, 9, 4, 7], [5, 2, 8, 1]], wrong)
