"""Optional packages: imported where they are used, with an error that names the extra to install."""

from importlib import import_module
from types import ModuleType

from mlxfp.support.errors import MissingExtraError


def optional(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import `module`, or say which extra of mlxfp brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is there, something that it needs is not: its own message says more
        raise MissingExtraError(f'{needed_by} needs {package}. Install it with: pip install "mlxfp[{extra}]"') from error
