"""A store of MLflow for all tests of a process: making its tables takes seconds."""

import os

import pytest

# Before MLflow, Trackio and TensorBoard are imported: they tell nobody, and write into no folder of the user.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"
os.environ["HF_HUB_OFFLINE"] = "1"


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
def trackio_folder(tmp_path_factory):
    """Import Trackio with a folder of its own, and return the folder."""
    folder = tmp_path_factory.mktemp("trackio")
    os.environ["TRACKIO_DIR"] = str(folder)
    pytest.importorskip("trackio", reason="trackio is not installed")
    return folder
