"""Constants, identifiers and columns that give the target away are named; honest columns, however good, are not."""

import shlex
from datetime import date, timedelta
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.kaggle.specs.specs import FileSpec
from mlxfp.app.kaggle.validation.suspicious_columns import column_warnings, infer_command, text_warnings
from mlxfp.support.file_formats import NULL_VALUES
from tests.app.kaggle.estimators.tables import spec_of

COUNT = 400
LEAK = "alone avoids"


def said(kind, y, **columns):
    """What is said of a column, a list of numbers or of texts, next to a column of noise."""
    random = np.random.default_rng(100)  # a seed that no drawn target has
    types = {name: "categorical" if any(isinstance(each, str) for each in values) else "numerical" for name, values in columns.items()}
    specs = [
        fp.kaggle.ColumnSpec(name="noise", type="numerical"),
        *(fp.kaggle.ColumnSpec(name=name, type=type) for name, type in types.items()),
    ]
    rows = fp.from_table({"noise": random.normal(size=len(y)), **columns, "y": np.asarray(y, float)})
    return list(column_warnings(spec_of(kind, columns=specs), rows))


def target(kind, random=None):
    random = np.random.default_rng(0) if random is None else random
    return random.normal(size=COUNT) if kind == "regression" else random.integers(2 if kind == "binary" else 3, size=COUNT).astype(float)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_a_column_that_gives_the_target_away_is_named(kind):
    y = target(kind)
    message, remedy = said(kind, y, paid=list(np.exp(3 - y)))
    assert message.startswith("The column 'paid' alone avoids")
    assert "errors in 'y'. If the column is unknown at prediction time, the score is far too optimistic" in message
    assert remedy == "To leave out paid, remove the columns from the spec, and run again with another name, as in name=second."


def test_names_and_missing_values_give_a_target_away_too():
    y = target("multiclass")
    assert LEAK in said("multiclass", y, status=[("open", "lost", "won")[int(each)] for each in y])[0]
    y = target("binary")
    assert LEAK in said("binary", y, closed=[None if each else 1.0 + place % 7 for place, each in enumerate(y)])[0]


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
@given(seed=st.integers(0, 99), noise=st.floats(0.25, 3))
def test_a_good_column_is_none_that_gives_the_target_away(kind, seed, noise):
    random = np.random.default_rng(seed)
    y = target(kind, random)
    assert said(kind, y, good=list(y + noise * random.normal(size=COUNT))) == []


def test_classes_that_are_rare_are_not_given_away_by_their_rarity():
    y = np.zeros(COUNT)
    y[:3] = 1
    assert said("binary", y, side=["ab"[place % 2] for place in range(COUNT)]) == []


def test_a_target_of_names_that_are_in_one_row_each_is_not_given_away_by_them():
    assert LEAK not in "".join(said("binary", target("binary"), name=[f"n{place}" for place in range(COUNT)]))


def test_constants_and_identifiers_are_named():
    y, order = target("binary"), np.arange(float(COUNT))
    (message,) = said("binary", y, same=["x"] * COUNT, three=[3.0] * COUNT)
    assert message == "Columns with a single value in all training rows, without any information: same, three."
    message, remedy = said("binary", y, number=list(7 + 2 * order), code=[f"k{place:04}" for place in range(COUNT)])
    assert message.startswith("Columns that look like identifiers, with a different value in almost every row: number, code.")
    assert remedy.startswith("To leave out number, code, remove the columns")
    message, _ = said("binary", y, code=[f"k{place % 390:04}" for place in range(COUNT)])  # ten rows are duplicates
    assert ": code. Models may learn" in message
    assert said("binary", y, code=[f"k{place % 300:04}" for place in range(COUNT)]) == []
    assert said("binary", y, text=[f"a sentence {place}" for place in range(COUNT)], size=list(order + 0.5)) == []


def test_the_column_of_times_is_no_identifier():
    columns = [fp.kaggle.ColumnSpec(name="day", type="text")]
    rows = fp.from_table({"day": [f"{2000 + place // 52}-W{place % 52 + 1:02}" for place in range(300)], "y": np.arange(300.0) % 7})
    spec = spec_of("regression", columns=columns)
    assert list(column_warnings(spec, rows, Path("my data")))[1] == (
        "To leave out day, write a spec: mlxfp data infer 'my data' --target y --out spec.yaml. Then remove the columns from the spec, and "
        "run again: mlxfp run 'my data' data.spec=spec.yaml name=second"
    )
    assert list(column_warnings(evolve(spec, time="day"), rows)) == []


@pytest.mark.parametrize("form", ["%Y-%m-%dT07:14:58+01:00", "%d.%m.%Y", "%Y-%m-%d"])
def test_dates_are_no_identifiers(form):
    """Models read dates as numbers, so a column of dates is useful for new rows although nearly all dates differ."""
    days = [(date(2024, 1, 1) + timedelta(place)).strftime(form) for place in range(COUNT)]
    assert said("binary", target("binary"), day=days) == []


def test_a_few_rows_say_nothing():
    assert said("binary", [0.0, 1.0] * 10, same=["x"] * 20, number=list(np.arange(20.0))) == []


def test_many_rows_are_looked_at_evenly():
    y = np.arange(200_000.0) % 2
    assert LEAK in said("binary", np.random.default_rng(0).permutation(y), twice=list(2 * np.random.default_rng(0).permutation(y)))[0]


def test_the_rows_are_read_as_often_for_many_columns_as_for_few():
    def reads_of(count):
        read = []
        columns = {f"column {number}": np.arange(COUNT) % 7 / 2 + number for number in range(count)}
        rows = fp.from_table({**columns, "y": target("binary")})
        spec = spec_of("binary", columns=[fp.kaggle.ColumnSpec(name=name, type="numerical") for name in columns])
        list(column_warnings(spec, fp.pipe(rows, fp.map_chunks(lambda chunk: read.append(chunk.num_rows) or chunk))))
        return len(read)

    assert reads_of(40) == reads_of(2)


def code_in(message):
    """Return the Python code in a message. The code starts with its imports and ends before the next repair."""
    return message[message.index("\nimport ") :].partition("\nIf the words")[0]


def full_text(spec, *parts, **folder):
    return "\n".join(chain(*text_warnings(spec, *parts, **folder)))


@given(
    st.lists(st.sampled_from(["?", "unknown", "12a", "1,5,6"]), max_size=9),
    st.lists(st.one_of(st.integers(-999, 10**9), st.floats(-1e9, 1e9)), min_size=1, max_size=60),
    st.integers(0, 70),
)
def test_numbers_among_which_are_a_few_texts_are_named_and_texts_are_not(texts, numbers, first):
    cells = [*map(str, numbers), *texts, None]
    parts = [fp.from_table({"size": pa.array(part, pa.string())}) for part in (cells[:first], cells[first:]) if part]
    messages, _ = text_warnings(spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="size", type="text")]), *parts)
    share = 1 / 10 if {*texts} & {"12a", "1,5,6"} else 1 / 4
    assert len(messages) == (0 < len(texts) <= share * (len(numbers) + len(texts)))
    for message in messages:
        assert message.startswith(f"The column 'size' is text, because {len(texts)} of {len(numbers) + len(texts)} cells are not numbers: ")
        assert all(repr(text) in message for text in texts)


def test_numbers_with_a_decimal_comma_are_named():
    rows = fp.from_table({"size": ["1,5", "2,25", "-3,0", "4", None]})
    message = full_text(spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="size", type="text")]), rows)
    assert "because its numbers are written as '1,5'.\nTo read numbers" in message
    assert "float(re.sub(r'[^0-9,+-]', '', text).replace(',', '.'))" in message


def test_prices_are_numbers_to_convert_and_no_identifiers():
    """A column of prices is named with code for its conversion, and not as a column to remove."""
    texts = [f"€{index * 37:,}.50" for index in range(1, 101)]
    rows = fp.from_table({"price": texts, "y": [index % 2 for index in range(100)]})
    spec = spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="price", type="text")], target=["y"])
    message = full_text(spec, rows)
    assert "float(re.sub(r'[^0-9.+-]', '', text)) if re.search('[0-9]', text)" in message
    assert not any("identifiers" in warning for warning in column_warnings(spec, rows))


@pytest.mark.parametrize("mark", ",;\t")
def test_the_lines_of_the_message_rewrite_amounts_and_keep_leading_zeros(tmp_path: Path, mark: str):
    """The pasted lines convert formatted numbers in the train and test file, and change no other column and no delimiter."""
    pytest.importorskip("pandas")
    (tmp_path / "train.csv").write_text(
        "\n".join(map(mark.join, ["zay", ["01234", '"€1,234.50"', "0"], ["00007", "NA", "1"], ["90000", "", "1"], ""]))
    )
    (tmp_path / "test.csv").write_text(f"z{mark}a\n00009{mark}€7\n")
    columns = [fp.kaggle.ColumnSpec(name=name, type="text") for name in "za"]
    files = {name: FileSpec(name=f"{name}.csv") for name in ("train", "test")}
    spec = evolve(spec_of("binary", columns=columns, target=["y"]), **files)
    parts = [fp.kaggle.read_part(spec, tmp_path, part=part) for part in ("train", "test")]
    message = full_text(spec, *parts, folder=tmp_path)
    original = (tmp_path / "train.csv").read_text()
    for _ in range(2):  # A second change keeps the original file.
        exec(code_in(message), {})
    assert (tmp_path / "train.csv").read_text().replace(mark, ",") == "z,a,y\n01234,1234.5,0\n00007,NA,1\n90000,,1\n"
    assert (tmp_path / "test.csv").read_text().replace(mark, ",") == "z,a\n00009,7.0\n"
    assert (tmp_path / "train.csv.original").read_text() == original


def test_the_lines_of_the_message_keep_decimal_commas_of_files_with_semicolons(tmp_path: Path):
    """Rows that are read have decimal points, but the file to rewrite has commas."""
    pytest.importorskip("pandas")
    cells = ["12,5", "3,25", "10,5", "7 kg", "8 kg", "9 kg"]
    (tmp_path / "train.csv").write_text("\n".join(["id;w;y", *(f"{index};{cell};{index % 2}" for index, cell in enumerate(cells)), ""]))
    spec = fp.kaggle.infer_spec(tmp_path, target="y")
    message = full_text(spec, fp.kaggle.read_part(spec, tmp_path), folder=tmp_path)
    exec(code_in(message), {})
    assert [row["w"] for row in fp.read_csv(tmp_path / "train.csv", delimiter=";")] == [12.5, 3.25, 10.5, 7, 8, 9]


@pytest.mark.parametrize("mark", ",;")
def test_amounts_in_several_forms_become_plain_numbers(tmp_path: Path, mark: str):
    """A file with semicolons has amounts with and without a sign. The pasted lines convert all amounts, and words stay."""
    pytest.importorskip("pandas")
    cells = ["EUR 176,96", "66,73 €", "1.234,50", "k.A.", *(f"{cents},25" for cents in range(16))]
    rows = (mark.join([str(index), f'"{cell}"', str(index % 2)]) for index, cell in enumerate(cells))
    (tmp_path / "train.csv").write_text("\n".join([f"id{mark}betrag{mark}y", *rows, ""]))
    spec = fp.kaggle.infer_spec(tmp_path, target="y")
    message = full_text(spec, fp.kaggle.read_part(spec, tmp_path), folder=tmp_path)
    assert message.splitlines()[:2] == [
        "The column 'betrag' is text, because its numbers are written as 'EUR 176,96'.",
        "The column 'betrag' is text, because 1 of 20 cells are not numbers: 'k.A.'.",
    ]
    for _ in range(2):
        exec(code_in(message), {})
    written = [row["betrag"] for row in fp.read_csv(tmp_path / "train.csv", delimiter=mark, schema={"betrag": pa.string()})]
    assert written == ["176.96", "66.73", "1234.5", "k.A.", *(f"{cents}.25" for cents in range(16))]


def test_commas_of_files_with_semicolons_are_decimal_marks(tmp_path: Path):
    """In files with commas between columns, 6,500 kg is 6500 kg. In files with semicolons, 6,500 kg is 6.5 kg."""
    pytest.importorskip("pandas")
    (tmp_path / "train.csv").write_text("id;w;y\n" + "".join(f"{index};{index},500 kg;{index % 2}\n" for index in range(1, 30)))
    spec = fp.kaggle.infer_spec(tmp_path, target="y")
    message = full_text(spec, fp.kaggle.read_part(spec, tmp_path), folder=tmp_path)
    exec(code_in(message), {})
    assert [row["w"] for row in fp.read_csv(tmp_path / "train.csv", delimiter=";")] == [index + 0.5 for index in range(1, 30)]


def test_decimal_commas_among_a_few_words_need_no_new_files(tmp_path: Path):
    """A run reads 12,5 as 12.5 in files with semicolons, so only the words keep a column from being numerical."""
    (tmp_path / "train.csv").write_text("id;w;y\n" + "".join(f"{i};{'-' if i % 6 == 0 else f'{i},5'};{i % 2}\n" for i in range(60)))
    spec = fp.kaggle.infer_spec(tmp_path, target="y")
    message = full_text(spec, fp.kaggle.read_part(spec, tmp_path), folder=tmp_path)
    assert message.splitlines()[0] == "The column 'w' is text, because 10 of 60 cells are not numbers: '-'."
    assert "rewrite" not in message


def test_words_among_marks_are_named_up_to_a_quarter_of_the_cells():
    """Users write several words for missing marks, so that a fifth of the cells can be words."""
    rows = fp.from_table({"mark": [*"12345" * 16, *["-", "k.A."] * 10]})
    message = full_text(spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="mark", type="categorical")]), rows)
    assert message.startswith("The column 'mark' is categorical, because 20 of 100 cells are not numbers: '-', 'k.A.'.\nIf the words mean")


def test_words_among_numbers_are_missing_values_by_the_lines_of_the_message(tmp_path: Path):
    """The command and the lines of the message make a spec that reads numbers. The files stay the same."""
    rows = [f"{index},{'k.A.' if index == 7 else index / 4},{'-' if index == 9 else index},{index % 2}" for index in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["id,warm,heavy,y", *rows]) + "\n")
    spec = fp.kaggle.infer_spec(tmp_path / "data.csv", target="y")
    message = full_text(spec, fp.kaggle.read_part(spec, tmp_path), folder=tmp_path)
    assert message.splitlines() == [
        "The column 'warm' is text, because 1 of 40 cells are not numbers: 'k.A.'.",
        "The column 'heavy' is text, because 1 of 40 cells are not numbers: '-'.",
        (
            f"If the words mean missing values, write a spec: mlxfp data infer {tmp_path}/data.csv --target y --out spec.yaml. In the "
            f"spec, set null_values: {[*NULL_VALUES, 'k.A.', '-']!r}, and type: numerical for 'warm', 'heavy'. Then run "
            f"again: mlxfp run {tmp_path} data.spec=spec.yaml name=second"
        ),
    ]
    out, line = tmp_path / "spec.yaml", message[message.index("null_values:") : message.index(", and type:")]
    assert main([*shlex.split(message[message.index("data infer") : message.index(" --out")]), "--out", str(out)]) == 0
    out.write_text(out.read_text().replace("type: text", "type: numerical") + f"\n{line}\n")
    spec = fp.kaggle.load_spec(out)
    fp.kaggle.check_spec(spec, tmp_path)
    assert [(row["warm"], row["heavy"]) for row in fp.kaggle.read_part(spec, tmp_path)][6:10] == [(1.5, 6), (None, 7), (2, 8), (2.25, None)]


@pytest.mark.parametrize("unit", [" EUR", ""])
def test_pasted_lines_convert_amounts_with_a_decimal_comma_only_once(tmp_path: Path, unit: str):
    """A second paste must not read the point of 1234.5 as a separator of thousands. Words among the amounts stay."""
    pytest.importorskip("pandas")
    cells = [f"1.{200 + index},50{unit}" for index in range(19)] + ["k.A."]
    rows = "".join(f"{index};{cell};{index % 2}\n" for index, cell in enumerate(cells))
    (tmp_path / "train.csv").write_text(f"id;price;y\n{rows}", encoding="cp1252")
    spec = fp.kaggle.infer_spec(tmp_path, target="y", encoding="cp1252")
    message = full_text(spec, fp.kaggle.read_part(spec, tmp_path), folder=tmp_path)
    assert "encoding='cp1252'" in message
    assert infer_command(spec, tmp_path) == f"mlxfp data infer {tmp_path} --target y --encoding cp1252"
    for _ in range(2):
        exec(code_in(message), {})
        column = [row["price"] for row in fp.read_csv(tmp_path / "train.csv", delimiter=";", null_values=["k.A."])]
        assert column == [*(1200.5 + index for index in range(19)), None]


def test_where_all_columns_are_numbers_there_is_nothing_to_say_of_texts():
    rows = fp.from_table({"size": [1.0, 2.0]})
    assert text_warnings(spec_of("binary", columns=[fp.kaggle.ColumnSpec(name="size", type="numerical")]), rows) == ([], [])
