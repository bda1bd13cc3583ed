"""What `fp.runners` is; its parts are in `mlxfp.data.running.runners`."""

from mlxfp.data.running.runners import *  # noqa: F403  # all that is public there
from mlxfp.data.running.runners import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
