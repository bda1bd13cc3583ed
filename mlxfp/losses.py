"""What `fp.losses` is; its parts are in `mlxfp.training.losses`."""

from mlxfp.training.losses import *  # noqa: F403  # all that is public there
from mlxfp.training.losses import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
