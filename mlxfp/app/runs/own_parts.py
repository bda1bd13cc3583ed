"""Import of user-defined parts, given as `module:name` in a configuration. The argument `code` permits imports from a folder."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from attrs import field, frozen
from mlx import nn

from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.tasks.competition_data import ReadRows
from mlxfp.app.tasks.objectives import Loss
from mlxfp.observers import Observer
from mlxfp.support.checks import check_types
from mlxfp.support.errors import ArgumentError, ConfigError, unknown_name

_PARTS = {"model.name": "estimator"}  # from an option path to the attribute of `OwnParts`, for attributes with another name than the option
Code = str | PathLike[str] | None  # folder of the modules that may be imported; None forbids imports


@frozen
class OwnParts:
    """User-defined functions of a run, such as the loss. `files` maps each imported module to its file."""

    model: Callable[..., Any] | None = None
    estimator: Callable[..., Any] | None = None
    loss: Loss | None = None
    step: Callable[..., Any] | None = None
    spec: DatasetSpec | None = None
    rows: ReadRows | None = None
    observers: tuple[Observer, ...] = ()
    files: dict[str, Path] = field(factory=dict)

    def make_model(self, name: str | None, task: Any, seed: int) -> Any:
        """Create a model with the user's function. Return None if there is no function. Error messages show the option value `name`."""
        if self.model is None:
            return None
        model = self.model(task, seed)
        check_types(nn.Module, **{f"what {name} returns": model})
        return model


def own_parts(names: Sequence[tuple[str, str]], code: Code) -> OwnParts:
    """Import user-defined parts from the folder `code` or from packages. `names` has pairs of option path and `module:name`.

    Raises `ConfigError` for user-defined parts with `code=None`: a configuration from another person must not execute code without consent.
    """
    if not names:
        return OwnParts()
    if code is None:
        listed = ", ".join(f"{path}={name}" for path, name in names)
        raise ConfigError(
            f"The configuration runs code from modules: {listed}. Nothing was imported. If you trust the configuration, give the folder "
            "with the modules: --code FOLDER on the command line, code=FOLDER in Python."
        )
    if not Path(code).is_dir():
        raise ArgumentError(f"code must be the folder with the modules, got code={str(code)!r}. Give an existing folder, such as '.'.")
    imported = [(_PARTS.get(path, path.partition(".")[2]), _import(path, name, Path(code).resolve())) for path, name in names]
    modules = {name.partition(":")[0] for _, name in names}
    files = {name: Path(str(sys.modules[name].__file__)) for name in sorted(modules)}
    parts = {part: value for part, value in imported if part != "observers"}
    return OwnParts(**parts, observers=tuple(value for part, value in imported if part == "observers"), files=files)


def _import(path: str, name: str, folder: Path) -> Any:
    """Import the object `module:name` from a folder or a package. `path` is the configuration option that names the object."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(folder))
    try:
        holder = import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{path}: the module {module!r} of {name!r} cannot be imported from {folder} or as a package: {error}."
        ) from error
    finally:
        sys.path.remove(str(folder))
    if not hasattr(holder, attribute):
        raise unknown_name(
            f"part of the module {module!r} ({holder.__file__})", attribute, [known for known in vars(holder) if known[0] != "_"]
        )
    value = getattr(holder, attribute)
    if path == "own.spec":
        if not isinstance(value, DatasetSpec):
            raise ConfigError(f"{path}: {name!r} must be a DatasetSpec, got {type(value).__name__}: {value!r:.60}.")
    elif not callable(value):
        raise ConfigError(f"{path}: {name!r} must be a function, got {type(value).__name__}: {value!r:.60}.")
    return value
