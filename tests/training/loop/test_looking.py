"""What is wrong with an evaluation is said before the run begins, at the cost of one batch."""

import threading
from functools import partial

import pytest

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import DataError, PipelineError
from mlxfp.training import observers
from tests.training.samples import dataset, group, net, setting, stacked

STEP, FIRST = setting()
CHECK = fp.evaluate(net(), lambda model, batch: {"accuracy": fp.metrics.accuracy(model(batch["x"]), batch["label"])})
ROWS = [{"x": [0.1 * place, 0.0, 1.0], "label": place % 2, "name": "a"} for place in range(8)]


def rows(*stages):
    return fp.pipe(fp.from_examples(ROWS), *stages, batch(2), fp.collate(stacked))


def seen_before(validate, error, match):
    """Train with a validation that fails; return the steps that were made before it failed."""
    made, begun = [], []
    counting = fp.fit(lambda state, batch: made.append(state.step) or STEP(state, batch), FIRST, dataset(), epochs=2)
    with pytest.raises(error, match=match) as raised:
        fp.last(fp.pipe(counting, observers.evaluate_every(validate), lambda events: (begun.append(event) or event for event in events)))
    assert any(
        "in a trial of validate(state) of evaluate_every on the first batch, before the run" in note for note in raised.value.__notes__
    )
    assert begun == []  # neither logs nor checkpoints of an earlier run are touched
    return made


def wrong_measure(model, batch):
    return {"accuracy": fp.metrics.accuracy(model(batch["x"]), batch["target"])}


@pytest.mark.parametrize(
    ("valid", "check", "error", "match"),
    [
        (lambda: rows(fp.drop_columns(["label"])), CHECK, KeyError, "label"),
        (lambda: rows(fp.filter(lambda row: False)), CHECK, DataError, "no batches"),
        (lambda: rows(fp.map(lambda row: {"x": row["missing"]})), CHECK, KeyError, "missing"),
        (rows, fp.evaluate(net(), wrong_measure), KeyError, "target"),
        (rows, fp.evaluate(net(), lambda model, batch: {"x": model(batch["x"])}), TypeError, "sum, weight"),
        (lambda: fp.from_examples(ROWS), CHECK, PipelineError, "takes batches, got examples"),
    ],
)
def test_a_wrong_validation_fails_before_the_first_step(valid, check, error, match):
    batches = valid()
    assert seen_before(lambda state: check(state, batches), error, match) == []
    assert seen_before(partial(check, batches=batches), error, match) == []


class Counted:
    """Batches, and how often one was taken."""

    def __init__(self):
        self.batches, self.taken = [group(seed=seed) for seed in range(3)], 0

    def __iter__(self):
        for each in self.batches:
            self.taken += 1
            yield each


def test_a_look_takes_one_batch_and_the_run_is_that_without_it():
    counted = Counted()
    events = fp.pipe(fp.fit(STEP, FIRST, dataset(), epochs=2), observers.evaluate_every(lambda state: CHECK(state, counted)))
    next(events)
    assert counted.taken == 1
    rest = list(events)
    assert counted.taken == 1 + 3 * 2
    assert [event.metrics for event in rest if isinstance(event, fp.events.Evaluated)] == [
        CHECK(event.state, counted.batches) for event in rest if isinstance(event, fp.events.Evaluated)
    ]
    assert rest[-1].state == fp.last(fp.fit(STEP, FIRST, dataset(), epochs=2)).state


def test_a_look_leaves_no_thread():
    events = fp.pipe(fp.fit(STEP, FIRST, dataset()), observers.evaluate_every(lambda state: CHECK(state, fp.pipe(rows(), fp.prefetch(1)))))
    next(events)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mlxfp") and thread.name != "mlxfp-ranks"]


def test_a_function_that_names_no_evaluation_is_called_only_when_it_is_due():
    called = []
    list(fp.pipe(fp.fit(STEP, FIRST, [group()]), observers.evaluate_every(lambda state: called.append(state.step) or {"loss": 0.5})))
    assert called == [1]


def test_what_a_function_does_before_its_evaluation_may_need_a_state_after_a_step():
    step, first = setting(ema=0.5)
    validate = observers.evaluate_every(lambda state: CHECK(fp.optimizers.ema_weights(state), [group()]))
    assert any(isinstance(event, fp.events.Evaluated) for event in fp.pipe(fp.fit(step, first, [group()]), validate))


def test_an_evaluation_outside_of_a_run_is_whole():
    assert CHECK(FIRST, [group()] * 3) == CHECK(FIRST, [group()])
