"""Numeric features: they have no effect before training, are learned, and work wherever their head works."""

import json

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CheckpointError, DataError
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_ignores_padding, assert_pure_step, assert_saves
from mlxfp.training.steps.recomputing import blocks_of
from mlxfp.training.steps.state import same_arrays, train_state
from tests.models.samples import CONFIGS, DROPOUTS, body, gap, rows

IDS, MASK = rows([3, 5])
NUMBERS = mx.array([[0.5, -1.0, 2.0, 0.0], [1.5, 0.25, -0.5, 3.0]])

HEADS = {
    "classifier": lambda body: fp.models.Classifier(body, 3),
    "one logit": lambda body: fp.models.Classifier(body, 1, multi_label=True),
    "multi_label": lambda body: fp.models.Classifier(body, 2, pooling="first", multi_label=True),
    "regressor": fp.models.Regressor,
    "regressor of two": lambda body: fp.models.Regressor(body, outputs=2),
}
OUTPUTS = {"classifier": 3, "one logit": 1, "multi_label": 2, "regressor": 1, "regressor of two": 2}


def wrapped(head, name="bert", **options):
    """A head with four numbers."""
    return fp.models.WithNumbers(HEADS[head](body(name, **options)), 4, outputs=OUTPUTS[head], width=6)


def spoken(model, *, seed=0):
    """The model, with something to say of the numbers: an untrained one says nothing."""
    model.output.weight = mx.random.normal(model.output.weight.shape, key=mx.random.key(seed))
    return model


def assert_starts_as_its_head(model, ids, mask, numbers):
    """Law: before training, whatever the numbers are, the model says what its head says, bit for bit."""
    model.eval()
    assert same_arrays(model(ids, mask, numbers=numbers), model.head(ids, mask)), "the numbers have a say before training"


@pytest.mark.parametrize("head", list(HEADS))
@given(numbers=st.lists(st.floats(-1e6, 1e6, width=32), min_size=8, max_size=8))
@settings(max_examples=20)
def test_an_untrained_model_says_what_its_head_says(head, numbers):
    assert_starts_as_its_head(wrapped(head), IDS, MASK, mx.array(numbers).reshape(2, 4))


def test_the_law_of_the_start_catches_numbers_that_say_something():
    with pytest.raises(AssertionError, match="the numbers have a say before training"):
        assert_starts_as_its_head(spoken(wrapped("classifier")), IDS, MASK, NUMBERS)


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("head", list(HEADS))
def test_shapes_are_those_of_the_head(head, name):
    model = spoken(wrapped(head, name)).eval()
    answers = model(IDS, MASK, numbers=NUMBERS)
    assert answers.shape == model.head(IDS, MASK).shape
    assert gap(answers, model.head(IDS, MASK)) > 1e-3


def test_the_scores_are_wide_and_deep():
    model, wide = spoken(wrapped("regressor")).eval(), np.array(NUMBERS)
    first, second, output = (np.array(layer.weight) for layer in (model.deep_in, model.deep_out, model.output))
    deep = np.maximum(np.maximum(wide @ first.T, 0) @ second.T, 0)
    wanted = np.array(model.head(IDS, MASK)) + (np.concatenate([wide, deep], axis=1) @ output.T)[:, 0]
    assert gap(model(IDS, MASK, numbers=NUMBERS), wanted) < 1e-5


def test_each_row_has_its_own_numbers():
    model = spoken(wrapped("classifier")).eval()
    assert_ignores_padding(lambda ids, mask: model(ids, mask, numbers=NUMBERS), IDS, MASK)
    swapped = model(IDS[::-1], MASK[::-1], numbers=NUMBERS[::-1])
    assert gap(swapped[::-1], model(IDS, MASK, numbers=NUMBERS)) < 1e-5


def test_whole_numbers_and_lower_precision_are_taken():
    model = spoken(wrapped("classifier")).eval()
    whole = mx.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert same_arrays(model(IDS, MASK, numbers=whole), model(IDS, MASK, numbers=whole.astype(mx.float32)))
    model.set_dtype(mx.bfloat16)
    assert model(IDS, MASK, numbers=NUMBERS).dtype == mx.bfloat16


def test_weights_depend_on_the_seed_alone():
    def channel(model):
        return {name: array for name, array in model.parameters().items() if name != "head"}

    first, other = (fp.models.WithNumbers(fp.models.Classifier(body("bert", seed=seed), 3), 4, outputs=3, seed=1) for seed in (0, 5))
    assert same_arrays(channel(first), channel(other))
    assert not same_arrays(channel(first), channel(fp.models.WithNumbers(fp.models.Classifier(body("bert"), 3), 4, outputs=3, seed=2)))


def test_what_the_head_says_of_itself_is_passed_on():
    head = fp.models.Classifier(body("bert"), 2, multi_label=True)
    model = fp.models.WithNumbers(head, 4, outputs=2, width=6, dropout=0.25)
    assert model.settings == head.settings
    assert model.body is head.body
    assert same_arrays(model.probabilities(mx.array([[0.0, 1.0]])), head.probabilities(mx.array([[0.0, 1.0]])))
    assert model.number_settings == {"count": 4, "outputs": 2, "width": 6, "dropout": 0.25}
    assert not hasattr(wrapped("regressor"), "probabilities")


def test_a_model_of_bert_gets_its_token_types():
    model = wrapped("classifier").eval()
    types = mx.ones_like(IDS)
    assert same_arrays(model(IDS, MASK, numbers=NUMBERS, token_type_ids=types), model.head(IDS, MASK, token_type_ids=types))


def test_gradients_reach_the_text_and_the_numbers():
    model = fp.functional(spoken(wrapped("classifier")))

    def loss(params):
        answers, _ = model.apply(lambda model: model(IDS, MASK, numbers=NUMBERS), params, model.buffers, key=None)
        return (answers * mx.cos(mx.arange(6).reshape(2, 3))).sum()

    gradients = mx.grad(loss)(model.params)
    for part in (gradients["deep_in"], gradients["deep_out"], gradients["output"], gradients["head"]["output"]):
        assert abs(part["weight"]).max().item() > 1e-4
    assert abs(gradients["head"]["body"]["tokens"]["weight"]).max().item() > 1e-4


LOSSES = {"classifier": fp.losses.cross_entropy, "multi_label": fp.losses.binary_cross_entropy, "regressor": fp.losses.mse}
TARGETS = {"classifier": mx.array([2, 0]), "multi_label": mx.array([[0, 1], [1, 1]]), "regressor": mx.array([0.5, -1.0])}


def stepped(head, **options):
    """A step for a head with numbers, its first state, and a batch."""
    model, optimizer = wrapped(head, **DROPOUTS["bert"]), fp.optimizers.adamw(1e-2)

    def loss(model, batch):
        return LOSSES[head](model(batch["ids"], batch["mask"], numbers=batch["numbers"]), batch["target"])

    batch = {"ids": IDS, "mask": MASK, "numbers": NUMBERS, "target": TARGETS[head]}
    return fp.train_step(model, loss, optimizer, **options), train_state(model, optimizer, seed=1), batch


@pytest.mark.parametrize(
    ("head", "options"),
    [*((head, {}) for head in LOSSES), ("classifier", {"compute_dtype": mx.bfloat16, "checkpoint_blocks": True})],
    ids=[*LOSSES, "classifier, bfloat16 in blocks"],
)
def test_compiled_steps_train_both_parts(head, options):
    step, first, batch = stepped(head, **options)
    assert_pure_step(step, first, batch)
    state, losses = first, []
    for _ in range(8):
        state, metrics = step(state, batch)
        losses.append(metrics["loss"].item())
    assert losses[-1] < losses[0]
    assert step.variants == 1
    for part in ("deep_in", "deep_out", "output", "head"):
        assert not same_arrays(state.params[part], first.params[part]), part


def test_a_compiled_step_equals_an_eager_one():
    step, state, batch = stepped("classifier")
    assert_compiled_equals_eager(step, step(state, batch)[0], batch)


def test_the_blocks_are_those_of_the_body():
    model = wrapped("classifier")
    assert [id(block) for block in blocks_of(model)] == [id(block) for block in model.body.blocks]


def test_blocks_that_are_computed_again_change_nothing():
    step, state, batch = stepped("classifier")
    again, _, _ = stepped("classifier", checkpoint_blocks=True)
    assert gap(step(state, batch)[1]["loss"], again(state, batch)[1]["loss"]) < 1e-6
    assert gap(step(state, batch)[0].params["head"]["output"]["weight"], again(state, batch)[0].params["head"]["output"]["weight"]) < 1e-5


def test_states_are_saved_and_loaded(tmp_path):
    step, state, batch = stepped("regressor")
    state, _ = step(state, batch)
    assert_saves(state, tmp_path)
    fp.save_state(tmp_path / "after one", state)
    loaded = fp.load_state(tmp_path / "after one", like=stepped("regressor")[1]).state
    assert step(loaded, batch)[0] == step(state, batch)[0]


def test_a_target_of_numbers_is_learned_with_them_and_not_from_text():
    random = np.random.default_rng(0)
    numbers = random.normal(size=(64, 4)).astype(np.float32)
    target = mx.array(numbers[:, 0] - np.abs(numbers[:, 1]))
    ids = mx.array(random.integers(1, 20, (64, 3)))
    batch = {"ids": ids, "numbers": mx.array(numbers), "target": (target - target.mean()) / target.std()}

    def left(model, call):
        """What part of the variance remains after some steps."""
        optimizer = fp.optimizers.adamw(1e-2)
        step = fp.train_step(model, lambda model, batch: fp.losses.mse(call(model, batch), batch["target"]), optimizer)
        state = train_state(model, optimizer)
        for _ in range(60):
            state, _ = step(state, {**batch, "ids": ids[mx.random.permutation(64, key=mx.random.key(state.step))]})
        trained = fp.functional(model).bind(state.params, state.buffers).eval()
        return fp.losses.mse(call(trained, batch), batch["target"])[0].item() / 64

    text = fp.models.Regressor(body("encoder"), dropout=0.0)
    assert left(text, lambda model, batch: model(batch["ids"])) > 0.9
    both = fp.models.WithNumbers(fp.models.Regressor(body("encoder"), dropout=0.0), 4, outputs=1, width=16, dropout=0.0)
    assert left(both, lambda model, batch: model(batch["ids"], numbers=batch["numbers"])) < 0.1


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("head", list(HEADS))
def test_what_was_saved_is_loaded(head, name, tmp_path):
    model = spoken(fp.models.WithNumbers(HEADS[head](body(name)), 4, outputs=OUTPUTS[head], width=6, dropout=0.25)).eval()
    fp.models.save(tmp_path, model)
    loaded = fp.models.load(tmp_path)
    assert (type(loaded), type(loaded.head)) == (fp.models.WithNumbers, type(model.head))
    assert (loaded.settings, loaded.number_settings) == (model.settings, model.number_settings)
    assert same_arrays(loaded.parameters(), model.parameters())
    assert same_arrays(loaded(IDS, MASK, numbers=NUMBERS), model(IDS, MASK, numbers=NUMBERS))
    assert same_arrays(fp.models.load_body(tmp_path).parameters(), model.body.parameters())


def test_others_do_not_take_it_for_its_head(tmp_path):
    fp.models.save(tmp_path, fp.models.WithNumbers(fp.models.Classifier(body("bert"), 3, pooling="pooler"), 4, outputs=3))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == []
    assert config["mlxfp"]["numbers"] == {"count": 4, "outputs": 3, "width": 64, "dropout": 0.1}
    assert {name.split(".")[0] for name in mx.load(f"{tmp_path}/model.safetensors")} == {"bert", "mlxfp_head"}


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ({"count": 5, "outputs": 3}, CheckpointError, r"different: mlxfp_head\.deep_in\.weight is float\[64, 4\], expected float\[64, 5\]"),
        ({"count": 4}, DataError, r"does not describe a model: TypeError: .*outputs"),
        ([], DataError, "does not describe a model: TypeError"),
        ({"count": 0, "outputs": 3}, ArgumentError, "count must be at least 1, got count=0"),
        (None, CheckpointError, r"unexpected: mlxfp_head\.deep_in\.bias"),
    ],
)
def test_a_section_that_does_not_fit_is_refused(numbers, error, message, tmp_path):
    fp.models.save(tmp_path, fp.models.WithNumbers(fp.models.Classifier(body("bert"), 3), 4, outputs=3))
    config = json.loads((tmp_path / "config.json").read_text())
    config["mlxfp"]["numbers"] = numbers
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=message):
        fp.models.load(tmp_path)


@pytest.mark.parametrize("head", ["classifier", "multi_label", "regressor"])
def test_models_with_numbers_are_made_by_name(head):
    labels = None if head == "regressor" else 3
    model = fp.models.create("encoder", size="tiny", head=head, labels=labels, numbers=4, vocab_size=30, dropout=0.25, seed=3)
    plain = fp.models.create("encoder", size="tiny", head=head, labels=labels, vocab_size=30, dropout=0.25, seed=3)
    assert same_arrays(model.head.parameters(), plain.parameters())
    assert same_arrays(model.parameters(), fp.models.WithNumbers(plain, 4, outputs=labels or 1, seed=3).parameters())
    assert model(IDS, MASK, numbers=NUMBERS).shape == plain(IDS, MASK).shape
    assert model.number_settings["dropout"] == 0.25
    assert fp.models.create("encoder", size="tiny", labels=2, numbers=4, vocab_size=30).number_settings["dropout"] == 0.1


@pytest.mark.parametrize("head", ["token_classifier", "masked_lm", "causal_lm"])
def test_heads_that_answer_for_tokens_are_refused_by_name(head):
    labels = 3 if head == "token_classifier" else None
    kind = {"token_classifier": "TokenClassifier", "masked_lm": "MaskedLM", "causal_lm": "CausalLM"}[head]
    message = rf"Numeric features need a head for whole rows, got {kind}\. Use a Classifier or a Regressor: .*by name"
    with pytest.raises(ArgumentError, match=message):
        fp.models.create("bert", size="tiny", head=head, labels=labels, numbers=4, vocab_size=30)


@pytest.mark.parametrize(
    "head", [lambda body: fp.models.TokenClassifier(body, 3), fp.models.MaskedLM, fp.models.CausalLM], ids=["tokens", "masked", "causal"]
)
def test_heads_that_answer_for_tokens_are_refused(head):
    with pytest.raises(ArgumentError, match="need a head for whole rows"):
        fp.models.WithNumbers(head(body("bert")), 4, outputs=3)


def test_impossible_arguments_are_refused():
    head = fp.models.Classifier(body("bert"), 3)
    for name in ("count", "outputs", "width"):
        sizes = {"count": 4, "outputs": 3, "width": 8} | {name: 0}
        with pytest.raises(ArgumentError, match=f"{name} must be at least 1, got {name}=0"):
            fp.models.WithNumbers(head, **sizes)
    with pytest.raises(ArgumentError, match="rate must be at least 0 and less than 1"):
        fp.models.WithNumbers(head, 4, outputs=3, dropout=1.0)
    with pytest.raises(ArgumentError, match="numbers must be at least 0, got numbers=-1"):
        fp.models.create("bert", size="tiny", labels=2, numbers=-1)


def test_numbers_that_do_not_fit_are_refused():
    model = wrapped("classifier")
    missing = r"The model needs the argument numbers, an array of shape \[2, 4\], got NoneType\. Call model\(ids, mask, numbers="
    with pytest.raises(ArgumentTypeError, match=missing):
        model(IDS, MASK)
    with pytest.raises(ArgumentTypeError, match="got ndarray"):
        model(IDS, MASK, numbers=np.zeros((2, 4)))
    for shape, shown in (((2, 3), "2, 3"), ((1, 4), "1, 4"), ((4,), "4")):
        wanted = rf"numbers must have the shape \[2, 4\], with count=4 numbers for each row of ids, got \[{shown}\]\. Pass the columns"
        with pytest.raises(ArgumentError, match=wanted):
            model(IDS, MASK, numbers=mx.zeros(shape))


class Mine(nn.Module):
    """A head of somebody else's, without anything but a call."""

    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def __call__(self, ids, mask=None):
        return mx.ones(self.shape)


def test_a_head_of_ones_own_need_only_answer_for_rows():
    assert fp.models.WithNumbers(Mine(2, 3), 4, outputs=3).eval()(IDS, MASK, numbers=NUMBERS).tolist() == [[1, 1, 1], [1, 1, 1]]
    for shape in ((2,), (2, 1), (1, 3), (2, 3, 1), ()):
        message = rf"The head must return the shape \[2, 3\], .*, got \[{', '.join(map(str, shape))}\]\. Use a head with one result per"
        with pytest.raises(ArgumentError, match=message):
            fp.models.WithNumbers(Mine(*shape), 4, outputs=3)(IDS, MASK, numbers=NUMBERS)


def test_a_head_of_ones_own_is_not_saved(tmp_path):
    with pytest.raises(ArgumentTypeError, match=r"save writes the models of mlxfp\.models, got Mine"):
        fp.models.save(tmp_path, fp.models.WithNumbers(Mine(2, 3), 4, outputs=3))
    assert isinstance(fp.models.WithNumbers(fp.models.Regressor(body("encoder")), 1, outputs=1).body, fp.models.Encoder)
