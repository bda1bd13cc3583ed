"""Write docs/reference.md from the docstrings: every public name, with signature and first sentence.

Run `python docs/make_reference.py` after a change of a public name or of the first line of a docstring; a test fails until then.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import GenericAlias, ModuleType

import mlxfp as fp

PAGE = Path(__file__).parent / "reference.md"
SHELVES = {
    "The algebra": ("mlxfp.core.", "mlxfp.support."),
    "Sources, rows, groups and running": ("mlxfp.data.", "mlxfp.collators.", "mlxfp.batches"),
    "Text": ("mlxfp.text.",),
    "Training": ("mlxfp.training.", "mlxfp.evaluation."),
}


def reference() -> str:
    """Return the text of the page."""
    lines = [
        "# Reference",
        "",
        "Every public name with its first sentence; `help(fp.name)` shows the rest. Made by `python docs/make_reference.py`.",
    ]
    for title, about, entries in shelves():
        lines += ["", f"## {title}", "", *([about, ""] if about else []), *(_entry(name, value) for name, value in entries.items())]
    return "\n".join(lines) + "\n"


def shelves() -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield title, description and public names with values for every section of the page."""
    homes = {name: home for name in fp.__all__ if (home := getattr(getattr(fp, name), "__module__", None))}
    for title, rooms in SHELVES.items():
        yield title, "", {f"fp.{name}": getattr(fp, name) for name in sorted(homes, key=str.casefold) if homes[name].startswith(rooms)}
    for family in sorted(set(fp.__all__) - set(homes)):
        module = getattr(fp, family)
        yield f"`fp.{family}`", first_line(module), {f"fp.{family}.{name}": getattr(module, name) for name in members(module)}


def members(module: ModuleType) -> list[str]:
    """Return the sorted public names of a family."""
    return sorted(module.__all__, key=str.casefold)


def _entry(name: str, value: object) -> str:
    call = ""
    if inspect.isfunction(value):
        call = f"({', '.join(call_arguments(inspect.signature(value)))})"
    return f"- `{name}{call}`: {first_line(value)}"


def call_arguments(signature: inspect.Signature) -> Iterator[str]:
    """Yield the arguments of a signature without types, with `/` after positional-only arguments and `*` before keyword-only arguments."""
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


def first_line(value: object) -> str:
    """Return the first line of a docstring, or a description of a mapping, a column name (a string) or a type alias."""
    if isinstance(value, Mapping):
        return f"Mapping with the keys {', '.join(map(str, value))}."
    if isinstance(value, str):
        return f"Name of the column {value!r} in the batches of a table network."
    if isinstance(value, GenericAlias):
        return f"The type `{re.sub(r'(?:[a-z_]+[.])+', '', repr(value))}`."
    return (inspect.getdoc(value) or "").partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
