"""The files of the spec `CATS`."""

from pathlib import Path

import pytest

from tests.app.kaggle.drawing import CATS_FILES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in CATS_FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path
