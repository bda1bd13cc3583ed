"""`mlxfp inspect`: what a model would be given."""

import pytest

import mlxfp as fp
from mlxfp.app.cli import main

QUICK = ("data.limit=60", "text.vocab_size=300")


@pytest.fixture(scope="module")
def ship(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ship")
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], folder, rows=80, test_rows=20)
    return folder


def test_all_parts_are_shown_in_their_order(ship, capsys):
    assert main(["inspect", "titanic", *QUICK, "--data", str(ship), "text.max_length=160"]) == 0
    said = capsys.readouterr()
    heads = [line.removeprefix("== ") for line in said.out.splitlines() if line.startswith("== ")]
    assert heads == ["preview", "schema", "tokens", "shapes", "profile"]
    for part in (
        "row 0: Survived or not? The class is ",
        "batch 0: input_ids int32[32, ",
        "  Survived: int64",
        "  input_ids: list<item: int32>",
        "train: 48 rows of ",
        "\ntest: 20 rows of ",
        " batches of 32 rows x ",
        "shapes in the first epoch: 1; maximum over all epochs: ",
        "tokenize(",
        " limits: it works ",
    ):
        assert part in said.out
    assert "refused" not in said.out
    assert said.err == ""


def test_rows_that_are_too_long_are_shown_with_their_cost(ship, capsys):
    arguments = ["inspect", "titanic", *QUICK, "--data", str(ship), "text.max_length=16", "--part", "shapes", "--part", "tokens"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("==")] == ["== tokens", "== shapes"]
    assert "100.0 % of them above 16" in said
    assert "A run would fail: rows are longer than text.max_length. Raise text.max_length, or cut the rows: text.overflow=cut." in said
    assert "batches of 32 rows x 16 tokens" in said
    assert main([*arguments, "text.overflow=cut"]) == 0
    assert "refused" not in capsys.readouterr().out


def test_without_data_rows_are_made_up_in_no_folder_of_the_user(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "titanic", *QUICK, "--part", "schema"]) == 0
    said = capsys.readouterr()
    assert "Survived: int64" in said.out
    assert said.err == "mlxfp: data.path is not set, so the rows are synthetic. To inspect your own data, add --data PATH.\n"
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_sentences(capsys):
    assert main(["inspect", "quick_test"]) == 1
    assert capsys.readouterr().err.startswith(
        "mlxfp: The run has no data. Give the folder of your files as data.path=FOLDER, or write synthetic rows"
    )
    assert main(["inspect", "titanic", "--data", "no/folder"]) == 1
    assert capsys.readouterr().err.startswith("mlxfp: There is no folder 'no/folder'")
    assert main(["inspect", "titanic", "--part", "everything"]) == 2
    assert "invalid choice: 'everything'" in capsys.readouterr().err


def test_auto_shows_one_model_and_the_command_for_the_model(ship, capsys):
    """The warning repeats the arguments, so that a user can copy the command. Both commands print the same."""
    assert main(["inspect", "titanic", *QUICK, "--data", str(ship), "model.name=auto", "--part", "schema"]) == 0
    shown = capsys.readouterr()
    command = shown.err.strip().partition("as in: mlxfp ")[2]
    assert command == f"inspect titanic {' '.join(QUICK)} model.name=auto --data {ship} model.name=encoder"
    assert main([*command.split(), "--part", "schema"]) == 0
    assert capsys.readouterr().out == shown.out
