"""Arrays that are fused of several are divided as MLX divides them, and put together as they were, whatever the number of ranks."""

import json
from itertools import accumulate

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from mlx import nn
from mlx.nn.layers import distributed

import mlxfp as fp
from mlxfp.models.layers import draw_weights
from mlxfp.support.errors import CheckpointError, UnknownNameError
from mlxfp.training.steps.sharding import joined, part_of, sizes_of

COUNTS = st.sampled_from([1, 2, 4])


class Group:
    """One of several ranks that cannot send anything."""

    def __init__(self, rank, size):
        self.numbers = rank, size

    def rank(self):
        return self.numbers[0]

    def size(self):
        return self.numbers[1]


@st.composite
def fused(draw):
    """The segments of an axis that 4 ranks can divide, as each of the three kinds that MLX takes, and its size."""
    sizes = draw(st.lists(st.integers(1, 3).map(lambda size: 4 * size), min_size=1, max_size=4))
    size, ends = sum(sizes), list(accumulate(sizes))[:-1]
    kinds = [tuple(ends), tuple((end + 0.5) / size for end in ends)] if ends else [1]
    return draw(st.sampled_from([*kinds, *([len(sizes)] if len(set(sizes)) == 1 else [])])), size


@given(fused(), COUNTS, st.integers(0, 1))
def test_parts_are_those_of_mlx_and_together_they_are_the_whole(axis, count, along):
    segments, size = axis
    whole = mx.arange(3 * size).reshape((size, 3) if along == 0 else (3, size))
    sizes = sizes_of(segments, size)
    parts = [part_of(whole, along, sizes, index, count) for index in range(count)]
    given_to_mlx = segments if isinstance(segments, int) else list(segments)
    for index, part in enumerate(parts):
        theirs = distributed._shard({"w": whole}, lambda path, array: (along, given_to_mlx), Group(index, count))["w"]
        assert np.array_equal(part, theirs)
    assert np.array_equal(joined(parts, along, sizes), whole)


def model(index, count, *, segments=(3, (4, 12), (0.5,)), divide=fp.distributed.shard_linear):
    """Three layers with the same weights on all ranks, and then divided between them; whole for one."""
    layers = nn.Sequential(nn.Linear(4, 24), nn.Linear(24, 24), nn.Linear(24, 8))
    draw_weights(layers, 0)
    ranks = fp.distributed.Ranks(fp.distributed.World(index, count, count), Group(index, count))
    kinds = ("all-to-sharded", "sharded-to-all", "all-to-sharded")
    if count > 1:
        layers.layers = [divide(*each, ranks=ranks, segments=some) for *each, some in zip(layers.layers, kinds, segments, strict=True)]
    return layers


def of_mlx(layer, kind, *, ranks, segments):
    return distributed.shard_linear(
        layer, kind, segments=segments if isinstance(segments, int) else list(segments), group=ranks.tensor_group
    )


def state_of(index, count, **rest):
    return fp.train_state(model(index, count, **rest), fp.optimizers.adamw(0.1))


def write(folder, count, step=1, **rest):
    for index in range(count):
        path = folder / f"rank-{index}"
        path.mkdir(exist_ok=True)
        fp.save_state(path / f"step-{step:08}.safetensors", evolve(state_of(index, count, **rest), step=step))


@pytest.mark.parametrize("wrote", [1, 2, 4])
@pytest.mark.parametrize("reads", [1, 2, 4])
def test_what_some_ranks_wrote_any_number_reads(wrote, reads, tmp_path):
    write(tmp_path, wrote)
    for index in range(reads):
        blank = state_of(index, reads)
        fresh = evolve(blank, params=nn.utils.tree_map(mx.zeros_like, blank.params))
        if reads == wrote:
            found = fp.load_state(tmp_path / f"rank-{index}" / "step-00000001.safetensors", fresh)
        else:
            found = fp.load_latest(tmp_path, fresh, ranks=fp.distributed.connect())
        assert found.state == evolve(blank, step=1)


@pytest.mark.parametrize(("divide", "reads"), [({"divide": of_mlx}, {}), ({}, {"divide": of_mlx})], ids=["file", "model"])
def test_parts_of_layers_that_do_not_keep_their_segments_are_not_guessed(divide, reads, tmp_path):
    write(tmp_path, 2, **divide)
    where, then = (
        ("the model of this run", r"\.$") if reads else (".*step-00000001.safetensors", ", and write one more checkpoint with 2 ranks:")
    )
    said = rf"{where} has no segment sizes for the divided arrays params\.layers\[0\]\.bias, .* with mlxfp\.distributed\.shard_linear{then}"
    with pytest.raises(CheckpointError, match=said):
        fp.load_latest(tmp_path, state_of(0, 4, **reads), ranks=fp.distributed.connect())
    for index in range(2):  # as many ranks go on, and what they write says how it is divided
        path = tmp_path / f"rank-{index}" / "step-00000001.safetensors"
        fp.save_state(path.with_stem("step-00000002"), evolve(fp.load_state(path, state_of(index, 2)).state, step=2))
    assert fp.load_latest(tmp_path, state_of(3, 4), ranks=fp.distributed.connect()).state == evolve(state_of(3, 4), step=2)


def test_segments_that_have_changed_are_named(tmp_path):
    write(tmp_path, 2)
    with pytest.raises(
        CheckpointError, match=r"have the sizes \[8, 8, 8\] in the file .* sizes \[12, 12\] in the model of this run\. Call"
    ):
        fp.load_state(tmp_path / "rank-0" / "step-00000001.safetensors", state_of(0, 2, segments=(2, (4, 12), (0.5,))))


def test_a_checkpoint_says_which_segments_its_parts_have(tmp_path):
    write(tmp_path, 2)
    _, metadata = mx.load(str(tmp_path / "rank-1" / "step-00000001.safetensors"), return_metadata=True)
    shards = json.loads(metadata["mlxfp"])["shards"]
    assert shards["segments"].keys() == shards["axes"].keys()
    assert shards["segments"]["params.layers[0].weight"] == shards["segments"]["opt.layers[0].bias.v"] == [8, 8, 8]
    assert shards["segments"]["params.layers[1].weight"] == [4, 8, 12]


def test_a_way_to_divide_that_does_not_exist_is_refused():
    with pytest.raises(UnknownNameError, match="all-to-all"):
        fp.distributed.shard_linear(nn.Linear(4, 4), "all-to-all", ranks=fp.distributed.connect())
