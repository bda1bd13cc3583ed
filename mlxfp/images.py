"""What `fp.images` is; its parts are in `mlxfp.data.images`."""

from mlxfp.data.images import *  # noqa: F403  # all that is public there
from mlxfp.data.images import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
