"""The laws of datasets catch what is not a value, not lazy, or not as described."""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from attrs import field, frozen

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch, one_chunk
from mlxfp.core.sources import Position
from mlxfp.testing.laws import (
    assert_built_lazily,
    assert_described,
    assert_prints,
    assert_repeatable,
    assert_same_items,
    assert_same_value,
    assert_told_apart,
    assert_value,
)
from tests.testing.laws import broken

TABLE = fp.from_table(broken.TABLE)


@pytest.mark.parametrize(
    "dataset",
    [
        fp.pipe(TABLE, fp.filter(broken.Global())),
        fp.pipe(TABLE, broken.CountingStage()),
        fp.Dataset(broken.OnePass()),
        fp.pipe(TABLE, broken.LyingState()),
    ],
    ids=repr,
)
def test_what_cannot_be_iterated_again_is_caught(dataset: fp.Dataset[Any]):
    with pytest.raises(AssertionError):
        assert_repeatable(dataset)


def test_one_iterator_that_two_iterations_share_is_caught():
    shared: list[Iterator[Any]] = []

    def rows() -> Iterator[Any]:
        """Start over, but only once the last iteration has ended."""
        if not shared:
            shared.append({"x": x} for x in range(300))  # more than are pulled at once
        yield from shared[0]
        shared.clear()

    with pytest.raises(AssertionError, match=r"of two parallel iterations of .* gives the same as one alone"):
        assert_repeatable(fp.from_iterable(rows, schema=pa.schema({"x": pa.int64()})))


@frozen
class Identical:
    """Equal only to itself."""

    table: dict[str, int] = field(factory=dict, eq=False)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 0


@frozen(eq=False)
class Unhashable:
    """Equal, and hashed by where it lies."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    def __hash__(self) -> int:
        return id(self)


@frozen(eq=False)
class BothWays:
    """Equal and unequal at once."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@frozen(repr=False)
class PrintsItsPlace:
    def __repr__(self) -> str:
        return f"stage at {id(self)}"


@frozen
class OtherFingerprint:
    def __fingerprint__(self) -> int:
        return id(self)


@frozen
class Forgetful:
    """Loses its configuration when it is pickled."""

    size: int = 1

    def __getstate__(self) -> dict[str, int]:
        return {"size": 0}

    def __setstate__(self, state: dict[str, int]) -> None:
        object.__setattr__(self, "size", state["size"])

    def __deepcopy__(self, memo: Any) -> "Forgetful":
        return self


@frozen
class HoldsList:
    items: list[int]


@pytest.mark.parametrize(
    "value",
    [Identical(), Unhashable(), BothWays(), PrintsItsPlace(), OtherFingerprint(), Forgetful()],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_a_value_is_caught(value: Any):
    with pytest.raises(AssertionError):
        assert_value(value)


def test_a_value_with_a_list_names_the_tuple():
    with pytest.raises(AssertionError, match=r"has no hash: unhashable type: 'list'\. Store tuples instead of lists"):
        assert_same_value(HoldsList([1]), HoldsList([1]))


def test_a_value_passes_and_so_does_its_pickled_copy():
    dataset = fp.pipe(TABLE, fp.batch(2))
    assert_value(dataset)
    assert_same_value(pickle.loads(pickle.dumps(dataset)), fp.pipe(fp.from_table(broken.TABLE), fp.batch(2)))


def test_values_that_differ_in_what_equality_leaves_out_are_caught():
    assert_told_apart(fp.batch(2), fp.batch(3))
    with pytest.raises(AssertionError, match=r"differs from"):
        assert_told_apart(broken.CountingStage([1]), broken.CountingStage([2]))
    with pytest.raises(AssertionError, match=r"has a different fingerprint from"):
        assert_told_apart(Named("a"), Named("b"))


@frozen
class Named:
    """Takes a name into account when compared and not when fingerprinted."""

    name: str

    def __fingerprint__(self) -> int:
        return 0


def test_reading_while_building_is_caught():
    chunks = [one_chunk(broken.TABLE)]
    assert_built_lazily(fp.batch(2), chunks)
    with pytest.raises(AssertionError, match=r"building .* reads nothing, but it read chunks of .7."):
        assert_built_lazily(lambda dataset: fp.from_table(pa.Table.from_pylist(list(dataset))), chunks)
    with pytest.raises(AssertionError, match=r"looking at .* reads nothing, but chunks of .7. rows were read"):
        assert_built_lazily(broken.wrapped(CountsByReading), chunks)


@frozen(repr=False)
class CountsByReading(fp.parts.Wrapper):
    """Reads everything when asked for its length."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        return iter(())

    def length(self) -> int:
        return len(list(self.dataset))


def test_what_prints_as_another_call_is_caught():
    assert_prints(fp.batch(2, drop_last=True), {"batch": fp.batch})
    with pytest.raises(AssertionError, match=r"should give an equal value"):
        assert_prints(fp.batch(2), {"batch": lambda size: fp.batch(size + 1)})
    with pytest.raises(
        AssertionError, match=r"counting_stage.* is a call that should create an equal value, but the call raises NameError"
    ):
        assert_prints(broken.CountingStage(), {"batch": fp.batch})


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (fp.pipe(TABLE, broken.WrongSchema()), "schema .* is stated as"),
        (fp.pipe(TABLE, broken.WrongLength()), "is stated as 7, but 14 items came out"),
        (fp.Dataset(broken.WrongCount()), "is stated as 8, but 7 items came out"),
        (fp.pipe(TABLE, fp.batch(2), broken.wrapped(CountsByReading)), "is stated as 4, but 0 items came out"),
        (fp.Dataset(broken.WrongTypes()), "schema .* is stated as"),
    ],
    ids=repr,
)
def test_what_is_described_wrongly_is_caught(dataset: fp.Dataset[Any], words: str):
    with pytest.raises(AssertionError, match=words):
        assert_described(dataset)


def test_a_part_that_prints_differently_each_time_is_caught():
    with pytest.raises(AssertionError, match=r"name every part"):
        assert_described(fp.pipe(TABLE, PrintsAnew()))


@frozen(repr=False)
class PrintsAnew(fp.RowWise):
    ticks: list[int] = field(factory=list, eq=False)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk

    def __repr__(self) -> str:
        self.ticks.append(0)
        return f"stage number {len(self.ticks)}"


def test_datasets_with_other_items_are_not_the_same():
    assert_same_items(fp.pipe(TABLE, fp.batch(2)), fp.pipe(fp.Dataset(broken.BrokenSource()), fp.batch(2)))
    with pytest.raises(AssertionError, match=r"rows\[0\]\.x: 0, not 9"):
        assert_same_items(TABLE, fp.from_table(pa.table({"x": [9, 1, 2, 3, 4, 5, 6]})))
    with pytest.raises(AssertionError, match=r"gives groups, not examples"):
        assert_same_items(fp.pipe(TABLE, fp.batch(2)), TABLE)
