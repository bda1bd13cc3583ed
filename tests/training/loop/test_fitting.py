"""Runs are streams of events that can be stopped and continued exactly; evaluation does not depend on batching."""

import io
from itertools import islice, pairwise
from weakref import ref

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, PipelineError
from mlxfp.testing.laws import assert_continues
from mlxfp.training import observers
from tests.training.samples import dataset, group, net, setting


def names(events):
    return [type(event).__name__ for event in events]


def test_a_run_is_a_stream_of_events():
    step, state = setting()
    events = list(fp.fit(step, state, [group(), group(seed=1)], epochs=2))
    assert names(events) == ["RunStarted", *["Stepped", "Stepped", "EpochEnded"] * 2, "Stopped"]
    assert [event.step for event in events] == [0, 1, 2, 2, 3, 4, 4, 4]
    assert [event.epoch for event in events] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert events[0].total == 4
    assert events[-1].reason == "epochs"


def test_steps_that_were_compiled_for_a_new_shape_say_so():
    step, state = setting()
    events = fp.fit(step, state, [group(), group(seed=1), group(size=4), group()], epochs=2)
    assert [event.compiled for event in events if isinstance(event, fp.events.Stepped)] == [True, False, True, *[False] * 5]
    own = fp.fit(step.__call__, state, [group()])
    assert [event.compiled for event in own if isinstance(event, fp.events.Stepped)] == [False]


def test_a_step_in_a_function_makes_the_same_run_as_the_step_itself():
    step, state = SETTING
    ours, wrapped = (list(fp.fit(made, state, dataset(), epochs=2)) for made in (step, step.__call__))  # the second builds every state
    assert ours == wrapped
    assert [event.running.totals for event in ours] == [event.running.totals for event in wrapped]
    assert repr(ours[2]) == repr(wrapped[2])
    assert all(event.state is event.state for event in ours)


def test_nothing_happens_before_the_events_are_consumed():
    step, state = setting()
    made = []
    stream = fp.fit(lambda state, batch: made.append(1) or step(state, batch), state, [group()] * 9)
    assert made == []
    list(islice(stream, 3))
    assert made == [1, 1]


@settings(max_examples=10)
@given(st.integers(0, 7), st.integers(0, 7))
def test_a_run_with_dropout_and_shuffling_continues_bit_for_bit(tmp_path_factory, stop, more):
    step, state = SETTING
    assert_continues(step, state, dataset(), stop=max(stop, 1), steps=max(stop, 1) + more, folder=tmp_path_factory.mktemp("law"))


SETTING = setting(clip_norm=1.0)
EVERYTHING = setting(optimizer=fp.optimizers.adamw(fp.schedules.cosine_decay(0.1, steps=9, warmup=3)), accumulate=3, ema=0.9)


@pytest.mark.parametrize("stop", range(1, 9))
def test_so_does_one_with_accumulation_an_average_and_a_schedule_also_inside_an_accumulation(stop, tmp_path):
    step, state = EVERYTHING
    assert_continues(step, step.start(state), dataset(), stop=stop, steps=9, folder=tmp_path)


def test_the_law_catches_a_seed_that_is_drawn_anew(tmp_path):
    step, state = SETTING

    def forgetful(state, batch):
        return step(attrs.evolve(state, seed=int(np.random.default_rng().integers(2**31))), batch)

    with pytest.raises(AssertionError, match="after stopping at step 2 the run differs at params"):
        assert_continues(forgetful, state, dataset(), stop=2, steps=4, folder=tmp_path)


@pytest.mark.parametrize("stop", range(9))
def test_a_run_continues_from_the_checkpoint_in_any_event(stop):
    step, state = SETTING
    whole = list(fp.fit(step, state, dataset(), epochs=2))
    event = whole[stop]
    cursor = event.cursor and fp.Cursor.from_bytes(event.cursor.to_bytes())
    rest = list(fp.fit(step, event.state, dataset(), epochs=2, cursor=cursor))
    assert rest[-1].state == whole[-1].state
    assert rest[-1].reason == "epochs"


def test_every_epoch_is_shuffled_anew():
    step, state = SETTING
    seen = []
    fp.last(fp.fit(lambda state, batch: seen.extend(batch["name"]) or step(state, batch), state, dataset(), epochs=2))
    assert seen[:12] != seen[12:]
    assert sorted(seen[:12]) == sorted(seen[12:])


def test_steps_count_from_the_start_of_training_and_run_over_epochs():
    step, state = SETTING
    first = fp.last(fp.fit(step, state, dataset(), steps=4))
    assert (first.step, first.epoch, first.reason) == (4, 1, "steps")
    assert names(fp.fit(step, first.state, dataset(), steps=4)) == ["RunStarted", "Stopped"]
    assert fp.last(fp.fit(step, first.state, dataset(), steps=7, cursor=first.cursor)).step == 7
    assert fp.last(fp.fit(step, state, dataset(), steps=4, epochs=1)).step == 3


def test_metrics_are_read_on_their_cadence_only_and_are_means_by_weight():
    step, state = setting(rate=0.0)
    batches = [group(6), group(2, seed=1), group(4, seed=2)]
    events = [
        event
        for event in fp.fit(step, state, batches, epochs=1, log_every=2)
        if not isinstance(event, fp.events.RunStarted | fp.events.Stopped)
    ]
    assert [sorted(event.metrics) for event in events] == [[], ["loss", "weight"], [], ["loss", "weight"]]
    losses = []
    for each in batches:
        state, metrics = step(state, each)
        losses.append(metrics["loss"].item())
    assert events[1].metrics == pytest.approx({"loss": (6 * losses[0] + 2 * losses[1]) / 8, "weight": 4})
    assert events[3].metrics == pytest.approx({"loss": np.average(losses, weights=[6, 2, 4]), "weight": 4})


def test_a_step_of_ones_own_may_report_any_metrics():
    def step(state, batch):
        return attrs.evolve(state, step=state.step + 1), {"speed": mx.array(float(state.step))}

    _, state = SETTING
    *_, ended, _ = fp.fit(step, state, [group()] * 3)
    assert ended.metrics == {"speed": 1.0, "weight": 1.0}


def test_an_observer_may_change_the_run_between_two_steps():
    step, state = SETTING
    plain = [event.state for event in fp.fit(step, state, dataset(), epochs=2) if isinstance(event, fp.events.Stepped)]

    def changed(**options):
        control = fp.observers.Control()
        for event in fp.fit(step, options.pop("state", state), dataset(), epochs=2, control=control, **options):
            if isinstance(event, fp.events.Stepped) and event.step in (2, 3, 6):
                control.request(lambda state: attrs.evolve(state, seed=state.seed + 5), "another seed")
                control.request(lambda state: attrs.evolve(state, seed=state.seed * 2), "twice it")
            yield event

    events = list(changed())
    changes = [event for event in events if isinstance(event, fp.events.StateChanged)]
    assert [(event.step, event.epoch, event.reason) for event in changes[::2]] == [
        (2, 0, "another seed"),
        (3, 1, "another seed"),
        (6, 1, "another seed"),
    ]
    assert [event.state.seed for event in changes] == [5, 10, 15, 30, 35, 70]
    assert events[-1].state == changes[-1].state
    states = [event.state for event in events if isinstance(event, fp.events.Stepped)]
    assert states[:2] == plain[:2]
    assert states[2] == step(changes[1].state, list(dataset())[2])[0]
    begin = changes[3]  # both changes are made
    assert fp.last(changed(state=begin.state, cursor=begin.cursor)).state == events[-1].state


def test_a_requested_change_must_give_a_state():
    step, state = SETTING
    control = fp.observers.Control()
    stream = fp.fit(step, state, [group()] * 2, control=control)
    next(stream)
    control.request(lambda state: None, "a mistake")
    with pytest.raises(ArgumentTypeError, match="state must be a TrainState, got NoneType"):
        fp.last(stream)
    with pytest.raises(ArgumentTypeError, match="change must be a function, got change=None"):
        control.request(None, "a mistake")
    with pytest.raises(ArgumentTypeError, match="control must be NoneType or Control, got bool"):
        fp.fit(step, state, [group()], control=True)


def test_requests_from_before_a_run_are_dropped():
    step, state = SETTING
    control = fp.observers.Control()
    control.request(lambda state: attrs.evolve(state, seed=9), "too early")
    events = list(fp.fit(step, state, [group()], control=control))
    assert not [event for event in events if isinstance(event, fp.events.StateChanged)]
    assert events[-1].state.seed == state.seed


def test_the_history_is_for_observers():
    step, state = SETTING
    history = [fp.events.Evaluation(1, {"loss": 0.5})]
    assert next(fp.fit(step, state, dataset(), history=history)).history == tuple(history)
    assert next(fp.fit(step, state, dataset())).history == ()


def test_the_total_is_known_where_the_length_is():
    step, state = SETTING

    def total(batches, **options):
        return next(iter(fp.fit(step, state, batches, **options))).total

    assert total(dataset(), epochs=2) == 6
    assert total(dataset(), epochs=2, steps=4) == 4
    assert total(dataset(), epochs=2, steps=40) == 6
    assert total(dataset(), steps=40) == 40
    assert total((group() for _ in range(3)), epochs=1) is None


def test_an_epoch_without_batches_is_an_error():
    step, state = SETTING
    with pytest.raises(DataError, match=r"no batch in epoch 0"):
        fp.last(fp.fit(step, state, []))
    with pytest.raises(DataError, match=r"no batch in epoch 1\. Give fit a dataset or a list; a generator can be read once only"):
        fp.last(fp.fit(step, state, (group() for _ in range(2)), epochs=2))


def test_mistakes_are_named_before_the_run_starts():
    step, state = SETTING
    stopped = fp.last(fp.fit(step, state, dataset(), epochs=2))
    with pytest.raises(ArgumentError, match="The cursor is in epoch 1, counted from 0, but epochs=1 ends the training before this epoch"):
        fp.fit(step, state, dataset(), epochs=1, cursor=stopped.cursor)
    with pytest.raises(ArgumentError, match="The state has made 6 steps, more than steps=5"):
        fp.fit(step, stopped.state, dataset(), steps=5)
    with pytest.raises(ArgumentTypeError, match="The argument cursor= needs a dataset, but the batches are a list"):
        fp.fit(step, state, [group()], cursor=stopped.cursor)
    with pytest.raises(ArgumentTypeError, match="fit takes a dataset or another iterable of dicts, got dict"):
        fp.fit(step, state, group())
    with pytest.raises(ArgumentTypeError, match="state must be a TrainState, got dict"):
        fp.fit(step, {}, dataset())
    for word in ("epochs", "steps", "log_every"):
        with pytest.raises(ArgumentError, match=f"{word} must be at least 1, got {word}=0"):
            fp.fit(step, state, dataset(), **{word: 0})


def test_a_pipeline_that_does_not_end_in_batches_is_named():
    step, state = SETTING
    rows = fp.from_examples([{"x": 1}])
    with pytest.raises(PipelineError, match=r"fit takes batches, got examples from from_examples\(1 rows\)\. End the pipeline"):
        fp.fit(step, state, rows)
    with pytest.raises(PipelineError, match=r"evaluate takes batches, got groups from batch\(size=2\)"):
        CHECK(state, fp.pipe(rows, batch(2)))
    with pytest.raises(PipelineError, match="predict takes batches, got examples"):
        fp.predict(net(), measure)(state, rows)


def measure(model, batch):
    logits = model(batch["x"])
    return {"loss": fp.losses.cross_entropy(logits, batch["label"]), "accuracy": fp.metrics.accuracy(logits, batch["label"])}


CHECK = fp.evaluate(net(), measure)


@settings(max_examples=10)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_an_evaluation_does_not_depend_on_how_examples_are_batched(sizes):
    _, state = SETTING
    whole = group(sum(sizes))
    edges = np.cumsum([0, *sizes])
    parts = [{"x": whole["x"][a:b], "label": whole["label"][a:b]} for a, b in pairwise(edges)]
    assert CHECK(state, parts) == pytest.approx(CHECK(state, [whole]), rel=1e-5)


def test_an_evaluation_is_deterministic_and_knows_the_state():
    step, state = SETTING
    assert CHECK(state, dataset()) == CHECK(state, dataset())
    trained = fp.last(fp.fit(step, state, dataset(), epochs=30)).state
    assert CHECK(trained, dataset())["loss"] < CHECK(state, dataset())["loss"]


def test_an_evaluation_without_an_end_is_refused():
    _, state = SETTING
    with pytest.raises(PipelineError, match=r"evaluate needs finite data, but .* is endless.* Put take\(count\)"):
        CHECK(state, fp.pipe(dataset(), fp.repeat(None)))


def test_an_evaluation_on_nothing_is_an_error():
    _, state = SETTING
    with pytest.raises(DataError, match="There are no batches to evaluate on"):
        CHECK(state, [])
    with pytest.raises(DataError, match="The metric 'loss' has a total weight of 0"):
        CHECK(state, [{**group(), "label": mx.full(6, -100)}])


def test_predictions_come_in_order_as_numpy_arrays():
    _, state = SETTING
    answers = fp.predict(net(), lambda model, batch: {"half": model(batch["x"]).astype(mx.bfloat16), "x": batch["x"]})
    batches = [group(4), group(2, seed=1), group(4, seed=2)]
    parts = list(answers(state, batches))
    assert [part["half"].shape for part in parts] == [(4, 2), (2, 2), (4, 2)]
    assert all(np.array_equal(part["x"], np.array(batch["x"])) for part, batch in zip(parts, batches, strict=True))
    assert parts[0]["half"].dtype == np.float32
    assert list(answers(state, [])) == []


def test_predictions_are_lazy_and_one_batch_ahead():
    _, state = SETTING
    taken = []
    stream = fp.predict(net(), lambda model, batch: model(batch["x"]))(state, (taken.append(1) or group() for _ in range(5)))
    assert taken == []
    next(stream)
    assert len(taken) == 2


def test_the_events_of_a_stopped_run_are_all_that_happened():
    step, state = SETTING
    stream = fp.fit(step, state, dataset(), epochs=5)
    events = list(islice(stream, 3))
    stream.close()
    assert names(events) == ["RunStarted", "Stepped", "Stepped"]
    assert fp.last(fp.pipe(events)).step == 2
    with pytest.raises(ArgumentError, match=r"last\(events\) got no events"):
        fp.last(stream)


class Closing:
    """Batches that note when whoever prepares them is told to stop."""

    def __init__(self):
        self.closed = False

    def __iter__(self):
        try:
            while True:
                yield group()
        finally:
            self.closed = True


def test_a_run_that_is_stopped_or_fails_stops_whoever_prepares_its_batches():
    step, state = SETTING
    batches = Closing()
    stream = fp.fit(step, state, batches)
    list(islice(stream, 2))
    assert not batches.closed
    stream.close()
    assert batches.closed

    batches = Closing()
    with pytest.raises(ZeroDivisionError):
        fp.last(fp.fit(lambda state, batch: 1 / 0, state, batches))
    assert batches.closed


def test_a_run_keeps_no_more_than_the_last_two_states_whoever_observes_it(tmp_path):
    step, _ = SETTING
    seen, control = [], fp.observers.Control()
    watching = [
        observers.evaluate_every(lambda state: {"loss": 0.5}),
        observers.reduce_on_plateau("loss", control=control, mode="min", patience=2),
        observers.early_stopping("loss", mode="min", patience=5),
        observers.time_budget(600),
        observers.log_memory(),
        observers.log_metrics(tmp_path / "log.jsonl"),
        observers.progress(file=io.StringIO()),
    ]
    for event in fp.pipe(fp.fit(step, setting()[1], dataset(), epochs=6, log_every=2, control=control), *watching):
        seen.append(ref(event.state))
        alive = {id(state()) for state in seen if state() is not None}
        assert len(alive) <= 2, f"{len(alive)} states are alive at step {event.step}"


def test_events_are_frozen_values():
    step, state = SETTING
    (first, *_), (again, *_) = (fp.fit(step, state, dataset()) for _ in range(2))
    assert first == again
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        first.total = 3


def test_an_evaluation_takes_metrics_that_are_more_than_means():
    _, state = SETTING

    def measure(model, batch):
        scores = model(batch["x"])
        return {
            "auc": fp.metrics.roc_auc(scores[:, 1] - scores[:, 0], batch["label"]),
            "f1": fp.metrics.f1(scores, batch["label"], average="macro"),
        }

    check, parts = fp.evaluate(net(), measure), [group(4), group(6, seed=1), group(5, seed=2)]
    whole = {name: mx.concatenate([part[name] for part in parts]) for name in ("x", "label")}
    assert check(state, parts) == pytest.approx(check(state, [whole]))
    assert sorted(check(state, parts)) == ["auc", "f1"]


def test_an_error_in_a_measure_says_what_it_was_given():
    _, state = SETTING
    for make in (fp.evaluate, fp.predict):
        with pytest.raises(KeyError, match="y") as raised:
            list(make(net(), lambda model, batch: batch["y"])(state, [group()]))
        assert "while tracing" in raised.value.__notes__[0]
        assert "on a batch of x float32[6, 3], label int32[6]; without name," in raised.value.__notes__[0]


def test_what_is_no_measure_or_no_state_is_named():
    _, state = SETTING
    pair = fp.evaluate(net(), lambda model, batch: (mx.array(1.0), mx.array(1.0)))
    with pytest.raises(ArgumentTypeError, match=r"measure\(model, batch\) returns metrics by name.*got tuple"):
        pair(state, [group()])
    for make in (fp.evaluate, fp.predict):
        with pytest.raises(ArgumentTypeError, match=r"has its model already\. Pass the batches only"):
            make(net(), measure)(net(), [group()])
