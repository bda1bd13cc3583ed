"""stall: the share of training time spent waiting for data."""

from time import perf_counter

import mlx.core as mx
from mlx import optimizers

import mlxfp as fp
from benchmarks.encoders import example_batches, example_encoder, loss
from benchmarks.measuring import Row


def rows(*, small: bool) -> list[Row]:
    """Train the encoder of examples/titanic.py and time `next(batches)`, with a synchronization after each step."""
    batches, vocabulary = example_batches(640 if small else 6400)
    model, optimizer = example_encoder(vocabulary), optimizers.AdamW(1e-4)
    step, state = fp.train_step(model, loss, optimizer, clip_norm=1.0), fp.train_state(model, optimizer, seed=0)
    waited = trained = 0.0
    for epoch in range(3):  # the first epoch compiles and fills the word cache
        items = fp.iterate(batches, epoch=epoch)
        while True:
            began = perf_counter()
            item = next(items, None)
            got = perf_counter()
            if item is None:
                break
            state, metrics = step(state, item[0])
            mx.eval(state.params, state.opt, metrics)
            if epoch:
                waited, trained = waited + got - began, trained + perf_counter() - got
    share = 100 * waited / (waited + trained)
    steps = 2 * state.step // 3
    shown = (f"{waited / steps * 1e6:.0f} us a step", f"the step: {trained / steps * 1e3:.2f} ms")
    return [Row("stall", "training the example's encoder: percent of time waiting", *shown, share, 0.5, "at most")]
