"""Patterns match the files that they name, once, and paths that are no files say why."""

import os
from glob import glob
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.data.file_search import is_data, match_pattern, missing
from mlxfp.support.errors import DataError, MissingFileError


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a\n1\n")


def matches(folder: Path, pattern: str) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in match_pattern(folder / pattern)]


def test_case_e7_a_link_upward_is_left_out(tmp_path: Path):
    make(tmp_path, "d/x/one.csv")
    (tmp_path / "d/x/up").symlink_to("..")
    (tmp_path / "d/x/top").symlink_to(tmp_path)
    assert matches(tmp_path, "d/**/*.csv") == ["d/x/one.csv"]
    assert matches(tmp_path, "d/**") == ["d/x/one.csv"]


def test_links_in_a_circle_end(tmp_path: Path):
    make(tmp_path, "d/a/1.csv", "d/b/2.csv", "d/c/3.csv")
    for start in "abc":
        for target in "abc":
            (tmp_path / "d" / start / f"to_{target}").symlink_to(tmp_path / "d" / target)
    assert matches(tmp_path, "d/**/*.csv") == ["d/a/1.csv", "d/b/2.csv", "d/c/3.csv"]


def test_a_link_to_another_folder_is_followed_once(tmp_path: Path):
    make(tmp_path, "d/a/1.csv", "elsewhere/2.csv", "elsewhere/deep/3.csv")
    (tmp_path / "d/first").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "d/second").symlink_to(tmp_path / "elsewhere")
    assert matches(tmp_path, "d/**/*.csv") == ["d/a/1.csv", "d/first/2.csv", "d/first/deep/3.csv"]
    assert matches(tmp_path, "d/*/*.csv") == ["d/a/1.csv", "d/first/2.csv", "d/second/2.csv"]


NAMES = st.sampled_from(["a", "b.csv", ".hidden", "c[1].csv", "x"])
PARTS = st.sampled_from(["**", "*", "*.csv", "a", "[ab]*", ".*", "x?", "x"])


@given(st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=8), st.lists(PARTS, min_size=1, max_size=4).map("/".join))
def test_without_links_a_pattern_matches_as_in_glob(tmp_path_factory: pytest.TempPathFactory, names: list[str], pattern: str):
    folder = tmp_path_factory.mktemp("tree")
    for name in names:
        if not any((folder / parent).is_file() for parent in Path(name).parents) and not (folder / name).exists():
            make(folder, name)
    expected = glob(f"{folder}/{pattern}", recursive=True)  # noqa: PTH207  # the reference
    assert match_pattern(folder / pattern) == sorted({path for path in map(Path, expected) if path.is_file()})


def test_case_e16_paths_that_are_no_files_say_why(tmp_path: Path):
    (tmp_path / "dead.csv").symlink_to("nowhere")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for name, message in (
        ("dead.csv", r"A link has no target: '.*dead\.csv' leads to 'nowhere'\. Restore the target, or remove the link: rm .*dead\.csv\."),
        ("loop.csv", r"A link leads to itself: '.*loop\.csv' leads to 'loop\.csv'\."),
    ):
        with pytest.raises(MissingFileError, match=message):
            raise missing(tmp_path / name)
        with pytest.raises(MissingFileError, match=message):
            is_data(tmp_path / name)
    with pytest.raises(DataError, match=r"A path is a pipe instead of a file, in '.*pipe\.csv'\. .* cat .*pipe\.csv > FILE\."):
        raise missing(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="A path is a device instead of a file, in '/dev/null'"):
        raise missing(Path("/dev/null"))
    assert "Did you mean 'dead.csv'" in str(missing(tmp_path / "ded.csv"))
