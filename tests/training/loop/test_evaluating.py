"""`evaluate` and `predict` with a state, and with the arrays of a model alone."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp

BATCHES = [{"x": mx.eye(2), "y": mx.array([0, 1])}, {"x": mx.eye(2)[:1], "y": mx.array([1])}]


def logits(model, batch):
    return model(batch["x"])


def test_a_loaded_model_predicts_without_a_state(tmp_path):
    """A state is only needed for training. The arrays of a model read from a file give the predictions of the trained state."""
    config = fp.models.EncoderConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1)
    model = fp.models.Classifier(fp.models.Encoder(config), outputs=2)
    batches = [{"ids": mx.array([[5, 6], [7, 8]])}]
    predict = fp.predict(model, lambda model, batch: model(batch["ids"]))
    expected = np.concatenate(list(predict(fp.train_state(model, fp.optimizers.adamw(0.1)), batches)))
    fp.models.save(tmp_path, model)
    loaded = fp.predict(fp.models.load(tmp_path), lambda model, batch: model(batch["ids"]))
    assert np.array_equal(np.concatenate(list(loaded(batches))), expected)


def test_without_a_state_the_current_arrays_of_the_model_count():
    """A later update of the model changes the next evaluation and the next predictions."""
    model = nn.Linear(2, 2)
    model.weight, model.bias = mx.eye(2), mx.zeros(2)
    check = fp.evaluate(model, lambda model, batch: {"accuracy": fp.metrics.accuracy(logits(model, batch), batch["y"])})
    predict = fp.predict(model, lambda model, batch: logits(model, batch).argmax(axis=-1))
    assert check(BATCHES) == {"accuracy": 2 / 3}
    model.weight = mx.eye(2)[::-1]
    assert check(BATCHES) == {"accuracy": 1 / 3}
    assert np.concatenate(list(predict(BATCHES))).tolist() == [1, 0, 1]


@pytest.mark.parametrize(("caller", "argument"), [(fp.predict, "forward"), (fp.evaluate, "measure")])
def test_swapped_arguments_get_the_right_call(caller, argument):
    name = caller.__name__
    model, state = nn.Linear(2, 2), fp.train_state(nn.Linear(2, 2), fp.optimizers.adamw(0.1))
    with pytest.raises(fp.errors.ArgumentTypeError) as caught:
        caller(len, model)
    usage = f"Write fp.{name}(model, {argument})(state, batches)."
    assert str(caught.value) == f"model must be an mlx.nn.Module, got builtin_function_or_method: <built-in function len>. {usage}"
    with pytest.raises(fp.errors.ArgumentTypeError) as caught:
        caller(state, len)
    assert str(caught.value) == f"model must be an mlx.nn.Module, got TrainState: {state!r:.60}. {usage}"
    with pytest.raises(
        fp.errors.ArgumentTypeError, match=f"{name} takes a function of a model and a batch, got TrainState. Write {name}"
    ) as caught:
        caller(model, state)
    assert str(caught.value).endswith(")(state, batches).")
