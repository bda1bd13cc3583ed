"""Names that are not UTF-8 and links without a target are refused by name, in all readers and writers."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.errors import ArgumentError, MissingFileError

READERS: dict[str, Callable[[Any], Any]] = {
    ".csv": fp.read_csv,
    ".jsonl": fp.read_jsonl,
    ".txt": fp.read_text,
    ".parquet": fp.read_parquet,
    ".arrow": fp.read_arrow,
    ".tar": fp.read_tar,
}
BYTES = b"\xff name"
ROWS = fp.from_examples([{"x": 1}])


def name_in(folder: Path, suffix: str = "") -> str:
    return os.fsdecode(os.fsencode(folder) + b"/" + BYTES + suffix.encode())


@pytest.mark.parametrize("suffix", READERS)
def test_case_e15_readers_refuse_a_name_that_is_not_utf_8(tmp_path: Path, suffix: str):
    """As path, in a folder and by a pattern. The message is UTF-8."""
    path = name_in(tmp_path, suffix)
    Path(path).write_bytes(b"")
    for call in (
        lambda: READERS[suffix](path),
        lambda: list(READERS[suffix]([path])),
        lambda: list(READERS[suffix](tmp_path)),
        lambda: list(READERS[suffix](tmp_path / f"*{suffix}")),
        lambda: fp.schema(READERS[suffix](tmp_path / f"**/*{suffix}")),
    ):
        with pytest.raises(
            ArgumentError, match=r"The name of a file is not UTF-8: got .*\\xff name.*\. Rename the file: mv \$'.*' NEW_NAME\."
        ) as caught:
            call()
        assert str(caught.value).encode()


@pytest.mark.parametrize("read", [fp.read_images, fp.read_audio])
def test_readers_of_media_refuse_a_name_that_is_not_utf_8(tmp_path: Path, read: Any):
    for suffix in (".png", ".wav"):
        Path(name_in(tmp_path, suffix)).write_bytes(b"")
    with pytest.raises(ArgumentError, match="The name of a file is not UTF-8"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: fp.write(ROWS, path),
        fp.cache,
        lambda path: fp.models.save(path, fp.models.Bert(fp.models.BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2))),
        lambda path: fp.save_state(path, fp.train_state(nn.Linear(1, 1), fp.optimizers.adamw(0.1), seed=0)),
    ],
)
def test_writers_refuse_a_name_that_is_not_utf_8(tmp_path: Path, write: Any):
    with pytest.raises(ArgumentError, match=r"The name of a (folder|file) is not UTF-8: got .*\\xff name"):
        write(name_in(tmp_path))
    assert not os.listdir(tmp_path)  # noqa: PTH208  # Path.iterdir decodes names as well


@pytest.mark.parametrize("suffix", READERS)
def test_case_e16_a_link_without_a_target_is_named_and_never_left_out(tmp_path: Path, suffix: str):
    (tmp_path / f"good{suffix}").write_bytes(b"")
    (tmp_path / f"dead{suffix}").symlink_to("nowhere")
    for path in (tmp_path / f"dead{suffix}", tmp_path, tmp_path / f"*{suffix}", tmp_path / f"**/*{suffix}"):
        with pytest.raises(MissingFileError, match=r"A link has no target: '.*dead.*' leads to 'nowhere'"):
            list(READERS[suffix](path))
