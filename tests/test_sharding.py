"""Models that are divided between ranks train as one process does: real processes, connected by MLX's ring."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve
from mlx import nn, optimizers
from mlx.nn.layers.distributed import AllToShardedLinear, FullyShardedModule, ShardedToAllLinear

from mlxfp.core.errors import ArgumentError, CheckpointError
from mlxfp.data.rows.sharding import World
from mlxfp.distributed import Ranks, connect
from mlxfp.training.loop.checkpoints import load_latest, load_state, save_state
from mlxfp.training.loop.evaluating import evaluate, predict
from mlxfp.training.observers import checkpoint_best
from mlxfp.training.optimization.optimizers import adamw, by_name, grouped, vectors
from mlxfp.training.steps.state import train_state
from mlxfp.training.steps.steps import train_step
from tests.compiling import nothing_compiled
from tests.sharded_programs import CASES, OPTIONS, go_on, train
from tests.test_ranks import started
from tests.training.samples import group, loss

PROGRAM = """
import sys
from mlxfp.runtime import use_fast_blas
use_fast_blas(threads=1)
from mlxfp.distributed import connect
from tests.sharded_programs import CASES
ranks = connect(backend="ring", limit=100, tensor=int(sys.argv[3]))
with ranks.waiting():
    CASES[sys.argv[1]](ranks, sys.argv[2])
"""


def launched(size, case, folder, *, tensor=1):
    """Run a case in so many processes; in this one, if it is alone."""
    if size == 1:
        with nothing_compiled():
            CASES[case](connect(), folder)
        return
    for output, code in started(size, folder, "-c", PROGRAM, case, str(folder), str(tensor)):
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


def test_the_law_catches_gradients_that_are_added_up_twice(alone, tmp_path):
    launched(2, "again", tmp_path)
    with pytest.raises(AssertionError, match=r"differs|the metrics are|that of one process"):
        assert_trains_as_one(tmp_path, alone, "clipped", 2)


@pytest.mark.parametrize("parts", [[(2, 1), (4, 1), (1, 1), (2, 1)], [(2, 2), (2, 1), (2, 1), (2, 2)]], ids=str)
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
