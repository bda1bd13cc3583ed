"""The namespace `fp.metrics`, with the public names of `mlxfp.evaluation.metrics`."""

from mlxfp.evaluation.metrics import *  # noqa: F403  # all public names
from mlxfp.evaluation.metrics import __all__, __dir__, __doc__  # noqa: F401  # the docstring of the package
