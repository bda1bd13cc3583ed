"""Lazy imports of optional packages, with an error that names the extra to install."""

from importlib import import_module
from types import ModuleType

from mlxfp.support.errors import MissingExtraError


def optional(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import `module`. If the package is missing, raise an error that names the extra of mlxfp."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is installed, but a dependency of the package is missing
        raise MissingExtraError(f'{needed_by} needs {package}. Install it with: pip install "mlxfp[{extra}]"') from error
