"""A batch with an id or a label outside of its table stops the loops before it is used, and the error names the row of the data."""

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.models.layers import draw_weights
from mlxfp.support.errors import DataError
from tests.models.samples import CONFIGS, VOCABULARY, models

pytestmark = pytest.mark.filterwarnings("ignore:predict got shuffled batches")  # the order of rows does not matter here

MODELS = models()
LENGTH = 5


def collated(examples):
    ids = np.array([example["ids"] for example in examples], np.int32)
    return {"ids": mx.array(ids), "mask": mx.ones(ids.shape), "labels": mx.array([example["label"] for example in examples])}


def data(changes, *stages, count=12, size=4):
    """Shuffled batches of ids and labels that are fine, but for `changes`: {(row, place or "label"): number}."""
    rows = [{"ids": [(row + place) % VOCABULARY for place in range(LENGTH)], "label": row % 2} for row in range(count)]
    for (row, place), number in changes.items():
        if place == "label":
            rows[row]["label"] = number
        else:
            rows[row]["ids"][place] = number
    return fp.pipe(fp.from_examples(rows), fp.shuffle(seed=0), batch(size), fp.collate(collated), *stages)


def summed(model, batch):
    """A loss of any model."""
    outputs = model(batch["ids"], batch["mask"])
    return outputs.square().sum(), outputs.size


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_refuses_a_batch_with_an_id_outside_in_every_loop(name):
    draw = np.random.default_rng(sum(map(ord, name)))  # one case for each model: a trace takes time
    row, place, wrong = int(draw.integers(12)), int(draw.integers(LENGTH)), int(draw.choice([-1, VOCABULARY, 10**6]))
    batches, model = data({(row, place): wrong}, size=12), MODELS[name]
    state, inside = (
        fp.train_state(model, fp.optimizers.adamw(0.1)),
        rf"ids holds {wrong} at row \d+, position {place} \(row {row} of from_examples\(12 rows\)\)",
    )
    loops = (
        lambda: fp.last(fp.fit(fp.train_step(model, summed, fp.optimizers.adamw(0.1)), state, batches)),
        lambda: fp.evaluate(model, lambda model, batch: {"size": summed(model, batch)})(state, batches),
        lambda: list(fp.predict(model, lambda model, batch: model(batch["ids"], batch["mask"]))(state, batches)),
    )
    for loop in loops if name.endswith(("mean", "causal")) else loops[:1]:
        with pytest.raises(DataError, match=inside):
            loop()


class Foreign(nn.Module):
    """A model of another library: embeddings of `mlx.nn`, one of them of positions."""

    def __init__(self):
        super().__init__()
        self.embed_tokens, self.places = nn.Embedding(VOCABULARY, 8), nn.Embedding(LENGTH, 8)
        self.output = nn.Linear(8, 2)
        draw_weights(self, 0)

    def __call__(self, ids, *_):
        return self.output((self.embed_tokens(ids) + self.places(mx.arange(ids.shape[1]))).mean(axis=1))


def of_labels(model, batch):
    return fp.losses.cross_entropy(model(batch["ids"]), batch["labels"])


MODEL = Foreign()
STEP, FIRST = fp.train_step(MODEL, of_labels, fp.optimizers.adamw(0.1)), fp.train_state(MODEL, fp.optimizers.adamw(0.1))
EVALUATE = fp.evaluate(MODEL, lambda model, batch: {"accuracy": fp.metrics.accuracy(model(batch["ids"]), batch["labels"])})


@given(
    row=st.integers(0, 11),
    place=st.integers(0, LENGTH - 1) | st.just("label"),
    wrong=st.sampled_from([-1, VOCABULARY, 2**31 - 1]),
    ahead=st.booleans(),
)
@settings(max_examples=6)
def test_the_error_names_the_row_of_the_data_and_the_events_before_it_are_good(row, place, wrong, ahead):
    batches, events = data({(row, place): wrong}, *[fp.prefetch(2)] * ahead), []
    with pytest.raises(
        DataError, match=rf"{'labels' if place == 'label' else 'ids'} holds {wrong} at .*\(row {row} of from_exam"
    ) as raised:
        events.extend(fp.fit(STEP, FIRST, batches))  # those before the error stay in the list
    bad = next(number for number in range(3) if row in [origin.row for origin in fp.inspect.row_origins(batches, number)])
    assert [event.step for event in events] == list(range(bad + 1))
    assert events[-1].state == [*fp.fit(STEP, FIRST, data({}))][bad].state  # and training can go on from it
    assert not getattr(raised.value, "__notes__", [])
    with pytest.raises(DataError, match=rf"\(row {row} of"):
        EVALUATE(FIRST, batches)


def test_batches_that_are_not_a_dataset_and_steps_that_are_called_alone_name_the_place():
    batches = list(data({(7, 3): VOCABULARY}))
    bad = next(each for each in batches if mx.any(each["ids"] == VOCABULARY).item())
    for call in (lambda: fp.last(fp.fit(STEP, FIRST, batches)), lambda: STEP(FIRST, bad), lambda: EVALUATE(FIRST, batches)):
        with pytest.raises(DataError, match=r"ids holds 20 at row \d, position 3, and an embedding of the model has 20 rows: 0 to 19"):
            call()


def test_checked_and_unchecked_embeddings_train_alike():
    class Unchecked(nn.Embedding):
        """A type of its own, which `functional` leaves as it is."""

        def __call__(self, ids):
            return self["weight"][ids]

    model = Foreign()
    for name in ("embed_tokens", "places"):
        layer = Unchecked(*model[name].weight.shape)
        layer.weight = model[name].weight
        setattr(model, name, layer)
    end = fp.last(
        fp.fit(fp.train_step(model, of_labels, fp.optimizers.adamw(0.1)), fp.train_state(model, fp.optimizers.adamw(0.1)), data({}))
    )
    assert end.state == fp.last(fp.fit(STEP, FIRST, data({}))).state


def next_tokens(model, batch):
    """The loss that mlx-lm has: it computes the inputs and the labels from the batch."""
    logits = model(batch["ids"][:, :-1])
    return fp.losses.cross_entropy(logits, batch["ids"][:, -1] % 2)


def test_ids_that_the_loss_computes_never_read_foreign_memory_and_are_named_when_the_loss_is_read():
    step = fp.train_step(MODEL, next_tokens, fp.optimizers.adamw(0.1))
    with pytest.raises(DataError, match=r"The array of ids holds 999 at row \d, position 2 \(row 7 of from_examples\(12 rows\)\)"):
        fp.last(fp.fit(step, FIRST, data({(7, 2): 999})))
    assert fp.last(fp.fit(step, FIRST, data({}))).step == 3
    with pytest.raises(ArithmeticError, match="The loss is nan"):  # there is nothing to look at again
        fp.last(fp.fit(step, FIRST, list(data({(7, 2): 999}))))


def test_labels_with_weight_0_may_be_anything():
    def weighted(model, batch):
        return fp.losses.cross_entropy(model(batch["ids"]), batch["labels"], example_weights=batch["weight"])

    step = fp.train_step(MODEL, weighted, fp.optimizers.adamw(0.1))
    one = next(iter(data({}))) | {"weight": mx.array([1.0, 0.0, 1.0, 1.0])}
    expected, _ = step(FIRST, one)
    found, _ = step(FIRST, one | {"labels": mx.where(one["weight"] == 0, 77, one["labels"])})
    assert found == expected
    with pytest.raises(DataError, match="labels holds 77 at row 0"):
        step(FIRST, one | {"labels": mx.where(one["weight"] == 0, one["labels"], 77)})
    assert attrs.evolve(found, step=0) != FIRST


def test_every_architecture_is_here():
    assert {name.split()[0] for name in MODELS} == set(CONFIGS)
