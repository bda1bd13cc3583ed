"""What `fp.optimizers` is; its parts are in `mlxfp.training.optimization.optimizers`."""

from mlxfp.training.optimization.optimizers import *  # noqa: F403  # all that is public there
from mlxfp.training.optimization.optimizers import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
