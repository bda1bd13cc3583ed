"""What `fp.report` is; its parts are in `mlxfp.runs.reports`."""

from mlxfp.runs.reports import *  # noqa: F403  # all that is public there
from mlxfp.runs.reports import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
