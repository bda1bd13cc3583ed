"""The laws of rows as text: a row's text depends on that row and the training rows alone, and however rows are cut into chunks."""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.kaggle.rows.row_to_text import fit_row_to_text, write_rows
from mlxfp.app.kaggle.specs.cells import spell
from mlxfp.support.errors import ArgumentError, SchemaError, UnknownNameError
from mlxfp.testing import laws
from mlxfp.testing.strategies import rechunkings
from tests.app.kaggle.drawing import SHIP, SHIP_ROWS, dataset_specs, read_key_values, tables_for

_OPTIONS = st.fixed_dictionaries(
    {
        "form": st.sampled_from(["sentence", "key_value"]),
        "missing": st.sampled_from(["drop", "unknown"]),
        "numbers": st.sampled_from(["raw", "round", "quantile"]),
        "digits": st.integers(2, 4),
        "seed": st.none() | st.just(1),
    }
)


def texts(spec: fp.kaggle.DatasetSpec, train: pa.Table, rows: pa.Table, **options: Any) -> list[str]:
    return [row["text"] for row in fp.pipe(fp.from_table(rows), fit_row_to_text(spec, fp.from_table(train), **options))]


@given(data=st.data(), spec=dataset_specs(), options=_OPTIONS)
def test_writing_a_chunk_is_writing_each_of_its_rows(data: st.DataObject, spec: fp.kaggle.DatasetSpec, options: dict[str, Any]):
    train, rows = data.draw(tables_for(spec)), data.draw(tables_for(spec))
    stage = fit_row_to_text(spec, fp.from_table(train), **options)
    laws.assert_chunks_do_not_matter(stage, data.draw(rechunkings(rows)), rows.to_batches())
    laws.assert_pure_stages(fp.pipe(fp.from_table(rows), stage))


@given(data=st.data(), spec=dataset_specs(), options=_OPTIONS)
def test_what_is_fitted_depends_on_nothing_of_the_rows_it_is_applied_to(
    data: st.DataObject, spec: fp.kaggle.DatasetSpec, options: dict[str, Any]
):
    train, rows, others = (data.draw(tables_for(spec)) for _ in range(3))
    options["seed"] = None  # which depends on where a row stands, and on nothing in it
    alone = texts(spec, train, rows, **options)
    together = texts(spec, train, pa.concat_tables([others, rows]), **options)
    assert together[others.num_rows :] == alone
    assert fit_row_to_text(spec, fp.from_table(train), **options) == fit_row_to_text(spec, fp.from_table(train), **options)


def test_the_law_catches_a_stage_that_is_fitted_on_the_rows_it_is_applied_to():
    rows = SHIP_ROWS.slice(0, 1)
    alone, together = (texts(SHIP, fitted, rows, numbers="quantile") for fitted in (rows, SHIP_ROWS))
    assert alone != together


@given(data=st.data(), spec=dataset_specs(), seed=st.none() | st.just(3))
def test_keys_and_values_read_back_as_the_row(data: st.DataObject, spec: fp.kaggle.DatasetSpec, seed: int | None):
    rows = data.draw(tables_for(spec))
    chunk = pa.table(rows).combine_chunks().to_batches()[0]
    spelled = {column.name: spell(chunk, column.name).to_pylist() for column in spec.columns}
    for place, text in enumerate(texts(spec, rows, rows, form="key_value", numbers="raw", seed=seed)):
        read = read_key_values(text, spec)
        for column in spec.columns:
            value, codes = spelled[column.name][place], dict(column.values)
            if value is None or value in column.absent or (column.type == "numerical" and float(value) in map(float, column.absent)):
                assert column.name not in read
            elif value in codes or value not in codes.values():  # else a value is spelled as the name of another
                assert read[column.name] == value


@given(data=st.data(), spec=dataset_specs())
def test_another_order_of_columns_says_the_same(data: st.DataObject, spec: fp.kaggle.DatasetSpec):
    rows = data.draw(tables_for(spec))
    plain, permuted = (texts(spec, rows, rows, form="key_value", seed=seed) for seed in (None, 5))
    assert [read_key_values(text, spec) for text in plain] == [read_key_values(text, spec) for text in permuted]


def test_orders_differ_between_rows():
    rows = pa.concat_tables([SHIP_ROWS.slice(0, 1)] * 30)
    assert 10 < len(set(texts(SHIP, SHIP_ROWS, rows, seed=0))) <= 24


def test_a_row_reads_as_sentences_or_as_keys_and_values():
    assert texts(SHIP, SHIP_ROWS, SHIP_ROWS)[0] == "Survived or not? The class is third. Name: Ann. The age is 22. The sibling count is 1."
    assert texts(SHIP, SHIP_ROWS, SHIP_ROWS, form="key_value")[1] == "class: first; name: Ben; age: 38.5; sibling count: 2;"


def test_what_is_missing_or_absent_is_left_out_or_said():
    gaps = pa.table({"Pclass": pa.array([None], pa.int64()), "Name": pa.nulls(1), "Age": [float("nan")], "SibSp": [0]})
    assert texts(SHIP, SHIP_ROWS, gaps) == ["Survived or not?"]
    assert texts(SHIP, SHIP_ROWS, gaps.set_column(3, "SibSp", pa.array([-0.0]))) == ["Survived or not?"]
    assert texts(SHIP, SHIP_ROWS, gaps, form="key_value") == [""]
    assert read_key_values("", SHIP) == {}
    said = texts(SHIP, SHIP_ROWS, gaps, form="key_value", missing="unknown")
    assert said == ["class: unknown; name: unknown; age: unknown; sibling count: none;"]


def test_what_is_absent_is_in_no_quantile():
    spec = evolve(SHIP, columns=SHIP.columns[3:])
    rows = pa.table({"SibSp": [*[0] * 10, 1, 2]})
    read = [read_key_values(text, spec) for text in texts(spec, rows, rows, form="key_value", numbers="quantile")]
    assert read == [*[{}] * 10, {"SibSp": "below 2, quantile 0-50 %"}, {"SibSp": "2 or more, quantile 50-100 %"}]


def test_categories_and_gaps_that_only_other_rows_have_are_written():
    rows = pa.table({"Pclass": ["2", None], "Name": ["Cy", None], "Age": [None, 99.0], "SibSp": [7, None]})
    options: dict[str, Any] = {"form": "key_value", "numbers": "quantile"}
    assert texts(SHIP, SHIP_ROWS, rows, **options) == [
        "class: 2; name: Cy; sibling count: 2 or more, quantile 50-100 %;",
        "age: 38.5 or more, quantile 50-100 %;",
    ]
    empty = SHIP_ROWS.set_column(2, "Age", pa.nulls(2, pa.float64()))
    assert texts(SHIP, empty, rows, **options)[1] == ""


@pytest.mark.parametrize(
    "column", [pa.array([1, None]), pa.array([1.0, None]), pa.array(["1", None]), pa.array(["1", None]).dictionary_encode()]
)
def test_codes_are_found_whatever_their_type(column: pa.Array):
    spec = evolve(SHIP, columns=SHIP.columns[:1])
    rows = pa.table({"Pclass": column})
    assert texts(spec, rows, rows, form="key_value") == ["class: first;", ""]


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        ("multiclass", "Which survived? The age is 3."),
        ("multilabel", "Which of survived? The age is 3."),
        ("regression", "What survived? The age is 3."),
        ("ordinal", "How much survived? The age is 3."),
        ("ranking", "How much survived? The age is 3."),
        ("time_series", "What survived at that time? On 2020-01-01. The age was 3."),
    ],
)
def test_the_kind_of_competition_decides_the_words(kind: Any, question: str):
    classes = () if kind in ("regression", "ranking", "time_series") else SHIP.classes
    spec = evolve(
        SHIP, kind=kind, classes=classes, metric=SHIP.metric if classes else "mae", time="Day", group="Day", columns=SHIP.columns[2:3]
    )
    rows = pa.table({"Age": [3], "Day": ["2020-01-01"]})
    assert texts(spec, rows, rows) == [question]


def test_the_stage_is_a_value():
    stage = fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS), numbers="quantile")
    copy = pickle.loads(pickle.dumps(stage))
    assert (copy, fp.inspect.fingerprint(copy)) == (stage, fp.inspect.fingerprint(stage))
    assert fp.inspect.fingerprint(fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS.slice(1)), numbers="quantile")) != fp.inspect.fingerprint(
        stage
    )


def test_rows_are_read_only_where_something_is_learnt():
    def unreadable() -> Iterator[dict[str, Any]]:
        raise OSError

    rows = fp.from_iterable(unreadable, schema=SHIP_ROWS.schema)
    assert fit_row_to_text(SHIP, rows) == fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS))
    with pytest.raises(OSError):  # noqa: PT011  # ours, from the line above
        fit_row_to_text(SHIP, rows, numbers="quantile")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"digits": 1, "numbers": "quantile"}, "digits must be at least 2 if numbers='quantile', got digits=1"),
        ({"digits": -1}, "digits must be at least 0"),
        ({"into": "__row__"}, "is empty or a reserved column name"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS), **options)


def test_names_that_are_not_known_are_refused():
    for options in ({"form": "sentences"}, {"missing": "dropp"}, {"numbers": "rounded"}):
        with pytest.raises(UnknownNameError, match="Did you mean"):
            fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS), **options)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ArgumentError, match="has no columns to write"):
        fit_row_to_text(evolve(SHIP, columns=[]), fp.from_table(SHIP_ROWS))


def test_columns_that_do_not_fit_the_spec_are_refused_before_any_row_is_read():
    stage = fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS))
    with pytest.raises(SchemaError, match="needs the column 'SibSp'"):
        _ = fp.pipe(fp.from_table(SHIP_ROWS.drop_columns(["SibSp"])), stage).resolved
    with pytest.raises(SchemaError, match="The column 'Age' is numerical in the spec, but has the type string"):
        _ = fp.pipe(fp.from_table(SHIP_ROWS.set_column(2, "Age", pa.array(["a", "b"]))), stage).resolved
    with pytest.raises(SchemaError, match="The column 'Name' has the type list<item: int64>, which cannot be written as text"):
        _ = fp.pipe(fp.from_table(SHIP_ROWS.set_column(1, "Name", pa.array([[1], [2]]))), stage).resolved


def test_what_cannot_be_written_is_refused_also_where_nothing_is_fitted():
    given = {"form": "sentence", "missing": "drop", "seed": None}
    with pytest.raises(ArgumentError, match="digits must be at least 2 if numbers='quantile', got digits=1"):
        write_rows(SHIP, {}, numbers="quantile", digits=1, **given)
    with pytest.raises(ArgumentError, match="has no columns to write"):
        write_rows(evolve(SHIP, columns=[]), {}, numbers="raw", digits=0, **given)
