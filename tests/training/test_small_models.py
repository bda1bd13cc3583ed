from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.app.kaggle.validation.cross_validation import CrossValidation, cross_validate, parts_of
from mlxfp.app.kaggle.validation.folds import Folds, kfold, stratified
from mlxfp.models.layers import draw_weights
from mlxfp.support.errors import ArgumentError, ArgumentTypeError

SIZE = 46  # folds of three cannot be of equal size


class Net(nn.Module):
    """An embedding, attention, dropout and batch normalisation with its buffers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 8)
        self.attention = nn.MultiHeadAttention(8, 2)
        self.norm = nn.BatchNorm(8)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(8, 2)

    def __call__(self, x):
        x = self.words(x)
        x = self.attention(x, x, x).mean(axis=1)
        return self.last(self.dropout(nn.gelu(self.norm(x))))


class Flat(nn.Module):
    """Two linear layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 2)

    def __call__(self, x):
        return self.last(nn.relu(self.first(x.astype(mx.float32))))


def table():
    x = np.random.default_rng(0).integers(0, 7, (SIZE, 4))
    return fp.from_table({"x": x, "y": (x.sum(axis=1) > 12).astype(int)})


def prepare(rows):
    return encode


def encode(rows):
    columns = fp.to_table(rows)
    arrays = {"x": np.stack(columns.column("x").combine_chunks().to_numpy_ndarray()).astype(np.int32)}
    if "y" in columns.column_names:
        arrays["y"] = columns.column("y").to_numpy().astype(np.int32)
    return arrays


def loss(model, batch):
    return fp.losses.cross_entropy(model(batch["x"]), batch["y"])


def outputs(model, batch):
    return mx.softmax(model(batch["x"]), axis=-1)


def made(model: nn.Module, optimizer: optimizers.Optimizer, **options: Any):
    draw_weights(model, 0)
    return fp.kaggle.small_fit(model, loss, optimizer, **{"prepare": prepare, "outputs": outputs, "steps": 12, "size": 8, **options})


FOLDS = kfold(SIZE, count=3, seed=0)


def run(fit, *, together: bool, folds: Folds = FOLDS) -> CrossValidation:
    return cross_validate(folds, table(), fit, target="y", together=together)


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        (Flat, optimizers.SGD(0.05, momentum=0.9)),
        (Net, fp.optimizers.adamw(fp.schedules.linear_decay(0.02, steps=12))),
        (Flat, optimizers.Adafactor(0.01)),
    ],
    ids=["momentum", "attention and a schedule", "adafactor"],
)
def test_folds_trained_together_are_those_trained_one_after_another(model: type[nn.Module], optimizer: optimizers.Optimizer):
    fit = made(model(), optimizer)
    alone, joint = run(fit, together=False), run(fit, together=True)
    assert joint.oof.predictions == pytest.approx(alone.oof.predictions, abs=1e-5)
    for one, other in zip(alone.models, joint.models, strict=True):
        assert other(table()) == pytest.approx(one(table()), abs=1e-5)
    start = made(model(), optimizer, steps=1)
    assert np.abs(run(start, together=True).oof.predictions - joint.oof.predictions).max() > 1e-3  # it does train


def test_a_step_is_that_of_train_step():
    model, optimizer = Flat(), fp.optimizers.adamw(0.01)
    fit = made(model, optimizer)
    first = next(iter(FOLDS))
    state, step = fp.train_state(model, optimizer), fp.train_step(model, loss, optimizer)
    rows = encode(table())
    _, batches = fit._batches(parts(first))
    for batch in batches:
        state, _ = step(state, {name: mx.array(array) for name, array in batch.items()})
    model.update(state.params)
    expected = np.array(outputs(model, {"x": mx.array(rows["x"])}))
    assert fit(parts(first))(table()) == pytest.approx(expected, abs=1e-5)


def parts(fold):
    return parts_of(fold, table(), "none", 0.1)


def test_every_row_comes_once_an_epoch_and_every_batch_is_full():
    fit = made(Flat(), fp.optimizers.adamw(0.01), steps=8, size=5)
    first = next(iter(FOLDS))
    _, batches = fit._batches(parts(first))
    rows = [tuple(row) for batch in batches for row in batch["x"]]
    own = sorted(tuple(row) for row in encode(table())["x"][first.train])
    assert len(rows) == 40
    assert sorted(rows[: len(own)]) == own
    assert rows[: len(own)] != rows[len(own) : 2 * len(own)]


def test_a_model_that_learns_is_better_than_chance():
    labels = encode(table())["y"]
    found = run(made(Flat(), fp.optimizers.adamw(0.03), steps=60, size=16), together=True, folds=stratified(labels, count=4, seed=0))
    assert fp.kaggle.score(found.oof, fp.kaggle.METRICS["accuracy"]).overall > 0.8


def test_neither_the_model_nor_the_optimizer_changes():
    model, optimizer = Flat(), fp.optimizers.adamw(0.03)
    fit = made(model, optimizer)
    before = model.first.weight + 0
    run(fit, together=True)
    assert mx.array_equal(before, model.first.weight)
    assert optimizer.state["step"].item() == 0


def test_convolutions_are_refused_with_the_reason():
    class Convolving(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv1d(1, 2, 3)

        def __call__(self, x):
            return self.convolution(x.astype(mx.float32)[..., None]).mean(axis=1)

    fit = made(Convolving(), fp.optimizers.adamw(0.01), steps=2)
    with pytest.raises(
        ArgumentError, match=r"cannot be trained together: .* mx.vmap does not support convolutions .* Remove together=True"
    ):
        run(fit, together=True)
    assert np.isfinite(run(fit, together=False).oof.predictions).all()


def test_an_error_in_the_loss_stays_as_it_is():
    def wrong(model, batch):
        raise ValueError("no such thing")

    fit = fp.kaggle.small_fit(Flat(), wrong, fp.optimizers.adamw(0.01), prepare=prepare, outputs=outputs, steps=2, size=8)
    with pytest.raises(ValueError, match="no such thing"):
        run(fit, together=True)


def test_a_fit_that_cannot_train_together_is_refused():
    with pytest.raises(ArgumentTypeError, match=r"together=True needs a `fit` with the method `together`, such as small_fit"):
        run(lambda parts: lambda rows: [0], together=True)


@pytest.mark.parametrize(
    ("prepared", "kind", "message"),
    [
        ({}, ArgumentTypeError, "must return a dict of NumPy arrays, got none"),
        ({"x": [1]}, ArgumentTypeError, r"got \{'x': 'list'\}"),
        ({"x": np.ones(2), "y": np.ones(3)}, ArgumentError, r"Arrays must have the same length, at least one row, got \{'x': 2, 'y': 3\}"),
    ],
)
def test_rows_become_arrays_of_one_length(prepared: Any, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        run(made(Flat(), fp.optimizers.adamw(0.01), prepare=lambda rows: lambda rows: prepared), together=True)


def test_a_small_model_does_not_stop_early():
    with pytest.raises(ArgumentError, match="cannot stop early"):
        cross_validate(FOLDS, table(), made(Flat(), fp.optimizers.adamw(0.01)), target="y", stopping="inner")
