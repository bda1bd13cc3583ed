"""Direct preference optimization, against the formula written in numpy, and as a run that learns preferences."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError

SIZE = 12


class Successors(nn.Module):
    """The logits of the next token are a row of a table."""

    def __init__(self, seed):
        super().__init__()
        self.table = mx.array(np.random.default_rng(seed).normal(size=(SIZE, SIZE)).astype(np.float32))

    def __call__(self, ids, mask):
        return self.table[ids]


def rows():
    drawn = np.random.default_rng(0)

    def ids(count):
        return drawn.integers(1, SIZE, count).tolist()

    return [{"prompt": ids(1 + i % 3), "chosen": ids(1 + i % 4), "rejected": ids(1 + i % 2)} for i in range(8)]


def log_probability(table, prompt, answer):
    """Add up the log-probabilities of the tokens of an answer, in float64."""
    whole = [*prompt, *answer]
    logits = np.array(table, np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return sum(logs[whole[place - 1], whole[place]] for place in range(len(prompt), len(whole)))


def test_answers_that_pad_has_padded_are_refused():
    """The loss would count the padding as a part of the answer."""
    padded = fp.pipe(fp.from_examples(rows()), fp.pad(4, pad_id=0, column="chosen"), fp.batch(8))
    with pytest.raises(DataError) as error:
        next(iter(fp.pipe(padded, fp.collate(fp.collators.preference(pad_id=0)))))
    assert str(error.value) == (
        "collators.preference: column 'chosen' of source row 0 has padding from pad, but collators.preference uses no mask of pad for this "
        "column, so a model would use the padding as tokens. Remove pad(..., column='chosen'), because the collator pads each batch."
    )


def test_the_loss_is_that_of_the_formula():
    model, reference, beta = Successors(1), Successors(2), 0.3
    expected = []
    for row in rows():
        now, before = (
            [log_probability(each.table, row["prompt"], row[name]) for name in ("chosen", "rejected")] for each in (model, reference)
        )
        margin = (now[0] - before[0]) - (now[1] - before[1])
        expected.append(-np.log(1 / (1 + np.exp(-beta * margin))))
    batch = fp.collators.preference(pad_id=0)(rows())
    chosen, rejected = fp.losses.answer_log_probabilities(reference, batch)
    batch |= {"reference_chosen": chosen, "reference_rejected": rejected}
    total, weight = fp.losses.dpo(model, batch, beta=beta)
    assert total.item() == pytest.approx(sum(expected), rel=1e-5)
    assert weight.item() == len(expected)
    weights = mx.arange(8) / 4
    total, weight = fp.losses.dpo(model, batch | {"weight": weights}, beta=beta)
    assert total.item() == pytest.approx(float(np.dot(expected, np.array(weights))), rel=1e-5)
    assert weight.item() == 7.0


def test_padding_changes_no_log_probability():
    model = Successors(1)
    expected = [[log_probability(model.table, row["prompt"], row[name]) for row in rows()] for name in ("chosen", "rejected")]
    for padding in ({}, {"length": 16}, {"pad_multiple": 5}, {"pad_id": 7}):
        found = fp.losses.answer_log_probabilities(model, fp.collators.preference(**({"pad_id": 0} | padding))(rows()))
        np.testing.assert_allclose(np.stack(found), expected, rtol=1e-5)


def test_training_raises_the_margin_of_answers_over_a_reference_that_is_computed_once():
    model, optimizer = Successors(0), fp.optimizers.adamw(0.05)
    plain = fp.collate(fp.collators.preference(pad_id=0))
    score = fp.predict(model, fp.losses.answer_log_probabilities)
    found = list(score(fp.train_state(model, optimizer), fp.pipe(fp.from_examples(rows()), fp.batch(3), plain)))
    chosen, rejected = (np.concatenate([pair[place] for pair in found]).tolist() for place in (0, 1))
    scored = [{**row, "reference_chosen": c, "reference_rejected": r} for row, c, r in zip(rows(), chosen, rejected, strict=True)]
    carried = fp.collators.preference(pad_id=0, carry=["reference_chosen", "reference_rejected"])
    batches = fp.pipe(fp.from_examples(scored), fp.batch(4), fp.collate(carried))
    step = fp.train_step(model, partial(fp.losses.dpo, beta=0.5), optimizer)
    events = list(fp.fit(step, fp.train_state(model, optimizer), batches, epochs=15, log_every=1))
    losses = [event.metrics["loss"] for event in events if isinstance(event, fp.events.Stepped)]
    assert losses[0] == pytest.approx(np.log(2), abs=1e-5)  # the model is its own reference
    assert losses[-1] < 0.3


def test_a_batch_without_a_reference_is_refused():
    batch = fp.collators.preference(pad_id=0)(rows())
    with pytest.raises(ArgumentError, match="needs the log-probabilities of a reference model, but the batch has no 'reference_chosen'"):
        fp.losses.dpo(Successors(0), batch)
    with pytest.raises(ArgumentError, match=r"beta must be above 0, got beta=0\.0"):
        fp.losses.dpo(Successors(0), batch, beta=0.0)
