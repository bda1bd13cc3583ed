"""Runs: from a configuration to a folder with models, out-of-fold predictions, scores, a submission and a receipt."""

from mlxfp.runs.events import Began, Ended, FoldBegan, FoldEnded, Noted, RunEvent, Trained
from mlxfp.runs.from_config import CHOICES
from mlxfp.runs.plans import Plan, plan
from mlxfp.runs.quickstart import PreparedFold, prepare
from mlxfp.runs.running import predict, resume, run

__all__ = [
    "CHOICES",
    "Began",
    "Ended",
    "FoldBegan",
    "FoldEnded",
    "Noted",
    "Plan",
    "PreparedFold",
    "RunEvent",
    "Trained",
    "plan",
    "predict",
    "prepare",
    "resume",
    "run",
]
