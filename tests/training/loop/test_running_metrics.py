"""Every event has the metrics of its epoch so far: wherever a run is stopped, the rest reports what the whole run reports."""

from functools import partial
from itertools import islice

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentTypeError, NonFiniteError
from tests.training.samples import dataset, group, setting, stacked

SETTING = setting(clip_norm=1.0)


@settings(max_examples=10)
@given(st.integers(0, 24), st.integers(1, 6))
def test_a_run_that_continues_says_what_the_whole_run_says(tmp_path_factory, stop, every):
    step, state = SETTING
    run = partial(fp.fit, step, batches=dataset(count=18), epochs=4, log_every=every)
    *_, stopped = islice(run(state), stop + 1)
    path = tmp_path_factory.mktemp("law") / "a"
    fp.save_state(path, stopped.state, cursor=stopped.cursor, running=stopped.running)
    found = fp.load_state(path, state)
    told, after = map(says, (run(state), run(found.state, cursor=found.cursor, running=found.running)))
    begun = [place for place, (kind, step, *_) in enumerate(told) if step == stopped.step and kind in ("RunStarted", "Stepped")]
    assert after[1:] == told[begun[-1] + 1 :]


def says(events):
    return [(type(each).__name__, each.step, each.epoch, getattr(each, "metrics", None)) for each in events]


def test_running_metrics_without_a_cursor_belong_to_no_epoch_of_this_run():
    step, state = SETTING
    stopped = fp.last(fp.fit(step, state, dataset(), steps=2))
    *_, ended, _ = fp.fit(step, stopped.state, [group(6)], log_every=10, running=stopped.running)
    assert ended.metrics["weight"] == 6


def test_a_loss_that_was_no_number_before_a_stop_is_found_after_it(tmp_path):
    step, state = setting(rate=0.0)
    batches = fp.pipe(
        fp.from_examples([{"x": [float(i == 4)] * 3, "label": 0, "name": ""} for i in range(12)]), batch(2), fp.collate(stacked)
    )

    def broken(state, batch):
        state, metrics = step(state, batch)
        return state, {**metrics, "loss": metrics["loss"] + mx.where(batch["x"].sum() > 0, mx.nan, 0.0)}

    *_, stopped = islice(fp.fit(broken, state, batches), 5)
    fp.save_state(tmp_path / "a", stopped.state, cursor=stopped.cursor, running=stopped.running)
    found = fp.load_state(tmp_path / "a", state)
    with pytest.raises(NonFiniteError, match="The loss is nan in step 3"):
        fp.last(fp.fit(broken, found.state, batches, cursor=found.cursor, running=found.running))


def test_metrics_of_ones_own_may_be_of_any_dtype_and_must_be_numbers():
    def reporting(value):
        return lambda state, batch: (attrs.evolve(state, step=state.step + 1), {"mine": value})

    _, state = SETTING
    for value in (mx.array(1.5, mx.bfloat16), np.float32(1.5), mx.array([1.5]), 1.5):
        *_, ended, _ = fp.fit(reporting(value), state, [group()])
        assert ended.metrics["mine"] == 1.5
    for value, got in ((mx.array([1.0, 2.0]), r"array\[2\]"), ("fast", "str"), (None, "NoneType")):
        with pytest.raises(ArgumentTypeError, match=f"The metrics of a step are numbers, got {got} for 'mine'"):
            fp.last(fp.fit(reporting(value), state, [group()]))
