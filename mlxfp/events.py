"""What `fp.events` is; its parts are in `mlxfp.training.loop.events`."""

from mlxfp.training.loop.events import *  # noqa: F403  # all that is public there
from mlxfp.training.loop.events import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
