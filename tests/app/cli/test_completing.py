"""`mlxfp completion`: what the Tab key offers."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import argcomplete
import pytest

from mlxfp.app.cli import commands, main

FOUND = "_python_argcomplete mlxfp; printf '%s\\n' \"${COMPREPLY[@]}\""
BREAKS = " \t\n\"'><=;|&(:"  # where bash begins a word: it replaces what comes after the last of these


def offered(line: str, **more) -> set[str]:
    """What is offered at the end of a line."""
    finder = argcomplete.CompletionFinder(commands._parser(), always_complete_options=False, **more)
    quote, word, _, words, place = argcomplete.split_line(line)
    return {each.rstrip() for each in finder._get_completions(words, word, quote, place)}


def test_commands_options_presets_and_values_are_offered(tmp_path, monkeypatch):
    assert {"run", "new", "doctor", "completion"} <= offered("mlxfp ")
    assert offered("mlxfp config s") == {"show", "schema"}
    assert offered("mlxfp doctor --j") == {"--json"}
    assert offered("mlxfp run --preset tit") == {"titanic"}
    assert offered("mlxfp run titanic training.epo") == {"training.epochs="}
    assert offered("mlxfp completion ") == {"bash", "zsh", "fish"}


def test_the_values_of_options_are_offered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").touch()
    assert offered("mlxfp run titanic model.name=light") == {"model.name=lightgbm"}
    assert offered("mlxfp run titanic optimizer.name=ad") == {f"optimizer.name={name}" for name in ("adam", "adamw", "adafactor")}
    assert offered("mlxfp run titanic observers.plots=") == {"observers.plots=true", "observers.plots=false"}
    assert offered("mlxfp run titanic training.compute_dtype=b") == {"training.compute_dtype=bfloat16"}
    assert offered("mlxfp run titanic competition.metric=n") == {"competition.metric=null"}
    assert offered("mlxfp run titanic data.path=") == {"data.path=null", "data.path=rows.csv"}
    assert offered("mlxfp run titanic training.epochs=") == set()
    assert offered("mlxfp run titanic unheard=") == set()
    assert offered("mlxfp run --data rows.csv model.name=light") == {"model.name=lightgbm"}


def test_files_and_presets_are_offered_as_configurations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("titles.yaml").touch()
    Path("titles").mkdir()
    Path("titles/a.yaml").touch()
    assert offered("mlxfp run tit") == {"titanic", "titles.yaml", "titles/"}
    assert offered("mlxfp run titles/") == {"titles/a.yaml"}
    assert offered("mlxfp run no/such/") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_own_lines(shell, capsys):
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "mlxfp" in said
    assert ("complete --command mlxfp" in said) == (shell == "fish")


@pytest.fixture
def typed(tmp_path):
    """A function of a line to what bash then writes in place of its last word."""
    program = tmp_path / "mlxfp"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlxfp "$@"\n')
    program.chmod(0o755)
    script = subprocess.run([program, "completion", "bash"], capture_output=True, text=True, check=True).stdout

    def completed(line):
        said = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        setting = f"COMP_WORDBREAKS={shlex.quote(BREAKS)}; "
        ended = subprocess.run(["bash", "-c", script + setting + FOUND], capture_output=True, text=True, env=os.environ | said, check=True)
        return ended.stdout.split()

    return completed


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mlxfp config pre", ["presets"]),
        ("mlxfp run titanic observers.plo", ["observers.plots="]),
        ("mlxfp run titanic model.name=light", ["lightgbm"]),  # and not model.name=lightgbm after the =
        ("mlxfp run titanic name=x observers.plots=", ["true", "false"]),
    ],
)
def test_bash_completes_a_line(line, words, typed):
    assert typed(line) == words


def test_without_the_package_nothing_is_completed_and_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 1
    assert 'pip install "mlxfp[completion]"' in capsys.readouterr().err
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main(["doctor"]) == 1
    assert capsys.readouterr() == ("", "")
