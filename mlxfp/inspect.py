"""Inspection: views, statistics, differences and origins of the rows and batches of a pipeline."""

from mlxfp.core.identity import fingerprint
from mlxfp.core.row_names import Origin
from mlxfp.data.inspection.batch_views import BatchView, show_batch
from mlxfp.data.inspection.checksums import checksum
from mlxfp.data.inspection.column_stats import column_stats
from mlxfp.data.inspection.differences import diff
from mlxfp.data.inspection.mixture_counts import Proportion, mixture_proportions
from mlxfp.data.inspection.previews import preview
from mlxfp.data.inspection.profiling import Profile, profile
from mlxfp.data.inspection.provenance import row_origins, trace_row
from mlxfp.data.lengths.shape_planning import ShapePlan, batch_shapes
from mlxfp.data.manifests import Manifest
from mlxfp.data.running.error_rows import SkippedRow, skipped_rows
from mlxfp.text.engines.choosing import EngineStatus, token_engines

__all__ = [
    "BatchView",
    "EngineStatus",
    "Manifest",
    "Origin",
    "Profile",
    "Proportion",
    "ShapePlan",
    "SkippedRow",
    "batch_shapes",
    "checksum",
    "column_stats",
    "diff",
    "fingerprint",
    "mixture_proportions",
    "preview",
    "profile",
    "row_origins",
    "show_batch",
    "skipped_rows",
    "token_engines",
    "trace_row",
]


def __dir__() -> list[str]:
    return __all__
