"""The law of trying: however long the way by words takes, texts take little longer than by the tokenizer alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from attrs import define
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfp.text.encoding import encoding, snippets
from mlxfp.text.encoding.batch_calls import Caller
from mlxfp.text.encoding.credit import CALL_BYTES, Credit
from mlxfp.text.encoding.snippets import Lexicon
from tests.text.corpora import trained

CHUNKS = st.lists(st.tuples(st.integers(1, 64), st.integers(1, 200)), min_size=1, max_size=200)  # (rows, characters of each)


@define
class World:
    """A clock that moves only where a tokenizer or words take time: seconds for a byte."""

    tokenizer: float
    words: float
    find: bool
    now: float = 0.0
    longest: float = 0.0  # of all tries

    def clock(self) -> float:
        return self.now

    def encode(self, texts: Sequence[str]) -> Any:
        self.now += self.tokenizer * _bytes(texts)
        return [b""] * len(texts)

    def try_few(self, texts: Sequence[str], _: float) -> Any:
        seconds = self.words * _bytes(texts)
        self.now, self.longest = self.now + seconds, max(self.longest, seconds)
        return [b"" if self.find else None] * len(texts)

    def try_column(self, _: Any, texts: pa.Array, credit: float) -> Any:
        found = self.try_few(texts.to_pylist(), credit)
        return found if self.find else None


def _bytes(texts: Sequence[str]) -> int:
    return sum(map(len, texts)) + CALL_BYTES * len(texts)


@contextmanager
def living_in(world: World) -> Iterator[None]:
    """Let tokenizers and words do nothing but take time."""
    with (
        patch.multiple(snippets, perf_counter=world.clock),
        patch.multiple(encoding, perf_counter=world.clock, _by_words=world.try_column, _FEW=64, _LITTLE=1 << 30),
        patch.multiple(Lexicon, find=world.try_few),
        patch.multiple(Caller, pieces=world.encode, encode=world.encode),
    ):
        yield


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    encoding._encoder.cache_clear()
    yield
    encoding._encoder.cache_clear()


def spent(world: World, chunks: Sequence[tuple[int, int]], *, few: bool) -> float:
    """Encode chunks in that world, and return the time that the tokenizer alone would have taken, in seconds."""
    encoder, usual = encoding._encoder(trained("bpe").json), 0.0
    with living_in(world):
        for rows, size in chunks:
            texts = ["x" * size] * (rows if few else 65 * rows)
            encoder.encode(pa.array(texts))
            usual += world.tokenizer * _bytes(texts)
    return usual


def alike(count: int, *, few: bool) -> list[tuple[int, int]]:
    return [(64 if few else 2, 200)] * count


@pytest.mark.parametrize("few", [True, False])
@example(tokenizer=1e-7, factor=3.0, find=True, chunks=[(64, 200)] * 300)
@example(tokenizer=1e-8, factor=3.0, find=True, chunks=[(64, 200)] * 300)
@example(tokenizer=1e-6, factor=2.0, find=True, chunks=[(11, 1), (11, 51)])  # of texts with as good as no bytes
@example(tokenizer=1e-7, factor=0.2, find=False, chunks=[(64, 200)] * 300)
@given(tokenizer=st.floats(-8, -5).map(lambda power: 10**power), factor=st.floats(0.0, 20.0), find=st.booleans(), chunks=CHUNKS)
def test_trying_takes_a_small_share_of_the_time(tokenizer: float, factor: float, chunks: list[Any], *, find: bool, few: bool):
    encoding._encoder.cache_clear()  # for each example
    world = World(tokenizer, factor * tokenizer, find)
    usual = spent(world, chunks, few=few)
    assert world.now <= 1.0101 * usual + 4.1e-3 + world.longest


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("tokenizer", [1e-8, 1e-6])
def test_a_way_that_is_faster_is_taken_at_once_and_again_after_it_was_in_vain(tokenizer: float, *, few: bool):
    for find in (True, False, True):
        world = World(tokenizer, 0.1 * tokenizer, find)
        usual = spent(world, alike(3000, few=few), few=few)
        assert world.now < 0.3 * usual or not find


@pytest.mark.parametrize("few", [True, False])
def test_a_tokenizer_that_becomes_faster_is_noticed(*, few: bool):
    spent(World(1e-6, 2e-7, find=True), alike(100, few=few), few=few)
    world = World(1e-7, 2e-7, find=True)
    usual = spent(world, alike(4000, few=few), few=few)
    assert world.now < 1.5 * usual


@pytest.mark.parametrize("few", [True, False])
def test_no_more_is_saved_up_than_some_milliseconds(*, few: bool):
    spent(World(1e-7, 1e-8, find=True), alike(3000, few=few), few=few)
    world = World(1e-7, 1e-7, find=False)
    usual = spent(world, alike(1000, few=few), few=few)
    assert world.now < 1.0101 * usual + 16e-3 + 2 * world.longest


def test_the_law_catches_a_clock_that_is_not_read(monkeypatch: pytest.MonkeyPatch):
    chunks = [(64, 200)] * 300
    for broken in (
        lambda self, size, seconds: None,  # what a try took is not counted
        lambda self, size, seconds: setattr(self, "left", self.left + self.pace * size),  # nor is it where words are found
    ):
        with monkeypatch.context() as patched:
            patched.setattr(Credit, "settle", broken)
            world = World(1e-7, 3e-7, find=True)
            usual = spent(world, chunks, few=True)
        assert world.now > 1.5 * usual


def test_one_odd_timing_does_not_count_for_long():
    credit = Credit()
    credit.timed(1000, 1e-3)
    assert credit.pace == 1e-6
    credit.timed(1000, 10.0)  # the process was stopped
    assert credit.pace < 3e-6
    for _ in range(4):
        credit.timed(1000, 1e-3)
    assert credit.pace < 1.1e-6
    before = credit.pace
    credit.timed(0, 1.0)  # of nothing
    assert credit.pace == before
