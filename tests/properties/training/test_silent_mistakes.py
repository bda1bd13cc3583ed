"""What trains nothing, or not what was meant, says so: as early as it can be known, and never where all is well."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import attrs
import mlx.core as mx
import numpy as np
import pytest
from mlx import optimizers

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.training import observers
from mlxfp.training.loop.checkpoints import load_latest, name_of, save_state
from tests.training.samples import dataset, group, loss, net, setting, stacked

STEP, FIRST = setting()


def messages(events):
    return [event.message for event in events if isinstance(event, fp.events.Warned)]


def test_a_run_that_nobody_consumes_warns_where_it_is_dropped():
    with pytest.warns(
        RuntimeWarning, match=r"fit was called, and it trains nothing until its events are consumed\. .* last\(fit"
    ) as caught:
        fp.fit(STEP, FIRST, dataset())
    assert caught[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="trains nothing"):
        fp.pipe(fp.fit(STEP, FIRST, dataset()), observers.progress(), observers.early_stopping("loss", mode="min", patience=1))


def test_a_run_that_has_begun_or_was_kept_or_meets_an_error_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fp.last(fp.fit(STEP, FIRST, [group()]))
        next(fp.fit(STEP, FIRST, [group()]))
        stream = fp.fit(STEP, FIRST, [group()])
        stream.close()
        assert list(stream) == []
        with pytest.raises(ArgumentError):
            fp.pipe(fp.fit(STEP, FIRST, [group()]), observers.early_stopping("loss", mode="min", patience=0))
        with pytest.raises(ArgumentTypeError):
            fp.pipe(fp.fit(STEP, FIRST, [group()]), 3)
        kept = fp.fit(STEP, FIRST, [group()])
        kept = None  # what is assigned again may have been made for nothing
        assert kept is None


def test_a_run_says_that_it_has_not_begun_when_it_is_shown():
    stream = fp.fit(STEP, FIRST, [group()])
    assert repr(stream).startswith("<a run that has not begun: it trains nothing until")
    next(stream)
    assert repr(stream) == "<the events of a run>"


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_nothing_is_said_when_python_exits(end, tmp_path):
    program = (
        "import mlx.core as mx; from mlx import nn, optimizers; import mlxfp as fp; from mlxfp.training.losses import mse\n"
        "model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)\n"
        "step = fp.train_step(model, lambda model, batch: mse(model(batch['x']), batch['x']), optimizer)\n"
        "kept = fp.pipe(fp.fit(step, fp.train_state(model, optimizer), []), fp.observers.progress())\n"
    )
    (tmp_path / "program.py").write_text(program + end)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, env=environment, check=False)
    assert "trains nothing" not in done.stderr
    assert "ignored" not in done.stderr
    assert "ZeroDivisionError" in done.stderr or done.stderr == ""


def test_an_observer_of_evaluations_that_sees_none_says_so_after_the_first_epoch(tmp_path):
    control = fp.observers.Control()
    for observer in (
        observers.early_stopping("loss", mode="min", patience=1),
        observers.reduce_on_plateau("loss", control=control, mode="min", patience=1),
        observers.checkpoint_best(tmp_path / "best.safetensors", "loss", mode="min"),
    ):
        events = list(fp.pipe(fp.fit(STEP, FIRST, dataset(), epochs=3, control=control), observer))
        assert len(messages(events)) == 1
        place = next(place for place, event in enumerate(events) if isinstance(event, fp.events.Warned))
        assert (events[place].step, events[place].epoch) == (4, 1)  # before the first step of the second epoch is passed on
        good = fp.pipe(
            fp.fit(STEP, FIRST, dataset(), epochs=3), observers.evaluate_every(lambda state: {"loss": 0.5 / state.step}), observer
        )
        assert messages(good) == []


def test_a_state_with_steps_and_no_cursor_is_said_to_begin_the_data_again():
    middle = next(event for event in fp.fit(STEP, FIRST, dataset(), epochs=2) if event.step == 4)
    (found,) = messages(fp.fit(STEP, middle.state, dataset(), epochs=1))
    assert found == (
        "The state has made 4 steps, and fit got no cursor, so the data begin again at the first batch. To continue a run, pass cursor=, "
        "history= and running= of the checkpoint; to begin another run with trained weights, pass attrs.evolve(state, step=0)."
    )
    assert messages(fp.fit(STEP, middle.state, dataset(), epochs=2, cursor=middle.cursor)) == []
    assert messages(fp.fit(STEP, attrs.evolve(middle.state, step=0), dataset())) == []
    assert messages(fp.fit(STEP, middle.state, [group()])) == []  # a list has no cursor
    assert messages(fp.fit(STEP, middle.state, dataset(), steps=4)) == []  # there is nothing left to do


def resumed(old, new, tmp_path, **more):
    """Train with one optimizer, save, load, and go on with another: the warnings, and the rates of the last state."""
    model = net()
    first = fp.train_state(model, old)
    run = fp.fit(fp.train_step(model, loss, old), first, dataset(), epochs=1)
    fp.last(fp.pipe(run, observers.checkpoint(tmp_path)))
    found = load_latest(tmp_path, fp.train_state(model, new))
    events = list(
        fp.fit(fp.train_step(model, loss, new), found.state, dataset(), epochs=2, cursor=found.cursor, running=found.running, **more)
    )
    return messages(events), [round(float(mx.array(rate)), 5) for rate in [events[-1].state.opt.get("learning_rate", 0.0)]]


def test_a_run_that_goes_on_with_another_rate_says_which_one_it_uses(tmp_path):
    (found,), rates = resumed(fp.optimizers.adamw(0.1), fp.optimizers.adamw(0.01), tmp_path)
    assert found == (
        "The state has the learning rate 0.1, but the optimizer of the step has 0.01. The run continues with 0.1 from the state. "
        'To use 0.01, pass attrs.evolve(state, opt={**state.opt, "learning_rate": mx.array(0.01)}).'
    )
    assert rates == [0.1]


def continued(old, new, folder):
    """Train with one optimizer and a folder of checkpoints, and go on with another: the warnings."""
    model = net()
    for optimizer, epochs in ((old, 1), (new, 2)):
        found = load_latest(folder, fp.train_state(model, optimizer))
        run = fp.fit(
            fp.train_step(model, loss, optimizer), found.state, dataset(), epochs=epochs, cursor=found.cursor, running=found.running
        )
        events = list(fp.pipe(run, observers.checkpoint(folder)))
    return messages(events)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (fp.optimizers.adamw(0.1), fp.optimizers.adamw(0.1, betas=(0.8, 0.9)), ("betas=[0.9, 0.999]", "betas=[0.8, 0.9]")),
        (fp.optimizers.adamw(0.1, weight_decay=0.0), fp.optimizers.adamw(0.1, weight_decay=0.5), ("weight_decay=0.0", "weight_decay=0.5")),
        (optimizers.SGD(0.1, momentum=0.9), optimizers.SGD(0.1, momentum=0.5), ("momentum=0.9", "momentum=0.5")),
        (
            fp.optimizers.adamw(0.1),
            optimizers.Adam(0.1),
            ("class='AdamW', bias_correction=True, weight_decay=0.01", "class='Adam', bias_correction=False"),
        ),
        (
            fp.optimizers.grouped((fp.optimizers.vectors, fp.optimizers.adamw(0.1, weight_decay=0.0)), rest=fp.optimizers.adamw(0.1)),
            fp.optimizers.grouped(
                (fp.optimizers.vectors, fp.optimizers.adamw(0.1, weight_decay=0.0)), rest=fp.optimizers.adamw(0.1, weight_decay=0.3)
            ),
            ("optimizers[1].weight_decay=0.01", "optimizers[1].weight_decay=0.3"),
        ),
    ],
)
def test_a_run_that_goes_on_with_other_settings_of_the_optimizer_says_which(old, new, said, tmp_path):
    (found,) = continued(old, new, tmp_path)
    assert found.startswith(f"The optimizer of the checkpoint has {said[0]}, but the optimizer of the step has {said[1]}")
    assert "build the step with the old optimizer" in found
    assert continued(new, new, tmp_path / "again") == []


def test_a_checkpoint_that_does_not_know_its_optimizer_continues(tmp_path):
    model, optimizer = net(), fp.optimizers.adamw(0.1)
    first = next(
        event for event in fp.fit(fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer), dataset()) if event.step == 2
    )
    save_state(tmp_path / name_of(2), first.state, cursor=first.cursor, running=first.running)
    arrays, metadata = mx.load(str(tmp_path / name_of(2)), return_metadata=True)
    rest = json.loads(metadata["mlxfp"])
    del rest["optimizer"]  # as files from before have it
    mx.save_safetensors(str(tmp_path / name_of(2)), arrays, {"mlxfp": json.dumps(rest)})
    assert load_latest(tmp_path, first.state).optimizer == {}
    assert continued(fp.optimizers.adamw(0.1, betas=(0.8, 0.9)), fp.optimizers.adamw(0.1, betas=(0.8, 0.9)), tmp_path) == []


def test_the_cure_of_that_warning_changes_the_rate():
    _, state = setting(optimizer=fp.optimizers.adamw(0.1))
    step, _ = setting(optimizer=fp.optimizers.adamw(0.01))
    assert len(messages(fp.fit(step, state, [group()]))) == 1
    cured = attrs.evolve(state, opt={**state.opt, "learning_rate": mx.array(0.01)})
    assert messages(fp.fit(step, cured, [group()])) == []
    assert fp.last(fp.fit(step, cured, [group()])).state.opt["learning_rate"].item() == pytest.approx(0.01)


def test_a_run_that_goes_on_with_another_schedule_says_so(tmp_path):
    (found,), _ = resumed(
        fp.optimizers.adamw(fp.schedules.cosine_decay(0.1, steps=9)),
        fp.optimizers.adamw(fp.schedules.cosine_decay(0.05, steps=9)),
        tmp_path / "a",
    )
    assert "The run continues with the schedule of the step" in found
    (found,), _ = resumed(
        fp.optimizers.adamw(fp.schedules.linear_decay(0.1, steps=9)),
        fp.optimizers.adamw(fp.schedules.linear_decay(0.1, steps=20)),
        tmp_path / "b",
    )
    assert "used the learning rate 0.0777778, but the schedule of the step gives 0.09 for this update" in found


@pytest.mark.parametrize(
    "make",
    [
        lambda: fp.optimizers.adamw(0.1),
        lambda: fp.optimizers.adamw(fp.schedules.cosine_decay(0.1, steps=9, warmup=2)),
        lambda: optimizers.SGD(optimizers.cosine_decay(0.1, 10)),
        lambda: fp.optimizers.grouped(
            (fp.optimizers.vectors, fp.optimizers.adamw(0.1)), rest=optimizers.SGD(fp.schedules.linear_decay(0.1, steps=50))
        ),
        optimizers.Adafactor,
    ],
)
def test_a_run_that_goes_on_as_it_began_says_nothing(make, tmp_path):
    assert resumed(make(), make(), tmp_path)[0] == []


def test_a_rate_that_observers_reduced_is_meant(tmp_path):
    control = fp.observers.Control()
    model, optimizer = net(), fp.optimizers.adamw(0.1)
    step = fp.train_step(model, loss, optimizer)
    watching = [
        observers.evaluate_every(lambda state: {"loss": 1.0}),
        observers.reduce_on_plateau("loss", control=control, mode="min", patience=1),
    ]
    middle = next(
        event
        for event in fp.pipe(fp.fit(step, fp.train_state(model, optimizer), dataset(), epochs=4, control=control), *watching)
        if isinstance(event, fp.events.Stepped) and event.step == 8
    )
    assert middle.state.opt["learning_rate"].item() < 0.1
    assert messages(fp.fit(step, middle.state, dataset(), epochs=4, cursor=middle.cursor, control=control)) == []


def test_an_epoch_without_batches_names_what_leaves_them_out():
    rows = fp.from_examples([{"x": [0.0] * 3, "label": 0, "name": "a"}] * 5)
    with pytest.raises(DataError, match=r"There was no batch in epoch 0\. batch\(size=8, drop_last=True\) dropped all rows"):
        fp.last(fp.fit(STEP, FIRST, fp.pipe(rows, batch(8, drop_last=True), fp.collate(stacked))))
    with pytest.raises(DataError, match=r"There was no batch in epoch 0\. pipe\(from_examples\(5 rows\), filter"):
        fp.last(fp.fit(STEP, FIRST, fp.pipe(rows, fp.filter(lambda row: False), batch(8), fp.collate(stacked))))


class EarlyStopping:
    """A callback of another library."""

    def on_epoch_end(self, epoch, logs=None):
        """Do nothing."""


def test_a_callback_object_is_told_from_an_observer():
    with pytest.raises(
        ArgumentTypeError,
        match=r"argument 2 of pipe must be a function, got an object of the class EarlyStopping with the callback methods "
        r"on_epoch_end\. pipe calls no callbacks: write an observer with fp\.observers\.on_event",
    ):
        fp.pipe(fp.fit(STEP, FIRST, [group()]), EarlyStopping())


def test_case_a9_an_epoch_in_which_no_label_counts_is_an_error():
    step = fp.train_step(net(), lambda model, batch: (model(batch["x"]).sum() * 0, mx.array(0.0)), fp.optimizers.adamw(0.1))
    with pytest.raises(DataError, match=r"All batches of epoch 0 have weight 0 in the loss.*labels"):
        list(fp.fit(step, fp.train_state(net(), fp.optimizers.adamw(0.1)), [group(), group()], epochs=2))


def test_a_run_that_ends_before_its_first_update_says_so():
    step = fp.train_step(net(), loss, fp.optimizers.adamw(0.1), accumulate=50)
    assert any(
        "no update, because accumulate=50" in text
        for text in messages(fp.fit(step, fp.train_state(net(), fp.optimizers.adamw(0.1)), dataset(), epochs=1))
    )


def test_a_new_state_with_a_cursor_at_the_end_of_the_data_says_that_nothing_trains():
    end = fp.last(fp.fit(STEP, FIRST, dataset(), epochs=1))
    (message,) = messages(fp.fit(STEP, FIRST, dataset(), epochs=1, cursor=end.cursor))
    assert message == (
        "The run made no step, because its cursor is at the end of the data, and the state has made no step. To train, leave out cursor=; "
        "to continue a run, pass the state of its checkpoint."
    )
    assert messages(fp.fit(STEP, end.state, dataset(), epochs=1, cursor=end.cursor)) == []


def test_last_shows_warnings_and_keeps_the_event():
    step = fp.train_step(net(), loss, fp.optimizers.adamw(0.1), accumulate=50)
    with pytest.warns(RuntimeWarning, match="no update"):
        assert fp.last(fp.fit(step, fp.train_state(net(), fp.optimizers.adamw(0.1)), dataset(), epochs=1)).reason == "epochs"


def test_predictions_of_shuffled_batches_are_warned_of():
    batches = fp.pipe(
        fp.from_examples([{"x": np.float32(row)} for row in range(6)]), fp.shuffle(seed=0), batch(2), fp.collate(fp.collators.default())
    )
    answers = fp.predict(net(), lambda model, batch: batch["x"])
    with pytest.warns(RuntimeWarning, match="shuffled order"):
        list(answers(FIRST, batches))


@pytest.mark.parametrize("before", [[], [fp.map(lambda row: row)]])  # planned from all lengths, and a stream
@pytest.mark.parametrize("after", [[], [fp.load()], [fp.prefetch(2)]])
def test_predictions_of_buckets_are_warned_of(before, after):
    """The predictions are in the order of the buckets."""
    rows = fp.from_examples([{"input_ids": [row] * length} for row, length in enumerate([1, 3, 1, 3])])
    collate = fp.collate(fp.collators.text(pad_id=0))
    answers = fp.predict(net(), lambda model, batch: batch["input_ids"][:, 0])
    with pytest.warns(RuntimeWarning) as caught:
        results = list(answers(FIRST, fp.pipe(rows, *before, fp.bucket_by_length([1, 3], size=2), collate, *after)))
    assert np.concatenate(results).tolist() == [0, 2, 1, 3]
    (message,) = (str(warning.message) for warning in caught)
    assert message == (
        "predict got batches of bucket_by_length, so the predictions are in the order of the buckets. Use batch or batch_by_tokens, "
        "which keep the order of the rows."
    )
    results = list(answers(FIRST, fp.pipe(rows, *before, fp.batch_by_tokens(6), collate, *after)))
    assert np.concatenate(results).tolist() == [0, 1, 2, 3]


def test_the_last_checkpoint_of_the_best_state_is_announced_before_the_run_stops(tmp_path):
    scores = iter([0.5, 0.4, 0.6, 0.7])
    events = fp.pipe(
        fp.fit(STEP, FIRST, dataset(), epochs=4),
        observers.evaluate_every(lambda state: {"loss": next(scores)}),
        observers.checkpoint_best(tmp_path / "best", "loss", mode="min"),
        observers.early_stopping("loss", mode="min", patience=1),
    )
    kinds = [type(event).__name__ for event in events]
    assert kinds.count("CheckpointSaved") == 2
    assert kinds[-1] == "Stopped"
