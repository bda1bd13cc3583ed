"""Models, losses and optimizers of every kind of answer: they fit together, and learn."""

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from mlx import optimizers as mlx_optimizers

from mlxfp.collators.collating import collate
from mlxfp.config.classes import ModelConfig, OptimizerConfig, ScheduleConfig, TextConfig, TrainingConfig
from mlxfp.core.errors import ArgumentError, DataError
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.columns import drop_columns
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.sources.in_memory import from_table
from mlxfp.kaggle.specs.tables import to_table
from mlxfp.models.bert import Bert, BertConfig
from mlxfp.models.heads import Classifier, MaskedLM, Regressor
from mlxfp.models.layers import Dropout
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.models.weights import load_body, save
from mlxfp.tasks.objectives import Objective, Trained, make_model, make_optimizer, make_step, objective, shown
from mlxfp.tasks.recipes import Recipe, fit_recipe
from mlxfp.training.optimization import optimizers
from mlxfp.training.steps.state import train_state
from tests.tasks.drawing import rows_of, spec_of

TEXT = TextConfig(max_length=32, vocab_size=120, overflow="cut", form="key_value", numbers="none")
ENCODER = ModelConfig(name="encoder", size="tiny", dropout=0.0)
FAST = OptimizerConfig(learning_rate=5e-3)
STEADY = ScheduleConfig(name="constant", warmup=0.0)
KINDS = {
    "class of two": spec_of("binary"),
    "class of three": spec_of("multiclass"),
    "one label": spec_of("multilabel", target=["y"]),
    "labels": spec_of("multilabel"),
    "value": spec_of("regression"),
    "value of amounts": spec_of("regression", metric="rmsle"),
    "value by absolute errors": spec_of("regression", metric="mae"),
    "values": spec_of("regression", target=["y", "z"]),
}


def fitted(kind: str, model: ModelConfig = ENCODER) -> Recipe:
    spec = KINDS[kind]
    return fit_recipe(spec, rows_of(spec.kind), text=TEXT, model=model)


def batch_of(recipe: Recipe, size: int = 12) -> dict:
    return next(iter(pipe(recipe(rows_of(recipe.spec.kind)), batch(size), collate(recipe.collator))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numeric", [False, True])
def test_models_answer_what_the_target_needs(kind: str, numeric: bool):
    config = evolve(ENCODER, numeric=numeric)
    recipe = fitted(kind, config)
    model = make_model(recipe, config, seed=0)
    assert isinstance(model, WithNumbers) == numeric
    goal, made = objective(recipe), batch_of(recipe, 5)
    outputs = goal.outputs(model, made)
    assert outputs.shape in ((5, recipe.target.outputs), (5,) * (recipe.target.outputs == 1))
    total, weight = goal.loss(model, made)
    assert weight.item() == 5 * (recipe.target.outputs if recipe.target.answer != "class" else 1)
    assert np.isfinite(total.item())
    answers = np.array(goal.answers(model, made))
    if recipe.target.answer == "class":
        assert answers.sum(axis=1) == pytest.approx(1, abs=1e-5)
    if recipe.target.answer == "labels":
        assert ((answers > 0) & (answers < 1)).all()
    assert sorted(goal.measure(model, made)) == (["accuracy", "loss"] if recipe.target.answer == "class" else ["loss"])


def test_weights_are_drawn_from_the_seed():
    recipe = fitted("class of two")
    made = batch_of(recipe)
    one, same, other = (objective(recipe).outputs(make_model(recipe, ENCODER, seed=seed), made) for seed in (0, 0, 1))
    assert mx.array_equal(one, same).item()
    assert not mx.array_equal(one, other).item()


@pytest.fixture
def eager():
    """Compile nothing: that a compiled step equals an eager one is a law that others test."""
    mx.disable_compile()
    yield
    mx.enable_compile()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", ["class of three", "labels", "value", "values"])
def test_the_loss_falls_and_predictions_come_near(kind: str):
    config = evolve(ENCODER, numeric=kind in ("labels", "values"))
    recipe = fitted(kind, config)
    model, goal = make_model(recipe, config, seed=0), objective(recipe)
    optimizer = make_optimizer(FAST, STEADY, updates=20)
    step = make_step(model, goal, optimizer, FAST, TrainingConfig())
    state, losses = step.start(train_state(model, optimizer, seed=0)), []
    made = batch_of(recipe)
    for _ in range(20):
        state, metrics = step(state, made)
        losses.append(metrics["loss"].item())
    assert losses[-1] < losses[0] / 3
    rows = rows_of(recipe.spec.kind)
    table = to_table(rows)
    truth = np.stack([table[name].to_numpy() for name in recipe.spec.target], axis=1)
    predict = Trained(recipe, model, state)
    found = predict(rows)
    assert found.dtype == np.float64
    if kind == "class of three":
        assert found.shape == (12, 3)
        assert (found.argmax(axis=1) == truth[:, 0]).all()
    elif kind == "labels":
        assert ((found > 0.5) == truth).all()
    else:
        assert np.abs(found.reshape(12, -1) - truth).mean() < truth.std(axis=0).mean() / 2
    unseen = drop_columns(list(recipe.spec.target))(rows)
    assert (predict(unseen) == found).all()
    assert Trained(recipe, model, state, views=2)(unseen).shape == found.shape
    none = from_table(to_table(unseen).slice(0, 0))
    assert predict(none).shape == (0, *found.shape[1:])


def test_rows_without_their_targets_are_predicted_and_missing_values_too():
    recipe = fitted("class of two")
    model = make_model(recipe, ENCODER, seed=0)
    predict = Trained(recipe, model, train_state(model, mlx_optimizers.SGD(0.0), seed=0))
    rows = from_table({"Name": [None, "a new one"], "Port": ["Q", None], "Age": [None, 1.0], "Fare": [1.0, None], "y": ["?", None]})
    assert np.isfinite(predict(rows)).all()


def test_many_rows_are_predicted_one_as_the_other():
    recipe = fitted("value", evolve(ENCODER, numeric=True))
    model = make_model(recipe, evolve(ENCODER, numeric=True), seed=0)
    predict = Trained(recipe, model, train_state(model, mlx_optimizers.SGD(0.0), seed=0))
    many = predict(repeat(7)(rows_of("regression")))  # more than a batch of them, the last one short
    assert many.reshape(7, 12) == pytest.approx(np.tile(predict(rows_of("regression")), (7, 1)), rel=1e-5, abs=1e-5)


def test_averaged_weights_predict_where_there_are_such():
    recipe = fitted("class of two")
    model, goal = make_model(recipe, ENCODER, seed=0), objective(recipe)
    training = TrainingConfig(ema=0.5, accumulate=2, skip_nonfinite=True, compute_dtype="bfloat16", checkpoint_blocks=True)
    optimizer = make_optimizer(FAST, STEADY, updates=4)
    step = make_step(model, goal, optimizer, FAST, training)
    state = step.start(train_state(model, optimizer, seed=0))
    for _ in range(4):
        state, _ = step(state, batch_of(recipe))
    assert state.step == 4
    average = shown(state)
    rows = rows_of("binary")
    assert (Trained(recipe, model, state)(rows) == Trained(recipe, model, average)(rows)).all()
    assert (Trained(recipe, model, state)(rows) != Trained(recipe, model, evolve(state, extra={}))(rows)).any()
    assert (Trained(recipe, model, shown(average))(rows) == Trained(recipe, model, average)(rows)).all()


PARAMS = {"matrix": mx.array([[1.0, -2.0], [0.5, 3.0]]), "bias": mx.array([1.0, -1.0])}
GRADIENTS = {"matrix": mx.array([[0.1, 0.2], [-0.3, 0.4]]), "bias": mx.array([0.5, -0.5])}


def after(config: OptimizerConfig, schedule: ScheduleConfig, gradients=GRADIENTS, *, updates: int = 4, made: int = 1):
    optimizer, params = make_optimizer(config, schedule, updates=updates), PARAMS
    state = optimizers.start(optimizer, params)
    for _ in range(made):
        params, state = optimizers.update(optimizer, gradients, state, params)
    return {name: np.array(array) for name, array in params.items()}


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "lion", "adafactor"])
def test_every_optimizer_makes_steps_and_decays_matrices_only(name: str, schedule: str):
    falling = ScheduleConfig(name=schedule, warmup=0.5)
    plain, decayed = (after(OptimizerConfig(name=name, learning_rate=0.1, weight_decay=decay), falling) for decay in (0.0, 0.5))
    for key, start in PARAMS.items():
        moved = plain[key] - np.array(start)
        assert (np.sign(moved) == -np.sign(np.array(GRADIENTS[key]))).all()
    assert (decayed["bias"] == plain["bias"]).all()
    if name != "adam":  # whose first step is as long as the rate, whatever the gradient
        assert (np.abs(decayed["matrix"]) < np.abs(plain["matrix"])).all()
    twice = [after(OptimizerConfig(name=name, learning_rate=0.1, weight_decay=decay), falling, made=2) for decay in (0.0, 0.5)]
    assert (twice[0]["matrix"] != twice[1]["matrix"]).any()


def test_adam_takes_decay_for_a_part_of_the_gradient():
    config = OptimizerConfig(name="adam", learning_rate=0.1, weight_decay=0.5)
    rate, first, second = 0.1, 0.9, 0.999
    weights, moment, square = np.array(PARAMS["matrix"]), 0.0, 0.0
    for count in range(1, 4):  # Kingma and Ba, "Adam", 2015, algorithm 1, with the gradient of 0.5 * |w|^2 / 2 added
        gradient = np.array(GRADIENTS["matrix"]) + 0.5 * weights
        moment, square = first * moment + (1 - first) * gradient, second * square + (1 - second) * gradient**2
        weights = weights - rate * (moment / (1 - first**count)) / (np.sqrt(square / (1 - second**count)) + 1e-8)
    assert after(config, STEADY, made=3)["matrix"] == pytest.approx(weights, rel=1e-4)


@given(st.sampled_from(["constant", "linear", "cosine"]), st.floats(0, 1), st.integers(1, 50))
def test_rates_rise_to_the_highest_and_end_with_the_last_update(name, warmup, updates):
    optimizer = make_optimizer(
        OptimizerConfig(name="sgd", learning_rate=0.5, weight_decay=0.0), ScheduleConfig(name=name, warmup=warmup), updates=updates
    )
    schedule = optimizer._schedulers["learning_rate"]
    rates = [schedule(mx.array(step)).item() for step in range(updates)]
    assert all(0 < rate <= 0.5 for rate in rates)
    assert max(rates) == pytest.approx(0.5) or warmup * updates > updates - 1
    assert schedule(mx.array(updates)).item() == pytest.approx(0.5 if name == "constant" else 0.0, abs=1e-7)


def test_there_is_at_least_one_update():
    with pytest.raises(ArgumentError, match="updates must be at least 1, got updates=0"):
        make_optimizer(OptimizerConfig(), ScheduleConfig(), updates=0)


def pretrained(folder, recipe: Recipe, **sizes) -> str:
    known = {"vocab_size": recipe.tokenizer.vocab_size, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    known |= {"intermediate_size": 32, "max_position_embeddings": 32}
    save(folder, MaskedLM(Bert(BertConfig(**(known | sizes)), seed=7)))
    recipe.tokenizer.save(folder)
    return str(folder)


@pytest.mark.parametrize(("kind", "numeric"), [("class of three", False), ("labels", True), ("value", True), ("values", False)])
def test_a_pretrained_body_gets_a_new_head(tmp_path, kind: str, numeric: bool):
    path = pretrained(tmp_path, fitted("class of two"))
    config = ModelConfig(path=path, numeric=numeric, dropout=0.3)
    recipe = fitted(kind, config)
    assert recipe.tokenizer == fitted("class of two").tokenizer
    model = make_model(recipe, config, seed=0)
    head = model.head if numeric else model
    assert isinstance(head, Regressor if recipe.target.answer == "value" else Classifier)
    assert getattr(head, "multi_label", False) == (kind == "labels")
    assert {layer.rate for layer in model.modules() if isinstance(layer, Dropout)} == {0.3}
    assert head.body.config.attention_probs_dropout_prob == 0.3
    assert mx.array_equal(head.body.tokens.weight, load_body(path).tokens.weight)
    assert objective(recipe).answers(model.eval(), batch_of(recipe, 5)).shape[0] == 5


def test_a_pretrained_body_keeps_its_own_dropout_unless_told_otherwise(tmp_path):
    recipe = fitted("class of two")
    path = pretrained(tmp_path, recipe, hidden_dropout_prob=0.2)
    assert make_model(recipe, ModelConfig(path=path), seed=0).body.dropout.rate == 0.2
    assert make_model(recipe, ModelConfig(path=path, dropout=0.0), seed=0).body.dropout.rate == 0.0


def test_a_pretrained_body_must_know_all_tokens_and_places(tmp_path):
    recipe = fitted("class of two")
    size = recipe.tokenizer.vocab_size
    few = pretrained(tmp_path / "few", recipe, vocab_size=size - 1)
    with pytest.raises(
        ArgumentError, match=f"The model knows {size - 1} tokens, and .* makes others too, got model.path=.*Give text.token"
    ):
        make_model(recipe, ModelConfig(path=few), seed=0)
    short = pretrained(tmp_path / "short", recipe, max_position_embeddings=16)
    with pytest.raises(ArgumentError, match=r"The model reads rows of 16 tokens, got text\.max_length=32 with model\.path=.*\. Lower it\."):
        make_model(recipe, ModelConfig(path=short), seed=0)


def test_values_are_learned_by_the_distance_that_the_metric_measures():
    assert [objective(fitted(kind)).absolute for kind in ("value", "value by absolute errors")] == [False, True]
    batch = {"labels": mx.array([0.0])}
    losses = [Objective("value", absolute=absolute)._loss(mx.array([10.0]), batch["labels"])[0].item() for absolute in (False, True)]
    assert losses[0] > losses[1]


def test_batches_of_a_recipe_are_those_of_its_own_model():
    recipe = fitted("class of two", evolve(ENCODER, numeric=True))
    made = batch_of(recipe)
    made.pop("numbers")
    with pytest.raises(TypeError, match="The model needs the numbers of its rows"):
        objective(recipe).outputs(make_model(recipe, evolve(ENCODER, numeric=True), seed=0), made)
    plain = fitted("class of two")
    with pytest.raises(DataError, match="label"):  # three classes, where the spec has two
        list(pipe(plain(rows_of("multiclass")), batch(12), collate(plain.collator)))
