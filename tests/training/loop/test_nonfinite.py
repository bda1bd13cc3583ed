"""A loss that is no number stops the run, and says in which step, of which rows, and how to see it again."""

import pickle

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import NonFiniteError
from tests.training.samples import group, setting, stacked

STEP, FIRST = setting(rate=0.0)


def poisoned(row, *stages, count=30):
    """Shuffled batches of 4, with a number in one row that is none."""
    x = np.random.default_rng(0).normal(size=(count, 3))
    x[row, 1] = np.nan
    rows = [{"x": each.tolist(), "label": place % 2, "name": f"row {place}"} for place, each in enumerate(x)]
    return fp.pipe(fp.from_examples(rows), fp.shuffle(seed=0), batch(4), fp.collate(stacked), *stages)


@given(st.integers(0, 29), st.integers(1, 12), st.booleans())
def test_the_step_its_rows_and_the_cursor_are_found_wherever_it_is_and_however_rarely_metrics_are_read(row, log_every, ahead):
    batches = poisoned(row, *[fp.prefetch(2)] * ahead)
    with pytest.raises(NonFiniteError) as raised:
        fp.last(fp.fit(STEP, FIRST, batches, epochs=2, log_every=log_every))
    error = raised.value
    wrong = [f"row {row}" in each["name"] for each in batches]
    assert error.step == 1 + wrong.index(True)
    again, _ = next(fp.iterate(batches, error.cursor))
    assert f"row {row}" in again["name"]
    assert tuple(f"row {origin.row}" for origin in error.rows) == again["name"]


def test_it_is_found_in_a_later_epoch_and_after_a_cursor():
    batches = poisoned(3)

    def step(state, batch):
        after, metrics = STEP(state, batch)
        return after, {**metrics, "loss": metrics["loss"] if state.step >= 8 else mx.array(0.5)}

    with pytest.raises(NonFiniteError) as raised:
        fp.last(fp.fit(step, FIRST, batches, epochs=3))
    assert raised.value.step == 9
    assert raised.value.cursor.epoch == 1
    middle = next(event for event in fp.fit(step, FIRST, batches, epochs=3) if event.step == 8)
    with pytest.raises(NonFiniteError) as raised:
        fp.last(fp.fit(step, middle.state, batches, epochs=3, cursor=middle.cursor))
    assert (raised.value.step, raised.value.cursor.epoch) == (9, 1)


def test_the_message_says_what_to_do():
    with pytest.raises(NonFiniteError) as raised:
        fp.last(fp.fit(STEP, FIRST, poisoned(3)))
    rows = ", ".join(str(origin.row) for origin in raised.value.rows)
    assert str(raised.value) == (
        f"The loss is nan in step {raised.value.step}, computed from rows {rows} of from_examples(30 rows). Inspect the batch: "
        "next(iterate(batches, error.cursor)). If the batch is valid, the previous update was too large: lower the learning rate, clip "
        "gradients with clip_norm, or skip non-finite updates with train_step(skip_nonfinite=True)."
    )


def reporting(**metrics):
    def step(state, batch):
        return attrs.evolve(state, step=state.step + 1), {name: mx.array(values[state.step]) for name, values in metrics.items()}

    return step


def test_gradients_without_end_are_found_and_other_metrics_are_ones_own_business():
    nan, inf = float("nan"), float("inf")
    with pytest.raises(NonFiniteError, match=r"The grad_norm is inf in step 2\. Inspect the batch\. If the batch is valid"):
        fp.last(fp.fit(reporting(loss=[1.0, 1.0], grad_norm=[1.0, inf]), FIRST, [group()] * 2))
    with pytest.raises(NonFiniteError, match=r"The loss is nan and the grad_norm is inf in step 1"):
        fp.last(fp.fit(reporting(loss=[nan, 1.0], grad_norm=[inf, inf]), FIRST, [group()] * 2))
    assert fp.last(fp.fit(reporting(loss=[1.0, 1.0], margin=[inf, nan]), FIRST, [group()] * 2)).step == 2


def test_skipped_steps_do_not_count_and_their_share_is_told():
    step = reporting(loss=[1.0, float("nan"), 3.0, 4.0], skipped=[0.0, 1.0, 0.0, 0.0], weight=[2.0, 2.0, 6.0, 2.0])
    *_, read, _, _ = fp.fit(step, FIRST, [group()] * 4, log_every=4)
    assert read.metrics == {"loss": (2 * 1 + 6 * 3 + 2 * 4) / 10, "skipped": 0.25, "weight": 3.0}


def test_an_error_can_be_sent_to_another_process():
    with pytest.raises(NonFiniteError) as raised:
        fp.last(fp.fit(STEP, FIRST, poisoned(3)))
    copy = pickle.loads(pickle.dumps(NonFiniteError(str(raised.value), 3, raised.value.rows, None)))
    assert (str(copy), copy.step, copy.rows) == (str(raised.value), 3, raised.value.rows)


def test_many_rows_are_shortened():
    rows = [{"x": [float("nan")] * 3, "label": 0, "name": "a"}] * 20
    batches = fp.pipe(fp.from_examples(rows), batch(20), fp.collate(stacked))
    with pytest.raises(NonFiniteError, match=r"computed from rows 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. of from_examples\(20 rows\)"):
        fp.last(fp.fit(STEP, FIRST, batches))
