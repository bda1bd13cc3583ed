"""Heads: what they pool, what comes out, and what their probabilities are."""

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.models import HEADS, Classifier, MaskedLM, Regressor, TokenClassifier
from mlxfp.models.heads import mean_over_tokens
from mlxfp.support.errors import ArgumentError, UnknownNameError
from mlxfp.training.steps.state import same_arrays
from tests.models.samples import body, gap, models, rows

IDS, MASK = rows([3, 5])
SHAPES = {"mean": (2, 3), "regressor": (2,), "regressor of two": (2, 2), "tokens": (2, 5, 3), "masked": (2, 5, 20), "untied": (2, 5, 20)}


@pytest.mark.parametrize("head", sorted(SHAPES))
@pytest.mark.parametrize("name", ["bert", "decoder", "encoder", "modernbert", "text_cnn"])
def test_every_head_gives_its_shape(name, head):
    assert models()[f"{name} {head}"](IDS, MASK).shape == SHAPES[head]


def test_poolings_take_what_they_say():
    vectors = mx.random.normal((2, 5, 8), key=mx.random.key(0))

    class Body(type(body("encoder"))):
        def __call__(self, ids, mask=None):
            return vectors

    fixed = Body(body("encoder").config)
    right, left = MASK, MASK[:, ::-1]
    for mask, first, last in ((right, [0, 0], [2, 4]), (left, [2, 0], [4, 4]), (None, [0, 0], [4, 4])):
        real = np.ones((2, 5), bool) if mask is None else np.array(mask) != 0
        values = np.array(vectors)
        wanted = {
            "first": values[[0, 1], first],
            "last": values[[0, 1], last],
            "mean": np.stack([values[row][real[row]].mean(axis=0) for row in range(2)]),
            "max": np.stack([values[row][real[row]].max(axis=0) for row in range(2)]),
        }
        for pooling, pooled in wanted.items():
            model = Classifier(fixed, 8, pooling=pooling, bias=False).eval()
            model.output.weight = mx.eye(8)
            assert gap(model(IDS, mask), pooled) < 1e-6, pooling


def test_the_pooler_of_bert_is_tanh_of_a_layer_on_the_first_vector():
    bert = body("bert")
    pooled = np.tanh(np.array(bert(IDS, MASK))[:, 0] @ np.array(bert.pooler.weight).T + np.array(bert.pooler.bias))
    model = Classifier(bert, 8, pooling="pooler", bias=False).eval()
    model.output.weight = mx.eye(8)
    assert gap(model(IDS, MASK), pooled) < 1e-5
    with pytest.raises(ArgumentError, match=r"This BERT has no pooler\. Create the model with BertConfig\(pooler=True\)"):
        Classifier(body("bert", pooler=False), 2, pooling="pooler")(IDS)


def test_mean_over_tokens_of_a_row_without_any_is_zero():
    assert mean_over_tokens(mx.ones((1, 2, 3)), mx.zeros((1, 2))).tolist() == [[0, 0, 0]]


def test_probabilities_are_of_classes_or_of_each_label():
    logits = mx.array([[0.0, mx.log(mx.array(3.0)).item()]], mx.bfloat16)
    one, many = Classifier(body("encoder"), 2), Classifier(body("encoder"), 2, multi_label=True)
    assert one.probabilities(logits).dtype == mx.float32
    assert gap(one.probabilities(logits), [[0.25, 0.75]]) < 1e-2
    assert gap(many.probabilities(logits), [[0.5, 0.75]]) < 1e-2


def test_language_models_score_some_places_as_they_score_all():
    for name in ("bert masked", "decoder causal", "decoder untied"):
        model = models()[name]
        whole = model(IDS, MASK)
        assert gap(model.logits(model.body(IDS, MASK)[:, 1:3]), whole[:, 1:3]) < 1e-6


def test_tied_heads_have_no_matrix_of_their_own():
    assert sorted(models()["decoder causal"].parameters()) == ["body"]
    assert sorted(models()["decoder untied"].parameters()) == ["body", "output"]
    assert sorted(models()["bert masked"].parameters()) == ["bias", "body", "transform"]


def test_weights_of_a_head_depend_on_its_seed_alone():
    first = Classifier(body("encoder"), 2, seed=1, transform=True)
    other = Classifier(body("encoder", seed=5), 2, seed=1, transform=True)
    for part in ("output", "transform"):
        assert same_arrays(first[part].parameters(), other[part].parameters())
        assert not same_arrays(first[part].parameters(), Classifier(body("encoder"), 2, transform=True)[part].parameters())


def test_settings_make_the_same_head_again():
    for kind, head in HEADS.items():
        outputs = {"outputs": 3} if kind in ("classifier", "multi_label", "token_classifier") else {}
        made = head(body("decoder"), **outputs)
        again = type(made)(body("decoder"), **made.settings)
        assert again.settings == made.settings
        assert same_arrays(again.parameters(), made.parameters())


def test_impossible_arguments_are_refused():
    with pytest.raises(UnknownNameError, match=r"No pooling is named 'cls'\. .*Known: first, last, max, mean, pooler"):
        Classifier(body("encoder"), 2, pooling="cls")
    for make in (Classifier, TokenClassifier):
        with pytest.raises(ArgumentError, match="outputs must be at least 1, got outputs=0"):
            make(body("encoder"), 0)
    with pytest.raises(ArgumentError, match="rate must be at least 0 and less than 1"):
        Regressor(body("encoder"), dropout=1.0)


def test_a_body_gets_only_the_inputs_that_are_given():
    with pytest.raises(TypeError, match="unexpected keyword argument 'token_type_ids'"):
        MaskedLM(body("modernbert"))(IDS, MASK, token_type_ids=IDS)
