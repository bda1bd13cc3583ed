"""Models by name."""

import mlx.core as mx
import pytest
from attrs import evolve, fields

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, UnknownNameError
from mlxfp.training.steps.state import same_arrays

IDS = mx.array([[5, 6, 7]])


@pytest.mark.parametrize("head", list(fp.models.HEADS))
@pytest.mark.parametrize("name", list(fp.models.MODELS))
def test_every_architecture_takes_every_head(name, head):
    labels = None if head in ("regressor", "masked_lm", "causal_lm") else 3
    model = fp.models.create(name, size="tiny", head=head, labels=labels, vocab_size=30, max_position_embeddings=8)
    rows = {"regressor": (1,), "classifier": (1, 3), "multi_label": (1, 3)}
    assert model(IDS).shape == rows.get(head, (1, 3, 30 if labels is None else 3))


@pytest.mark.parametrize("name", list(fp.models.MODELS))
def test_sizes_grow(name):
    configs = [fp.models.configure(name, size=size) for size in fp.models.MODELS[name].sizes]
    costs = sorted(config.hidden_size**2 * config.num_hidden_layers for config in configs)
    assert len(set(costs)) == len(costs)
    assert "tiny" in fp.models.MODELS[name].sizes
    assert all(type(config) is fp.models.MODELS[name].config for config in configs)


def test_the_sizes_of_published_models_are_theirs():
    bert, modern = fp.models.configure("bert", size="base"), fp.models.configure("modernbert", size="base")
    defaults = {type_: {field.name: field.default for field in fields(type_)} for type_ in (type(bert), type(modern))}
    for config, vocab_size in ((bert, 30522), (modern, 50368)):
        assert config == type(config)(vocab_size=vocab_size)
        assert all(getattr(config, name) == value for name, value in defaults[type(config)].items() if name != "vocab_size")


def test_a_model_made_of_names_is_that_made_of_parts():
    config = evolve(fp.models.configure("encoder", size="tiny", vocab_size=30), hidden_dropout_prob=0.1)
    parts = fp.models.Classifier(fp.models.Encoder(config, seed=4), 2, seed=4)
    assert same_arrays(fp.models.create("encoder", size="tiny", labels=2, vocab_size=30, seed=4).parameters(), parts.parameters())


def test_a_registry_of_ones_own_takes_the_place_of_ours():
    mine = fp.models.Architecture(fp.models.Encoder, fp.models.EncoderConfig, {"wee": {"hidden_size": 8, "num_attention_heads": 2}}, 11)
    model = fp.models.create("mine", size="wee", labels=2, models=fp.models.MODELS | {"mine": mine})
    assert model.body.config == fp.models.EncoderConfig(vocab_size=11, hidden_size=8, num_attention_heads=2)


def test_a_size_with_unknown_fields_is_refused_with_the_known_ones():
    mine = fp.models.Architecture(fp.models.Encoder, fp.models.EncoderConfig, {"wee": {"width": 8}, "old": {"hidden_sizes": 8}}, 11)
    with pytest.raises(UnknownNameError, match=r"No field of EncoderConfig is named 'width'\. Known: hidden_dropout_prob, hidden_size, "):
        fp.models.configure("mine", size="wee", models={"mine": mine})
    with pytest.raises(UnknownNameError, match=r"No field of EncoderConfig is named 'hidden_sizes'\. Did you mean 'hidden_size'\?"):
        fp.models.create("mine", size="old", labels=2, models={"mine": mine})


def test_numbers_have_as_many_outputs_as_labels():
    assert isinstance(fp.models.create("bert", size="tiny", head="regressor", vocab_size=30), fp.models.Regressor)
    assert fp.models.create("bert", size="tiny", head="regressor", labels=2, vocab_size=30)(IDS).shape == (1, 2)


def test_names_that_are_not_there_are_said():
    with pytest.raises(UnknownNameError, match=r"No model is named 'modernbart'\. Did you mean 'modernbert'\?"):
        fp.models.create("modernbart", size="tiny", labels=2)
    with pytest.raises(UnknownNameError, match=r"No size is named 'huge'\. .*Known: base, large, medium, mini, small, tiny"):
        fp.models.create("bert", size="huge", labels=2)
    with pytest.raises(UnknownNameError, match=r"No head is named 'clasifier'\. Did you mean 'classifier'\?"):
        fp.models.create("bert", size="tiny", head="clasifier", labels=2)


def test_heads_say_whether_they_need_labels():
    with pytest.raises(ArgumentError, match=r'A "classifier" needs the number of labels, got labels=None'):
        fp.models.create("bert", size="tiny")
    with pytest.raises(ArgumentError, match=r'A "masked_lm" predicts tokens and has no labels, got labels=2'):
        fp.models.create("bert", size="tiny", head="masked_lm", labels=2)
    with pytest.raises(ArgumentError, match="labels must be at least 1"):
        fp.models.create("bert", size="tiny", labels=0)


@pytest.mark.parametrize("head", ["classifier", "multi_label", "regressor", "token_classifier", "masked_lm"])
@pytest.mark.parametrize("name", fp.models.MODELS)
def test_one_share_sets_every_dropout(name, head):
    labels = None if head == "masked_lm" else 2
    model = fp.models.create(name, size="tiny", head=head, labels=labels, vocab_size=50, dropout=0.25)
    rates = {module.rate for _, module in model.named_modules() if isinstance(module, fp.models.Dropout)}
    assert rates == (set() if (name, head) == ("text_cnn", "masked_lm") else {0.25})  # the body of text_cnn has none, nor has that head
