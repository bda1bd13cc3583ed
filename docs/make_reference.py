"""Write docs/reference.md from the docstrings: every public name, its signature and its first sentence.

Run `python docs/make_reference.py` after a change of a public name or of the first line of its docstring; a test fails until then.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mlxfp as fp

PAGE = Path(__file__).parent / "reference.md"
SHELVES = {
    "The algebra": ("mlxfp.core.",),
    "Sources, rows, groups and running": ("mlxfp.data.", "mlxfp.collators.", "mlxfp.tasks."),
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
    """List the names in a family."""
    return sorted(module.__all__, key=str.casefold)


def _entry(name: str, value: object) -> str:
    call = ""
    if inspect.isfunction(value):
        call = f"({', '.join(_arguments(inspect.signature(value)))})"
    return f"- `{name}{call}`: {_first(value)}"


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    """Yield the arguments without their types, with `/` after those by place alone and `*` before those by name alone."""
    before = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for parameter in signature.parameters.values():
        if before is parameter.POSITIONAL_ONLY and parameter.kind is not before:
            yield "/"
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            yield "*"
        before = parameter.kind
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(before, "")
        yield mark + parameter.name + ("" if parameter.default is inspect.Parameter.empty else f"={parameter.default!r}")
    if before is inspect.Parameter.POSITIONAL_ONLY:
        yield "/"


def _first(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
