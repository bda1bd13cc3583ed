import numpy as np
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfp.core.datasets import Stage
from mlxfp.core.pipelines import pipe
from mlxfp.core.rewriting import rewrite
from mlxfp.data.inspection.column_stats import column_stats
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import map
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.wrappers import StandInSource, StandInStage
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.data.sources.in_memory import from_table
from mlxfp.testing.laws import assert_described, assert_random_access, assert_reads, assert_resumable, assert_same_items
from mlxfp.testing.strategies import pipelines


@frozen(repr=False)
class _Mute(StandInStage):
    """Gives nothing."""

    def step(self, state, chunk):
        return state, ()


def replaced(dataset):
    return rewrite(dataset, StandInSource, lambda each: tuple(map_in(StandInStage, each.stages)))


def map_in(function, values):
    return [function(value) for value in values]


@settings(max_examples=40)
@given(dataset=pipelines(), epoch=st.integers(0, 1))
def test_a_pipeline_of_stand_ins_is_like_the_pipeline(dataset, epoch):
    other = replaced(dataset)
    assert_same_items(other, dataset, epoch=epoch)
    assert repr(other) == repr(dataset)
    assert_resumable(other, epoch=epoch)
    if dataset.source.level == "examples":
        assert_reads(other.source, epoch=epoch)
    assert (other.level, other.indexable) == (dataset.level, dataset.indexable)


def test_a_stand_in_that_is_not_like_its_stage_is_caught():
    dataset = pipe(from_table({"x": [1, 2]}), map(dict), batch(1))
    broken = rewrite(dataset, StandInSource, lambda each: tuple(map_in(_Mute, each.stages)))
    with pytest.raises(AssertionError, match="gives what"):
        assert_same_items(broken, dataset)


def test_random_access_lengths_and_notes_are_those_of_what_they_stand_for(tmp_path):
    dataset = pipe(from_table({"x": np.arange(9)}), map(dict), shuffle(seed=0), shard(0, 2))
    assert_random_access(replaced(dataset), np.array([3, 0]))
    assert_described(replaced(dataset))
    (tmp_path / "a.csv").write_text("x\n1\n")
    source = read_csv(tmp_path / "a.csv").source
    assert StandInSource(source).version() == source.version()
    assert StandInSource(source).notes() == source.notes()
    buffered = shuffle(seed=0, buffer=4)
    assert isinstance(buffered, Stage)
    assert StandInStage(buffered).notes() == buffered.notes()
    assert StandInStage(batch(2)).length(5) == 3
    assert StandInStage(batch(2)).accepts == {"examples"}
    assert StandInStage(map(dict)).longest(5) is None
    assert StandInStage(column_stats(["x"])).longest(5) == 5
