"""select and split: parts of a dataset that together are the whole."""

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, PipelineError, SchemaError
from mlxfp.testing import laws

SCHEMA = pa.schema({"x": pa.int64(), "kind": pa.string(), "group": pa.int64()})


def rows(count: int):
    return fp.from_examples([{"x": i, "kind": "ab"[i % 3 == 0], "group": i // 4} for i in range(count)], schema=SCHEMA)


def stream(count: int):
    return fp.pipe(rows(count), fp.filter(lambda row: True))


def numbers(dataset) -> list[int]:
    return [row["x"] for row in dataset]


@given(st.integers(0, 60), st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(0, 99))
def test_the_parts_are_disjoint_and_cover_the_dataset_with_exact_sizes(count: int, shares: list[int], seed: int):
    fractions = [share / sum(shares) for share in shares]
    parts = fp.pipe(rows(count), fp.split(fractions, seed=seed))
    assert sorted(number for part in parts for number in numbers(part)) == list(range(count))
    for part, fraction in zip(parts, fractions, strict=True):
        assert numbers(part) == sorted(numbers(part))  # each keeps the order of the rows
        assert abs(len(numbers(part)) - fraction * count) < 1
        assert fp.length(part) == len(numbers(part))


@given(st.integers(0, 60), st.integers(0, 99))
def test_a_stream_is_cut_by_the_hash_of_each_row(count: int, seed: int):
    parts = fp.pipe(stream(count), fp.split([0.5, 0.3, 0.2], seed=seed))
    assert sorted(number for part in parts for number in numbers(part)) == list(range(count))
    assert fp.length(parts[0]) is None


def test_a_stream_is_cut_in_proportion():
    sizes = [len(numbers(part)) for part in fp.pipe(stream(20_000), fp.split([0.7, 0.2, 0.1], seed=0))]
    assert np.abs(np.array(sizes) / 20_000 - [0.7, 0.2, 0.1]).max() < 0.01


@given(st.integers(0, 80), st.integers(0, 99))
def test_every_kind_is_cut_in_the_same_proportions(count: int, seed: int):
    parts = fp.pipe(rows(count), fp.split([0.75, 0.25], seed=seed, stratify="kind"))
    assert sorted(number for part in parts for number in numbers(part)) == list(range(count))
    for kind in "ab":
        whole = sum(row["kind"] == kind for row in rows(count))
        assert abs(sum(row["kind"] == kind for row in parts[1]) - whole / 4) < 1


@pytest.mark.parametrize("source", [rows, stream])
def test_a_group_stays_in_one_part(source):
    parts = [{row["group"] for row in part} for part in fp.pipe(source(400), fp.split([0.5, 0.5], seed=1, group="group"))]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(range(100))
    assert 30 < len(parts[0]) < 70


def labelled(row):
    return {**row, "odd": row["x"] % 2}


LABELLED = fp.map(labelled, schema=SCHEMA.append(pa.field("odd", pa.int64())))  # declared: of no rows, no columns would be inferred
BEFORE = {
    "nothing": lambda rows: rows,
    "shuffle": fp.shuffle(seed=1),
    "shuffle, map": fp.compose(fp.shuffle(seed=1), LABELLED),
    "two shuffles": fp.compose(LABELLED, fp.shuffle(seed=1), LABELLED, fp.shuffle(seed=2)),
    "buffer": fp.shuffle(seed=1, buffer=5),
    "stream, shuffle": fp.compose(fp.filter(lambda row: True), fp.shuffle(seed=1)),
    "shuffle, take": fp.compose(fp.shuffle(seed=1), fp.take(1000, redraw=True)),
    "shuffle, load": fp.compose(fp.shuffle(seed=1), fp.load()),
    "concat": lambda rows: fp.concat([fp.shuffle(seed=1)(rows), rows]),
    "mix": lambda rows: fp.mix([fp.shuffle(seed=1)(rows), rows], [1, 2], stop="all"),
    "prefetch": fp.compose(fp.shuffle(seed=1), fp.prefetch(2)),
}
AFTER = {
    "nothing": lambda rows: rows,
    "shuffle": fp.shuffle(seed=3),
    "shuffle, map": fp.compose(fp.shuffle(seed=3), LABELLED),
    "buffer": fp.shuffle(seed=3, buffer=4),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@given(
    count=st.integers(0, 30),
    seed=st.integers(0, 9),
    after=st.sampled_from(list(AFTER)),
    options=st.sampled_from([{}, {"group": "group"}, {"stratify": "kind"}]),
)
def test_a_row_stays_in_its_part_over_all_epochs_whatever_shuffles_before_and_after(before, count, seed, after, options):
    whole = before(rows(count))
    if "stratify" in options and (not whole.indexable or (whole.reorders and not getattr(whole.source, "permutes", False))):
        return  # refused: see below
    parts = tuple(AFTER[after](part) for part in fp.pipe(whole, fp.split([0.6, 0.4], seed=seed, **options)))
    laws.assert_stay_apart(parts, AFTER[after](whole))
    twice = [fp.repeat(2)(part) for part in parts]
    laws.assert_stay_apart(twice, fp.repeat(2)(AFTER[after](whole)), epochs=1)


def test_behind_a_shuffle_sizes_are_exact_and_each_epoch_has_its_own_order():
    train, valid = fp.pipe(rows(100), fp.shuffle(seed=0), fp.split([0.9, 0.1], seed=0))
    assert (fp.length(train), fp.length(valid)) == (90, 10)
    epochs = [[row["x"] for row, _ in fp.iterate(train, epoch=epoch)] for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]
    assert train.indexable


def test_a_split_by_place_behind_what_chooses_by_place_cannot_be_stratified():
    with pytest.raises(PipelineError, match=r"split\(\[0.5, 0.5\], seed=0, stratify='kind'\) needs a fixed row order"):
        fp.pipe(rows(9), fp.shuffle(seed=0), fp.take(5), fp.split([0.5, 0.5], seed=0, stratify="kind"))


def test_another_seed_cuts_another_way():
    assert numbers(fp.pipe(rows(50), fp.split([0.5, 0.5], seed=0))[0]) != numbers(fp.pipe(rows(50), fp.split([0.5, 0.5], seed=1))[0])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.data())
def test_selected_rows_come_in_the_order_asked_for_and_resume(indices: list[int], data: st.DataObject):
    chosen = fp.pipe(rows(10), fp.select(indices))
    run = list(fp.iterate(chosen))
    assert [row["x"] for row, _ in run] == indices
    stop = data.draw(st.integers(0, len(run) - 1))
    again = fp.Cursor.from_bytes(run[stop][1].to_bytes())
    assert [row["x"] for row, _ in fp.iterate(chosen, again)] == indices[stop + 1 :]


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([], ArgumentError, "select needs at least one index, got none. To keep the rows that meet a condition, use filter."),
        ([-1], ArgumentError, "indices must be at least 0, got -1"),
        ([0.5], ArgumentTypeError, "indices must be a flat sequence of integers, got float64"),
    ],
)
def test_impossible_indices_are_refused(indices, error, message):
    with pytest.raises(error, match=message):
        fp.select(indices)


def test_an_index_beyond_the_last_row_is_named():
    with pytest.raises(ArgumentError, match="asks for row 10 of a dataset with 10 rows"):
        list(fp.pipe(rows(10), fp.select([3, 10])))


def test_a_selection_that_was_moved_to_a_stream_says_what_it_needs():
    source = fp.select([1, 0])(fp.from_examples([{"x": 1}, {"x": 2}])).source
    moved = fp.Dataset(attrs.evolve(source, dataset=fp.from_iterable([{"x": 1}])))
    with pytest.raises(PipelineError, match=r"select\(2 indices\) needs random access."):
        list(moved)


def test_a_stream_cannot_be_selected_from_by_number():
    with pytest.raises(PipelineError, match=r"needs random access, but filter\(.*has no random access. Put load\(\) or"):
        fp.pipe(stream(3), fp.select([1]))
    assert numbers(fp.pipe(stream(3), fp.load(), fp.select([1]))) == [1]


@pytest.mark.parametrize(
    ("fractions", "options", "message"),
    [
        ([1.0], {}, "at least two positive numbers that add up to 1"),
        ([0.5, 0.4], {}, "add up to 1"),
        ([1.5, -0.5], {}, "positive"),
        ([0.5, float("nan")], {}, "add up to 1"),
        ([0.5, 0.5], {"stratify": "kind", "group": "group"}, "stratify or group, got both"),
    ],
)
def test_impossible_splits_are_refused(fractions, options, message):
    with pytest.raises(ArgumentError, match=message):
        fp.split(fractions, seed=0, **options)


def test_a_stream_cannot_be_stratified():
    with pytest.raises(PipelineError, match=r"stratify='kind'\) needs random access, but filter\(.*has no random access. Put load\(\)"):
        fp.pipe(stream(9), fp.split([0.5, 0.5], seed=0, stratify="kind"))
    part = fp.pipe(rows(9), fp.split([0.5, 0.5], seed=0, stratify="kind"))[0]
    moved = attrs.evolve(part, source=attrs.evolve(part.source, dataset=stream(9)))
    with pytest.raises(PipelineError, match=r"stratify='kind'.* needs random access"):
        list(moved)


@pytest.mark.parametrize("data", [rows(9), stream(9)])
@pytest.mark.parametrize("by", ["group", "stratify"])
def test_a_column_to_split_by_that_is_not_there_is_named_before_data_is_read(data, by):
    data = fp.pipe(data, fp.load()) if by == "stratify" else data
    with pytest.raises(SchemaError, match=r"split needs the column 'kin', which is missing. Did you mean 'kind'"):
        fp.schema(fp.pipe(data, fp.split([0.5, 0.5], seed=0, **{by: "kin"}))[0])


@pytest.mark.parametrize("by", ["group", "stratify"])
def test_the_length_of_a_split_by_a_missing_column_names_the_split(by):
    """Name the stage that the user wrote, also if the length is asked for first."""
    part = fp.pipe(stream(9), fp.load(), fp.split([0.5, 0.5], seed=0, **{by: "kin"}))[0]
    with pytest.raises(
        ArgumentTypeError, match=r"cannot be computed: split needs the column 'kin', which is missing\. Did you mean 'kind'"
    ):
        len(part)


@pytest.mark.parametrize("by", ["group", "stratify"])
def test_a_column_to_split_by_is_checked_at_the_call_if_the_schema_is_known(by):
    data = fp.from_examples([{"x": [1, 2], "kind": "a", "y": 1}] * 4)
    split = fp.split([0.5, 0.5], seed=0, **{by: "kin"})
    with pytest.raises(SchemaError, match=r"^split needs the column 'kin', which is missing\. Did you mean 'kind'\? Columns: "):
        split(data)
    with pytest.raises(SchemaError, match=r"split needs the column 'kin'"):
        fp.pipe(data, fp.drop_columns(["kind"]), fp.shuffle(seed=0), split)
    with pytest.raises(
        SchemaError, match=r"split needs a column of numbers or texts, got list<.*> for 'x'\. Create such a column with map"
    ):
        fp.split([0.5, 0.5], seed=0, **{by: "x"})(data)
    assert len(fp.pipe(data, fp.map(lambda row: {**row, "kin": 1}), split)) == 2  # the schema of a function is inferred later


def test_a_column_to_split_by_holds_values_that_can_be_compared():
    nested = fp.from_examples([{"x": [1, 2]}])
    with pytest.raises(SchemaError, match=r"split needs a column of numbers or texts, got list<.*> for 'x'"):
        fp.schema(fp.pipe(nested, fp.split([0.5, 0.5], seed=0, group="x"))[0])


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=30),
    st.sampled_from([(0.8, 0.2), (0.9, 0.1), (0.5, 0.3, 0.2), (0.98, 0.01, 0.01)]),
)
def test_stratified_parts_have_exact_sizes_also_if_each_value_has_few_rows(counts: list[int], fractions: tuple[float, ...]):
    rows = [{"x": value} for value, count in enumerate(counts) for _ in range(count)]
    parts = [[row["x"] for row in part] for part in fp.split(fractions, seed=0, stratify="x")(fp.from_examples(rows))]
    assert sorted(value for part in parts for value in part) == [row["x"] for row in rows]
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * len(rows)) < 1
        assert all(part.count(value) >= int(fraction * count + 1e-9) for value, count in enumerate(counts))


def test_zero_and_minus_zero_are_one_group():
    """Both numbers are equal, so rows of one group would be in two parts."""
    rows = fp.from_examples([{"g": value} for value in (0.0, -0.0) * 20])
    for seed in range(8):
        assert sorted(map(len, fp.pipe(rows, fp.split([0.5, 0.5], seed=seed, group="g")))) == [0, 40]
