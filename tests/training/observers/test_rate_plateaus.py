"""The learning rate falls on a plateau, in the state, so that a run continues with the rate that it had."""

import pytest
from mlx import optimizers

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, UnknownNameError
from mlxfp.training.optimization.learning_rates import learning_rates
from tests.training.samples import dataset, setting

LOSSES = [0.5, 0.6, 0.7, 0.4, 0.4, 0.4, 0.4, 0.4]


def observed(step, state, *, epochs=8, **progress):
    control = fp.observers.Control()
    events = fp.fit(step, state, dataset(), epochs=epochs, control=control, **progress)
    check = fp.observers.evaluate_every(lambda state: {"loss": LOSSES[state.step // 3 - 1]})
    return fp.pipe(events, check, fp.observers.reduce_on_plateau("loss", control=control, mode="min", patience=2, factor=0.5))


def test_the_rate_falls_after_patience_evaluations_without_a_new_best_and_then_waits_anew():
    step, state = setting()
    events = list(observed(step, state))
    assert [(event.step, event.reason) for event in events if isinstance(event, fp.events.StateChanged)] == [
        (9, "reduce_on_plateau: learning rate x 0.5"),
        (18, "reduce_on_plateau: learning rate x 0.5"),
        (24, "reduce_on_plateau: learning rate x 0.5"),
    ]
    rates = [learning_rates(event.state.opt)[0] for event in events if isinstance(event, fp.events.Stepped)]
    assert rates == pytest.approx([0.01] * 9 + [0.005] * 9 + [0.0025] * 6)
    assert learning_rates(events[-1].state.opt) == pytest.approx([0.00125])


@pytest.mark.parametrize("stop", range(45))
def test_a_run_continues_bit_for_bit_from_any_event_with_its_history(stop):
    step, state = SETTING
    whole = list(observed(step, state))
    event = whole[stop]
    over = isinstance(event, fp.events.StateChanged | fp.events.Stopped)  # else what happens at this step happens again
    history = [fp.events.Evaluation(e.step, e.metrics) for e in whole if isinstance(e, fp.events.Evaluated) and e.step < event.step + over]
    rest = observed(step, event.state, cursor=event.cursor, history=history)
    assert fp.last(rest).state == whole[-1].state


SETTING = setting()


def test_every_group_of_parameters_has_its_rate_reduced():
    grouped = optimizers.MultiOptimizer([fp.optimizers.adamw(0.1), optimizers.SGD(0.2)], [lambda name, _: "weight" in name])
    step, state = setting(optimizer=grouped)
    end = fp.last(observed(step, state, epochs=4))
    assert learning_rates(end.state.opt) == pytest.approx([0.05, 0.1])


def test_a_schedule_which_would_undo_it_is_named():
    step, state = setting(optimizer=fp.optimizers.adamw(fp.schedules.cosine_decay(0.1, steps=100)))
    with pytest.raises(ArgumentError, match=r"reduce_on_plateau set the learning rate to \[.*\], but a schedule changed it to"):
        fp.last(observed(step, state))


def test_mistakes_are_named_when_the_observer_is_made():
    for factor in (0, 1, float("nan")):
        with pytest.raises(ArgumentError, match="factor must be above 0 and below 1"):
            fp.observers.reduce_on_plateau("loss", control=fp.observers.Control(), mode="min", patience=1, factor=factor)
    with pytest.raises(ArgumentError, match="patience must be at least 1"):
        fp.observers.reduce_on_plateau("loss", control=fp.observers.Control(), mode="min", patience=0)
    with pytest.raises(UnknownNameError, match="No mode is named 'low'"):
        fp.observers.reduce_on_plateau("loss", control=fp.observers.Control(), mode="low", patience=1)
