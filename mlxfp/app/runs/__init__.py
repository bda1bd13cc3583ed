"""Runs: training of the models in a configuration, with all results in one folder.

The folder of a run holds models, out-of-fold predictions, scores, a submission and a receipt (hashes of inputs and outputs).
"""

from mlxfp.app.reports.comparing import Disagreement, Pair, RunComparison
from mlxfp.app.runs.blending import Blended, blend
from mlxfp.app.runs.events import (
    Began,
    Ended,
    FoldBegan,
    FoldEnded,
    LeftOut,
    Noted,
    RunEvent,
    Summarized,
    Trained,
    TrialEnded,
    Tuned,
    Weighed,
)
from mlxfp.app.runs.finished import export, predict
from mlxfp.app.runs.from_config.parts import CHOICES, load_config
from mlxfp.app.runs.from_config.planning import plan
from mlxfp.app.runs.plans import Plan
from mlxfp.app.runs.quickstart import PreparedFold, prepare
from mlxfp.app.runs.reporting import compare, report
from mlxfp.app.runs.running import resume, run
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
    "Summarized",
    "Trained",
    "TrialEnded",
    "Tuned",
    "Weighed",
    "blend",
    "compare",
    "export",
    "load_config",
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
