"""A file is whole or not there, whatever fails while it is written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support.atomic_files import PARTIAL, write_whole, written_whole


@given(st.binary(max_size=99), st.binary(max_size=99), st.booleans())
def test_a_file_is_the_old_one_or_the_whole_new_one(tmp_path_factory, old: bytes, new: bytes, fails: bool):
    path = tmp_path_factory.mktemp("written") / "weights.safetensors"
    write_whole(path, old)

    def write() -> None:
        with written_whole(path) as file:
            file.write_bytes(new)
            if fails:
                raise KeyboardInterrupt
            assert path.read_bytes() == old

    if fails:
        with pytest.raises(KeyboardInterrupt):
            write()
    else:
        write()
    assert path.read_bytes() == (old if fails else new)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_temporary_name_is_hidden_and_keeps_the_ending(tmp_path: Path):
    with written_whole(tmp_path / "a.csv.gz") as file:
        assert (file.parent, file.suffix, file.name[0]) == (tmp_path, ".gz", ".")
        assert PARTIAL in file.name
        file.touch()


def test_two_writers_do_not_meet(tmp_path: Path):
    path = tmp_path / "a"
    with written_whole(path) as first, written_whole(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"


def test_a_folder_that_is_not_there_is_the_callers_to_make(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "missing" / "a", b"")
