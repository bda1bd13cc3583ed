"""A fast library for matrix products, and experiment trackers for all tests of a process: making the tables of MLflow takes seconds."""

import os

import pytest

from mlxfp import runtime

runtime.use_fast_blas(threads=1)  # before the first import of MLX; each core has a process of its own

collect_ignore = ["typing/false_errors.py"]  # for type checkers only

os.environ["DO_NOT_TRACK"] = "true"  # before MLflow is imported


@pytest.fixture(scope="session")
def mlflow_store(tmp_path_factory):
    """Return a client of a new store, with experiments."""
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    folder = tmp_path_factory.mktemp("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    for name in ("runs", "trackers"):
        client.create_experiment(name, artifact_location=(folder / "artifacts").as_uri())
    return client


@pytest.fixture(scope="session")
def wandb_folder(tmp_path_factory):
    """Import W&B in offline mode with a folder of its own, and return the folder."""
    folder = tmp_path_factory.mktemp("wandb")
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(folder)}
    pytest.importorskip("wandb", reason="wandb is not installed: the extra wandb")
    return folder / "wandb"
