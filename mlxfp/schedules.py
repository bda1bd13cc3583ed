"""What `fp.schedules` is; its parts are in `mlxfp.training.optimization.schedules`."""

from mlxfp.training.optimization.schedules import *  # noqa: F403  # all that is public there
from mlxfp.training.optimization.schedules import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
