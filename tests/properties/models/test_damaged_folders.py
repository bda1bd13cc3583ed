"""A config.json with any value in any place is a model or an error of ours: never an abort, or memory for what is not there."""

import json
import resource
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import tests
from mlxfp.models import load, load_body
from mlxfp.support.errors import DataError, MlxfpError

REFERENCES = Path(__file__).parents[2] / "models/references"
ODD: tuple[Any, ...] = (None, True, 0, -1, 1, 7, 2**31, 10**12, 2**64, 1e300, 0.5, "", "x", [], [1], {}, {"a": 1})


def try_values(name: str) -> None:
    """Load the model with each key set to each odd value. Anything but an `MlxfpError` leaves this function, or ends the process."""
    limit = 16 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    whole = json.loads((REFERENCES / name / "config.json").read_text())
    with TemporaryDirectory() as temporary:
        folder = Path(shutil.copytree(REFERENCES / name, f"{temporary}/model"))
        for key in whole:
            for place, value in enumerate(ODD):
                print(key, value, flush=True)  # noqa: T201  # what a test that fails shows
                (folder / "config.json").write_text(json.dumps({**whole, key: value}))
                with suppress(MlxfpError):
                    (load, load_body)[place % 2](folder)


@pytest.mark.parametrize("name", sorted(path.name for path in REFERENCES.iterdir()))
def test_no_value_of_a_config_ends_the_process(name: str):
    code = f"from tests.properties.models.test_damaged_folders import try_values; try_values({name!r})"
    root = Path(tests.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_json_nested_without_end_is_refused(file: str, tmp_path: Path):
    folder = Path(shutil.copytree(REFERENCES / "LlamaForCausalLM", tmp_path / "model"))
    (folder / file).write_text('{"a":' * 200_000)
    with pytest.raises(DataError, match=rf"{file.replace('.', '[.]')} is not valid JSON, or is nested too deeply"):
        load(folder)
