"""Models that are divided between ranks train as one process does: real processes, connected by MLX's ring."""

import json
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from shutil import which

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve
from mlx import nn, optimizers
from mlx.nn.layers.distributed import (
    AllToShardedLinear,
    FullyShardedModule,
    QuantizedAllToShardedLinear,
    QuantizedShardedToAllLinear,
)

import mlxfp as fp
from mlxfp.distributed import Ranks, _divided, connect, shard_linear
from mlxfp.support.errors import ArgumentError, CheckpointError
from mlxfp.support.trees import flatten, tree_map
from mlxfp.training.steps.sharding import axes_in, names_of
from mlxfp.training.steps.state import train_state, trees_of
from tests.compiling import nothing_compiled
from tests.properties.ranks.sharded_programs import CASES, OPTIONS, go_on, train
from tests.properties.ranks.test_ranks import ENVIRONMENT, ROOT, started
from tests.training.samples import deep, group, loss

pytestmark = pytest.mark.filterwarnings("ignore:predict got shuffled batches")  # the order of rows does not matter here

PROGRAM = """
import sys
from mlxfp.runtime import use_fast_blas
use_fast_blas(threads=1)
from mlxfp.distributed import connect
from tests.properties.ranks.sharded_programs import CASES
ranks = connect(backend=sys.argv[4], limit=100, tensor=int(sys.argv[3]))
with ranks.waiting():
    CASES[sys.argv[1]](ranks, sys.argv[2])
"""


def launched(size, case, folder, *, tensor=1):
    """Run a case in so many processes; in this one, if it is alone."""
    if size == 1:
        with nothing_compiled():
            CASES[case](connect(), folder)
        return
    for output, code in started(size, folder, "-c", PROGRAM, case, str(folder), str(tensor), "ring"):
        assert code == 0, output


def whole(folder, case, size):
    """Put the arrays of all ranks together, and return them with the other results, which are the same on all."""
    said = [json.loads(Path(folder, f"{case}-{rank}.json").read_text()) for rank in range(size)]
    assert all(each == said[0] for each in said), "the results of the ranks differ"
    files = [dict(np.load(Path(folder, f"{case}-{rank}.npz"))) for rank in range(size)]
    axes, *results = said[0]
    for name, first in files[0].items():
        parts = [file[name] for file in files]
        if name not in axes:
            assert all(np.array_equal(first, part) for part in parts), f"{name} differs between ranks"
        yield name, np.concatenate(parts, axes[name]) if name in axes else first
    yield "results", results


def assert_trains_as_one(folder, alone, case, size, *, atol=2e-6):
    """Law: ranks that have parts of a model make the steps that one process makes with the whole model and all rows."""
    found, expected = dict(whole(folder, case, size)), dict(whole(alone, case, 1))
    for ours, theirs in zip(found.pop("results")[0], expected.pop("results")[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, nan_ok=True), f"the metrics are {ours}, those of one process {theirs}"
    assert_same_arrays(found, expected, atol=atol)


def assert_same_arrays(found, expected, *, atol):
    assert found.keys() == expected.keys()
    for name, theirs in expected.items():
        assert found[name].shape == theirs.shape, f"{name} is {found[name].shape}, that of one process {theirs.shape}"
        assert np.allclose(found[name], theirs, rtol=1e-4, atol=atol), f"{name} is {found[name]}, that of one process {theirs}"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of the same rows with the whole model."""
    folder = tmp_path_factory.mktemp("alone")
    with nothing_compiled():
        train(connect(), folder)
        for _ in range(4):
            go_on(connect(), folder)
    return folder


@pytest.mark.parametrize(("size", "tensor"), [(2, 1), (4, 1), (2, 2)])
def test_ranks_with_parts_of_a_model_train_as_one_process(size, tensor, alone, tmp_path):
    launched(size, "train", tmp_path, tensor=tensor)
    for case in OPTIONS:
        assert_trains_as_one(tmp_path, alone, case, size)
    (_, sent), recomputed = (dict(whole(tmp_path, case, size))["results"] for case in ("compiled", "recomputed"))
    assert (sent > 0) == (tensor == 1)
    assert recomputed[1] >= sent


@pytest.mark.skipif(not (which("mpirun") and find_library("mpi")), reason="Open MPI is not installed")
def test_ranks_in_groups_of_two_train_as_one_process(alone, tmp_path):
    command = [sys.executable, "-c", PROGRAM, "train", str(tmp_path), "2", "mpi"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {**ENVIRONMENT, **root, "MLX_MPI_LIBNAME": find_library("mpi")}
    start = [which("mpirun"), "--oversubscribe", "-n", "4", *command]
    done = subprocess.run(start, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr  # also when the groups would be freed at the end
    for case in OPTIONS:
        assert_trains_as_one(tmp_path, alone, case, 2)  # the first copy of the model
        for rank in range(2):
            ours, theirs = (dict(np.load(tmp_path / f"{case}-{each}.npz")) for each in (rank, rank + 2))
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_backend_with_sum_scatter_makes_the_same_steps_and_sends_less(tmp_path):
    launched(2, "scattered", tmp_path)
    for case in ("compiled", "clipped", "accumulated"):
        (metrics, sent), (others, less) = (dict(whole(folder, case, 2))["results"] for folder in (tmp_path, tmp_path / "scattered"))
        assert json.dumps(metrics) == json.dumps(others)
        assert less < sent
        for rank in range(2):
            ours, theirs = (dict(np.load(folder / f"{case}-{rank}.npz")) for folder in (tmp_path, tmp_path / "scattered"))
            assert ours.keys() == theirs.keys()
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_the_law_catches_gradients_that_are_added_up_twice(alone, tmp_path):
    launched(2, "again", tmp_path)
    with pytest.raises(AssertionError, match=r"differs|the metrics are|that of one process"):
        assert_trains_as_one(tmp_path, alone, "clipped", 2)


@pytest.mark.parametrize("parts", [[(2, 1), (4, 1), (1, 1)], [(2, 2), (2, 1), (2, 2)]], ids=str)
def test_a_run_goes_on_with_its_model_in_other_parts(parts, alone, tmp_path):
    for place, (size, tensor) in enumerate(parts):
        launched(size, "go on", tmp_path, tensor=tensor)
        case = f"step {6 * place + 6}"
        found, expected = dict(whole(tmp_path, case, size)), dict(whole(alone, case, 1))
        (begun, metrics, answers), (_, others, theirs) = found.pop("results"), expected.pop("results")
        assert begun == 6 * place
        assert metrics == pytest.approx(others, rel=1e-4)
        assert all(np.allclose(ours, each, rtol=1e-3, atol=1e-4) for ours, each in zip(answers, theirs, strict=True))
        assert_same_arrays(found, expected, atol=1e-5)


def test_a_run_goes_on_with_fused_layers_in_other_parts(tmp_path):
    (tmp_path / "alone").mkdir()
    for place, size in enumerate((4, 2)):
        launched(size, "go on fused", tmp_path, tensor=size)
        launched(1, "go on fused", tmp_path / "alone")
        case = f"step {6 * place + 6}"
        found, expected = dict(whole_of_segments(tmp_path, case, size)), dict(whole(tmp_path / "alone", case, 1))
        assert found.pop("results")[0] == 6 * place == expected.pop("results")[0]
        assert_same_arrays(found, expected, atol=1e-5)


def whole_of_segments(folder, case, size):
    """Put the arrays of all ranks together as `whole` does, and the two halves of each fused layer as MLX has divided them."""
    for name, found in whole(folder, case, size):
        if ".inner." not in name:
            yield name, found
            continue
        parts = [np.split(part, 2) for part in np.split(found, size)]
        yield name, np.concatenate([half for halves in zip(*parts, strict=True) for half in halves])


class Group:
    """One of several ranks that cannot send anything."""

    def __init__(self, size):
        self.ranks = size

    def size(self):
        return self.ranks

    def rank(self):
        return 0

    def split(self, color):
        raise RuntimeError("[ring] Group split not supported.")


def linear(size=2):
    ranks = Ranks(fp.distributed.World(0, size, size), Group(size))
    inner, outer = nn.Linear(4, 4), nn.Linear(4, 2)
    return nn.Sequential(
        nn.Linear(3, 4), shard_linear(inner, "all-to-sharded", ranks=ranks), shard_linear(outer, "sharded-to-all", ranks=ranks)
    )


def stored(module, size=2):
    """A module that is divided as by `fully_shard`."""
    layer = FullyShardedModule(module, group=Group(size))
    layer._gather_fn = lambda shards: [mx.concatenate([shard] * size) for shard in shards]
    return layer


def told(rank=0, size=2, tensor=1):
    return Ranks(fp.distributed.World(rank, size, tensor), None)


@pytest.mark.parametrize(
    ("model", "ranks", "said"),
    [
        (
            linear,
            None,
            r"divided by shard_linear between 2 ranks .* train_step was called without ranks=\. Pass ranks=connect\(tensor=2\)\.",
        ),
        (
            linear,
            told(),
            r"by shard_linear .* ranks of train_step has another division of ranks: World\(.*\)\. Pass ranks=connect\(tensor=2\)\.",
        ),
        (
            lambda: stored(nn.Linear(2, 2)),
            None,
            r"\(layers: the model\), but train_step was called without ranks=\. Pass ranks=connect\(\)\.",
        ),
        (
            lambda: stored(nn.Linear(2, 2)),
            told(size=4),
            r"by fully_shard .* Call fully_shard without group=",
        ),
        (
            lambda: stored(nn.BatchNorm(2)),
            told(),
            r"Batch normalisation in a module of .* got the model\. Call fully_shard",
        ),
        (lambda: nn.Sequential(linear(), stored(nn.Linear(2, 2))), told(), r"is divided in several ways: .* Divide all layers alike\."),
        (lambda: nn.Sequential(linear(2), linear(4)), told(), r"by shard_linear in 4, .* by shard_linear in 2\. Divide all"),
    ],
)
def test_ranks_that_do_not_fit_the_parts_of_a_model_are_refused(model, ranks, said):
    with pytest.raises(ArgumentError, match=said):
        fp.train_step(model(), loss, fp.optimizers.adamw(0.1), ranks=ranks)


def test_adapters_train_in_blocks_of_fully_shard_and_what_cannot_be_told_from_whole_arrays_is_refused(tmp_path):
    (tmp_path / "alone").mkdir()
    launched(1, "adapters", tmp_path / "alone")
    launched(2, "adapters", tmp_path)
    assert_trains_as_one(tmp_path, tmp_path / "alone", "adapters", 2)
    of_linear, of_inplace, of_seed = json.loads((tmp_path / "refused-0.json").read_text())
    assert json.loads((tmp_path / "refused-1.json").read_text()) == [of_linear, of_inplace, of_seed]
    assert "Layers divided by shard_linear cannot have adapters, because adapters are not divided: got blocks.0.inner." in of_linear
    assert "rank 1 differs from rank 0, first at params.blocks[0].inner.weight. Create" in of_inplace
    assert "If shard_inplace divided the model between ranks, use fully_shard or shard_linear instead:" in of_inplace
    assert "rank 1 differs from rank 0, first at params.first.weight. Create" in of_seed


def test_adapters_are_made_before_a_model_is_divided():
    for divided in (linear(), nn.Sequential(nn.Linear(4, 4), stored(nn.Linear(2, 2)))):
        with pytest.raises(ArgumentError, match=r"need whole layers, but the model is sharded over ranks at 'layers\.1.*Call lora first"):
            fp.models.lora(divided)


@pytest.mark.parametrize("make", [fp.evaluate, fp.predict])
def test_a_model_in_parts_is_evaluated_by_all_ranks(make):
    with pytest.raises(ArgumentError, match=rf"but {make.__name__} was called without ranks=\. Pass ranks="):
        make(stored(nn.Linear(2, 2)), loss)


def test_a_layer_that_one_rank_has_alone_is_whole():
    model = nn.Sequential(nn.Linear(3, 4), AllToShardedLinear(4, 2, group=connect().tensor_group))
    state, _ = fp.train_step(model, loss, fp.optimizers.adamw(0.1))(train_state(model, fp.optimizers.adamw(0.1)), group())
    assert (state.step, state.shards) == (1, None)


@pytest.mark.parametrize(
    ("optimizer", "fits"),
    [
        (fp.optimizers.adamw(0.1), True),
        (optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1), True),
        (optimizers.Lion(0.1), True),
        (optimizers.AdaDelta(0.1), True),
        (fp.optimizers.by_name("adamw", 0.1, weight_decay=0.1), True),
        (optimizers.Adam(optimizers.linear_schedule(0, 1e-3, 1000), bias_correction=True), True),
        (optimizers.Muon(0.1), False),
        (optimizers.Muon(1e-6), False),
        (optimizers.Muon(optimizers.linear_schedule(0, 1e-3, 1000)), False),
        (optimizers.Adafactor(0.1), False),
        (optimizers.Adafactor(warmup_init=True), False),
        (fp.optimizers.by_name("adafactor", 0.1), False),
        (fp.optimizers.grouped((fp.optimizers.vectors, fp.optimizers.adamw(0.1)), rest=optimizers.Muon(0.1)), False),
        (fp.optimizers.grouped((fp.optimizers.vectors, optimizers.Adafactor(0.1)), rest=fp.optimizers.adamw(0.1)), False),
        (
            fp.optimizers.grouped((lambda path, array: path.startswith("layers.0"), optimizers.Muon(0.1)), rest=fp.optimizers.adamw(0.1)),
            True,
        ),
    ],
)
def test_optimizers_that_need_whole_arrays_are_refused(optimizer, fits):
    model = linear()
    if fits:
        fp.train_step(model, loss, optimizer, ranks=told(tensor=2))
        return
    with pytest.raises(ArgumentError, match=r"updates whole arrays, but this rank has only a part of layers\.[12]\."):
        fp.train_step(model, loss, optimizer, ranks=told(tensor=2))


def test_a_state_of_the_model_before_it_was_divided_is_refused():
    step = fp.train_step(linear(), loss, fp.optimizers.adamw(0.1), ranks=told(tensor=2))
    state = train_state(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)), fp.optimizers.adamw(0.1))
    with pytest.raises(
        ArgumentError, match=r"The model of the step is part 1 of 2, but the state is whole\. Build both from the same model"
    ):
        step(state, group())


def test_a_file_with_one_part_is_not_a_whole_state(tmp_path):
    state = train_state(linear(), fp.optimizers.adamw(0.1))
    fp.save_state(tmp_path / "part.safetensors", state)
    assert fp.load_state(tmp_path / "part.safetensors", state).state == state
    whole = train_state(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)), fp.optimizers.adamw(0.1))
    said = (
        r"contains part 1 of 2, but the argument `like` contains a whole state\. .* Read all files with load_latest\(folder, like, ranks="
    )
    with pytest.raises(CheckpointError, match=said):
        fp.load_state(tmp_path / "part.safetensors", whole)
    with pytest.raises(CheckpointError, match=r"contains part 1 of 2, but the argument `like` contains part 2 of 2"):
        fp.load_state(tmp_path / "part.safetensors", evolve(state, shards=evolve(state.shards, index=1)))


def test_parts_of_which_one_is_missing_are_named(tmp_path):
    (tmp_path / "rank-0").mkdir()
    fp.save_state(tmp_path / "rank-0" / "step-00000000.safetensors", train_state(linear(), fp.optimizers.adamw(0.1)))
    whole = train_state(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)), fp.optimizers.adamw(0.1))
    with pytest.raises(CheckpointError, match=r"no step with the files .* step-00000000\.safetensors, is only in rank-0\. Use"):
        fp.load_latest(tmp_path, whole, ranks=connect())


def test_a_step_of_which_a_part_is_damaged_is_passed_over(tmp_path):
    whole = train_state(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)), fp.optimizers.adamw(0.1))
    state = train_state(linear(), fp.optimizers.adamw(0.1))
    for rank in range(2):
        (tmp_path / f"rank-{rank}").mkdir()
        for step in (1, 2):
            part = evolve(state, step=step, shards=evolve(state.shards, index=rank))
            fp.save_state(tmp_path / f"rank-{rank}" / f"step-0000000{step}.safetensors", part)
    assert fp.load_latest(tmp_path, whole, ranks=connect()).state.step == 2
    (tmp_path / "rank-0" / "step-00000002.safetensors").write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match="A checkpoint is damaged"):
        assert fp.load_latest(tmp_path, whole, ranks=connect()).state.step == 1


def test_one_file_cannot_hold_the_best_state_of_a_model_in_parts(tmp_path):
    began = fp.events.RunStarted(train_state(linear(), fp.optimizers.adamw(0.1)), None, 0, total=None)
    for rank in range(2):
        watching = fp.observers.checkpoint_best(tmp_path / "best.safetensors", "loss", mode="min", ranks=told(rank, tensor=2))
        with pytest.raises(ArgumentError, match=r"writes one file, but the model is divided between 2 ranks\. Use checkpoint\("):
            list(watching([began]))


def test_groups_of_ranks_that_cannot_be_are_refused():
    with pytest.raises(ArgumentError, match=r"Each of the 2 ranks holds a copy of the model, .* connect\(tensor=2\)"):
        told().tensor_group  # noqa: B018
    with pytest.raises(ArgumentError, match=r"cannot divide 4 ranks into groups of tensor=2 ranks: .*\[ring\] .* Pass tensor=4 to divide"):
        _divided(fp.distributed.World(0, 4, tensor=2), Group(4))
    with pytest.raises(ArgumentError, match=r"size=1 ranks cannot be divided into model copies of tensor \* pipeline = 2 \* 1 ranks"):
        connect(tensor=2)


def test_arrays_have_the_names_and_axes_of_a_model_that_is_not_divided():
    def state_of(wrap, outer):
        model, optimizer = deep(depth=2), fp.optimizers.by_name("adamw", 0.1, weight_decay=0.1)
        model.blocks = [wrap(block) for block in model.blocks]
        model = outer(model)
        step = fp.train_step(model, loss, optimizer, ema=0.5, accumulate=2, ranks=told())
        return step.start(train_state(model, optimizer))

    whole = trees_of(state_of(lambda module: module, lambda module: module))
    sizes = dict(zip(names_of(None, whole), [leaf.shape for leaf in flatten(whole)[1]], strict=True))
    for outer in (lambda module: module, stored):
        state = state_of(stored, outer)
        parts = dict(zip(names_of(state.shards, trees_of(state)), flatten(trees_of(state))[1], strict=True))
        axes = axes_in(state.shards, trees_of(state))
        assert parts.keys() == sizes.keys()
        assert {
            name: tuple(size * (1 + (axes.get(name) == axis)) for axis, size in enumerate(part.shape)) for name, part in parts.items()
        } == sizes
        assert ("params.first.weight" in axes) == (outer is stored)


def test_quantized_layers_are_parts_that_do_not_train():
    layers = [QuantizedAllToShardedLinear(64, 128, group=Group(2)), QuantizedShardedToAllLinear(128, 64, group=Group(2))]
    state = train_state(nn.Sequential(nn.Linear(3, 64), *layers), fp.optimizers.adamw(0.1))
    axes = {name.removeprefix("buffers.layers"): axis for name, axis in state.shards.axes.items()}
    first, second = ({f"[{place}].{name}": axis for name in ("weight", "scales", "biases")} for place, axis in ((1, 0), (2, 1)))
    assert axes == {**first, "[1].bias": 0, **second}


class Doubling(Ranks):
    """Two ranks with the same arrays."""

    messages = ()

    def _all_sum(self, array, group, size):
        self.messages.append((array.dtype, array.size))
        return array * size


def test_arrays_of_one_dtype_are_sent_together():
    ranks = Doubling(fp.distributed.World(0, 2), None)
    object.__setattr__(ranks, "messages", [])
    tree = {"a": mx.array([1.0, 2.0]), "b": (mx.array(3), mx.array([[4.0]])), "c": mx.array(0.5, mx.float16)}
    assert str(ranks.add_up(tree)) == str(tree_map(lambda leaf: leaf * 2, tree))
    assert ranks.messages == [(mx.float32, 3), (mx.int32, 1), (mx.float16, 1)]
