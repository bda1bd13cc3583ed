"""What cannot be written is said, and leaves nothing behind."""

from pathlib import Path

import mlx.core as mx
import pytest

from mlxfp.models.folders import write_json, write_weights
from mlxfp.support.errors import CheckpointError


def test_weights_that_cannot_be_written_are_named_and_leave_nothing_behind(tmp_path, monkeypatch):
    def full(name, arrays, metadata):
        Path(name).touch()
        raise RuntimeError("[write] Unable to write 145220 bytes to file.")

    monkeypatch.setattr(mx, "save_safetensors", full)
    with pytest.raises(CheckpointError, match=r"model\.safetensors could not be written: \[write\] Unable.*Is the disk full"):
        write_weights(tmp_path, {"w": mx.zeros(2)}, 1000)
    assert list(tmp_path.iterdir()) == []


def test_json_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "config.json", {"a": 1})
    assert list(tmp_path.iterdir()) == []
