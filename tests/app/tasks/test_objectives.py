"""Models and objectives of every kind of answer: they fit together, and learn."""

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve
from mlx import nn
from mlx import optimizers as mlx_optimizers

import mlxfp as fp
from mlxfp.app.tasks.models import make_model, make_pretrained
from mlxfp.app.tasks.objectives import Objective, Predictor, evaluation_state, objective
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, DataError
from tests.app.tasks.drawing import rows_of, spec_of

TEXT = {"max_length": 32, "vocab_size": 120, "overflow": "cut", "format": fp.kaggle.TextFormat("key_value", numbers="none")}
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


def fitted(kind: str, *, numeric: bool = False, tokenizer: fp.Tokenizer | None = None) -> fp.kaggle.Recipe:
    spec = KINDS[kind]
    return fp.kaggle.fit_recipe(spec, rows_of(spec.kind), numeric=numeric, tokenizer=tokenizer, **TEXT)


def encoder(recipe: fp.kaggle.Recipe, seed: int = 0) -> nn.Module:
    return make_model(recipe, "encoder", size="tiny", dropout=0.0, seed=seed)


def batch_of(recipe: fp.kaggle.Recipe, size: int = 12) -> dict:
    return next(iter(fp.pipe(recipe(rows_of(recipe.spec.kind)), batch(size), fp.collate(recipe.collator))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numeric", [False, True])
def test_models_answer_what_the_target_needs(kind: str, numeric: bool):
    recipe = fitted(kind, numeric=numeric)
    model = encoder(recipe)
    assert isinstance(model, fp.models.WithNumbers) == numeric
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
    one, same, other = (objective(recipe).outputs(encoder(recipe, seed), made) for seed in (0, 0, 1))
    assert mx.array_equal(one, same).item()
    assert not mx.array_equal(one, other).item()


@pytest.mark.parametrize("kind", ["class of three", "labels", "value", "values"])
def test_the_loss_falls_and_predictions_come_near(kind: str):
    recipe = fitted(kind, numeric=kind in ("labels", "values"))
    model, goal = encoder(recipe), objective(recipe)
    optimizer = fp.optimizers.adamw(5e-3)
    step = fp.train_step(model, goal.loss, optimizer, clip_norm=1.0)
    state, losses = step.start(fp.train_state(model, optimizer, seed=0)), []
    made = batch_of(recipe)
    for _ in range(20):
        state, metrics = step(state, made)
        losses.append(metrics["loss"].item())
    assert losses[-1] < losses[0] / 3
    rows = rows_of(recipe.spec.kind)
    table = fp.to_table(rows)
    truth = np.stack([table[name].to_numpy() for name in recipe.spec.target], axis=1)
    predict = Predictor(recipe, model, state)
    found = predict(rows)
    assert found.dtype == np.float64
    if kind == "class of three":
        assert found.shape == (12, 3)
        assert (found.argmax(axis=1) == truth[:, 0]).all()
    elif kind == "labels":
        assert ((found > 0.5) == truth).all()
    else:
        assert np.abs(found.reshape(12, -1) - truth).mean() < truth.std(axis=0).mean() / 2
    unseen = fp.drop_columns(list(recipe.spec.target))(rows)
    assert (predict(unseen) == found).all()
    assert Predictor(recipe, model, state, views=2)(unseen).shape == found.shape
    none = fp.from_table(fp.to_table(unseen).slice(0, 0))
    assert predict(none).shape == (0, *found.shape[1:])


def test_rows_without_their_targets_are_predicted_and_missing_values_too():
    recipe = fitted("class of two")
    model = encoder(recipe)
    predict = Predictor(recipe, model, fp.train_state(model, mlx_optimizers.SGD(0.0), seed=0))
    rows = fp.from_table({"Name": [None, "a new one"], "Port": ["Q", None], "Age": [None, 1.0], "Fare": [1.0, None], "y": ["?", None]})
    assert np.isfinite(predict(rows)).all()


def test_many_rows_are_predicted_one_as_the_other():
    recipe = fitted("value", numeric=True)
    model = encoder(recipe)
    predict = Predictor(recipe, model, fp.train_state(model, mlx_optimizers.SGD(0.0), seed=0))
    many = predict(fp.repeat(7)(rows_of("regression")))  # more than a batch of them, the last one short
    assert many.reshape(7, 12) == pytest.approx(np.tile(predict(rows_of("regression")), (7, 1)), rel=1e-5, abs=1e-5)


def test_averaged_weights_predict_where_there_are_such():
    recipe = fitted("class of two")
    model, goal = encoder(recipe), objective(recipe)
    optimizer = fp.optimizers.adamw(5e-3)
    step = fp.train_step(model, goal.loss, optimizer, ema=0.5, accumulate=2)
    state = step.start(fp.train_state(model, optimizer, seed=0))
    for _ in range(4):
        state, _ = step(state, batch_of(recipe))
    assert state.step == 4
    average = evaluation_state(state)
    rows = rows_of("binary")
    assert (Predictor(recipe, model, state)(rows) == Predictor(recipe, model, average)(rows)).all()
    assert (Predictor(recipe, model, state)(rows) != Predictor(recipe, model, evolve(state, extra={}))(rows)).any()
    assert (Predictor(recipe, model, evaluation_state(average))(rows) == Predictor(recipe, model, average)(rows)).all()


def pretrained(folder, recipe: fp.kaggle.Recipe, **sizes) -> str:
    known = {"vocab_size": recipe.tokenizer.vocab_size, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    known |= {"intermediate_size": 32, "max_position_embeddings": 32}
    fp.models.save(folder, fp.models.MaskedLM(fp.models.Bert(fp.models.BertConfig(**(known | sizes)), seed=7)))
    recipe.tokenizer.save(folder)
    return str(folder)


@pytest.mark.parametrize(("kind", "numeric"), [("class of three", False), ("labels", True), ("value", True), ("values", False)])
def test_a_pretrained_body_gets_a_new_head(tmp_path, kind: str, numeric: bool):
    path = pretrained(tmp_path, fitted("class of two"))
    recipe = fitted(kind, numeric=numeric, tokenizer=fp.load_tokenizer(path))
    assert recipe.tokenizer == fitted("class of two").tokenizer
    model = make_pretrained(recipe, path, dropout=0.3, seed=0)
    head = model.head if numeric else model
    assert isinstance(head, fp.models.Regressor if recipe.target.answer == "value" else fp.models.Classifier)
    assert getattr(head, "multi_label", False) == (kind == "labels")
    assert {layer.rate for layer in model.modules() if isinstance(layer, fp.models.Dropout)} == {0.3}
    assert head.body.config.attention_probs_dropout_prob == 0.3
    assert mx.array_equal(head.body.tokens.weight, fp.models.load_body(path).tokens.weight)
    assert objective(recipe).answers(model.eval(), batch_of(recipe, 5)).shape[0] == 5


def test_a_pretrained_body_keeps_its_own_dropout_unless_told_otherwise(tmp_path):
    recipe = fitted("class of two")
    path = pretrained(tmp_path, recipe, hidden_dropout_prob=0.2)
    assert make_pretrained(recipe, path, seed=0).body.dropout.rate == 0.2
    assert make_pretrained(recipe, path, dropout=0.0, seed=0).body.dropout.rate == 0.0


def test_a_pretrained_body_must_know_all_tokens_and_places(tmp_path):
    recipe = fitted("class of two")
    size = recipe.tokenizer.vocab_size
    few = pretrained(tmp_path / "few", recipe, vocab_size=size - 1)
    with pytest.raises(
        ArgumentError, match=f"The model in .* has {size - 1} tokens, but .* has more. Use the tokenizer of the pretrained model"
    ):
        make_pretrained(recipe, few, seed=0)
    short = pretrained(tmp_path / "short", recipe, max_position_embeddings=16)
    with pytest.raises(ArgumentError, match=r"The model in .* has 16 positions, got max_length=32\. Reduce max_length to 16\."):
        make_pretrained(recipe, short, seed=0)


def test_values_are_learned_by_the_distance_that_the_metric_measures():
    assert [objective(fitted(kind)).absolute for kind in ("value", "value by absolute errors")] == [False, True]
    batch = {"labels": mx.array([0.0])}
    losses = [Objective("value", absolute=absolute)._loss(mx.array([10.0]), batch["labels"])[0].item() for absolute in (False, True)]
    assert losses[0] > losses[1]


def test_batches_of_a_recipe_are_those_of_its_own_model():
    recipe = fitted("class of two", numeric=True)
    made = batch_of(recipe)
    made.pop("numbers")
    with pytest.raises(TypeError, match="The model needs the argument numbers"):
        objective(recipe).outputs(encoder(recipe), made)
    plain = fitted("class of two")
    with pytest.raises(DataError, match="label"):  # three classes, where the spec has two
        list(fp.pipe(plain(rows_of("multiclass")), batch(12), fp.collate(plain.collator)))
