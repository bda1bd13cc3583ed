"""Runs: from a configuration to a folder with models, out-of-fold predictions, scores, a submission and a receipt."""

from mlxfp.runs.blending import Blended, blend
from mlxfp.runs.events import Began, Ended, FoldBegan, FoldEnded, LeftOut, Noted, RunEvent, Trained, Weighed
from mlxfp.runs.finished import export, predict
from mlxfp.runs.from_config import CHOICES
from mlxfp.runs.plans import Plan, plan
from mlxfp.runs.quickstart import PreparedFold, prepare
from mlxfp.runs.reports.comparing import Disagreement, Pair, RunComparison, compare
from mlxfp.runs.running import resume, run
from mlxfp.runs.tuning.events import TrialEnded, Tuned
from mlxfp.runs.tuning.spaces import SPACES, Parameter
from mlxfp.runs.tuning.tuned import tune

__all__ = [
    "CHOICES",
    "SPACES",
    "Began",
    "Blended",
    "Disagreement",
    "Ended",
    "FoldBegan",
    "FoldEnded",
    "LeftOut",
    "Noted",
    "Pair",
    "Parameter",
    "Plan",
    "PreparedFold",
    "RunComparison",
    "RunEvent",
    "Trained",
    "TrialEnded",
    "Tuned",
    "Weighed",
    "blend",
    "compare",
    "export",
    "plan",
    "predict",
    "prepare",
    "resume",
    "run",
    "tune",
]


def __dir__() -> list[str]:
    return __all__
