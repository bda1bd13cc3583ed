"""The files of a competition have the types that the spec says."""

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.kaggle.specs.reading import PARTS, delimiter_of, read_part, read_rows
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, UnknownNameError
from mlxfp.testing.laws import assert_pure_stages, assert_repeatable, assert_resumable, assert_value
from tests.app.kaggle.drawing import CATS


def test_values_stay_as_the_file_writes_them(folder: Path):
    (folder / "train.csv").write_text("id,class,age,y,more\n001,007,3,1,5\n")
    assert list(read_part(CATS, folder)) == [{"id": "001", "class": "007", "age": 3.0, "y": "1", "more": 5}]
    assert next(iter(read_part(CATS, folder, part="test"))) == {"id": "003", "class": "a", "age": 4.0}
    assert list(read_part(CATS, folder / "train.csv", part="sample")) == [{"id": "004", "y": "0"}, {"id": "003", "y": "0"}]


def test_targets_that_are_numbers_are_floats(folder: Path):
    spec = evolve(CATS, kind="time_series", classes=[], metric="rmse", time="class", group="class")
    assert fp.schema(read_part(spec, folder)).field("y").type == pa.float64()
    assert fp.schema(read_part(spec, folder)).field("class").type == pa.string()


def test_files_and_columns_that_are_not_there_are_named(folder: Path):
    with pytest.raises(ArgumentError, match="names no test file"):
        read_part(evolve(CATS, test=None), folder, part="test")
    with pytest.raises(UnknownNameError, match="Did you mean 'train'"):
        read_part(CATS, folder, part="trian")  # type: ignore[arg-type]  # the mistake
    (folder / "test.csv").unlink()
    with pytest.raises(MissingFileError, match="There is no test file at"):
        read_part(CATS, folder, part="test")


def test_missing_is_what_pandas_says_but_where_the_spec_names_a_value(folder: Path):
    columns = [
        fp.kaggle.ColumnSpec(name="size", type="numerical"),
        fp.kaggle.ColumnSpec(name="veneer", type="categorical", absent=["None"]),
        fp.kaggle.ColumnSpec(name="note", type="text"),
    ]
    spec = evolve(CATS, target=["harm"], classes=["None", "null"], columns=columns)
    rows = ["1,None,None,None,None,7", "2, 1.5 ,NA,null,null,None", "3,2,Brick,fine,None,nan"]
    (folder / "train.csv").write_text("\n".join(["id,size,veneer,note,harm,more", *rows]))
    assert list(read_part(spec, folder)) == [
        {"id": "1", "size": None, "veneer": "None", "note": None, "harm": "None", "more": "7"},
        {"id": "2", "size": 1.5, "veneer": None, "note": None, "harm": "null", "more": "None"},
        {"id": "3", "size": 2.0, "veneer": "Brick", "note": "fine", "harm": "None", "more": None},
    ]
    fp.kaggle.check_spec(evolve(spec, train=fp.kaggle.FileSpec(name="train.csv"), test=None, sample=None), folder)
    (folder / "train.csv").write_text("id,size,veneer,note,harm\n1,2,,,None\n2,big,,,null\n")
    with pytest.raises(DataError, match=r"The numerical column 'size' contains 'big' in source row 1\. Correct"):
        list(read_part(spec, folder))


def test_the_rows_of_a_spec_that_names_missing_values_resume_and_pickle(folder: Path):
    spec = evolve(CATS, classes=["1", "None"])
    (folder / "train.csv").write_text("id,class,age,y\n" + "".join(f"{row},a,{row},{['1', 'None'][row % 2]}\n" for row in range(9)))
    rows = read_part(spec, folder)
    assert_value(rows)
    for law in (assert_repeatable, assert_resumable, assert_pure_stages):
        law(rows)


@pytest.mark.parametrize("mark", ",;")
@pytest.mark.parametrize("values", [{}, {"k.A.": "none"}])
def test_null_values_of_a_spec_are_missing_in_all_columns_but_values_that_the_spec_names(folder: Path, mark: str, values: dict[str, str]):
    """The list replaces the default list, as in `read_csv`: an empty cell and k.A. are missing, and NA is a value."""
    columns = [
        fp.kaggle.ColumnSpec(name="class", type="categorical", values=values | {"NA": "NA"} if values else {}),
        fp.kaggle.ColumnSpec(name="age", type="numerical"),
    ]
    train = fp.kaggle.FileSpec(name="train.csv")
    spec = evolve(CATS, columns=columns, null_values=["", "k.A."], train=train, test=None, sample=None, submission=None)
    (folder / "train.csv").write_text("id,class,age,y\n1,k.A.,k.A.,0\n2,NA,2.5,1\n3,,,0\n".replace(",", mark))
    assert [(row["class"], row["age"]) for row in read_part(spec, folder)] == [
        ("k.A." if values else None, None),
        ("NA", 2.5),
        (None, None),
    ]
    fp.kaggle.check_spec(spec, folder)
    assert_value(read_part(spec, folder))


def test_all_files_of_a_spec_have_its_encoding(tmp_path: Path):
    """Names of columns, classes and ids are decoded in every file, and the submission has them in UTF-8."""
    texts = {
        "train.csv": "id;stra\u00dfe;y\n\u00e41;Caf\u00e9;gro\u00df\n\u00e42;Bar;klein\n\u00e43;Bar;klein\n",
        "test.csv": "id;stra\u00dfe\n\u00e44;Caf\u00e9\n",
        "sample_submission.csv": "id;y\n\u00e44;klein\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="cp1252")
    with pytest.raises(DataError, match=r"the byte 0xdf, in line 1 of .*train\.csv\..* for mlxfp data infer: --encoding 'cp1252'\)"):
        fp.kaggle.infer_spec(tmp_path)
    spec = fp.kaggle.infer_spec(tmp_path, encoding="cp1252")
    assert (spec.encoding, spec.id, spec.classes) == ("cp1252", "id", ("gro\u00df", "klein"))
    fp.kaggle.check_spec(spec, tmp_path)
    rows = [list(read_part(spec, tmp_path, part=part)) for part in PARTS]
    assert rows[0][0] == {"id": "\u00e41", "stra\u00dfe": "Caf\u00e9", "y": "gro\u00df"}
    assert rows[1:] == [[{"id": "\u00e44", "stra\u00dfe": "Caf\u00e9"}], [{"id": "\u00e44", "y": "klein"}]]
    test, sample = tmp_path / "test.csv", tmp_path / "sample_submission.csv"
    fp.kaggle.submission({"y": ["gro\u00df"]}, test=test, sample=sample, encoding="cp1252").write(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text(encoding="utf-8") == "id,y\n\u00e44,gro\u00df\n"
    assert fp.kaggle.check_submission(tmp_path / "mine.csv", sample=sample, encoding="cp1252") == ()


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "jsonl.gz", "ndjson"])
def test_files_of_every_format_are_read_as_csv_is(tmp_path: Path, suffix: str):
    text, other = (
        evolve(
            fp.kaggle.SPECS["titanic"],
            train=fp.kaggle.FileSpec(name=f"train.{end}"),
            test=fp.kaggle.FileSpec(name=f"test.{end}"),
            sample=fp.kaggle.FileSpec(name=f"sample_submission.{end}"),
        )
        for end in ("csv", suffix)
    )
    for spec in (text, other):
        made = fp.kaggle.write_synthetic(spec, tmp_path / spec.train.name, rows=40, test_rows=10)
        fp.kaggle.check_spec(made, tmp_path / spec.train.name)
    for part in PARTS:
        expected, found = (list(read_part(spec, tmp_path / spec.train.name, part=part)) for spec in (text, other))
        assert [{name: row[name] for name in expected[0]} for row in found] == expected
    inferred, found = (fp.kaggle.infer_spec(tmp_path / spec.train.name) for spec in (text, other))
    named = {"name": "", "train": fp.kaggle.FileSpec(name=""), "test": None, "sample": None}
    assert evolve(found, **named) == evolve(inferred, **named)
    names = (spec.sample.name for spec in (text, other))
    assert read_rows(tmp_path / "train.csv" / next(names)) == read_rows(tmp_path / other.train.name / next(names))


ROWS: dict[str, list[list[str]]] = {
    "train.csv": [
        ["id", "size, m", "note", "floor", "y"],
        ["007", "12.5", "a, b;c|d\te", "NA", "yes"],
        ["008", "", 'say "hi"', "up", "no"],
        ["009", "-3", "1,234.5 and more", "down", "no"],
        ["010", "1.5e-05", "two\nlines", "up", "no"],
        ["012", "7", "last", "down", "yes"],
    ],
    "test.csv": [["id", "size, m", "note", "floor"], ["011", "0.25", "a", "up"]],
    "sample_submission.csv": [["id", "y"], ["011", "0.5"]],
}


def write_parts(folder: Path, mark: str, *, decimal: str = ".", quoting: Any = csv.QUOTE_MINIMAL) -> Path:
    """Write the three files of `ROWS` with a delimiter and a decimal mark. Return the folder."""
    folder.mkdir()
    for name, rows in ROWS.items():
        numbers = {"12.5", "1.5e-05", "0.25", "0.5"}
        written = [[cell.replace(".", decimal) if cell in numbers else cell for cell in row] for row in rows]
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, delimiter=mark, quoting=quoting).writerows(written)
    return folder


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(("mark", "decimal"), [("\t", "."), ("|", "."), (";", "."), (";", ",")])
def test_files_with_other_delimiters_have_the_rows_of_files_with_commas(tmp_path: Path, mark: str, decimal: str, quoting: Any):
    """Spreadsheet programs with a European language write semicolons and decimal commas."""
    usual, other = write_parts(tmp_path / "usual", ","), write_parts(tmp_path / "other", mark, decimal=decimal, quoting=quoting)
    wanted, inferred = fp.kaggle.infer_spec(usual), fp.kaggle.infer_spec(other)
    assert [column.type for column in inferred.columns] == ["numerical", "text", "categorical"]
    files = {part: getattr(wanted, part) for part in PARTS}
    assert evolve(inferred, name=wanted.name, **files) == wanted
    fp.kaggle.check_spec(inferred, other)
    kept = evolve(inferred.columns[2], values={"up": "up", "down": "down", "NA": "ground"})
    for spec in (inferred, evolve(inferred, columns=(*inferred.columns[:2], kept))):
        for part in PARTS:
            rows = read_part(spec, other, part=part)
            assert list(rows) == list(read_part(spec, usual, part=part))
            assert_value(rows)
            assert_resumable(rows)
    for name in ROWS:
        assert read_rows(other / name) == read_rows(usual / name)
        (other / name).rename((other / name).with_suffix(".tsv"))
    assert fp.kaggle.infer_spec(other).train == evolve(inferred.train, name="train.tsv")


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a;b\n", ";"),
        ("a;b;c\n\n;2;\n", ";"),
        ('"x, y";z\n1;2\n', ";"),
        ("x, y;z\n1;2\n", ";"),
        ("a;b\n1,5;2,5\n", ";"),
        ('a;b;c\n1;"many' + "\nlines" * 30 + '";2\n', ";"),
        ("a;b\n1;2\n3;4;5\n6;7\n", ";"),
        ("sep=;\na;b;c\n1;2;3\n", ";"),
        ("a,b;c\n1,2;3\n", ","),
        ("id,tags\n1,x;y;z\n2,x;y;z\n", ","),
        ("a,b\n1;2,3;4\n", ","),
        ("a\n1;2\n", ","),
        ("a;b\n1,2\n", ","),
        ("", ","),
        ("caf\u00e9;b\n", ";"),
        ('\xef\xbb\xbf"x;y";z\n1;2\n', ";"),
        ("a;b\n1;" + "x" * 200_000, ","),
    ],
)
def test_a_delimiter_splits_most_records_into_the_same_number_of_fields(tmp_path: Path, text: str, delimiter: str):
    """Without a clear answer, the delimiter is the comma."""
    (tmp_path / "a.csv").write_text(text, encoding="latin-1")
    assert delimiter_of(tmp_path / "a.csv") == delimiter


def test_values_with_types_are_spelled_as_csv_would_spell_them(tmp_path: Path):
    values = {
        "id": pa.array([7, 8]),
        "class": pa.array(["a", "NA"]).dictionary_encode(),
        "age": pa.array([Decimal("3.50"), None]),
        "y": pa.array([1.0, 0.0]),
        "more": pa.array([[1], None]),
    }
    pq.write_table(pa.table(values), tmp_path / "train.parquet")
    spec = evolve(CATS, train=fp.kaggle.FileSpec(name="train.parquet"))
    assert list(read_part(spec, tmp_path)) == [
        {"id": "7", "class": "a", "age": 3.5, "y": "1", "more": [1]},
        {"id": "8", "class": "NA", "age": None, "y": "0", "more": None},
    ]
    rows = read_part(spec, tmp_path)
    assert_value(rows)
    assert_repeatable(rows)
    assert_resumable(rows)
    with pytest.raises(UnknownNameError, match=r"No column of .*train\.parquet.* is named 'agee'\. Did you mean 'age'\?"):
        read_part(evolve(spec, columns=[fp.kaggle.ColumnSpec(name="agee", type="numerical")]), tmp_path)
    pq.write_table(pa.table(values | {"age": ["3", "big"]}), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"The numerical column 'age' contains 'big' in source row 1\. Correct"):
        list(read_part(spec, tmp_path))


@pytest.mark.parametrize("name", ["train.xlsx", "train.json"])
def test_files_of_other_formats_are_refused(tmp_path: Path, name: str):
    (tmp_path / name).write_text("{}")
    with pytest.raises(
        DataError, match=r"are CSV, Parquet or JSON lines, got '.*train\..*'\. Convert the file with pandas, .* to train\.parquet"
    ):
        read_part(evolve(CATS, train=fp.kaggle.FileSpec(name=name)), tmp_path)


@pytest.mark.parametrize("form", ["csv", "csv with kept texts", "parquet", "parquet of texts", "jsonl"])
def test_integers_that_floats_round_are_refused_with_the_type_of_the_spec(folder: Path, form: str):
    """A hash of 64 bits in a column that the spec declares numerical: different hashes would become equal numbers."""
    values, suffix = [2**53 + 1, 2**62 + 1], form.split(maxsplit=1)[0]
    columns = [fp.kaggle.ColumnSpec(name="age", type="numerical")]
    if form == "csv with kept texts":
        columns.append(fp.kaggle.ColumnSpec(name="c", type="categorical", absent=["NA"]))
    spec = evolve(CATS, columns=columns, train=fp.kaggle.FileSpec(name=f"train.{suffix}"), test=None, sample=None, submission=None)
    table = pa.table({"id": ["1", "2"], "age": values, "c": ["NA", "a"], "y": ["0", "1"]})
    if form == "parquet of texts":
        table = table.set_column(1, "age", pa.array(map(str, values)))
    if suffix == "csv":
        pa.csv.write_csv(table, folder / "train.csv")
    elif suffix == "parquet":
        pq.write_table(table, folder / "train.parquet")
    else:
        (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    with pytest.raises(DataError, match=r"'age'.* '?9007199254740993.*(type: categorical|type of the column to categorical in the spec)"):
        list(read_part(spec, folder))
    with pytest.raises(DataError, match=r"'age' has 2 integers above 2\*\*53, which floats round; use the type categorical"):
        fp.kaggle.check_spec(spec, folder)


def test_a_line_with_only_a_missing_value_has_a_delimiter(tmp_path: Path):
    (tmp_path / "train.csv").write_text('a,note,y\n1,"first\nNA\nlast",0\n2,b,1\n3,c,0\n')
    assert delimiter_of(tmp_path / "train.csv") == ","


def test_added_null_values_hold_for_json_lines(tmp_path: Path):
    lines = [{"id": "1", "age": "k.A.", "class": "a", "y": "0"}, {"id": "2", "age": "3", "class": "k.A.", "y": "1"}]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    spec = evolve(CATS, train=fp.kaggle.FileSpec(name="train.jsonl"), null_values=[*CATS.null_values, "k.A."])
    assert [(row["age"], row["class"]) for row in read_part(spec, tmp_path)] == [(None, "a"), (3.0, None)]
