"""The namespace `fp.schedules`, with the public names of `mlxfp.training.optimization.schedules`."""

from mlxfp.training.optimization.schedules import *  # noqa: F403  # all public names
from mlxfp.training.optimization.schedules import __all__, __dir__, __doc__  # noqa: F401  # the docstring of the package
