"""Ranks that write together, here as threads: tests/properties/ranks/test_ranks.py has real processes."""

import threading
from contextlib import closing

import pytest

import mlxfp as fp
from mlxfp.data.running.rank_pools import RankPool
from mlxfp.data.running.runners import RANKS, Runner
from mlxfp.support.errors import ArgumentError, DataError, RankError
from tests.properties.ranks.rank_programs import ROWS, WRITTEN


class Thread:
    """One of several ranks that are threads."""

    def __init__(self, rank, size, barrier, table):
        self.world, self._barrier, self._table = fp.distributed.World(rank, size), barrier, table

    def gather(self, numbers):
        self._table[self.world.rank] = list(numbers)
        self._barrier.wait(20)
        found = [self._table[rank] for rank in range(self.world.size)]
        self._barrier.wait(20)
        return found


def in_threads(work, size=2):
    """Call `work(peer)` on each rank; return what came out, or the error."""
    barrier, table, ended = threading.Barrier(size), {}, {}

    def begin(rank):
        try:
            ended[rank] = work(Thread(rank, size, barrier, table))
        except Exception as error:  # noqa: BLE001  # the test looks at it
            ended[rank] = error

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ended[rank] for rank in range(size)]


def met(peer, work):
    with closing(RankPool(peer)) as pool:
        return work(pool)


def test_ranks_meet_when_all_have_done_their_part_and_learn_of_one_that_fails():
    assert in_threads(lambda peer: met(peer, lambda pool: pool.meet(lambda: float(pool.rank))), size=3) == [[0.0, 1.0, 2.0]] * 3
    first, second = in_threads(lambda peer: met(peer, lambda pool: pool.meet(lambda: 1.0 / pool.rank)))
    assert isinstance(first, ZeroDivisionError)
    assert isinstance(second, RankError)
    assert "Rank 0 of 2 failed while writing its files, so rank 1 stops" in str(second)


def test_ranks_that_would_write_different_data_are_refused():
    assert in_threads(lambda peer: met(peer, lambda pool: pool.check_same("0f" * 16))) == [None, None]
    for error in in_threads(lambda peer: met(peer, lambda pool: pool.check_same(f"{pool.rank}f" * 16))):
        assert isinstance(error, ArgumentError)
        assert "rank 1 differs from rank 0. Remove shard" in str(error)


def written_by(peer, dataset, folder):
    return fp.write(dataset, folder, rows_per_file=30, on=Runner(RANKS, 0, lambda: RankPool(peer)))


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", WRITTEN)
def test_ranks_write_the_bytes_that_one_process_writes_and_a_second_call_finds_all_done(name, tmp_path):
    alone = fp.write(WRITTEN[name], tmp_path / "alone", rows_per_file=30)
    for _ in range(2):
        assert in_threads(lambda peer: written_by(peer, WRITTEN[name], tmp_path / "ranks")) == [alone, alone]
        assert files_in(tmp_path / "ranks") == files_in(tmp_path / "alone")


def test_a_rank_that_does_not_see_the_folder_of_rank_0_says_so(tmp_path):
    for name in ("rows", "packed"):
        _, second = in_threads(lambda peer, name=name: written_by(peer, WRITTEN[name], tmp_path / f"{name}-{peer.world.rank}"))
        assert isinstance(second, DataError)
        assert "Rank 1 does not see the files that rank 0 writes" in str(second)


def test_rows_of_a_shard_are_refused(tmp_path):
    for error in in_threads(lambda peer: written_by(peer, fp.pipe(ROWS, fp.shard(peer.world.rank, 2)), tmp_path)):
        assert isinstance(error, ArgumentError)
