"""Several processes train as one does on all their rows; they are real processes, connected by MLX's ring."""

import io
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections import deque
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx import optimizers

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.distributed import Ranks, _digest, _Watch, connect
from mlxfp.support.errors import ArgumentError, CheckpointError, RankError, UnknownNameError
from mlxfp.support.trees import flatten
from mlxfp.training.loop.rank_agreement import in_step, same_number
from mlxfp.training.steps.state import trees_of
from tests.properties.ranks.sharded_programs import fully
from tests.training.samples import deep, group, loss, net, setting, stacked

ROOT = Path(__file__).parent.parent

# Every rank takes its rows of each batch, as `shard` deals them, and writes what came out.
PROGRAM = """
import sys
from mlxfp.runtime import use_fast_blas
use_fast_blas()
import mlx.core as mx
from mlxfp.distributed import connect
from tests.test_distributed import run
ranks = connect(backend="ring", limit=20 if sys.argv[1] in ("killed", "interrupted", "uncompiled") else 250)
run(ranks, sys.argv[1], sys.argv[2])
"""
CASES = {
    "plain": (lambda: deep(rate=0.0), {}),
    "clipped": (lambda: deep(rate=0.0), {"clip_norm": 0.01, "ema": 0.5}),
    "accumulated": (lambda: deep(rate=0.0), {"accumulate": 2}),
    "pipeline": (lambda: deep(rate=0.0), {"accumulate": 2}),
    "means": (lambda: deep(rate=0.0), {}),
    "everything": (net, {"skip_nonfinite": True, "compute_dtype": mx.float16}),
}
STEPS = 4


def uneven(world, *stages):
    """Batches of three rows of 13, dealt to the ranks; the stages may make their number unknown."""
    rows = [{"x": group(13)["x"][row].tolist(), "label": row % 2, "name": str(row)} for row in range(13)]
    return fp.pipe(fp.from_examples(rows), fp.shuffle(seed=0), fp.shard(world.copy, world.copies), *stages, batch(3), fp.collate(stacked))


# What ranks have in an epoch: 3 and 2 batches, and numbers that are not known before.
UNEVEN = {
    "known": uneven,
    "filtered": lambda world: uneven(world, fp.filter(lambda row: world.rank == 0 or int(row["name"]) < 6)),
    "lists": lambda world: list(uneven(world)),
}


# Observers that would end the run on one rank only: by the clock of each, or by a metric of the rows of each.
DECIDING = {
    "clock": lambda ranks: [fp.observers.time_budget(1e-9 if ranks.world.rank == 0 else 1e9, ranks=ranks)],
    "other clock": lambda ranks: [fp.observers.time_budget(1e9 if ranks.world.rank == 0 else 1e-9, ranks=ranks)],
    "metric": lambda ranks: [
        fp.observers.evaluate_every(lambda state: {"loss": 0.1 * (-1) ** ranks.world.rank * state.step}, steps=1, ranks=ranks),
        fp.observers.early_stopping("loss", mode="min", patience=2),
    ],
}


def run_unevenly(step, state, batches, path, *watching):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        end = fp.last(fp.pipe(fp.fit(step, state, batches, epochs=2), *watching))
    said = [str(each.message) for each in caught if "ranks have no batch left" in str(each.message)]
    path.write_text(json.dumps([end.step, said, [leaf.tolist() for leaf in flatten(end.state.params)[1]]]), encoding="utf-8")


def broken(ranks):
    """Batches with a row that ends one rank: by an error of a function, Ctrl-C, or of the whole process; or with a number that is none."""

    def end(row):
        if ranks.world.rank == 1 and row["name"] == "5":
            raise ValueError("a broken row")
        return row

    def die(row):
        if ranks.world.rank == 1 and row["name"] == "5":
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    def interrupt(row):
        if ranks.world.rank == 1 and row["name"] == "5":
            signal.raise_signal(signal.SIGINT)
        return row

    def spoil(row):
        return {**row, "x": [math.nan] * 3} if ranks.world.rank == 1 and row["name"] == "5" else row

    return {"raises": end, "killed": die, "interrupted": interrupt, "nan": spoil}


def train_in_parts(ranks, step, state, folder):
    """Train in one go; and in parts, of which the first ends at different steps on the ranks. Write the last states of both."""

    def data():
        return fp.pipe(uneven(ranks.world, fp.take(6)), fp.prefetch(1))

    whole = fp.last(fp.fit(step, state, data(), epochs=4))
    for steps in (5, 8):
        begin = fp.load_latest(folder / "parts", state, ranks=ranks)
        watching = fp.observers.checkpoint(folder / "parts", steps=1, keep=3, ranks=ranks)
        end = fp.last(
            fp.pipe(
                fp.fit(step, begin.state, data(), epochs=4, steps=steps, cursor=begin.cursor, running=begin.running, log_every=1), watching
            )
        )
        own = folder / "parts" / f"rank-{ranks.world.rank}"
        if steps == 5 and ranks.world.rank == 1:
            (own / "step-00000005.safetensors").unlink()  # as if it was killed before it wrote its last one
    left = sorted(path.name for path in own.iterdir())
    result = [begin.state.step, end.step, end.state == whole.state, left]
    (folder / f"{ranks.world.rank}.json").write_text(json.dumps(result), encoding="utf-8")


def write_on_one_rank(ranks, step, state, folder):
    """Train with every observer that writes, on all ranks."""
    shown = io.StringIO()
    watching = (
        fp.observers.evaluate_every(lambda state: {"loss": 1 / state.step}, ranks=ranks),
        fp.observers.checkpoint_best(folder / f"best-{ranks.world.rank}.safetensors", "loss", mode="min", ranks=ranks),
        fp.observers.log_metrics(folder / f"log-{ranks.world.rank}.jsonl", ranks=ranks),
        fp.observers.progress(file=shown, ranks=ranks),
    )
    end = fp.last(fp.pipe(fp.fit(step, state, uneven(ranks.world, fp.take(6)), epochs=2), *watching))
    (folder / f"{ranks.world.rank}.json").write_text(json.dumps([end.step, shown.getvalue()]), encoding="utf-8")


def shares(case, world):
    """Four batches, as far as they are this rank's; their labels count unevenly, and one has a NaN, on the second rank."""
    if case == "pipeline":
        rows = [{"x": group(12)["x"][row].tolist(), "label": row % 2, "name": str(row)} for row in range(12)]
        yield from fp.pipe(
            fp.from_examples(rows), fp.shuffle(seed=0), fp.shard(world.copy, world.copies), batch(6 // world.copies), fp.collate(stacked)
        )
        return
    for seed in range(STEPS):
        whole = {name: value for name, value in group(6, seed).items() if name != "name"}
        whole["label"] = mx.where(mx.array([1, 1, 0, 1, 0, 1]), whole["label"], -100)
        if case == "everything" and seed == 1:
            whole["x"] = mx.concatenate([whole["x"][:3], mx.full((1, 3), mx.nan), whole["x"][4:]])
        yield {name: value[world.copy :: world.copies] for name, value in whole.items()}


def run(ranks, case, folder):
    """Train as one rank, and write the state and the metrics of every step."""
    model, options = CASES.get(case, CASES["plain"])
    step, state = setting(model=model(), optimizer=optimizers.SGD(0.5, momentum=0.9), ranks=ranks, **options)
    if case in broken(ranks):
        deque(fp.fit(step, state, uneven(ranks.world, fp.take(12), fp.map(broken(ranks)[case])), epochs=9), maxlen=0)
    if case in OWN:
        OWN[case](ranks, step, state, Path(folder))
        return
    if case in DECIDING:
        batches = uneven(ranks.world, fp.take(6))
        run_unevenly(step, state, batches, Path(folder, f"{ranks.world.rank}.json"), *DECIDING[case](ranks))
        return
    if case in UNEVEN:
        run_unevenly(step, state, UNEVEN[case](ranks.world), Path(folder, f"{ranks.world.rank}.json"))
        return
    if case == "means":
        step._loss = lambda model, batch: (loss(model, batch)[0] / loss(model, batch)[1], 1.0)
    seen = []
    for own in shares(case, ranks.world):
        state, metrics = step(state, own)
        seen.append({name: value.item() for name, value in sorted(metrics.items())})
    np.savez(Path(folder, f"{ranks.world.rank}.npz"), *[np.array(leaf) for leaf in flatten(trees_of(state))[1]])
    Path(folder, f"{ranks.world.rank}.json").write_text(json.dumps(seen), encoding="utf-8")


def count_rows(ranks, _, state, folder):
    """Evaluate the share of 2^24 rows in 2^24 + 300 rows. Each rank measures a part of the batches."""
    batches = [{"hits": mx.array([2.0**24]), "rows": mx.array([2.0**24])}] + 300 * [{"hits": mx.array([0.0]), "rows": mx.array([1.0])}]
    check = fp.evaluate(deep(rate=0.0), lambda _, batch: {"share": (batch["hits"].sum(), batch["rows"].sum())}, ranks=ranks)
    Path(folder, f"{ranks.world.rank}.json").write_text(json.dumps(check(state, batches)["share"]), encoding="utf-8")


def train_uncompiled(ranks, step, state, folder):
    """Train a divided model without compilation. Rank 0 computes its state after each step, before the ranks exchange a number."""
    model = deep(rate=0.0) if ranks.world.size == 1 else fully(ranks)
    step, state = setting(model=model, optimizer=optimizers.SGD(0.5, momentum=0.9), ranks=ranks, compile=False)
    losses = []
    for own in shares("plain", ranks.world):
        state, metrics = step(state, own)
        if ranks.world.rank == 0:
            mx.eval(trees_of(state))
        assert ranks.gather([ranks.world.rank]) == [[rank] for rank in range(ranks.world.size)]
        losses.append(metrics["loss"].item())
    Path(folder, f"{ranks.world.rank}.json").write_text(json.dumps(losses), encoding="utf-8")


OWN = {"in parts": train_in_parts, "writing": write_on_one_rank, "counting": count_rows, "uncompiled": train_uncompiled}


def results(folder, rank):
    with np.load(folder / f"{rank}.npz") as arrays:
        return [arrays[name] for name in arrays], json.loads((folder / f"{rank}.json").read_text(encoding="utf-8"))


def launch(case, folder, size=2, *, fails=False):
    """Run the program in processes of their own, and return what they print; whatever happens, none is left behind."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(size)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        hosts = [[f"127.0.0.1:{each.getsockname()[1]}"] for each in sockets]
    hostfile = folder / "hosts.json"
    hostfile.write_text(json.dumps(hosts), encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, case, str(folder)]
    environment = {**os.environ, "MLX_HOSTFILE": str(hostfile), "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            command, env={**environment, "MLX_RANK": str(rank)}, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(size)
    ]
    outputs = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=300)
            assert (process.returncode != 0) == fails, output
            outputs.append(output)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return outputs


def assert_trains_as_one(case, folder):
    """Law: ranks that share the rows of every batch train as one process does on all of them, and agree bit for bit."""
    (first, metrics), (second, others) = results(folder, 0), results(folder, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True)), "the states of the ranks differ"
    assert json.dumps(metrics) == json.dumps(others), "the metrics of the ranks differ"
    (folder / "one").mkdir()
    run(connect(), case, folder / "one")
    expected, whole = results(folder / "one", 0)
    for ours, theirs in zip(metrics, whole, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5), f"the metrics are {ours}, those of one process {theirs}"
    for ours, theirs in zip(first, expected, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-6), f"two ranks made {ours}, one process {theirs}"


@pytest.mark.parametrize("case", ["plain", "clipped", "accumulated", "pipeline"])
def test_two_ranks_train_as_one_process_on_all_rows(case, tmp_path):
    launch(case, tmp_path)
    assert_trains_as_one(case, tmp_path)


def test_e18_totals_over_ranks_count_every_row(tmp_path):
    """A sum in float32 loses the single rows after 2^24 rows."""
    launch("counting", tmp_path)
    shares = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    assert shares == [2**24 / (2**24 + 300)] * 2


def test_uncompiled_ranks_send_in_the_same_order_if_one_rank_computes_its_state_early(tmp_path):
    launch("uncompiled", tmp_path)
    losses = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    run(connect(), "uncompiled", tmp_path)
    assert losses[0] == losses[1] == pytest.approx(json.loads((tmp_path / "0.json").read_text(encoding="utf-8")), rel=1e-5)


def test_the_law_catches_a_mean_over_ranks_of_means(tmp_path):
    launch("means", tmp_path)
    with pytest.raises(AssertionError, match=r"the metrics are|two ranks made"):
        assert_trains_as_one("means", tmp_path)


def test_ranks_agree_bit_for_bit_with_statistics_and_dropout_and_where_one_skips(tmp_path):
    launch("everything", tmp_path)
    (first, metrics), (second, others) = results(tmp_path, 0), results(tmp_path, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert json.dumps(metrics) == json.dumps(others)
    assert metrics[1]["skipped"] == 1
    assert metrics[-1]["skipped"] == 0
    assert all(new["loss_scale"] == old["loss_scale"] / 2 ** old["skipped"] for old, new in pairwise(metrics))


class Silent(Ranks):
    """One of two ranks that hears nothing of the other."""

    def add_up(self, tree):
        return tree


def test_every_rank_draws_masks_of_its_own():
    losses = []
    for rank in range(2):
        step, state = setting(model=deep(), ranks=Silent(fp.distributed.World(rank, 2), None))
        losses.append(step(state, group())[1]["loss"].item())
    assert losses[0] != losses[1]


def test_alone_there_is_one_rank_and_adding_up_changes_nothing():
    ranks = connect()
    assert ranks.world == fp.distributed.World(0, 1)
    tree = {"a": (mx.ones(2), [mx.array(1)])}
    assert ranks.add_up(tree) is tree
    assert repr(ranks) == "Ranks(world=World(rank=0, size=1, tensor=1, pipeline=1), backend=None)"


def test_a_backend_that_cannot_start_or_does_not_exist_is_named():
    with pytest.raises(ArgumentError, match=r"The backend 'ring' cannot start: .* Start the program with mlx\.launch --backend ring"):
        connect(backend="ring")
    with pytest.raises(ArgumentError, match=r"Not set in the environment: MLX_RANK, MLX_WORLD_SIZE, NCCL_HOST_IP, NCCL_PORT\. Start"):
        connect(backend="nccl")
    with pytest.raises(UnknownNameError, match=r"No backend is named 'rign'\. Did you mean 'ring'\?"):
        connect(backend="rign")


def test_variables_that_lack_or_lead_nowhere_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("MLX_RANK", "1")
    with pytest.raises(ArgumentError, match=r"Not set in the environment: MLX_HOSTFILE\. "):
        connect(backend="ring")
    monkeypatch.setenv("MLX_HOSTFILE", str(tmp_path / "hosts.json"))
    with pytest.raises(ArgumentError, match=r"MLX_HOSTFILE is '.*hosts\.json', but this file does not exist\."):
        connect(backend="ring")


@pytest.mark.parametrize(("name", "value"), [("MLX_RANK", "1"), ("MLX_WORLD_SIZE", "2")])
def test_a_process_that_was_started_as_one_of_several_does_not_train_alone(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    said = (
        rf"the environment variables declare several ranks: got {name}={value}\. .*\. The backend ring lacks .*HOSTFILE\. The backend nccl"
    )
    with pytest.raises(ArgumentError, match=said):
        connect()
    monkeypatch.setenv(name, {"MLX_RANK": "0", "MLX_WORLD_SIZE": "1"}[name])
    assert connect().world.size == 1


@pytest.mark.parametrize("case", sorted(UNEVEN))
def test_ranks_with_unequal_numbers_of_batches_end_the_epoch_together(case, tmp_path):
    launch(case, tmp_path)
    (steps, said, params), (others, told, theirs) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    counts = [len(list(UNEVEN[case](fp.distributed.World(rank, 2)))) for rank in range(2)]
    assert counts[0] != counts[1]
    assert steps == others == 2 * min(counts)
    assert params == theirs
    assert [bool(said), bool(told)] == [counts[0] > counts[1], counts[1] > counts[0]]
    assert "The epoch ends here on all ranks" in (said or told)[0]


@pytest.mark.parametrize(("case", "steps"), [("clock", 2), ("other clock", 4), ("metric", 3)])
def test_what_ends_a_run_is_decided_by_rank_0_for_all(case, steps, tmp_path):
    launch(case, tmp_path)
    (first, _, params), (second, _, theirs) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second == steps
    assert params == theirs


def test_ranks_continue_from_the_last_step_that_all_of_them_have(tmp_path):
    launch("in parts", tmp_path)
    for rank in range(2):
        begun, ended, same, left = json.loads((tmp_path / f"{rank}.json").read_text())
        assert (begun, ended, same) == (4, 8, True)
        assert left == [f"step-{step:08}.safetensors" for step in (6, 7, 8)]


def test_one_rank_writes(tmp_path):
    launch("writing", tmp_path)
    (steps, shown), (others, hidden) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert steps == others
    assert "done: " in shown
    assert hidden == ""
    assert {path.name for path in tmp_path.iterdir()} >= {"best-0.safetensors", "log-0.jsonl"}
    assert not {path.name for path in tmp_path.iterdir()} & {"best-1.safetensors", "log-1.jsonl"}


def test_a_rank_that_fails_ends_the_others_with_an_error(tmp_path):
    first, second = launch("raises", tmp_path, fails=True)
    assert "RankError: Rank 1 of 2 failed to prepare its next batch, so rank 0 cannot continue" in first
    assert "ValueError: a broken row" in second


def test_a_rank_that_dies_ends_the_others_within_the_limit(tmp_path):
    first, _ = launch("killed", tmp_path, fails=True)
    assert "this rank has waited 20 seconds for another rank, and ends" in first or "RankError: Another rank has ended" in first


def test_a_loss_that_is_nan_on_one_rank_ends_all_in_the_same_step(tmp_path):
    said = [output.partition("NonFiniteError: ")[2] for output in launch("nan", tmp_path, fails=True)]
    steps, rows = zip(*(text.partition(", computed from rows of all ranks, on this rank ")[::2] for text in said), strict=True)
    assert steps[0] == steps[1] != ""
    assert rows[0].partition(" of ")[0] != rows[1].partition(" of ")[0]


def test_ctrl_c_in_one_rank_ends_the_others_within_the_limit(tmp_path):
    first, second = launch("interrupted", tmp_path, fails=True)
    assert "this rank has waited 20 seconds for another rank, and ends" in first or "RankError: Another rank has ended" in first
    assert "KeyboardInterrupt" in second


def test_an_error_of_a_backend_is_one_about_ranks():
    ranks = Ranks(fp.distributed.World(0, 2), None)
    with (
        pytest.raises(RankError, match=r"Another rank has ended, .*: \[ring\] connection to a peer was lost\. The output"),
        ranks.waiting(),
    ):
        raise RuntimeError("[ring] connection to a peer was lost")
    with pytest.raises(RuntimeError, match="of a user") as raised, ranks.waiting():
        raise RuntimeError("of a user")
    assert not isinstance(raised.value, RankError)
    with pytest.raises(RuntimeError, match=r"\[ring\]"), connect().waiting():
        raise RuntimeError("[ring] of a program that is alone")


@pytest.mark.parametrize("lost", [None, 0, 1])
def test_bytes_that_a_dead_rank_did_not_send_are_noticed(lost, monkeypatch):
    contents = [b"of rank 0", b""]
    ranks = Told(fp.distributed.World(0, 2), None)
    object.__setattr__(ranks, "said", [float(len(contents[1]))])

    def all_gather(own, group):
        rows = [np.array(own)[0], np.zeros(own.shape[1], np.uint8)]
        rows[1][:16] = np.frombuffer(_digest(contents[1]), np.uint8)
        if lost is not None:
            rows[lost] = np.full(own.shape[1], 7, np.uint8)
        return mx.array(np.stack(rows))

    monkeypatch.setattr(mx.distributed, "all_gather", all_gather)
    if lost is None:
        assert ranks.gather_bytes(contents[0]) == contents
        return
    with pytest.raises(RankError, match="a rank sent no data"):
        ranks.gather_bytes(contents[0])


def test_a_limit_must_be_above_0():
    with pytest.raises(ArgumentError, match="limit must be above 0, got limit=0"):
        connect(limit=0)


class Told(Ranks):
    """The first of two ranks; the second says what is given."""

    said = ()

    def gather(self, numbers):
        return [map_floats(numbers), list(self.said)]


def map_floats(numbers):
    return [float(number) for number in numbers]


def two(*said):
    ranks = Told(fp.distributed.World(0, 2), None)
    object.__setattr__(ranks, "said", map_floats(said))
    return ranks


def test_ranks_that_begin_at_different_steps_are_refused():
    with pytest.raises(ArgumentError, match=r"The ranks begin at different steps: 0, 6\. .* load_latest\(folder, like, ranks=ranks\)"):
        same_number(two(3, 6), [], 0)
    assert same_number(two(-1, 4), [], 4) is None
    batches = uneven(fp.distributed.World(0, 2), fp.take(6))
    assert [same_number(two(known, 4), batches, 4) for known in (2, 3, -1)] == [2, None, None]


def test_ranks_without_a_common_checkpoint_are_refused(tmp_path):
    step, state = setting()
    assert fp.load_latest(tmp_path, state, ranks=two(*[-1] * 16)).state == state
    fp.last(fp.pipe(fp.fit(step, state, [group()]), fp.observers.checkpoint(tmp_path, ranks=two())))
    assert fp.load_latest(tmp_path, state, ranks=two(1, *[-1] * 15)).state.step == 1
    with pytest.raises(CheckpointError, match=r"no checkpoint of the same step in .*\. Last saved steps: rank 0: 1, rank 1: none\."):
        fp.load_latest(tmp_path, state, ranks=two(*[-1] * 16))


class Meeting(Ranks):
    """Ranks that are threads, and meet in every message and every step; they must agree which of them it is."""

    met: dict

    def gather(self, numbers):
        return self.meet("message", map_floats(numbers))

    def meet(self, what, value):
        barrier, table = self.met
        table[self.world.rank] = what, value
        barrier.wait(20)
        kinds, values = zip(*(table[rank] for rank in range(self.world.size)), strict=True)
        barrier.wait(20)
        assert len(set(kinds)) == 1, f"one rank waits in a {kinds[0]}, another one in a {kinds[1]}"
        return list(values)


def feeds(count, fails_at):
    for place in range(count):
        if place == fails_at:
            raise ValueError("a broken row")
        yield place


def meet(own, others, *, size, every):
    """Run an epoch on two ranks, each with a number of batches and the place of one that fails; return how each ended, and its steps."""
    met, ended = (threading.Barrier(2), {}), {}

    def train(rank, batches, fails_at):
        ranks = Meeting(fp.distributed.World(rank, 2), None)
        object.__setattr__(ranks, "met", met)
        made, read = 0, 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                feed = in_step(ranks, feeds(batches, fails_at), 7, size, lambda step: step % every == 0)
                for _ in feed:
                    ranks.meet("step", None)
                    made += 1
                    read = made if (7 + made) % every == 0 else read
            ended[rank] = "end", made, read
        except Exception as error:  # noqa: BLE001  # whatever it is, the test compares it
            met[0].abort() if not isinstance(error, ValueError | RankError) else None
            ended[rank] = type(error).__name__, made, read

    threads = [threading.Thread(target=train, args=(rank, *given)) for rank, given in enumerate((own, others))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended[0], ended[1]


@given(count=st.integers(1, 12), fails_at=st.integers(0, 14), every=st.integers(1, 6), known=st.booleans())
def test_a_feed_that_fails_ends_all_ranks_before_its_steps_are_read(count, fails_at, every, known):
    first, second = meet((count, None), (count, fails_at), size=count if known else None, every=every)
    assert first[1:] == second[1:]
    if fails_at >= count:
        assert first == second == ("end", count, first[2])
    else:
        assert (first[0], second[0]) == ("RankError", "ValueError")
        assert first[2] <= fails_at
        assert first[1] <= min(fails_at + every, count)
        assert known or first[1] == fails_at


@given(own=st.integers(1, 9), others=st.integers(1, 9), every=st.integers(1, 6))
def test_ranks_with_other_numbers_of_batches_end_together(own, others, every):
    first, second = meet((own, None), (others, None), size=None, every=every)
    assert first[:2] == second[:2] == ("end", min(own, others))


def test_the_thread_that_watches_ends_where_nobody_waits():
    watch = _Watch(limit=0.2)
    for _ in range(2):
        with watch.set(watching=True):
            thread = watch._thread
            assert thread.is_alive()
        thread.join(10)
        assert not thread.is_alive()
