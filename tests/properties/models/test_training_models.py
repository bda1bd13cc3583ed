"""Models inside the library's training: steps, functional use, and checkpointed blocks with dropout, whose gradients must be exact."""

import mlx.core as mx
import pytest

import mlxfp as fp
from mlxfp.models.layers import random_key
from mlxfp.training.steps.state import same_arrays, train_state
from tests.models.samples import CLASSES, DROPOUTS, body, gap, rows

IDS, MASK = rows([3, 8])


def checkpointed(model):
    """Make each block forget what it computed, and compute it again on the way back."""
    for place, block in enumerate(model.blocks):
        model.blocks[place] = Checkpointed(block)
    return model


class Checkpointed:
    """A block under `mx.checkpoint`."""

    def __init__(self, block):
        self.block = block

    def __call__(self, *args):
        def run(params, *args):
            self.block.update(params)
            return self.block(*args)

        return mx.checkpoint(run)(self.block.trainable_parameters(), *args)


def loss_and_gradients(model, mask, *, key, change=lambda model: model):
    """Value and gradients of a number in which every output has its own weight."""

    def measure(model):
        outputs = change(model)(IDS, mask)
        return (outputs * mx.cos(mx.arange(outputs.size).reshape(outputs.shape))).sum()

    return mx.value_and_grad(lambda params: model.apply(measure, params, model.buffers, key=key)[0])(model.params)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all real", "padded"])
@pytest.mark.parametrize("name", sorted(name for name, rates in DROPOUTS.items() if rates))
def test_checkpointed_blocks_with_dropout_give_the_exact_gradients(name, mask):
    model = fp.functional(body(name, **DROPOUTS[name]))
    plain = loss_and_gradients(model, mask, key=random_key(3))
    again = loss_and_gradients(model, mask, key=random_key(3), change=checkpointed)
    assert same_arrays(plain, again)
    other = loss_and_gradients(model, mask, key=random_key(4), change=checkpointed)
    assert not same_arrays(plain, other)


def test_the_law_of_checkpoints_catches_dropout_that_draws_anew():
    model = fp.functional(body("bert", **DROPOUTS["bert"]))

    def forgetful(model):
        for _, layer in model.named_modules():
            if hasattr(layer, "keyed"):
                layer.keyed(None)
        return checkpointed(model)

    mx.random.seed(0)
    forgotten = loss_and_gradients(model, MASK, key=random_key(3), change=forgetful)
    mx.random.seed(0)
    kept = loss_and_gradients(model, MASK, key=random_key(3), change=lambda model: forgetful(model) and model)
    plain = loss_and_gradients(model, MASK, key=None)
    assert not same_arrays(forgotten, plain)
    assert not same_arrays(kept, loss_and_gradients(model, MASK, key=random_key(3)))


def heads(name):
    """A model of each body with the head it is mostly used with, its loss, and a batch."""
    if name == "decoder":
        model = fp.models.CausalLM(body(name, **DROPOUTS[name]))
        labels = mx.where(MASK[:, 1:] != 0, IDS[:, 1:], -100)
        return (
            model,
            lambda model, batch: fp.losses.cross_entropy(model(batch["ids"][:, :-1], batch["mask"][:, :-1]), batch["labels"]),
            labels,
        )
    if name == "modernbert":
        model = fp.models.MaskedLM(body(name, **DROPOUTS[name]))
        labels = mx.where(mx.arange(8) % 3 == 0, IDS, -100)
    elif name == "bert":
        model, labels = fp.models.TokenClassifier(body(name, **DROPOUTS[name]), 3), IDS % 3
    else:
        model, labels = fp.models.Classifier(body(name, **DROPOUTS[name]), 3), mx.array([0, 2])
    return model, lambda model, batch: fp.losses.cross_entropy(model(batch["ids"], batch["mask"]), batch["labels"]), labels


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_step_trains_every_body_and_leaves_it_as_it_was(name):
    model, loss, labels = heads(name)
    optimizer = fp.optimizers.adamw(1e-2)
    step, first = fp.train_step(model, loss, optimizer), train_state(model, optimizer, seed=1)
    batch = {"ids": IDS, "mask": MASK, "labels": labels}
    state, losses = first, []
    for _ in range(12):
        state, metrics = step(state, batch)
        losses.append(metrics["loss"].item())
    assert losses[-1] < losses[0]
    assert step.variants == 1
    assert same_arrays(first.params, fp.functional(model).params)
    again, _ = step(first, batch)
    assert same_arrays(again.params, step(first, batch)[0].params)
    trained = fp.functional(model).bind(state.params, state.buffers)
    assert gap(trained(IDS, MASK), model.eval()(IDS, MASK)) > 1e-3
