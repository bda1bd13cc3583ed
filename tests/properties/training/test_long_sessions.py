"""What a session does again and again, such as folds, leaves no memory behind, and runs in any thread."""

import gc
from concurrent.futures import ThreadPoolExecutor

import attrs
import mlx.core as mx
import pytest

import mlxfp as fp
from mlxfp.support.errors import NonFiniteError
from tests.training.samples import dataset, deep, group, loss, setting

pytestmark = pytest.mark.filterwarnings("ignore:predict got shuffled batches")  # the order of rows does not matter here


def fold(seed):
    """Train, evaluate and predict with a step of its own, as a fold does."""
    model = deep(seed=seed, depth=2)
    step, state = fp.train_step(model, loss, fp.optimizers.adamw(0.1)), fp.train_state(model, fp.optimizers.adamw(0.1))
    end = fp.last(fp.fit(step, state, dataset(), epochs=2))
    fp.evaluate(model, lambda model, batch: {"loss": loss(model, batch)})(end.state, dataset())
    list(fp.predict(model, lambda model, batch: model(batch["x"]))(end.state, dataset()))


def test_folds_one_after_the_other_leave_no_memory_behind():
    used = []
    for seed in range(12):
        fold(seed)
        gc.collect()
        mx.clear_cache()
        used.append(mx.get_active_memory())
    assert used[-1] <= used[3], f"after each fold there were {used} bytes in use"


def test_a_step_may_be_made_in_one_thread_and_run_in_another():
    step, state = setting(model=deep())
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(lambda: [leaf.tolist() for leaf in (step(state, group())[1]["loss"],)]).result()
    assert there == [step(state, group())[1]["loss"].item()]


ROWS = {
    "one token": [{"input_ids": [3]}, {"input_ids": [4]}],
    "nothing to predict": [{"input_ids": [3, 4, 5], "labels": [-100] * 3}] * 2,
}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_without_anything_to_predict_train_nothing_and_make_no_nan(name):
    model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    step, state = fp.train_step(model, fp.losses.causal_lm, fp.optimizers.adamw(0.1)), fp.train_state(model, fp.optimizers.adamw(0.1))
    batch = fp.collators.causal(pad_id=0)([{"input_ids": row["input_ids"]} for row in ROWS[name]])
    if name == "nothing to predict":
        batch["labels"] = mx.full(batch["labels"].shape, -100)
    after, metrics = step(state, batch)
    assert (metrics["loss"].item(), metrics["weight"].item()) == (0.0, 0.0)
    assert after == attrs.evolve(state, step=1)


def test_logits_that_overflow_stop_the_run_and_the_state_before_is_good():
    model = deep(rate=0.0)
    step = fp.train_step(
        model,
        lambda model, batch: fp.losses.cross_entropy((model(batch["x"]) * 1e6).astype(mx.float16), batch["label"]),
        fp.optimizers.adamw(0.1),
    )
    seen = []
    with pytest.raises(NonFiniteError, match="in step 1"):
        seen.extend(fp.fit(step, fp.train_state(model, fp.optimizers.adamw(0.1)), [group()] * 3, log_every=1))
    assert seen[-1].state == fp.train_state(model, fp.optimizers.adamw(0.1))
