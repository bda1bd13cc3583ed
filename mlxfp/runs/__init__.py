"""Runs: a configuration to a folder with models, out-of-fold predictions, scores, a submission and a receipt."""

from mlxfp.runs.events import Began, Ended, FoldBegan, FoldEnded, Noted, RunEvent, Trained
from mlxfp.runs.plans import Plan, plan
from mlxfp.runs.running import predict, resume, run

__all__ = ["Began", "Ended", "FoldBegan", "FoldEnded", "Noted", "Plan", "RunEvent", "Trained", "plan", "predict", "resume", "run"]
