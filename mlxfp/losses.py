"""The namespace `fp.losses`, with the public names of `mlxfp.training.losses`."""

from mlxfp.training.losses import *  # noqa: F403  # all public names
from mlxfp.training.losses import __all__, __dir__, __doc__  # noqa: F401  # the docstring of the package
