"""proportions: what each dataset of a mixture gave, equal to what was really yielded at every cursor."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import CursorMismatchError, PipelineError
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings

SIZES = st.lists(st.integers(1, 15), min_size=1, max_size=3)


@frozen
class Keeps:
    divisor: int

    def __call__(self, row):
        return row["id"] % self.divisor == 0


def same(row):
    return dict(row)


def datasets(sizes, data=None):
    """Datasets of rows that say which one they are of, cut into chunks anywhere."""
    tables = [
        pa.table(
            {"owner": [owner] * size, "id": range(size), "input_ids": pa.array([[7] * (n % 4) for n in range(size)], pa.list_(pa.int32()))}
        )
        for owner, size in enumerate(sizes)
    ]
    return [from_chunks(table.to_batches() if data is None else data.draw(rechunkings(table))) for table in tables]


def counted(rows, number):
    given = Counter(row["owner"] for row in rows)
    tokens = Counter({owner: sum(max(1, len(row["input_ids"])) for row in rows if row["owner"] == owner) for owner in given})
    return [given[owner] for owner in range(number)], [tokens[owner] for owner in range(number)]


def assert_accounts(dataset, cursor, rows, by):
    """Law: proportions are those of the rows that were given, from the cursor and from its bytes."""
    for at in (cursor, fp.Cursor.from_bytes(cursor.to_bytes())):
        found = fp.inspect.mixture_proportions(dataset, at)
        counts, tokens = counted(rows, len(found))
        assert [each.count for each in found] == counts
        assert [each.tokens for each in found] == (tokens if by == "tokens" else [None] * len(found))
        shares = tokens if by == "tokens" else counts
        assert [each.realised for each in found] == [share / max(1, sum(shares)) for share in shares]


@given(sizes=SIZES, data=st.data(), by=st.sampled_from(["examples", "tokens"]), stop=st.sampled_from(["first", "all", "restart"]))
def test_proportions_are_those_of_the_rows_that_were_yielded_at_every_cursor(sizes, data, by, stop):
    weights = data.draw(st.lists(st.integers(0, 4), min_size=len(sizes), max_size=len(sizes)).filter(any))
    mixture = fp.pipe(fp.mix(datasets(sizes, data), weights, by=by, stop=stop), fp.map(same))
    rows = []
    for (row, cursor), _ in zip(fp.iterate(mixture, epoch=1), range(40), strict=False):
        rows.append(row)
        assert_accounts(mixture, cursor, rows, by)
        assert [each.wanted for each in fp.inspect.mixture_proportions(mixture, cursor)] == [weight / sum(weights) for weight in weights]


@given(sizes=SIZES, data=st.data(), size=st.integers(1, 5), divisor=st.integers(1, 3), late=st.booleans())
def test_rows_that_stages_held_back_or_left_out_count_as_soon_as_an_item_needed_them(sizes, data, size, divisor, late):
    mixture = fp.mix(datasets(sizes, data), [1] * len(sizes), stop="all")
    whole = list(mixture)
    groups = fp.pipe(mixture, fp.filter(Keeps(divisor)), fp.batch(size), *[fp.prefetch(2)] * late)
    for group, cursor in fp.iterate(groups):
        needed = whole.index(group[-1]) + 1 if len(group) == size else len(whole)
        assert_accounts(groups, cursor, whole[:needed], "examples")


@given(sizes=SIZES, data=st.data(), place=st.integers(0, 20))
def test_a_resumed_run_goes_on_counting(sizes, data, place):
    mixture = fp.pipe(fp.mix(datasets(sizes, data), [1] * len(sizes), stop="all"), fp.batch(2))
    run = list(fp.iterate(mixture))
    rows = [row for group, _ in run for row in group]
    middle = run[place % len(run)][1]
    for after, (_, cursor) in enumerate(fp.iterate(mixture, middle), place % len(run) + 1):
        assert_accounts(mixture, cursor, rows[: 2 * after + 2], "examples")


def test_groups_that_are_mixed_are_counted_as_groups():
    parts = [fp.pipe(part, fp.batch(2)) for part in datasets([9, 5])]
    groups = fp.pipe(fp.mix(parts, [2, 1], stop="all"), fp.map(same))
    seen = Counter()
    for group, cursor in fp.iterate(groups):
        seen[group[0]["owner"]] += 1
        assert [each.count for each in fp.inspect.mixture_proportions(groups, cursor)] == [seen[0], seen[1]]
    rows = fp.pipe(groups, fp.unbatch())
    *_, (_, cursor) = fp.iterate(rows)
    assert [each.count for each in fp.inspect.mixture_proportions(rows, cursor)] == [5, 3]


def test_before_batch_rows_of_a_source_that_holds_the_mixture_count_a_chunk_at_a_time():
    rows = fp.pipe(fp.mix(datasets([6, 6]), [1, 1], stop="all"), fp.take(8))
    for number, (_, cursor) in enumerate(fp.iterate(rows), 1):
        assert sum(each.count for each in fp.inspect.mixture_proportions(rows, cursor)) >= number
    groups = fp.pipe(fp.interleave(datasets([6, 6])), fp.batch(2), fp.repeat(3))
    found = [[each.count for each in fp.inspect.mixture_proportions(groups, cursor)] for _, cursor in fp.iterate(groups)]
    assert found == [[n, n] for n in range(1, 7)] * 3  # of the current pass


def test_a_source_within_a_joined_one_is_counted_for_the_dataset_it_is_in():
    first, second, third = datasets([3, 4, 5])
    mixture = fp.mix([fp.concat([first, second]), third], [1, 1], stop="all")
    *_, (_, cursor) = fp.iterate(mixture)
    assert [each.count for each in fp.inspect.mixture_proportions(mixture, cursor)] == [7, 5]


def test_mixtures_in_proportion_to_tokens_come_close_to_what_is_wanted():
    rng = np.random.default_rng(0)
    parts = [fp.from_examples([{"input_ids": [1] * int(n)} for n in rng.integers(1, most, 2000)]) for most in (60, 6)]
    rows = fp.mix(parts, [1, 3], by="tokens", stop="first")
    *_, (_, cursor) = fp.iterate(rows)
    assert [each.realised for each in fp.inspect.mixture_proportions(rows, cursor)] == pytest.approx([0.25, 0.75], abs=0.01)


def test_an_ended_dataset_that_is_forgotten_would_be_caught():
    mixture = fp.mix(datasets([1, 5]), [1, 1], stop="all")
    run = list(fp.iterate(mixture))
    cursor, rows = run[-1][1], [row for row, _ in run]
    assert_accounts(mixture, cursor, rows, "examples")
    forgotten = evolve(
        cursor, base=evolve(cursor.base, position=((0, 5), (0, 5), *(cursor.base.position or (0, 0, (-1, -1), (None, None)))[2:]))
    )
    with pytest.raises(AssertionError):
        assert_accounts(mixture, forgotten, rows, "examples")


@pytest.mark.parametrize(
    "make",
    [
        lambda: fp.from_examples([{"x": 1}]),
        lambda: fp.pipe(fp.mix(datasets([2, 2]), [1, 1], stop="all"), fp.load()),
        lambda: fp.pipe(fp.mix(datasets([2, 2]), [1, 1], stop="all"), fp.shuffle(seed=0)),
        lambda: fp.concat([fp.mix(datasets([2, 2]), [1, 1], stop="all")] * 2),
    ],
)
def test_a_pipeline_without_a_mixture_to_count_says_so(make):
    dataset = make()
    _, cursor = next(fp.iterate(dataset))
    with pytest.raises(
        PipelineError, match=r"mixture_proportions needs a mixture, but finds none in pipe.* Put mix after load, cache, shuffle and concat"
    ):
        fp.inspect.mixture_proportions(dataset, cursor)


def test_a_cursor_of_another_pipeline_is_refused():
    one, other = (fp.mix([fp.from_examples([{"x": x}])], [1], stop="all") for x in (1, 2))
    _, cursor = next(fp.iterate(one))
    with pytest.raises(CursorMismatchError):
        fp.inspect.mixture_proportions(other, cursor)
