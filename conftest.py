"""What every test and doctest runs under: a fast BLAS, hypothesis profiles, and the folder of real data."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from mlxfp.runtime import use_fast_blas

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a test run tells nobody
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # by itself the number depends on the load of the machine
if "PYTEST_XDIST_WORKER" in os.environ:  # there is a worker on each core, and threads of their own would wait for each other
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
use_fast_blas()  # here, before a test file imports MLX
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; there are tests of interruptions
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine must not fail a test, so there are no deadlines. The fast profile draws the same examples each time: what it
# finds is found by the commit that caused it. The thorough one (make test-thorough) draws new ones, and many.
settings.register_profile("fast", max_examples=20, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("fast")  # --hypothesis-profile=thorough comes after this and wins


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Find the folder of real data sets, never part of the project; a test that asks for it is skipped where it is absent."""
    folder = Path(os.environ.get("MLXFP_DATA", Path(__file__).parent / "../shared/data")).resolve()
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}: set MLXFP_DATA to the folder that has it (see CONTRIBUTING.md)")
    return folder
