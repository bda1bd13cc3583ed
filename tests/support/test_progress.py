"""Work of more than two seconds shows its progress on terminals, and in the logs of commands. Nothing else is printed."""

import io
import re
import sys
import threading
import time

import pytest
import tqdm

import mlxfp as fp
from mlxfp.support.progress import SETTING, Progress, lines_in_logs, write_line
from tests.screens import Terminal, screens


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (SETTING, "MLX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def begin(monkeypatch):
    """A function that begins work with a file in place of standard error."""

    def begin(file, text="count", **options):
        monkeypatch.setattr(sys, "stderr", file)
        return Progress(text, **options)

    return begin


def texts(file):
    """Return the texts that a terminal showed, one after the other."""
    return [lines[0] for lines in screens(file.getvalue()) if lines[0]]


def test_a_terminal_gets_a_bar_and_a_log_gets_lines_after_two_seconds(begin, monkeypatch):
    terminal, log, command, steady, broken, quiet = Terminal(), io.StringIO(), io.StringIO(), Terminal(), Terminal(), Terminal()
    works = [
        begin(terminal, total=lambda: 1000),
        begin(log),
        begin(steady, "folds", unit="fold", total=lambda: 5, done=1, lines=True),
        begin(broken, "a\x1b[2J\nb", total=lambda: 1 // 0),
    ]
    with lines_in_logs():
        works.append(begin(command))
    monkeypatch.setenv(SETTING, "0")
    works.append(begin(quiet))
    monkeypatch.setenv("MLX_RANK", "1")
    works.append(begin(quiet))
    for work in works:
        work.update(0)  # too early
    assert terminal.getvalue() == command.getvalue() == ""
    time.sleep(2.1)
    for work in works:
        with work:
            work.update(200 if work is not works[2] else 1)
    assert texts(terminal)[0].startswith("count:  20%|##")
    assert re.search(r"\| 200/1\.00k \[\d\d:\d\d<\d\d:\d\d", texts(terminal)[0])
    assert [*screens(terminal.getvalue())][-1] == [""]
    assert log.getvalue() == quiet.getvalue() == ""
    assert command.getvalue().startswith("count: 200 rows [")
    assert steady.getvalue().startswith("folds:  40% 2/5 [")
    assert texts(broken)[0].startswith(r"a\x1b[2J b: 200 rows [")
    assert len(command.getvalue().splitlines()) == len(steady.getvalue().splitlines()) == 1


def test_a_pipeline_says_how_far_it_is(begin, monkeypatch):
    log = io.StringIO()
    monkeypatch.setenv(SETTING, "1")
    monkeypatch.setattr(sys, "stderr", log)
    assert len(list(fp.pipe(fp.from_iterable(slow), fp.load()))) == 3
    assert log.getvalue().startswith("load: 3.00 rows [")


def slow():
    time.sleep(2.1)
    return iter([{"x": 1}, {"x": 2}, {"x": 3}])


def test_items_are_counted_whole_or_by_their_rows(begin):
    work = begin(Terminal(), unit="groups")
    assert list(work.over(["a", "b"])) == ["a", "b"]


def test_threads_show_nothing_and_one_setting_keeps_everything_quiet(begin, monkeypatch):
    main, other, quiet = Terminal(), Terminal(), Terminal()
    works = [begin(main)]
    thread = threading.Thread(target=lambda: works.append(begin(other)))
    thread.start()
    thread.join()
    monkeypatch.setenv(SETTING, "0")
    works.append(begin(quiet))
    time.sleep(2.1)
    for work in works:
        with work:
            work.update()
    assert [bool(file.getvalue()) for file in (main, other, quiet)] == [True, False, False]


@pytest.mark.parametrize("file", [None, io.StringIO()])
def test_a_program_without_a_console_works(monkeypatch, file):
    if file is not None:
        file.close()
    monkeypatch.setattr(sys, "stderr", file)
    with Progress("count") as work:
        work.update()


def test_a_line_stands_above_the_bar_of_a_program():
    screen = Terminal()
    with tqdm.tqdm(total=3, desc="theirs", file=screen, leave=False):
        write_line(screen, "a\x1b[2J\nline")
        assert [line[:13] for line in [*screens(screen.getvalue())][-1]] == [r"a\x1b[2J line", "theirs:   0%|"]
