from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.testing.laws import (
    assert_chunks_do_not_matter,
    assert_plans_agree,
    assert_prints,
    assert_told_apart,
    assert_value,
)
from mlxfp.testing.strategies import tables

RATES = st.sampled_from([0, 0.1, 0.5, 0.9, 1])
ROWS = st.lists(st.lists(st.integers(0, 99), max_size=12), min_size=1, max_size=6)
KEEPS = st.lists(st.integers(0, 99), max_size=5)


def texts(rows):
    """Rows with their own ids, and for each id its place in the row."""
    return pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32())), "places": [list(range(len(row))) for row in rows]})


@given(rows=ROWS, rate=RATES, seed=st.integers(0, 9), keep=KEEPS)
def test_what_is_left_of_a_row_stands_in_order_and_kept_ids_stay(rows, rate, seed, keep):
    found = list(fp.pipe(fp.from_table(texts(rows)), fp.drop_tokens(rate, seed=seed, keep=keep, aligned=["places"])))
    for row, left in zip(rows, found, strict=True):
        assert left["input_ids"] == [row[place] for place in left["places"]]
        assert left["places"] == sorted(set(left["places"]))
        dropped = set(range(len(row))) - set(left["places"])
        assert not [row[place] for place in dropped if row[place] in keep]
        assert rate > 0 or not dropped
        assert rate < 1 or len(dropped) == sum(number not in keep for number in row)


def test_columns_that_nobody_needs_need_not_be_read_for_noise():
    table = pa.table({"input_ids": [[1, 2, 3]] * 9, "places": [[0, 1, 2]] * 9, "name": ["x"] * 9, "age": range(9)})
    for kept in (["name"], ["input_ids"], ["age", "places"]):
        noisy = fp.pipe(
            fp.from_table(table),
            fp.drop_fields(0.5, ["age", "name"], seed=0),
            fp.drop_tokens(0.3, seed=1, aligned=["places"]),
            fp.select_columns(kept),
        )
        assert_plans_agree(noisy, epoch=1)
    assert noisy.plan.source.schema().names == table.column_names
    slim = fp.pipe(fp.from_table(table), fp.drop_fields(0.5, ["age"], seed=0), fp.select_columns(["age"]))
    assert slim.plan.source.schema().names == ["age"]
    assert_plans_agree(slim)


def test_noise_is_that_of_the_row_in_any_order_and_shard():
    rows = fp.from_table(texts([[x] * 20 for x in range(30)]))
    noise = fp.drop_tokens(0.3, seed=4)
    expected = [row["input_ids"] for row in noise(rows)]
    assert len({len(ids) for ids in expected}) > 3
    assert [row["input_ids"] for row in fp.pipe(rows, noise, fp.shard(1, 2))] == expected[1::2]
    assert sorted(row["input_ids"] for row in fp.pipe(rows, fp.shuffle(seed=1), noise)) == sorted(expected)


def assert_drops_fields(before, after, columns, rate):
    """Law: of these columns values are as they were or missing, as many as the rate says at 0 and 1, and all others are as they were."""
    for old, new in zip(before, after, strict=True):
        assert list(new) == list(old)
        for name, value in old.items():
            kept = repr(new[name]) == repr(value)
            assert kept or (name in columns and rate > 0 and new[name] is None), f"{name} was {value!r} and is {new[name]!r}"
            assert rate < 1 or name not in columns or new[name] is None


@given(table=tables(min_columns=1), data=st.data(), rate=RATES, seed=st.integers(0, 9), epoch=st.integers(0, 2))
def test_dropping_fields_obeys_its_law(table, data, rate, seed, epoch):
    names = [name for name in table.column_names if not isinstance(table.schema.field(name).type, pa.FixedShapeTensorType)]
    assume(names)
    columns = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    stage = fp.drop_fields(rate, columns, seed=seed)
    dataset = stage(fp.from_table(table))
    found = [row for row, _ in fp.iterate(dataset, epoch=epoch)]
    assert_drops_fields(list(fp.from_table(table)), found, columns, rate)


def test_the_law_of_dropping_fields_catches_an_emptied_text_and_another_column():
    rows = [{"a": "x", "b": 1}]
    assert_drops_fields(rows, [{"a": None, "b": 1}], ["a"], 0.5)
    for broken in ({"a": "", "b": 1}, {"a": "x", "b": None}):
        with pytest.raises(AssertionError):
            assert_drops_fields(rows, [broken], ["a"], 0.5)


def test_fields_are_dropped_independently_of_each_other_and_anew_each_epoch():
    rows = fp.from_table(pa.table({"a": [1] * 40_000, "b": ["x"] * 40_000}))
    found = [
        np.array([row[name] is None for row, _ in fp.iterate(fp.drop_fields(0.3, ["a", "b"], seed=seed)(rows), epoch=epoch)])
        for name, seed, epoch in (("a", 0, 0), ("b", 0, 0), ("a", 0, 1), ("a", 1, 0))
    ]
    for missing in found:
        assert missing.mean() == pytest.approx(0.3, abs=0.01)
        assert np.corrcoef(missing[1:], missing[:-1])[0, 1] == pytest.approx(0, abs=0.02)
    for one, other in combinations(found, 2):
        assert np.corrcoef(one, other)[0, 1] == pytest.approx(0, abs=0.02)


def test_a_template_says_that_a_dropped_field_is_missing():
    rows = fp.from_examples([{"age": 22, "sex": "f"}] * 6)
    told = {row["text"] for row in fp.pipe(rows, fp.drop_fields(0.5, ["age"], seed=1), fp.template("Aged {age}, {sex}."))}
    assert told == {"Aged 22, f.", "Aged unknown, f."}


def test_the_same_fields_are_dropped_in_any_order_of_rows_and_stages():
    rows = fp.from_examples([{"a": place, "b": place} for place in range(40)])
    plain = [(place, row["b"]) for place, row in enumerate(fp.drop_fields(0.5, ["a", "b"], seed=3)(rows))]
    other = fp.pipe(rows, replace_names, fp.shuffle(seed=5), fp.drop_fields(0.5, ["b"], seed=3))
    assert sorted((row["place"], row["b"] is None) for row in other) == [(place, value is None) for place, value in plain]


def replace_names(dataset):
    return fp.pipe(dataset, fp.map(lambda row: {"place": row["a"], "b": row["b"]}))


def test_rates_are_right_places_independent_and_epochs_and_seeds_apart():
    rows = fp.from_table(texts([[7] * 1000] * 100))

    def dropped(seed, epoch):
        noisy = fp.drop_tokens(0.2, seed=seed, aligned=["places"])(rows)
        return np.array([~np.isin(np.arange(1000), row["places"]) for row, _ in fp.iterate(noisy, epoch=epoch)])

    epochs = [dropped(seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    for chosen in epochs:
        assert chosen.mean() == pytest.approx(0.2, abs=0.005)  # four standard deviations
        assert chosen.mean(0) == pytest.approx(np.full(1000, 0.2), abs=0.2)
        assert np.corrcoef(chosen[:, :-1].ravel(), chosen[:, 1:].ravel())[0, 1] == pytest.approx(0, abs=0.015)
        assert np.corrcoef(chosen[:-1].ravel(), chosen[1:].ravel())[0, 1] == pytest.approx(0, abs=0.015)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.corrcoef(epochs[one].ravel(), epochs[other].ravel())[0, 1] == pytest.approx(0, abs=0.015)


def test_noise_by_the_place_in_the_chunk_would_be_caught():
    class ByPlace(type(fp.drop_tokens(0.5, seed=1))):
        def apply(self, chunk):
            return super().apply(
                chunk.set_column(chunk.schema.get_field_index("__key__"), "__key__", pa.array(np.arange(chunk.num_rows, dtype=np.uint64)))
            )

    whole = pa.record_batch({"input_ids": pa.array([list(range(9))] * 4, pa.list_(pa.int32()))})
    with pytest.raises(AssertionError, match="chunk boundaries do not change the items"):
        assert_chunks_do_not_matter(ByPlace(0.5, 1), [whole], [whole.slice(0, 1), whole.slice(1)])


def test_they_are_values_that_print_as_they_were_written():
    for stage in (
        fp.drop_tokens(0.5, seed=1, keep=[2, 1], aligned=["labels"]),
        fp.drop_fields(0.5, ["age", "sex"], seed=7),
    ):
        assert_value(stage)
        assert_prints(stage, {"drop_fields": fp.drop_fields, "drop_tokens": fp.drop_tokens})
        assert stage.traits.longest_row(7) == 7
    assert_told_apart(fp.drop_tokens(0.5, seed=1), fp.drop_tokens(0.5, seed=2))
    assert fp.schema(fp.drop_tokens(0.5, seed=1)(fp.from_examples([{"input_ids": [1]}]))) == pa.schema({"input_ids": pa.list_(pa.int32())})


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fp.drop_fields(0.5, "age", seed=0), ArgumentTypeError, r"columns must be a list of strings.* Write \['age'\]."),
        (lambda: fp.drop_fields(0.5, [], seed=0), ArgumentError, "columns must name at least one column, got none."),
        (lambda: fp.drop_fields(0.5, ["a", "a"], seed=0), ArgumentError, "columns repeats 'a'"),
        (
            lambda: fp.schema(fp.drop_fields(0.5, ["y"], seed=0)(fp.from_examples([{"x": 1}]))),
            SchemaError,
            "drop_fields needs the column 'y', which is missing. Columns: 'x'.",
        ),
        (
            lambda: fp.schema(fp.drop_fields(0.5, ["x"], seed=0)(fp.from_examples([{"x": np.zeros((2, 2))}]))),
            SchemaError,
            r"drop_fields: column 'x' of type .*tensor.* cannot hold nulls. Choose other columns, or use map\(seed=\).",
        ),
        (lambda: fp.drop_tokens(1.5, seed=0), ArgumentError, "rate must be from 0 to 1, got 1.5."),
        (lambda: fp.drop_tokens("1", seed=0), ArgumentTypeError, "rate must be int or float, got str: '1'."),
        (lambda: fp.drop_tokens(0.5, seed=None), ArgumentTypeError, "seed must be an int, got seed=None."),
        (lambda: fp.drop_tokens(0.5, seed=0, column=3), ArgumentTypeError, "column must be a string, got column=3."),
        (
            lambda: fp.drop_tokens(0.5, seed=0, aligned="labels"),
            ArgumentTypeError,
            r"aligned must be a list of strings.* Write \['labels'\].",
        ),
        (lambda: fp.drop_tokens(0.5, seed=0, aligned=["input_ids"]), ArgumentError, "column and aligned repeats 'input_ids'"),
        (lambda: fp.drop_tokens(0.5, seed=0, keep=[1.5]), ArgumentTypeError, r"keep\[0\] must be an int, got keep\[0\]=1.5."),
        (lambda: fp.drop_tokens(0.5, seed=0, keep=[5, -1]), ArgumentError, "keep must be ids from 0 to 2147483647, got -1 to 5."),
        (
            lambda: fp.schema(fp.drop_tokens(0.5, seed=0)(fp.from_table({"x": [1]}))),
            SchemaError,
            "drop_tokens needs the column 'input_ids'",
        ),
        (
            lambda: fp.schema(fp.drop_tokens(0.5, seed=0, column="x")(fp.from_table({"x": [1]}))),
            SchemaError,
            "drop_tokens needs lists of integers in column 'x'",
        ),
        (
            lambda: fp.schema(fp.drop_tokens(0.5, seed=0, aligned=["y"])(fp.from_examples([{"input_ids": [1], "y": 1}]))),
            SchemaError,
            "drop_tokens needs lists with one value per token in column 'y', got int64. Remove 'y' from aligned.",
        ),
        (
            lambda: list(
                fp.drop_tokens(0.5, seed=0, aligned=["y"])(
                    fp.from_examples([{"input_ids": [1], "y": [1]}, {"input_ids": [1], "y": [1, 2]}])
                )
            ),
            DataError,
            "drop_tokens: source row 1 has lists of different lengths: 1 in column 'input_ids' and 2 in column 'y'. Both columns",
        ),
        (
            lambda: list(fp.drop_tokens(0.5, seed=0)(fp.from_examples([{"input_ids": [1]}, {"input_ids": None}]))),
            DataError,
            "of source row 1 is null",
        ),
    ],
)
def test_messages(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
