"""Runs: from a configuration to a folder with models, out-of-fold predictions, scores, a submission and a receipt."""

from mlxfp.app.runs.blending import Blended, blend
from mlxfp.app.runs.events import Began, Ended, FoldBegan, FoldEnded, LeftOut, Noted, RunEvent, Trained, Weighed
from mlxfp.app.runs.finished import export, predict
from mlxfp.app.runs.from_config import CHOICES
from mlxfp.app.runs.plans import Plan, plan
from mlxfp.app.runs.quickstart import PreparedFold, prepare
from mlxfp.app.runs.reports.comparing import Disagreement, Pair, RunComparison, compare
from mlxfp.app.runs.reports.reporting import report
from mlxfp.app.runs.running import resume, run
from mlxfp.app.runs.tuning.events import TrialEnded, Tuned
from mlxfp.app.runs.tuning.spaces import SPACES, Parameter
from mlxfp.app.runs.tuning.tuned import tune

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
    "report",
    "resume",
    "run",
    "tune",
]


def __dir__() -> list[str]:
    return __all__
