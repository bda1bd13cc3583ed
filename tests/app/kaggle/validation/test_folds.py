import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from mlxfp.app.kaggle.validation import folds
from mlxfp.app.kaggle.validation.folds import Folds, custom, duplicates, grouped, kfold, missing_classes, stratified, stratified_grouped
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.support.errors import ArgumentError, ArgumentTypeError

seeds = st.integers(0, 2**62)


def assert_folds(made: Folds, size: int, count: int):
    """Law: in each repeat every row validates once, or never; no row validates a fold that trained on it, and no unit is parted."""
    assert (made.size, made.count, len(list(made))) == (size, count, count * made.repeats)
    for repeat in range(made.repeats):
        parts = [fold for fold in made if fold.repeat == repeat]
        times = np.bincount(np.concatenate([fold.valid for fold in parts]), minlength=size)
        assert times.tolist() == (made.assignments[repeat] >= 0).astype(int).tolist()
    for fold in made:
        assert len(fold.train)
        assert len(fold.valid)
        assert not set(made.units[fold.train]) & set(made.units[fold.valid])
        if not made.forward:
            assert len(fold.train) + len(fold.valid) == size


@given(st.integers(4, 60), st.integers(2, 4), seeds, st.integers(1, 3))
def test_kfold_parts_are_even_and_cover(size: int, count: int, seed: int, repeats: int):
    made = kfold(size, count=count, seed=seed, repeats=repeats)
    assert_folds(made, size, count)
    assert np.ptp([len(fold.valid) for fold in made]) <= 1
    assert made == kfold(size, count=count, seed=seed, repeats=repeats)
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.filterwarnings("ignore:Some of the:UserWarning")
@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=60), st.integers(2, 4), seeds)
def test_stratified_parts_are_even_in_every_class(labels: list[str], count: int, seed: int):
    made = stratified(labels, count=count, seed=seed, repeats=2)
    assert_folds(made, len(labels), count)
    for kind in set(labels):
        sizes = [sum(labels[row] == kind for row in fold.valid) for fold in made]
        assert np.ptp(sizes) <= 1
    assert np.ptp([len(fold.valid) for fold in made]) <= 1


groups_of_rows = st.lists(st.integers(0, 12), min_size=6, max_size=60).filter(lambda groups: len(set(groups)) >= 4)


@given(groups_of_rows, st.integers(2, 4), seeds)
def test_groups_are_never_parted(groups: list[int], count: int, seed: int):
    made = grouped(groups, count=count, seed=seed, repeats=2)
    assert_folds(made, len(groups), count)
    sizes = [len(fold.valid) for fold in made]
    assert max(sizes) - min(sizes) <= np.bincount(groups).max()


@pytest.mark.filterwarnings("ignore:Some of the:UserWarning")
@given(groups_of_rows, st.integers(2, 4), seeds)
def test_stratified_groups_are_never_parted(groups: list[int], count: int, seed: int):
    labels = np.random.default_rng(seed).integers(0, 2, len(groups))
    assert_folds(stratified_grouped(labels, groups, count=count, seed=seed), len(groups), count)


@given(st.lists(st.integers(0, 15), min_size=5, max_size=60), st.integers(1, 4))
def test_time_validates_on_what_comes_later_only(times: list[int], count: int):
    if len(set(times)) <= count:
        with pytest.raises(ArgumentError, match="Folds by time need more distinct times than folds"):
            folds.time(times, count=count)
        return
    made = folds.time(times, count=count)
    assert_folds(made, len(times), count)
    for fold in made:
        assert max(np.array(times)[fold.train]) < min(np.array(times)[fold.valid])
    assert (made.assignments == -1).any()


@given(st.lists(st.integers(0, 15), min_size=5, max_size=60))
def test_times_as_texts_make_the_folds_of_their_numbers(times: list[int]):
    if len(set(times)) > 2:
        assert folds.time([str(value) for value in times], count=2) == folds.time(times, count=2)
    with pytest.raises(ArgumentError, match=r"Got '.*th' in times\. Convert the times"):
        folds.time([f"{value}th" for value in times], count=2)


@given(groups_of_rows, seeds, st.floats(0.01, 0.99), st.sampled_from(["grouped", "kfold", "time"]))
def test_an_inner_split_cuts_the_training_rows_and_parts_no_unit(groups: list[int], seed: int, share: float, method: str):
    made = {
        "grouped": lambda: grouped(groups, count=2, seed=seed),
        "kfold": lambda: kfold(len(groups), count=2, seed=seed),
        "time": lambda: folds.time(groups, count=2),
    }[method]()
    for fold in made:
        if len(set(made.units[fold.train])) < 2:
            with pytest.raises(ArgumentError, match=r"The training rows of .* have only one group"):
                fold.inner(share, seed=0)
            continue
        train, stopping = fold.inner(share, seed=0)
        assert sorted([*train, *stopping]) == fold.train.tolist()
        assert len(train)
        assert len(stopping)
        assert not set(made.units[train]) & set(made.units[stopping])
        assert method != "time" or max(made.units[train]) < min(made.units[stopping])


def test_the_law_of_folds_catches_a_row_that_validates_where_it_trained():
    parted = Folds("broken", kfold(6, count=2, seed=0).assignments, [0, 0, 1, 1, 2, 2])
    with pytest.raises(AssertionError):
        assert_folds(parted, 6, 2)


def test_the_share_of_classes_is_kept_on_uneven_groups():
    chance = np.random.default_rng(0)
    groups = chance.integers(0, 60, 900)
    labels = chance.random(900) < np.where(groups % 3, 0.2, 0.7)  # some groups have many more of class 1
    deal = {
        "uneven": lambda seed: grouped(groups, count=5, seed=seed),
        "even": lambda seed: stratified_grouped(labels, groups, count=5, seed=seed),
        "scikit-learn": lambda seed: custom(assigned(StratifiedGroupKFold(5, shuffle=True, random_state=seed), labels, groups)),
    }
    gaps = {
        name: np.mean([np.ptp([labels[fold.valid].mean() for fold in make(seed)]) for seed in range(10)]) for name, make in deal.items()
    }
    assert gaps["even"] < gaps["uneven"] / 3
    assert gaps["even"] < gaps["scikit-learn"] * 1.5


def assigned(splitter: StratifiedGroupKFold, labels, groups):
    numbers = np.empty(len(labels), np.int64)
    for number, (_, valid) in enumerate(splitter.split(labels, labels, groups)):
        numbers[valid] = number
    return numbers


def test_the_fingerprint_is_that_of_the_assignment():
    made = kfold(9, count=3, seed=0)
    assert made.fingerprint == custom(made.assignments).fingerprint
    assert made.fingerprint != kfold(9, count=3, seed=1).fingerprint
    assert made.fingerprint == "ad95900aaaa95b0c0bdcfa49b5785a31"  # stays the same in every version: stored predictions carry it


def test_assignments_cannot_be_changed_in_place():
    made = kfold(9, count=3, seed=0)
    with pytest.raises(ValueError, match="read-only"):
        made.assignments[0, 0] = 2


def test_repeats_differ():
    made = kfold(30, count=3, seed=0, repeats=2)
    assert (made.assignments[0] != made.assignments[1]).any()
    assert repr(made) == "kfold: 30 rows in 3 folds, repeated 2 times"
    assert repr(list(made)[-1]) == "fold 3 of 3, repeat 2 of 2"


def test_equal_rows_share_a_number():
    rows = from_examples([{"id": 1, "a": 1.5, "b": None}, {"id": 2, "a": 1.5, "b": "x"}, {"id": 3, "a": 1.5, "b": None}])
    assert duplicates(rows, columns=["a", "b"]).tolist() == [0, 1, 0]
    assert duplicates(rows).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: kfold(3, count=4, seed=0),
            ArgumentError,
            "kfold needs from 2 to 3 folds, because there are 3 rows, got count=4",
        ),
        (lambda: kfold(3, count=1, seed=0), ArgumentError, "got count=1"),
        (lambda: kfold(3, count=2, seed=None), ArgumentTypeError, "seed must be an int"),
        (lambda: grouped([1, 1, 2], count=3, seed=0), ArgumentError, "from 2 to 2 folds, because there are 2 groups, got count=3"),
        (lambda: stratified([], count=2, seed=0), ArgumentTypeError, r"labels must be one value per row, \[N\], got float64\[0\]"),
        (lambda: grouped(["a", None], count=2, seed=0), ArgumentError, "groups must not be missing, got None in row 1"),
        (lambda: grouped([0.5, np.nan], count=2, seed=0), ArgumentError, "groups must not be missing, got nan in row 1"),
        (lambda: stratified(np.array(["a", 1], object), count=2, seed=0), ArgumentTypeError, "labels must be sortable values of one type"),
        (lambda: stratified_grouped([0, 1], [0], count=2, seed=0), ArgumentError, "one value per row, got 2 for labels and 1 for groups"),
        (lambda: custom([0, 2]), ArgumentError, r"every fold number from 0 to the highest \(-1 means no fold\), got \[0, 2\]"),
        (lambda: custom([-2, 0]), ArgumentError, r"got \[-2, 0\]"),
        (lambda: custom([-1, -1]), ArgumentError, r"got \[-1\]"),
        (lambda: custom([0, 0]), ArgumentError, "assignments must leave rows to train on"),
        (lambda: custom([0.5, 1]), ArgumentTypeError, "assignments must be whole numbers"),
        (
            lambda: custom([0, 1, 1], groups=["a", "a", "b"]),
            ArgumentError,
            "Each group must be in exactly one fold, got group a in several folds",
        ),
        (lambda: custom([0, 1], groups=["a"]), ArgumentError, "groups need one value per row, got 1 for 2 rows"),
        (lambda: next(iter(kfold(4, count=2, seed=0))).inner(1.0, seed=0), ArgumentError, "share must be above 0 and below 1"),
    ],
)
def test_folds_that_cannot_be_are_refused(make, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: stratified([0] * 9 + [1], count=5, seed=0),
            r"Some of the 5 folds lack a class: 1 \(1 row\) is trained in 4 and validated in 1 folds\. .* Use fewer folds",
        ),
        (
            lambda: stratified_grouped(["a", "b", "b", "a", "c", "c"], [0, 0, 0, 1, 1, 1], count=2, seed=0),
            r"'b' \(2 rows\) is trained in 1 and validated in 1 folds; 'c' \(2 rows\) is trained in 1",
        ),
        (
            lambda: stratified(range(20), count=2, seed=0),
            r"4 \(1 row\) is trained in 1 and validated in 1 folds; and 15 more classes\.",
        ),
    ],
)
def test_folds_that_lack_a_class_warn(make, said):
    with pytest.warns(UserWarning, match=said):
        make()


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=30), st.integers(2, 4), seeds)
def test_a_missing_class_is_said_where_a_fold_lacks_one(labels: list[str], count: int, seed: int):
    folds = kfold(len(labels), count=count, seed=seed)
    parts = [{labels[row] for row in part} for fold in folds for part in (fold.train, fold.valid)]
    said = missing_classes(folds, labels)
    assert (said is None) == all(part == set(labels) for part in parts)
    assert all(f"{kind!r} (" in said for kind in set(labels) if said is not None and any(kind not in part for part in parts))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=8, max_size=40).filter(lambda rows: len({t for t, _ in rows}) > 4),
    st.integers(1, 3),
)
def test_folds_in_time_with_groups_look_ahead_and_keep_groups_apart(rows: list[tuple[int, int]], count: int):
    times, groups = map(np.array, zip(*rows, strict=True))
    plain = folds.time(times, count=count)
    if any(set(groups[fold.train]) <= set(groups[fold.valid]) for fold in plain):
        with pytest.raises(
            ArgumentError, match="has no training rows: all earlier rows are left out, because their groups have validation rows"
        ):
            folds.time(times, count=count, groups=groups)
        return
    made = folds.time(times, count=count, groups=groups)
    assert made.assignments.tolist() == plain.assignments.tolist()
    assert made.fingerprint != plain.fingerprint
    for fold, other in zip(made, plain, strict=True):
        assert len(fold.train)
        assert times[fold.train].max() < times[fold.valid].min()
        assert not set(groups[fold.train]) & set(groups[fold.valid])
        assert set(other.train) - set(fold.train) == {row for row in other.train if groups[row] in set(groups[fold.valid])}
        with suppress(ArgumentError):
            train, stops = fold.inner(0.3, seed=0)
            assert not set(groups[train]) & set(groups[stops])
            assert times[train].max() < times[stops].min()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kfold(10, 5), r"^kfold\(\) takes 1 positional .* 2 were given\. Call it as kfold\(size, count=\.\.\., seed=\.\.\.\)"),
        (lambda: stratified([0, 1], n_splits=5), r"'n_splits'\. n_splits is count here\. Call it as stratified\(labels, count="),
        (lambda: grouped([0, 1], count=2), r"missing 1 required keyword-only argument: 'seed'\. Call it .*; optional arguments: repeats\."),
    ],
)
def test_a_call_that_does_not_fit_says_how_to_call(call, message):
    with pytest.raises(ArgumentTypeError, match=message):
        call()
