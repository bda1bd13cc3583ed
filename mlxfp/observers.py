"""The namespace `fp.observers`, with the public names of `mlxfp.training.observers`."""

from mlxfp.training.observers import *  # noqa: F403  # all public names
from mlxfp.training.observers import __all__, __dir__, __doc__  # noqa: F401  # the docstring of the package
