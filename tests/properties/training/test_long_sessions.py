"""What a session does again and again, such as folds, leaves no memory behind, and runs in any thread."""

import gc
from concurrent.futures import ThreadPoolExecutor

import attrs
import mlx.core as mx
import pytest

from mlxfp.collators import causal
from mlxfp.models import create
from mlxfp.support.errors import NonFiniteError
from mlxfp.training.loop.evaluating import evaluate, predict
from mlxfp.training.loop.fitting import fit, last
from mlxfp.training.losses import causal_lm, cross_entropy
from mlxfp.training.optimization.optimizers import adamw
from mlxfp.training.steps.state import train_state
from mlxfp.training.steps.steps import train_step
from tests.training.samples import dataset, deep, group, loss, setting

pytestmark = pytest.mark.filterwarnings("ignore:predict got shuffled batches")  # the order of rows does not matter here


def fold(seed):
    """Train, evaluate and predict with a step of its own, as a fold does."""
    model = deep(seed=seed, depth=2)
    step, state = train_step(model, loss, adamw(0.1)), train_state(model, adamw(0.1))
    end = last(fit(step, state, dataset(), epochs=2))
    evaluate(model, lambda model, batch: {"loss": loss(model, batch)})(end.state, dataset())
    list(predict(model, lambda model, batch: model(batch["x"]))(end.state, dataset()))


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
    model = create("decoder", size="tiny", head="causal_lm", vocab_size=20)
    step, state = train_step(model, causal_lm, adamw(0.1)), train_state(model, adamw(0.1))
    batch = causal(pad_id=0)([{"input_ids": row["input_ids"]} for row in ROWS[name]])
    if name == "nothing to predict":
        batch["labels"] = mx.full(batch["labels"].shape, -100)
    after, metrics = step(state, batch)
    assert (metrics["loss"].item(), metrics["weight"].item()) == (0.0, 0.0)
    assert after == attrs.evolve(state, step=1)


def test_logits_that_overflow_stop_the_run_and_the_state_before_is_good():
    model = deep(rate=0.0)
    step = train_step(model, lambda model, batch: cross_entropy((model(batch["x"]) * 1e6).astype(mx.float16), batch["label"]), adamw(0.1))
    seen = []
    with pytest.raises(NonFiniteError, match="in step 1"):
        seen.extend(fit(step, train_state(model, adamw(0.1)), [group()] * 3, log_every=1))
    assert seen[-1].state == train_state(model, adamw(0.1))
