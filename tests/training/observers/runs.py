"""Streams of events for the tests of observers: those of a run, without the work."""

import mlx.core as mx

import mlxfp as fp


def state(step):
    return fp.TrainState({"w": mx.array(float(step))}, {}, {"learning_rate": mx.array(0.5)}, step, 0)


def run(*, total=4, epochs=2):
    """The events of a run of two steps an epoch; the metrics are read every second step."""
    yield fp.events.RunStarted(state(0), None, 0, total)
    for epoch in range(epochs):
        for step in (2 * epoch + 1, 2 * epoch + 2):
            yield fp.events.Stepped(state(step), None, epoch, {"loss": 1 / step, "weight": 8.0} if step % 2 == 0 else {})
        yield fp.events.EpochEnded(state(2 * epoch + 2), None, epoch, {"loss": 0.5, "weight": 8.0})
    yield fp.events.Stopped(state(2 * epochs), None, epochs - 1, "epochs")


def evaluations(*values, metric="loss"):
    """A run that does nothing but evaluate."""
    yield fp.events.RunStarted(state(0), None, 0, None)
    for step, value in enumerate(values, 1):
        yield fp.events.Stepped(state(step), None, 0, {"loss": 1.0})
        yield fp.events.Evaluated(state(step), None, 0, {metric: value})
    yield fp.events.Stopped(state(len(values)), None, 0, "steps")


def names(events):
    return [type(event).__name__ for event in events]
