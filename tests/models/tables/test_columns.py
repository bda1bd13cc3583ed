"""Columns as arrays: what is fitted comes from the training rows alone, and any rows become finite, small numbers and known categories."""

import pickle
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.testing import laws
from tests.models.tables.samples import COLUMNS, ROWS, table

FLOATS = st.lists(st.none() | st.floats(), min_size=1, max_size=12)


def numbers_of(columns, values):
    made = fp.to_table(columns(fp.from_table({"x": pa.array(values, pa.float64())})))
    return made["numbers"].combine_chunks().to_numpy_ndarray()[:, 0]


@given(train=FLOATS, others=FLOATS, bins=st.integers(0, 6))
def test_numbers_are_finite_and_at_most_3_whatever_comes(train, others, bins):
    columns = fp.models.fit_columns(fp.from_table({"x": pa.array(train, pa.float64())}), numbers=["x"], bins=bins)
    numbers = numbers_of(columns, [*train, *others])
    assert numbers.dtype == np.float32
    assert np.abs(numbers).max() <= 3
    assert all(low < high for low, high in zip(columns.numbers[0].bins, columns.numbers[0].bins[1:], strict=False))
    assert (len(columns.numbers[0].bins) >= 2) == (bins > 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_numbers_are_scaled_by_their_quartiles_and_clipped_smoothly(values):
    found = numbers_of(fp.models.fit_columns(fp.from_table({"x": values}), numbers=["x"]), values)
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    span = high - low or (max(values) - min(values)) / 2
    scaled = (np.array(values) - median) / span if span else np.zeros(len(values))
    assert found == pytest.approx(scaled / np.sqrt(1 + scaled**2 / 9), rel=1e-5, abs=1e-6)


def test_the_bins_are_quantiles_of_the_scaled_numbers():
    values = np.arange(101.0)
    columns = fp.models.fit_columns(fp.from_table({"x": values}), numbers=["x"], bins=4)
    assert columns.numbers[0].bins == pytest.approx(numbers_of(columns, [0.0, 25.0, 50.0, 75.0, 100.0]), abs=1e-6)


def test_a_missing_number_becomes_the_median_and_is_flagged():
    columns = fp.models.fit_columns(fp.from_examples([{"x": 1.0}, {"x": None}, {"x": 5.0}, {"x": 6.0}]), numbers=["x"])
    made = list(columns(fp.from_examples([{"x": None}, {"x": 5.0}])))
    assert [row["numbers"].tolist() for row in made] == [[0.0], [0.0]]
    assert [row["categories"].tolist() for row in made] == [[2], [1]]


def test_without_missing_numbers_in_training_there_is_no_flag():
    columns = fp.models.fit_columns(fp.from_examples([{"x": 1.0}, {"x": 5.0}]), numbers=["x"])
    assert columns.kinds == ()
    assert "categories" not in next(iter(columns(fp.from_examples([{"x": None}]))))


@pytest.mark.parametrize("values", [["b", "a", None, "b"], [2, 1, None, 2], [2.0, 1.0, None, 2.0], [True, False, None, True]])
def test_categories_are_numbered_from_1_and_a_missing_or_unseen_one_is_0(values):
    columns = fp.models.fit_columns(fp.from_examples([{"x": value} for value in values]), categories=["x"])
    made = columns(fp.from_table({"x": pa.array([*values, type(values[0])(7)] if values[0] is not True else [*values, None])}))
    assert [row["categories"][0] for row in made] == [2, 1, 0, 2, 0]


def test_whole_numbers_are_the_same_categories_as_integers_and_as_floats():
    columns = fp.models.fit_columns(fp.from_table({"x": [3, 5]}), categories=["x"])
    assert [row["categories"][0] for row in columns(fp.from_table({"x": [5.0, 3.0, 3.5, np.inf]}))] == [2, 1, 0, 0]


def test_the_most_frequent_categories_are_kept():
    values = [f"c{place}" for place in range(1500)] + ["c1499"] * 2
    columns = fp.models.fit_columns(fp.from_table({"x": values}), categories=["x"])
    assert len(columns.categories[0].values) == 1000
    assert "c1499" in columns.categories[0].values


@given(st.integers(0, 5))
def test_columns_know_their_training_rows_only(seed):
    train, others = table(12, seed=seed), table(9, seed=seed + 1)
    fitted = fp.models.fit_columns(train, numbers=["size", "age"], categories=["deck"], bins=3)
    assert fitted == fp.models.fit_columns(train, numbers=["size", "age"], categories=["deck"], bins=3)
    whole = [row["numbers"].tolist() for row in fitted(others)]
    assert whole == [row["numbers"].tolist() for place in range(9) for row in fitted(fp.from_examples([list(others)[place]]))]


def test_columns_are_a_value_and_a_pure_stage():
    assert pickle.loads(pickle.dumps(COLUMNS)) == COLUMNS
    assert fp.runs.structure(fp.runs.unstructure(COLUMNS), fp.models.TableColumns) == COLUMNS
    laws.assert_pure_stages(COLUMNS(ROWS))
    assert repr(COLUMNS) == "TableColumns(2 of numbers, 2 of categories)"


@pytest.mark.parametrize(
    ("given_columns", "error", "message"),
    [
        ({}, ArgumentError, "fit_columns needs column names, got none"),
        ({"numbers": ["size"], "categories": ["size"]}, ArgumentError, "got 'size' twice"),
        ({"numbers": ["sex"]}, SchemaError, "Column 'sex' must contain numbers, got string"),
        ({"categories": ["list"]}, SchemaError, "Column 'list' must contain texts or numbers"),
        ({"numbers": ["sized"]}, SchemaError, r"^fit_columns needs the column 'sized', which is missing\. Did you mean 'size'\?"),
        ({"numbers": ["none"]}, SchemaError, "none"),
    ],
)
def test_what_cannot_be_fitted_is_named(given_columns, error, message):
    rows = fp.from_examples([{"size": 1.0, "sex": "f", "list": [1, 2]}])
    with pytest.raises(error, match=message):
        fp.models.fit_columns(rows, **given_columns)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("s", "UTC")])
@pytest.mark.parametrize("argument", ["numbers", "categories", "texts"])
def test_dates_become_columns_of_date_parts(kind, argument):
    """Advise date parts for dates, and show that the advice works."""
    rows = fp.from_table({"placed": pa.array([0, 40], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)})
    with pytest.raises(SchemaError, match=r"Add columns of date parts before, for example fp\.map\(") as error:
        fp.models.fit_columns(rows, **{argument: ["placed"]})
    advice = re.search(r"example (fp\.map\(.*\)), and list", str(error.value))[1]
    fitted = fp.models.fit_columns(eval(advice)(rows), numbers=["placed_year"], categories=["placed_month"])
    assert fitted.names == ("placed_year", "placed_month")


def test_no_rows_and_other_columns_are_refused():
    with pytest.raises(DataError, match="has no rows"):
        fp.models.fit_columns(fp.from_table({"x": pa.array([], pa.float64())}), numbers=["x"])
    with pytest.raises(SchemaError):
        list(COLUMNS(fp.from_table({"size": [1.0]})))
    with pytest.raises(SchemaError, match="Column 'age' must contain numbers"):
        COLUMNS.schema(pa.schema({"size": pa.float64(), "age": pa.string(), "sex": pa.string(), "deck": pa.string()}))


def test_a_column_without_known_categories_is_all_unseen():
    assert [
        row["categories"][0] for row in fp.models.TableColumns((), (fp.models.CategoryColumn("x", ()),))(fp.from_table({"x": ["a"]}))
    ] == [0]


def test_numbers_of_all_magnitudes_have_bins_that_networks_can_use():
    sizes = [10.0**power for power in range(-300, 300, 2)]
    (column,) = fp.models.fit_columns(fp.from_examples([{"size": size} for size in sizes]), numbers=["size"], bins=48).numbers
    assert np.diff(column.bins).min() > 1e-7
    assert np.isfinite(column.scale(np.array(sizes))).all()


WORDS = st.lists(st.none() | st.text(st.sampled_from("ab c"), max_size=12), min_size=1, max_size=10)


@given(train=WORDS, others=WORDS)
def test_texts_are_numbers_that_depend_on_the_training_rows_alone(train, others):
    rows, every = (fp.from_table({"said": pa.array(texts, pa.string()), "x": [1.0] * len(texts)}) for texts in (train, [*train, *others]))
    columns = fp.models.fit_columns(rows, numbers=["x"], texts=["said"])
    assert columns == fp.models.fit_columns(fp.select(range(len(train)))(every), numbers=["x"], texts=["said"])
    assert fp.runs.structure(fp.runs.unstructure(columns), fp.models.TableColumns) == columns
    assert columns.names == (("x", "said") if columns.texts else ("x",))
    made = fp.to_table(columns(every))["numbers"].combine_chunks().to_numpy_ndarray()
    assert made.shape == (len(train) + len(others), 1 + sum(len(text.components) for text in columns.texts))
    assert np.isfinite(made).all()


def test_texts_with_the_same_words_have_the_same_numbers():
    texts = ["a good film", "a good film", "a bad film", "so bad", "so bad", None]
    columns = fp.models.fit_columns(fp.from_table({"said": texts}), texts=["said"], bins=4)
    assert [text.analyzer for text in columns.texts] == ["words", "characters"]
    assert all(len(column.bins) >= 2 for column in columns.numbers)
    made = fp.to_table(columns(fp.from_table({"said": texts})))["numbers"].combine_chunks().to_numpy_ndarray()
    assert np.array_equal(made[0], made[1])
    assert not np.allclose(made[0], made[2])
    assert columns.numbers[0].name == "said: words 1"
