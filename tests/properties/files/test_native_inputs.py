"""No input ends the process: native code over drawn and mutated inputs, in child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

import tests
from tests.support.native_inputs import KINDS

_IN_A_CHILD = 100  # inputs of one child process


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_no_input_ends_the_process(kind: str):
    """20 inputs for each kind, and 1,500 in the thorough profile. Each input gives a result or an `MlxfpError`."""
    count = 20 if settings().max_examples < 100 else 1500
    root = Path(tests.__file__).parents[1]
    for first in range(0, count, _IN_A_CHILD):
        size = min(_IN_A_CHILD, count - first)
        code = f"from tests.support.native_inputs import try_inputs; try_inputs({kind!r}, {first}, {size})"
        environment = dict(os.environ, PYTHONFAULTHANDLER="1")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"exit status {done.returncode} after {done.stdout.splitlines()[-1:]}\n{done.stderr[-3000:]}"
