"""Tokens are counted before training; what does not fit is refused, and said by column."""

from pathlib import Path

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.kaggle.rows.row_to_text import Form, RowToText, fit_row_to_text
from mlxfp.support.errors import ArgumentError, DataError, SchemaError, UnknownNameError
from tests.app.kaggle.drawing import SHIP, SHIP_ROWS, read_key_values, tables_for

WRITTEN = fp.pipe(fp.from_table(SHIP_ROWS), fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS), form="key_value"))


@pytest.fixture(scope="module")
def tokenizer() -> fp.Tokenizer:
    return fp.train_tokenizer(WRITTEN, kind="wordpiece", vocab_size=80)


@given(data=st.data())
def test_counts_are_those_of_the_tokenizer_and_columns_add_up_to_rows(tokenizer: fp.Tokenizer, data: st.DataObject):
    rows = data.draw(tables_for(SHIP))
    written = fp.pipe(fp.from_table(rows), fit_row_to_text(SHIP, fp.from_table(SHIP_ROWS), form="key_value"))
    budget = fp.kaggle.token_budget(written, tokenizer, max_length=20, overflow="cut")
    counts = [len(tokenizer.encode(row["text"])) for row in written]
    assert (budget.rows, budget.longest) == (len(counts), max(counts))
    assert budget.mean == pytest.approx(sum(counts) / len(counts))
    assert budget.over == sum(count > 20 for count in counts) / len(counts)
    marks = [2 + len(read_key_values(row["text"], SHIP)) for row in written]  # [CLS], [SEP], and a mark after each column
    assert sum(column.mean for column in budget.columns) == pytest.approx((sum(counts) - sum(marks)) / len(counts))
    assert [column.mean for column in budget.columns] == sorted((column.mean for column in budget.columns), reverse=True)


def test_rows_that_are_too_long_are_refused_with_the_largest_columns(tokenizer: fp.Tokenizer):
    with pytest.raises(DataError) as caught:
        fp.kaggle.token_budget(WRITTEN, tokenizer, max_length=8)
    assert str(caught.value).startswith("100.0 % of 2 rows have more tokens than max_length=8: ")
    assert "The columns with the most tokens: Pclass (" in str(caught.value)
    assert 'Set overflow="cut" to remove' in str(caught.value)
    assert fp.kaggle.token_budget(WRITTEN, tokenizer, max_length=8, overflow="cut").over == 1.0


def test_columns_are_found_through_other_stages(tokenizer: fp.Tokenizer):
    names = {column.column for column in fp.kaggle.token_budget(WRITTEN, tokenizer, max_length=100).columns}
    assert names == {"Pclass", "Name", "Age", "SibSp"}
    shuffled = fp.pipe(WRITTEN, fp.shuffle(seed=0), fp.batch(2))
    assert {column.column for column in fp.kaggle.token_budget(shuffled, tokenizer, max_length=100).columns} == names
    assert fp.kaggle.token_budget(fp.pipe(WRITTEN, fp.drop_columns(["Age"])), tokenizer, max_length=100).columns == ()
    assert fp.kaggle.token_budget(fp.from_examples([{"text": "class"}]), tokenizer, max_length=100).columns == ()


def test_what_cannot_be_counted_is_refused(tokenizer: fp.Tokenizer):
    with pytest.raises(SchemaError, match="needs the column 'words'"):
        fp.kaggle.token_budget(WRITTEN, tokenizer, max_length=8, column="words")
    with pytest.raises(UnknownNameError, match="Did you mean 'cut'"):
        fp.kaggle.token_budget(WRITTEN, tokenizer, max_length=8, overflow="cutt")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ArgumentError, match="max_length must be at least 1"):
        fp.kaggle.token_budget(WRITTEN, tokenizer, max_length=0)
    with pytest.raises(DataError, match="has no rows to count"):
        fp.kaggle.token_budget(fp.from_examples([], schema=pa.schema({"text": pa.string()})), tokenizer, max_length=8)


def budget_of(folder: Path, spec: fp.kaggle.DatasetSpec, *, form: Form, question: bool = True) -> fp.kaggle.TokenBudget:
    bert = fp.load_tokenizer(folder / "tokenizers" / "bert-base-uncased")
    rows = fp.kaggle.read_part(spec, folder / spec.name)
    wording = fit_row_to_text(spec, rows, form=form)
    assert isinstance(wording, RowToText)
    return fp.kaggle.token_budget(
        fp.pipe(rows, wording if question else evolve(wording, question="")), bert, max_length=512, overflow="cut"
    )


def test_titanic_in_sentences_is_short(data_folder: Path):
    """Known before: 52 tokens on average; ours are 51.6, and the question adds 4."""
    budget = budget_of(data_folder, fp.kaggle.SPECS["titanic"], form="sentence")
    assert 54 < budget.mean < 57
    assert (budget.over, budget.columns[0].column) == (0.0, "Name")


def test_house_prices_fits_into_512_tokens_in_the_words_of_its_spec(data_folder: Path):
    sentences, pairs = (budget_of(data_folder, fp.kaggle.SPECS["house_prices"], form=form) for form in ("sentence", "key_value"))
    assert (sentences.over, pairs.over) == (0.0, 0.0)
    assert pairs.mean < 330 < sentences.mean < 400


def test_house_prices_with_raw_names_costs_what_is_known_of_it(data_folder: Path):
    """Known before, of raw names and the id: "The X is Y." 576 on average, 99.5 % above 512; "X: Y;" without zeros 418, at most 500."""
    known = fp.kaggle.SPECS["house_prices"]
    names = ("Id", *(column.name for column in known.columns))

    def raw(*absent: str) -> fp.kaggle.DatasetSpec:
        columns = [fp.kaggle.ColumnSpec(name=name, type="categorical", title=name, absent=absent) for name in names]
        return evolve(known, id=None, columns=columns)

    sentences = budget_of(data_folder, raw(), form="sentence", question=False)
    assert sentences.mean == pytest.approx(576, rel=0.01)
    assert sentences.over > 0.98
    pairs = budget_of(data_folder, raw("0"), form="key_value")
    assert pairs.mean == pytest.approx(418, rel=0.01)
    assert (pairs.longest, pairs.over) == (500, 0.0)
