"""The command as a whole: help, mistakes, exit codes, and what it imports."""

import os
import re
import shlex
import subprocess
import sys
import warnings
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxfp import __version__
from mlxfp.app.cli import commands, configuring, main
from mlxfp.support.errors import ConfigError

MLXFP = [sys.executable, "-W", "error", "-m", "mlxfp"]


def described(parser: ArgumentParser, name: str = "mlxfp") -> Iterator[tuple[str, ArgumentParser]]:
    """Walk through all commands below a parser."""
    yield name, parser
    for action in parser._actions:
        for word, below in action.choices.items() if isinstance(action, _SubParsersAction) else ():
            yield from described(below, f"{name} {word}")


COMMANDS = dict(described(commands._parser()))


def in_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MLXFP, *arguments], capture_output=True, text=True, env=os.environ | environment, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_is_a_command(name, capsys):
    assert main([*name.split()[1:], "--help"]) == 0
    text, _, example = capsys.readouterr().out.partition("\nexample:\n")
    description = text.partition("\n\n")[2].partition("\n\npositional arguments:")[0].partition("\n\noptions:")[0]
    assert not any(line.startswith(" ") for line in description.splitlines()), "a paragraph of the description is indented"
    lines = example.strip().splitlines()
    assert lines
    assert all(line.strip().startswith(name) for line in lines)
    for line in lines:
        commands.parse(line.split(" > ")[0].split()[1:])  # exits if it is none


def test_every_argument_says_what_it_is():
    for name, parser in COMMANDS.items():
        assert [action.dest for action in parser._actions if action.help is None and not isinstance(action, _SubParsersAction)] == [], name


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mlxfp {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["config"], ["no_such_command"], ["config", "show", "titanic", "--orgins"], ["doctor", "a=b"]])
def test_what_is_no_command_is_a_usage_error(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: mlxfp")


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (["runn", "titanic"], 2, "run"),
        (["config", "shwo"], 2, "show"),
        (["run", "titanic", "--minuts", "1"], 2, "--minutes"),
        (["blend", "a", "b", "--out", "c", "--methd=mean"], 2, "--method"),
        (["run", "dta"], 1, "data"),
        (["run", "--data", "dta"], 1, "data"),
        (["resume", "dta"], 1, "data"),
    ],
)
def test_a_mistyped_command_option_or_folder_gets_the_nearest_name(arguments, code, name, capsys, monkeypatch, tmp_path):
    """One wrong letter in a command, an option or the name of a folder is corrected in the message."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert main(arguments) == code
    assert f"Did you mean '{name}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "titanic", "--minutes", "two"], "--minutes: expected a number, got 'two'. Give a number, as in --minutes 2"),
        (["run", "titanic", "--ranks", "1.5"], "--ranks: expected an integer, got '1.5'. Give a number, as in --ranks 2"),
        (["tune", "titanic", "--trials=x"], "--trials: expected an integer, got 'x'. Give a number, as in --trials 2"),
    ],
)
def test_an_option_that_is_no_number_is_named(arguments, message, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(f"mlxfp {arguments[0]}: error: argument {message}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["resume", "cars"],
        ["report", "cars"],
        ["compare", "cars", "other"],
        ["predict", "cars", "--data", "x.csv"],
        ["export", "cars", "--out", "models"],
        ["blend", "cars", "other", "--out", "both"],
        ["submit", "cars"],
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_the_name_of_a_run_gets_the_path_of_the_run(arguments, exists, capsys, monkeypatch, tmp_path):
    """Users remember the name of a run, and forget the folder `runs`. A folder of data can have the same name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/cars").mkdir(parents=True)
    (tmp_path / "runs/cars/config.yaml").write_text("")
    if exists:
        (tmp_path / "cars").mkdir()
    assert main(arguments) == 1
    assert "Did you mean 'runs/cars'?" in capsys.readouterr().err


def test_the_folder_of_all_runs_gets_the_path_of_the_newest_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for seconds, name in enumerate(["a", "b", "c"]):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text("")
        os.utime(tmp_path / "runs" / name / "config.yaml", (seconds % 2, seconds % 2))
    assert main(["report", "runs"]) == 1
    assert "Did you mean 'runs/b'?" in capsys.readouterr().err


@pytest.mark.parametrize(("folder", "meant"), [("chrun", "runs/churn"), ("runs/chrun", "runs/churn"), ("out/chrun", "out/churm")])
def test_a_misspelled_run_gets_the_path_of_a_run_and_not_of_the_data(folder, meant, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "churn").mkdir()
    for run in ("runs/churn", "out/churm"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.yaml").write_text("")
    assert main(["report", folder]) == 1
    assert capsys.readouterr().err == (
        f"mlxfp: {folder!r} is not the folder of a run: config.yaml is missing. Did you mean {meant!r}? Give a folder written by mlxfp "
        "run.\n"
    )


def test_options_may_stand_between_values(capsys):
    assert main(["config", "show", "training.epochs=1"]) == 1
    capsys.readouterr()
    options = commands.parse(["config", "show", "titanic", "a=1", "--origins", "b=2", "--data", "here", "c=3"])
    assert (options.overrides, options.origins, options.data) == (["a=1", "b=2", "c=3"], True, "here")


def test_a_mistake_is_a_sentence_on_standard_error_and_exit_code_1():
    ended = in_a_process("config", "check", "titanic", "training.epochs=x")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "mlxfp: A mistake in the configuration:\n  training.epochs (command line): expected an integer, got 'x'\n"


def test_tracebacks_are_shown_on_request():
    ended = in_a_process("config", "check", "titanic", "training.epochs=x", MLXFP_DEBUG="1")
    assert ended.returncode == 1
    assert "Traceback (most recent call last)" in ended.stderr
    assert "mlxfp.support.errors.ConfigError: A mistake" in ended.stderr
    assert "Traceback" not in in_a_process("config", "check", "titanic", "x=1", MLXFP_DEBUG="0").stderr


def fails_with(error: BaseException):
    def run(_: Namespace) -> int:
        raise error

    return run


def noted(error: BaseException) -> BaseException:
    error.add_note("while reading row 3")
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "mlxfp: interrupted\n"),
        (noted(ConfigError("It is wrong.")), 1, "mlxfp: It is wrong.\nwhile reading row 3\n"),
        (PermissionError(13, "Permission denied", "here.csv"), 1, "mlxfp: [Errno 13] Permission denied: 'here.csv'\n"),
    ],
)
def test_what_stops_a_command_is_said_in_a_line(error, code, said, capsys, monkeypatch):
    monkeypatch.setattr(configuring, "_schema", fails_with(error))
    assert main(["config", "schema"]) == code
    assert capsys.readouterr().err == said


def test_our_own_bugs_keep_their_traceback(monkeypatch):
    monkeypatch.setattr(configuring, "_schema", fails_with(AssertionError("a bug")))
    with pytest.raises(AssertionError, match="a bug"):
        main(["config", "schema"])


def test_a_pipe_that_nobody_reads_ends_it_quietly():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        ended = subprocess.run([*MLXFP, "config", "schema"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["config", "show", "titanic", "--origins"],
        ["config", "presets"],
    ],
)
def test_help_presets_and_show_load_neither_mlx_nor_arrow(arguments):
    heavy = "{'mlx', 'pyarrow', 'numpy'}"
    code = f"import sys; from mlxfp.app.cli import main; code = main({arguments!r}); print(code, {heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "0 set()"


ROOT = Path(__file__).parents[3]
PAGES = "\n".join(page.read_text("utf-8") for page in ROOT.glob("docs/**/*.md"))
LINES = [line for block in re.findall(r"```.*?```", PAGES, re.DOTALL) for line in re.findall(r"^\s*(mlxfp [a-z].*)$", block, re.MULTILINE)]


@pytest.mark.parametrize("line", LINES)
def test_every_command_on_a_page_is_one(line):
    words = shlex.split(line.split(" > ")[0], comments=True)
    commands.parse(words[1:])  # exits if it is none


def test_pages_show_commands():
    assert any(line.startswith("mlxfp config show") for line in LINES)


def test_dashes_before_a_value_are_explained_where_there_are_values(capsys):
    assert main(["run", "titanic", "--training.epochs=3"]) == 2
    assert "--training.epochs=3. Options begin with two dashes, key=value with none, as in training.epochs=3" in capsys.readouterr().err
    assert main(["run", "titanic", "--lr=1e-3"]) == 2
    assert "unrecognized arguments: --lr=1e-3. Options begin with two dashes, key=value with none, as in optimizer.learning_rate=1e-3" in (
        capsys.readouterr().err
    )
    assert main(["run", "titanic", "--out", "mine"]) == 2
    assert (
        "unrecognized arguments: --out. Options begin with two dashes, key=value with none, as in output=VALUE" in capsys.readouterr().err
    )
    assert main(["doctor", "-v"]) == 2
    assert capsys.readouterr().err.endswith("unrecognized arguments: -v\n")


def test_a_command_prints_a_warning_once_and_as_a_sentence(capsys, monkeypatch, tmp_path):
    """Python would print the path of a file of mlxfp and a line of code with each warning."""
    (tmp_path / "warning_parts.py").write_text(
        "import warnings\nfor _ in range(3):\n    warnings.warn('The data are small.\\nAdd rows.')\n"
    )
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["run", "titanic", "own.loss=warning_parts:warnings", "--code", "."]) == 1
    assert capsys.readouterr().err.splitlines().count("mlxfp: The data are small. Add rows.") == 1
