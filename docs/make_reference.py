"""Write docs/reference.md from the docstrings: every public name, its signature and its first sentence.

Run `python docs/make_reference.py` after a change of a public name or of the first line of its docstring; a test fails until then.
"""

import inspect
from pathlib import Path
from types import ModuleType

import mlxfp as fp

PAGE = Path(__file__).parent / "reference.md"
SHELVES = {
    "The algebra": ("mlxfp.core.",),
    "Sources, rows, groups and running": ("mlxfp.data.", "mlxfp.collators."),
    "Text": ("mlxfp.text.",),
    "Training": ("mlxfp.training.", "mlxfp.evaluation."),
}


def reference() -> str:
    """Return the whole page."""
    homes = {name: home for name in fp.__all__ if (home := getattr(getattr(fp, name), "__module__", None))}
    lines = [
        "# Reference",
        "",
        "Every public name with its first sentence; `help(fp.name)` shows the rest. Made by `python docs/make_reference.py`.",
    ]
    for title, rooms in SHELVES.items():
        lines += ["", f"## {title}", ""]
        lines += [_entry(f"fp.{name}", getattr(fp, name)) for name in sorted(homes, key=str.casefold) if homes[name].startswith(rooms)]
    for family in sorted(set(fp.__all__) - set(homes)):
        module = getattr(fp, family)
        lines += ["", f"## `fp.{family}`", "", _first(module), ""]
        lines += [_entry(f"fp.{family}.{name}", getattr(module, name)) for name in members(module)]
    return "\n".join(lines) + "\n"


def members(module: ModuleType) -> list[str]:
    """List the names in a family: its `__all__`, or else what it defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return sorted((name for name in getattr(module, "__all__", own) if not name.startswith("_")), key=str.casefold)


def _entry(name: str, value: object) -> str:
    call = ""
    if inspect.isfunction(value):
        names = inspect.signature(value).parameters.values()
        call = f"({', '.join(_argument(parameter) for parameter in names)})"
    return f"- `{name}{call}`: {_first(value)}"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return ("*" if parameter.kind is parameter.VAR_POSITIONAL else "") + parameter.name
    return f"{parameter.name}={parameter.default!r}"


def _first(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
