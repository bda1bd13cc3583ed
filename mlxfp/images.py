"""The namespace `fp.images`, with the public names of `mlxfp.data.images`."""

from mlxfp.data.images import *  # noqa: F403  # all public names
from mlxfp.data.images import __all__, __dir__, __doc__  # noqa: F401  # the docstring of the package
