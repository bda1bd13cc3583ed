"""Weights of mixtures that change with the number of examples or tokens that the mixture has yielded."""

import pickle
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.rows.mixture_weights import weights_for
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing import laws

WARM_UP = {0: [1, 0, 0], 7: [2, 1, 0], 20: [0, 1, 3]}


def parts(count: int = 3, rows: int = 40):
    return [fp.from_table({"owner": [owner] * rows, "row": range(rows)}) for owner in range(count)]


@st.composite
def phases(draw, count: int):
    """Draw weights that change up to three times, with weights of 0 in some phases."""
    starts = [0, *sorted(draw(st.sets(st.integers(1, 60), max_size=3)))]
    return {start: draw(st.lists(st.integers(0, 5), min_size=count, max_size=count).filter(any)) for start in starts}


def target(weights: dict[int, list[int]], total: int) -> np.ndarray:
    """Return the amount of each dataset after `total` examples, one example at a time."""
    amounts = np.zeros(len(weights[0]))
    for number in range(total):
        now = np.array(weights[max(start for start in weights if start <= number)])
        amounts += now / now.sum()
    return amounts


@given(st.integers(1, 4).flatmap(phases))
def test_at_every_moment_each_dataset_has_given_its_share_of_the_phases_before(weights):
    """Law: no share differs from the sum of the shares of all phases by more than one example per dataset."""
    count = len(weights[0])
    given_so_far = np.zeros(count)
    for total, row in enumerate(islice(fp.mix(parts(count), weights), 100), 1):
        given_so_far[row["owner"]] += 1
        assert np.abs(given_so_far - target(weights, total)).max() <= count


@given(st.integers(1, 3).flatmap(phases), st.sampled_from(["first", "all"]))
def test_a_mixture_with_changing_weights_resumes_exactly(weights, stop):
    laws.assert_resumable(fp.mix(parts(len(weights[0]), rows=9), weights, stop=stop))


@given(st.integers(1, 4).flatmap(phases), st.integers(1, 90))
def test_the_wanted_share_is_the_mean_over_the_phases(weights, total):
    assert np.allclose(weights_for(len(weights[0]), weights).wanted(total), target(weights, total) / total)


def test_a_single_phase_equals_constant_weights():
    plain, phased = fp.mix(parts(), [3, 1, 2]), fp.mix(parts(), {0: [3, 1, 2]})
    assert plain == phased
    assert fp.inspect.fingerprint(plain) == fp.inspect.fingerprint(phased)


def test_weights_that_change_are_part_of_the_value_and_of_the_fingerprint():
    mixture = fp.mix(parts(), WARM_UP)
    later = fp.mix(parts(), {0: [1, 0, 0], 8: [2, 1, 0], 20: [0, 1, 3]})
    assert pickle.loads(pickle.dumps(mixture)) == mixture != later
    assert fp.inspect.fingerprint(mixture) != fp.inspect.fingerprint(later)
    laws.assert_refused(
        fp.pipe(fp.mix(parts(rows=4), WARM_UP, stop="all"), fp.batch(2)), fp.pipe(fp.mix(parts(rows=4), [1, 1, 1], stop="all"), fp.batch(2))
    )
    assert "weights={0: (1.0, 0.0, 0.0), 7: (2.0, 1.0, 0.0), 20: (0.0, 1.0, 3.0)}" in fp.explain(mixture)


def test_the_size_of_chunks_does_not_change_the_order():
    slow = [fp.from_iterable(lambda owner=owner: ({"owner": owner, "row": row} for row in range(40))) for owner in range(3)]
    assert list(fp.mix(slow, WARM_UP, stop="all")) == list(fp.mix(parts(), WARM_UP, stop="all"))


def test_a_mixture_with_changing_weights_continues_on_another_number_of_ranks():
    def of_rank(index: int, count: int):
        return fp.pipe(fp.mix(parts(), WARM_UP, stop="all"), fp.shuffle(seed=0, buffer=5), fp.shard(index, count), fp.batch(4 // count))

    laws.assert_elastic(of_rank, stops=[1, 3, 5], ranks=[1, 2, 4])


def test_keys_count_tokens_in_a_mixture_by_tokens():
    long, short = (fp.from_table({"input_ids": [[owner] * size] * 400}) for owner, size in ((0, 10), (1, 2)))
    mixture = fp.mix([long, short], {0: [1, 0], 200: [0, 1], 300: [1, 1]}, by="tokens")
    sizes = [(row["input_ids"][0], len(row["input_ids"])) for row in islice(mixture, 94)]
    assert [owner for owner, _ in sizes[:70]] == [0] * 20 + [1] * 50
    later = [sum(size for owner, size in sizes[70:] if owner == wanted) for wanted in (0, 1)]
    assert abs(later[0] - later[1]) <= 10
    run = list(islice(fp.iterate(mixture), 70))
    assert [share.wanted for share in fp.inspect.mixture_proportions(mixture, run[-1][1])] == pytest.approx([2 / 3, 1 / 3])


def test_a_dataset_whose_remaining_weights_are_0_ends_no_mixture():
    a, b = (fp.from_examples([{"x": letter}] * 6) for letter in "ab")
    assert "".join(row["x"] for row in fp.mix([a, b], {0: [1, 0], 2: [0, 1]}, stop="all")) == "aabbbbbb"
    assert "".join(row["x"] for row in fp.mix([a, b], {0: [1, 0], 6: [0, 1]}, stop="first")) == "aaaaaabbbbbb"


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ({5: [1, 1]}, ArgumentError, r"must start at 0 and ascend, got the keys \[5\]\. Write weights=\{0: "),
        ({0: [1, 1], 9: [1, 2], 5: [2, 1]}, ArgumentError, r"must start at 0 and ascend, got the keys \[0, 9, 5\]"),
        ({}, ArgumentError, r"must start at 0 and ascend, got the keys \[\]"),
        ({0: [1, 1], 5: [1]}, ArgumentError, r"one weight for each of the 2 datasets, got \[1\]"),
        ({0: [1, 1], 5: [0, 0]}, ArgumentError, "at least 0 and not all 0"),
        ({0: [1, 1], 2.5: [1, 1]}, ArgumentTypeError, "start of weights"),
        ({0: [1, 1], 5: 3}, ArgumentTypeError, "weights must be"),
    ],
)
def test_mistakes_in_changing_weights_are_named(weights, error, message):
    with pytest.raises(error, match=message):
        fp.mix(parts(2), weights)
