"""Data and training for MLX as values and pure functions.

A public name is imported when it is first used, so `import mlxfp` loads neither MLX nor Arrow. The names and their modules are listed
once, in `__init__.pyi`: type checkers read that file, and so do the functions below, on the first use of a name.
"""

from importlib import import_module

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    homes = _homes()
    if name == "__all__":
        value: object = sorted(homes)
    elif name in homes:
        home = import_module(homes[name])
        value = import_module(f"{home.__name__}.{name}") if hasattr(home, "__path__") else getattr(home, name)
    else:
        raise AttributeError(f"module 'mlxfp' has no attribute {name!r}", name=name, obj=import_module(__name__))
    globals()[name] = value  # the next use does not call this function
    return value


def __dir__() -> list[str]:
    return sorted(_homes())


def _homes() -> dict[str, str]:
    """Map every public name to the module or the package that it is imported from."""
    stub = __loader__.get_data(f"{__path__[0]}/__init__.pyi").decode()
    imports = [line.split() for line in stub.splitlines() if line.startswith("from ")]
    return {name: home for _, home, _, name, *_ in imports}
