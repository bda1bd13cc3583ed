"""What `fp.observers` is; its parts are in `mlxfp.training.observers`."""

from mlxfp.training.observers import *  # noqa: F403  # all that is public there
from mlxfp.training.observers import __all__, __dir__, __doc__  # noqa: F401  # and what it says of itself
