"""What `fp.metrics` is; its parts are in `mlxfp.evaluation.metrics`."""

from mlxfp.evaluation.metrics import *  # noqa: F403  # all that is public there
from mlxfp.evaluation.metrics import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
