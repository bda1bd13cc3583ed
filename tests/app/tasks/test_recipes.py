"""Recipes: rows to tokens, numbers and labels, by what the training rows taught and nothing else."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from tests.app.tasks.drawing import COLUMNS, first_of, rows_of, spec_of, tables

CUT = {"overflow": "cut", "max_length": 64, "vocab_size": 300}
SIDE = {"numeric": True}
TEMPLATE = "{Name} of {Port}, aged {Age}, paid {Fare}."
STYLES = [
    CUT,
    {**CUT, "format": fp.kaggle.TextFormat("key_value", numbers="raw", missing="unknown")},
    {**CUT, "format": fp.kaggle.TextFormat(numbers="quantile", digits=4)},
    {**CUT, "format": fp.kaggle.TextFormat(numbers="none"), "permute": True, "drop": 0.3},
    {**CUT, "format": fp.kaggle.TextFormat(template=TEMPLATE)},
    {**CUT, "format": fp.kaggle.TextFormat(template=TEMPLATE, missing="unknown"), "permute": True},
    {**CUT, "kind": "bpe"},
    {**CUT, "kind": "unigram"},
]
NAMED = [
    *("round", "raw", "quantile", "none and other columns", "template", "template that says", "bpe", "unigram"),
]


def made(rows) -> list[dict]:
    return fp.to_table(rows).to_pylist()


@settings(max_examples=25)
@given(data=st.data(), text=st.sampled_from(STYLES[:6]), kind=st.sampled_from(["binary", "regression", "multilabel"]))
def test_a_recipe_knows_its_training_rows_only(data, text: dict, kind: str):
    spec = spec_of(kind)
    train, some, others = (data.draw(tables(spec)) for _ in range(3))
    recipe = fp.kaggle.fit_recipe(spec, first_of(train, some), **text, **SIDE)
    assert recipe == fp.kaggle.fit_recipe(spec, first_of(train, others), **text, **SIDE)
    alone = made(recipe(fp.from_table(train)))
    assert alone == made(recipe(first_of(train, others)))
    assert alone == made(recipe(fp.from_table(pa.concat_tables([train, others]))))[: train.num_rows]


@settings(max_examples=25)
@given(data=st.data(), text=st.sampled_from(STYLES[:6]))
def test_a_row_comes_out_the_same_whatever_other_rows_there_are(data, text: dict):
    spec = spec_of()
    table = data.draw(tables(spec, min_rows=2))
    recipe = fp.kaggle.fit_recipe(spec, rows_of("binary"), **text, **SIDE)
    together = made(recipe(fp.from_table(table)))
    assert together == [made(recipe(fp.from_table(table.slice(place, 1))))[0] for place in range(table.num_rows)]
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert together == made(recipe(fp.from_table(chunked)))


@given(data=st.data())
def test_targets_of_rows_to_predict_change_nothing(data):
    spec = spec_of()
    table, other = (data.draw(tables(spec, min_rows=2)).slice(0, 2) for _ in range(2))
    shifted = table.set_column(table.column_names.index("y"), "y", other["y"])
    recipe = fp.kaggle.fit_recipe(spec, rows_of("binary"), **CUT)
    for number in range(3):
        seen = made(recipe.view(fp.from_table(table), number))
        assert (
            seen
            == made(recipe.view(fp.from_table(shifted), number))
            == made(recipe.view(fp.drop_columns(["y"])(fp.from_table(table)), number))
        )


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel", "regression"])
@pytest.mark.parametrize("text", STYLES, ids=NAMED)
def test_a_recipe_is_read_back_from_plain_values(text: dict, kind: str):
    spec, rows = spec_of(kind), rows_of(kind)
    recipe = fp.kaggle.fit_recipe(spec, rows, **text, numeric="drop" in text, seed=3)
    again = fp.runs.structure(json.loads(json.dumps(fp.runs.unstructure(recipe))), fp.kaggle.Recipe)
    assert again == recipe
    for one, other in (
        (recipe(rows), again(rows)),
        (recipe.training(rows), again.training(rows)),
        (recipe.view(rows, 2), again.view(rows, 2)),
    ):
        assert made(one) == made(other)


@given(data=st.data())
def test_scales_and_quantiles_are_read_back_exactly(data):
    spec = spec_of("regression", metric="rmsle")
    recipe = fp.kaggle.fit_recipe(
        spec, fp.from_table(data.draw(tables(spec))), format=fp.kaggle.TextFormat(numbers="quantile", digits=3), **CUT, **SIDE
    )
    assert fp.runs.structure(json.loads(json.dumps(fp.runs.unstructure(recipe))), fp.kaggle.Recipe) == recipe


def test_what_is_written_is_what_the_configuration_says():
    rows = rows_of("binary", 4)
    texts = {name: fp.kaggle.fit_recipe(spec_of(), rows, **text, **SIDE).text(rows) for name, text in zip(NAMED, STYLES, strict=True)}
    assert {name: made(text)[1]["text"] for name, text in texts.items()} == {
        "round": "Y or not? Name: b ship. The port is Cherbourg. The age is 1. The fare is 1.",
        "raw": "name: b ship; port: Cherbourg; age: 1; fare: 1;",
        "quantile": "Y or not? Name: b ship. The port is Cherbourg. The age is 1 or more, quantile 50-100 %. "
        "The fare is below 2, quantile 0-50 %.",
        "none and other columns": "Y or not? Name: b ship. The port is Cherbourg.",
        "template": "b ship of C, aged 1.0, paid 1.0.",
        "template that says": "b ship of C, aged 1.0, paid 1.0.",
        "bpe": "Y or not? Name: b ship. The port is Cherbourg. The age is 1. The fare is 1.",
        "unigram": "Y or not? Name: b ship. The port is Cherbourg. The age is 1. The fare is 1.",
    }


def test_training_rows_change_from_epoch_to_epoch_and_others_do_not():
    rows = rows_of("binary")
    recipe = fp.kaggle.fit_recipe(spec_of(), rows, permute=True, drop=0.2, **CUT, **SIDE)
    first, second = ([row for row, _ in fp.iterate(recipe.training(rows), epoch=epoch)] for epoch in (0, 1))
    assert first != second
    assert [row["labels"] for row in first] == [row["labels"] for row in second] == [row["y"] for row in rows]
    assert [row for row, _ in fp.iterate(recipe(rows), epoch=1)] == made(recipe(rows))
    plain = fp.kaggle.fit_recipe(spec_of(), rows, **CUT)
    assert made(plain.training(rows)) == made(plain(rows))
    moved = made(fp.kaggle.fit_recipe(spec_of(), rows, permute=True, **CUT).training(rows))
    assert [row["input_ids"] for row in moved] != [row["input_ids"] for row in made(plain(rows))]
    assert [sorted(row["input_ids"]) for row in moved] == [sorted(row["input_ids"]) for row in made(plain(rows))]


def test_views_are_orders_of_the_columns():
    rows = rows_of("binary")
    recipe = fp.kaggle.fit_recipe(spec_of(), rows, **CUT, **SIDE)
    plain, one, two = (made(recipe.view(rows, number)) for number in range(3))
    assert plain == made(fp.drop_columns(["labels"])(recipe(rows)))
    assert plain != one != two
    assert [sorted(row["input_ids"]) for row in one] == [sorted(row["input_ids"]) for row in plain]
    assert [row["numbers"] for row in one] == [row["numbers"] for row in plain]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [("binary", (4,)), ("multiclass", (4,)), ("multilabel", (4, 2)), ("regression", (4,)), ("regression of two", (4, 2))],
)
def test_batches_have_what_a_model_needs(kind: str, labels):
    spec = spec_of("regression", target=["y", "z"]) if kind == "regression of two" else spec_of(kind)
    rows = rows_of(kind.split(maxsplit=1)[0], 4)
    recipe = fp.kaggle.fit_recipe(spec, rows, **CUT, **SIDE)
    (made,) = fp.pipe(recipe(rows), fp.batch(4), fp.collate(recipe.collator))
    assert made["input_ids"].shape == made["attention_mask"].shape
    assert made["input_ids"].shape[1] in recipe.lengths == (32, 64)
    assert made["labels"].shape == labels
    assert made["numbers"].shape == (4, recipe.scales.count)
    (unlabelled,) = fp.pipe(recipe.view(rows, 0), fp.batch(4), fp.collate(recipe.unlabelled))
    assert sorted(unlabelled) == ["attention_mask", "input_ids", "numbers"]


def test_a_recipe_prints_what_it_makes():
    recipe = fp.kaggle.fit_recipe(spec_of("multiclass"), rows_of("multiclass"), **CUT, **SIDE)
    size = recipe.tokenizer.vocab_size
    assert repr(recipe) == f"Recipe('ships': Tokenizer(WordPiece, vocab_size={size}), 3 numbers, class of 3)"


def test_rows_that_are_too_long_are_refused_or_cut():
    rows = rows_of("binary")
    strict = fp.kaggle.fit_recipe(spec_of(), rows, vocab_size=300, max_length=12)
    with pytest.raises(DataError, match=r"100\.0 % of 12 rows have more tokens than max_length=12"):
        strict.budget(rows)
    with pytest.raises(DataError, match="12"):
        list(strict(rows))
    cut = fp.kaggle.fit_recipe(spec_of(), rows, vocab_size=300, max_length=12, overflow="cut")
    assert cut.budget(rows).over == 1
    assert {len(row["input_ids"]) for row in made(cut(rows))} == {12}
    assert {len(row["input_ids"]) for row in made(strict.training(rows))} == {12}  # an order of the columns may be longer than another


def test_columns_may_have_the_names_of_what_is_made_of_them():
    columns = [fp.kaggle.ColumnSpec(name=name, type="numerical") for name in ("labels", "input_ids", "numbers")]
    spec = spec_of(columns=[fp.kaggle.ColumnSpec(name="text", type="text"), *columns])
    rows = fp.from_table({"text": ["a", "b"], "labels": [1.0, 3.0], "input_ids": [3.0, 1.0], "numbers": [5.0, 9.0], "y": [0, 1]})
    recipe = fp.kaggle.fit_recipe(spec, rows, **CUT, **SIDE)
    assert [(row["numbers"], row["labels"]) for row in made(recipe(rows))] == [([-1, 1, -1], 0), ([1, -1, 1], 1)]
    assert made(recipe.text(rows))[0]["text"] == "Y or not? Text: a. The labels is 1. The input ids is 3. The numbers is 5."
    target = spec_of(target=["labels"], columns=[fp.kaggle.ColumnSpec(name="x", type="text")])
    rows = fp.from_table({"x": ["a", "b"], "labels": [1, 0]})
    assert [row["labels"] for row in made(fp.kaggle.fit_recipe(target, rows, **CUT)(rows))] == [1, 0]


def test_a_tokenizer_that_is_given_is_taken():
    rows = rows_of("binary")
    tokenizer = fp.train_tokenizer(fp.from_table({"text": ["another text of ships"]}), kind="wordpiece", vocab_size=80)
    assert fp.kaggle.fit_recipe(spec_of(), rows, tokenizer=tokenizer, **CUT).tokenizer == tokenizer


NUMBERS = [column for column in COLUMNS if column.type == "numerical"]


@pytest.mark.parametrize(
    ("spec", "format", "numeric", "kind", "message"),
    [
        (
            {},
            {"template": "{Name} got {y}"},
            False,
            ArgumentError,
            r"must not see the target or the id, but template='{Name} got {y}' contains 'y'",
        ),
        ({"id": "Name", "columns": NUMBERS}, {"template": "{Age!r}: {Name}"}, False, ArgumentError, "template=.* contains 'Name'"),
        ({}, {"numbers": "quantile", "digits": 1}, False, ArgumentError, "digits must be at least 2 if numbers='quantile', got digits=1"),
        ({"columns": NUMBERS}, {"numbers": "none"}, False, ArgumentError, "numbers='none' removes all columns of 'ships'"),
        ({"columns": []}, {}, False, ArgumentError, "has no columns to write"),
        ({"target": ["text"]}, {}, False, ArgumentError, "The column 'text' of 'ships' has the name of a column that the recipe adds"),
        ({"target": ["numbers"]}, {}, True, ArgumentError, "The column 'numbers' of 'ships' has the name of"),
        (
            {"columns": [fp.kaggle.ColumnSpec(name="text", type="numerical")]},
            {},
            True,
            ArgumentError,
            "The column 'text' of 'ships' has the name of",
        ),
        ({"columns": COLUMNS[:2]}, {}, True, SchemaError, "has no numerical columns"),
        ({"columns": [fp.kaggle.ColumnSpec(name="Sex", type="text")]}, {}, False, SchemaError, "needs the column 'Sex'"),
        ({}, {"template": "{Sex}"}, False, SchemaError, "Sex"),
        (
            {"columns": [fp.kaggle.ColumnSpec(name="Name", type="numerical")]},
            {},
            False,
            SchemaError,
            "'Name' is numerical in the spec, but has the type string",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(spec, format, numeric, kind, message: str):
    with pytest.raises(kind, match=message):
        fp.kaggle.fit_recipe(spec_of(**spec), rows_of("binary"), format=fp.kaggle.TextFormat(**format), numeric=numeric, **CUT)


def test_rows_are_needed_and_targets_are_numbers():
    with pytest.raises(DataError, match="no text"):
        fp.kaggle.fit_recipe(spec_of(), fp.from_table(fp.to_table(rows_of("binary")).slice(0, 0)), **CUT)
    rows = fp.from_table(fp.to_table(rows_of("binary")).drop_columns(["y"]).append_column("y", pa.array(["no"] * 12)))
    with pytest.raises(SchemaError, match="The target 'y' must hold numbers, got string"):
        list(fp.kaggle.fit_recipe(spec_of(), rows, **CUT)(rows))
