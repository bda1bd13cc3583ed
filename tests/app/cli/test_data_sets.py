"""`mlxfp data`: the files, every mismatch, and a spec to start from."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import mlxfp as fp
from mlxfp.app.cli import main


@pytest.fixture
def ship(tmp_path):
    """A folder with synthetic passengers, and their spec in a file next to it."""
    fp.kaggle.save_spec(
        fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path / "ship", rows=30, test_rows=10), tmp_path / "ship.yaml"
    )
    return tmp_path / "ship"


def test_files_that_are_as_the_spec_says_are_described(ship, capsys):
    assert main(["data", "check", str(ship), "--spec", f"{ship}.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "titanic: binary, metric accuracy",
        "  train        train.csv, 30 rows",
        "  test         test.csv, 10 rows",
        "  sample       gender_submission.csv, 10 rows",
        "  target       Survived: 0 or 1",
        "  id           PassengerId",
        "  text         Name, Ticket, Cabin",
        "  categorical  Pclass, Sex, Embarked",
        "  numerical    Age, SibSp, Parch, Fare",
        "The files match the spec.",
    ]


def test_every_mismatch_with_a_known_spec_is_listed(ship, capsys):
    (ship / "test.csv").unlink()
    assert main(["data", "check", str(ship), "--spec", "titanic"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("titanic: binary")
    assert "train.csv: the file has 30 rows, but the spec has 891" in said.err
    assert "test.csv: the file is missing" in said.err


def test_duplicate_ids_come_with_code_that_removes_the_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cats").mkdir()
    rows = [f"{index:03},{index % 7},{index * 5 % 2}\n" for index in range(60)]
    Path("cats/train.csv").write_text("id,size,y\n" + "".join([*rows, rows[3]]))
    Path("cats/test.csv").write_text("id,size\n900,3\n901,4\n")
    Path("cats/sample_submission.csv").write_text("id,y\n900,0\n901,0\n")
    assert main(["data", "check", "cats"]) == 1
    message, code = capsys.readouterr().err.split(" run in Python:\n")
    assert message == (
        "mlxfp: Found 1 problem in the files in 'cats':\n"
        "  train.csv: 1 duplicate id in 'id': '003' (2 rows)\n"
        "Fix the files, or correct the spec of 'cats'. To keep the first training row of each id,"
    )
    assert code.splitlines() == [
        "import os, pandas",
        "frame = pandas.read_csv('cats/train.csv', dtype=str, keep_default_na=False)",
        "frame = frame.drop_duplicates('id')",
        "os.path.exists('cats/train.csv.original') or os.rename('cats/train.csv', 'cats/train.csv.original')",
        "frame.to_csv('cats/train.csv', index=False)",
    ]
    exec(code, {})
    assert Path("cats/train.csv").read_text() == "id,size,y\n" + "".join(rows)
    assert main(["data", "check", "cats"]) == 0


def test_without_a_spec_files_are_what_they_look_like(ship, capsys):
    assert main(["data", "check", str(ship)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ship: binary, metric accuracy\n")
    assert said.endswith("The spec was inferred from the files. To check the files against your own spec, add --spec FILE.\n")


def test_an_inferred_spec_is_printed_or_written_and_never_over_another(ship, tmp_path, capsys):
    assert main(["data", "infer", str(ship)]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    out = tmp_path / "written.json"
    assert main(["data", "infer", str(ship), "--out", str(out)]) == 0
    wrote, following = capsys.readouterr().out.splitlines()
    assert wrote == f"Wrote {out}: binary, target Survived. Correct mistakes in the file."
    program, command, *arguments = shlex.split(following.removeprefix("Next: "))
    assert (program, command) == ("mlxfp", "run")
    assert main(["config", "check", *arguments]) == 0
    assert fp.kaggle.load_spec(tmp_path / "printed.yaml") == fp.kaggle.load_spec(out) == fp.kaggle.infer_spec(ship)
    assert main(["data", "infer", str(ship), "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith(f"mlxfp: {str(out)!r} exists already, and mlxfp does not overwrite files.")


def test_the_next_command_has_a_new_run_name_if_the_data_have_a_run(ship, tmp_path, monkeypatch, capsys):
    """Without the name, the command would be refused: the run in the folder has the inferred spec."""
    monkeypatch.chdir(tmp_path)
    for expected in ("", " name=ship-2", " name=ship-3"):
        assert main(["data", "infer", "ship", "--out", "new.yaml"]) == 0
        following = capsys.readouterr().out.splitlines()[-1]
        assert following == f"Next: mlxfp run ship data.spec=new.yaml{expected}"
        Path("new.yaml").unlink()
        Path("runs", expected.removeprefix(" name=") or "ship").mkdir(parents=True)


def test_files_in_another_encoding_are_read_with_the_option_that_the_error_names(tmp_path, capsys):
    """The spec keeps the encoding for the commands that read the spec."""
    data, out = tmp_path / "cafe.csv", tmp_path / "cafe.yaml"
    rows = "".join(f"{index},Caf\u00e9 {index % 3},{index % 2}\n" for index in range(60))
    data.write_text(f"id,stra\u00dfe,y\n{rows}", encoding="cp1252")
    assert main(["data", "infer", str(data), "--target", "y"]) == 1
    assert "; for mlxfp data infer: --encoding 'cp1252')" in capsys.readouterr().err
    for command in ("infer", "check"):
        assert main(["data", command, str(data), "--target", "y", "--encoding", "cp1252"]) == 0
    assert main(["data", "infer", str(data), "--target", "y", "--encoding", "cp1252", "--out", str(out)]) == 0
    assert fp.kaggle.load_spec(out) == fp.kaggle.infer_spec(data, target="y", encoding="cp1252")
    assert main(["data", "check", str(data), "--spec", str(out)]) == 0
    assert main(["new", str(tmp_path / "project"), "--data", str(data), "--target", "y", "--encoding", "cp1252"]) == 0
    assert fp.kaggle.load_spec(tmp_path / "project" / "spec.yaml") == fp.kaggle.load_spec(out)


def test_a_target_that_cannot_be_told_can_be_said(ship, capsys):
    train = str(ship / "train.csv")
    assert main(["data", "infer", train]) == 1
    assert capsys.readouterr().err.endswith("\nOn the command line: --target COLUMN.\n")
    assert main(["data", "infer", train, "--target", "Survived"]) == 0
    assert "target:\n- Survived\n" in capsys.readouterr().out
    assert main(["data", "check", train, "--target", "PassengerId"]) == 0
    assert "\n  target       PassengerId" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "no/folder"], "mlxfp: There is no file or folder at 'no/folder'"),
        (["check", ".", "--spec", "titanik"], "mlxfp: No data set is named 'titanik'. Did you mean 'titanic'?"),
        (["check", ".", "--spec", "no.yaml"], "mlxfp: There is no spec at 'no.yaml'"),
        (["check", ".", "--spec", "titanic", "--target", "Age"], "mlxfp: --target is Age, but --spec titanic defines the target"),
    ],
)
def test_mistakes_are_sentences(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 1
    assert capsys.readouterr().err.startswith(said)
    assert list(tmp_path.iterdir()) == []


def test_groups_and_times_are_named(tmp_path, capsys):
    (tmp_path / "days.yaml").write_text(
        "name: days\nkind: time_series\ntrain: {name: a.csv}\ntarget: [y]\ntime: day\ngroup: shop\nmetric: mae\n"
        "columns: [{name: size, type: numerical}]\n"
    )
    (tmp_path / "a.csv").write_text("day,shop,size,y\n2020-01-01,a,1,2\n")
    assert main(["data", "check", str(tmp_path), "--spec", str(tmp_path / "days.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"  train        a.csv", "  target       y", "  group        shop", "  time         day"} <= set(lines)


def test_an_inferred_spec_comes_before_the_warnings(tmp_path):
    """On a terminal, standard output and standard error have one screen. The spec has a heading, and ends with an empty line."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/train.csv").write_text("id,far,y\n" + "".join(f'{at},"{at},000 km",{at % 2}\n' for at in range(1, 60)))
    command = [sys.executable, "-m", "mlxfp", "data", "infer", "rows", "--target", "y"]
    screen = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    spec, _, warning = screen.partition("\n\n")
    assert spec.startswith("# The spec of rows. To write the spec to a file, add --out FILE.\nname: rows\n")
    (tmp_path / "spec.yaml").write_text(spec)
    assert fp.kaggle.load_spec(tmp_path / "spec.yaml") == fp.kaggle.infer_spec(tmp_path / "rows", target="y")
    first, _, code = warning.partition("\n")
    assert first == "mlxfp: The column 'far' is text, because its numbers are written as '1,000 km'."
    assert code.startswith("To read numbers, rewrite all files, for example with this Python code:\nimport os, pandas, re\n")


@pytest.mark.parametrize("command", [["data", "check", "rows"], ["data", "infer", "rows"], ["new", "project", "--data", "rows"]])
def test_columns_of_numbers_with_words_are_named_when_a_spec_is_inferred(command, tmp_path, monkeypatch, capsys):
    """Users see the warnings about columns before they edit a spec, and not only in a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    rows = [f"{index},{'k.A.' if index == 7 else index / 4},{('yes', 'no')[index % 2]}" for index in range(80)]
    (tmp_path / "rows/train.csv").write_text("\n".join(["id,warm,y", *rows, ""]))
    assert main([*command, "--target", "y"]) == 0
    problem, repair = capsys.readouterr().err.splitlines()
    assert problem == "mlxfp: The column 'warm' is text, because 1 of 80 cells are not numbers: 'k.A.'."
    path = tmp_path / "rows" if "new" in command else "rows"
    code = f"If the words mean missing values, write a spec: mlxfp data infer {path} --target y --out spec.yaml. In the spec, set"
    assert repair.startswith(code)
