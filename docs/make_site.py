"""Write the sources of the site into build/: the pages as they are, and a page for each public name from its docstring.

`make docs` runs this, then Zensical, which makes HTML of them. `docs/zensical.toml` is the configuration of both.
"""

import ast
import inspect
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from os.path import relpath
from pathlib import Path
from textwrap import dedent
from types import GenericAlias, ModuleType

from make_reference import call_arguments, first_line, members, shelves

import mlxfp as fp

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
CONFIG = Path(__file__).with_name("zensical.toml")
WIDTH = 88  # of a signature on one line
QUOTE = "'"
# Pages at other places than in the repository; others of docs/ keep theirs.
PLACES = {
    "docs/README.md": "all.md",
    "docs/reference.md": "reference/index.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/fuzz_tokens.md": "fuzz-tokens.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}

HIDDEN = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"^#.*$|\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)|``.+?``|`(?P<code>[^`]+)`", re.MULTILINE)
CALL = re.compile(r"(?P<name>[\w.]+)(\(.*)?", re.DOTALL)
DOCTEST = re.compile(r"^ *>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class Names:
    """The public names: the page of each, and how other pages link to it."""

    def __init__(self) -> None:
        """Find all names."""
        self.values = {name: value for _, _, entries in shelves() for name, value in entries.items()}
        self.families = {f"fp.{name}": getattr(fp, name) for name in fp.__all__ if isinstance(getattr(fp, name), ModuleType)}
        self.places = {name: f"reference/{_slug(name, self.values)}.md" for name in self.values}
        self.places |= {name: f"reference/{name.removeprefix('fp.')}/index.md" for name in self.families}

    def of(self, code: str, scopes: tuple[str, ...]) -> str | None:
        """Return the page of the name that a piece of code is or calls, if there is one."""
        match = CALL.fullmatch(code)
        names = (f"{scope}{match['name']}" for scope in scopes) if match else ()
        return next((self.places[name] for name in names if name in self.places), None)


def main() -> None:
    """Write all sources, and the configuration with the navigation."""
    shutil.rmtree(BUILD / "pages", ignore_errors=True)
    config = tomllib.loads(CONFIG.read_text("utf-8"))
    names, places, address = Names(), page_places(), config["project"]["extra"]
    for file, place in places.items():
        text = (ROOT / file).read_bytes()
        if file.endswith(".md"):
            _write(place, _page(file, place, text.decode(), names, places) + _edit(file, address["edit"]))
        elif file.endswith(".py"):
            _write(place, f"# `{Path(file).name}`\n\n```python\n{text.decode()}```\n" + _edit(file, address["edit"]))
        else:
            _target(place).write_bytes(text)
    for name, place in names.places.items():
        _write(place, _name_page(name, place, names) + _source(names.values.get(name, names.families.get(name)), address["source"]))
    (BUILD / CONFIG.name).write_text(CONFIG.read_text("utf-8").replace("nav = []", f"nav = {_toml(navigation(names))}"), "utf-8")


def page_places() -> dict[str, str]:
    """Return where each file of the repository is on the site."""
    kept = sorted(file for pattern in ("**/*.md", "pictures/*.svg", "site.*") for file in (ROOT / "docs").glob(pattern))
    names = (file.relative_to(ROOT).as_posix() for file in kept)
    programs = (f"examples/{file.stem}" for file in sorted((ROOT / "examples").glob("*.py")))
    notebooks = (f"examples/{file.name}" for file in sorted((ROOT / "examples").glob("*.ipynb")))
    examples = {f"{name}.py": f"{name}.md" for name in programs} | {name: name for name in notebooks}
    return {name: name.removeprefix("docs/") for name in names} | examples | PLACES


def navigation(names: Names) -> list[object]:
    """Return the tree of pages: those that `docs/README.md` links to in its order, and the public names by family."""
    found = re.findall(r"\[([^\]]+)\]\(((?:how-to|explanation)/[^)#]+)\)", (ROOT / "docs/README.md").read_text("utf-8"))
    links = {place: _title(title) for title, place in reversed(found)}  # the first link to a page is its title
    order = list(dict.fromkeys(place for _, place in found))
    shelf = {folder: [{links[place]: place} for place in order if place.startswith(folder)] for folder in ("how-to", "explanation")}
    missing = {place for place in page_places().values() if place.startswith(tuple(shelf))} - set(order)
    if missing:
        raise SystemExit(
            f"docs/README.md links to all pages in docs/how-to and docs/explanation; it does not to {', '.join(sorted(missing))}."
        )
    reference: list[object] = ["reference/index.md"]
    for title, _, entries in shelves():
        family = title.strip("`")
        pages: list[object] = [{name.rpartition(".")[2]: names.places[name]} for name in entries]
        reference.append({family: [names.places[family], *pages] if family in names.places else pages})
    examples = [{place.split("/")[1][:-3]: place} for place in page_places().values() if re.match(r"examples/.*\.md", place)]
    more = [
        {"Benchmarks": "benchmarks.md"},
        {"Fuzzing of tokenizers": "fuzz-tokens.md"},
        {"Examples": examples},
        {"Contributing": "contributing.md"},
        {"Changes": "changelog.md"},
    ]
    guide = [
        {"All on one page": "all.md"},
        {"Tutorial": "tutorial.md"},
        {"How to": shelf["how-to"]},
        {"Explanations": shelf["explanation"]},
    ]
    return [{"mlxfp": "index.md"}, {"Guide": guide}, {"Reference": reference}, {"Project": more}]


def _page(file: str, place: str, text: str, names: Names, places: dict[str, str]) -> str:
    """Return a page without what readers do not see, and with links to where pages and names are on the site."""

    def link(target: str) -> str:
        if re.match(r"https?:|#", target):
            return target
        path, mark, anchor = target.partition("#")
        found = relpath(ROOT / Path(file).parent / path, ROOT)
        if found not in places:
            raise SystemExit(f"{file} links to {target}, which is not on the site. Add {found} to PLACES in docs/make_site.py.")
        return _relative(places[found], place) + mark + anchor

    head = "---\nhide: [navigation, toc]\n---\n\n" if place == "index.md" else ""
    return head + _linked(HIDDEN.sub("", text), place, names, ("",), link)


def _name_page(name: str, place: str, names: Names) -> str:
    """Return the page of a public name: its signature, its docstring, and the public methods of a class or the members of a family."""
    value = names.values.get(name, names.families.get(name))
    family = name.rpartition(".")[0] + "."
    lines = [f"# {name}", *_signature(name, value), _docstring(value, place, names, (f"{name}.", family, "fp."))]
    if inspect.isclass(value):
        for method, function in _methods(value):
            about = _docstring(function, place, names, (family, "fp."))
            lines += [f"## {method}", *_signature(method, function), about]
    elif isinstance(value, ModuleType):
        shown = [f"{name}.{member}" for member in members(value)] if name in names.families else []
        lines += ["| name | |\n| --- | --- |\n" + "\n".join(_row(each, place, names) for each in shown)] if shown else []
    elif not callable(value) or isinstance(value, GenericAlias):
        lines += [f"```pycon\n>>> {name}\n{value!r}\n```"]
    return "\n\n".join(line for line in lines if line) + "\n"


def _row(name: str, place: str, names: Names) -> str:
    about = _linked(first_line(names.values[name]), place, names, (name.rpartition(".")[0] + ".", "fp."))
    return f"| [`{name.rpartition('.')[2]}`]({_relative(names.places[name], place)}) | {about.replace('|', chr(92) + '|')} |"


def _signature(name: str, value: object) -> list[str]:
    """Return how a function or class is called, as a block of code."""
    if _constructed(value):
        arguments, returns = list(call_arguments(inspect.signature(value))), ""
    elif callable(value) and not inspect.isclass(value) and not isinstance(value, GenericAlias):
        node = ast.parse(dedent(inspect.getsource(inspect.unwrap(value)))).body[0]
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        arguments = [each for each in _parts(ast.unparse(node.args)) if each not in ("self", "cls")]
        returns = f" -> {ast.unparse(node.returns).strip(QUOTE)}" if node.returns else ""
        if "property" in map(ast.unparse, node.decorator_list):
            return [f"```python\n{name}{returns}\n```"]
    else:
        return []
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) > WIDTH and arguments:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){returns}"
    return [f"```python\n{line}\n```"]


def _parts(text: str) -> list[str]:
    """Split arguments at the commas that are in no brackets; those with a type have spaces around the default."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += " = " if mark == "=" and not depth and ":" in parts[-1] else mark
    return [re.sub(r": '([^']*)'", r": \1", part.strip()) for part in parts if part.strip()]


def _methods(value: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class that have a docstring, with those of its bases in mlxfp."""
    for name in dir(value):
        found = inspect.getattr_static(value, name)
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        ours = str(getattr(function, "__module__", "")).startswith("mlxfp.")
        if not name.startswith("_") and inspect.isfunction(function) and ours and function.__doc__:
            yield name, function


def _docstring(value: object, place: str, names: Names, scopes: tuple[str, ...]) -> str:
    """Return a docstring as Markdown: examples as blocks of code, names as links."""
    text = inspect.getdoc(value) or ""
    if not callable(value) and not isinstance(value, ModuleType):
        text = "" if type(value).__module__ == "builtins" else first_line(value)  # the rest, and all of `dict`, is about the type
    own = set(inspect.signature(value).parameters) if inspect.isfunction(value) or _constructed(value) else set()
    text = DOCTEST.sub(lambda match: f"```pycon\n{dedent(match[0])}\n```", text)
    return _linked(re.sub(r"(^(?!- |  ).+\n)(?=- )", r"\1\n", text, flags=re.MULTILINE), place, names, scopes, own=own, escape=True)


def _constructed(value: object) -> bool:
    """Tell whether a value is a class whose arguments a reader would use: errors are raised by mlxfp, and protocols are not called."""
    return inspect.isclass(value) and not issubclass(value, BaseException) and not getattr(value, "_is_protocol", False)


def _linked(  # noqa: PLR0913  # a text, its place, and how its names and links are read
    text: str,
    place: str,
    names: Names,
    scopes: tuple[str, ...],
    link: Callable[[str], str] = str,
    *,
    own: set[str] | frozenset[str] = frozenset(),
    escape: bool = False,
) -> str:
    """Link the names outside blocks of code, and change the targets of links."""

    def change(match: re.Match[str]) -> str:
        if match["target"]:
            return f"[{match['text']}]({link(match['target'])})"
        found = names.of(match["code"], scopes) if match["code"] and match["code"] not in own else None
        return f"[{match[0]}]({_relative(found, place)})" if found and found != place else match[0]

    parts = FENCE.split(text)
    for number in range(0, len(parts), 2):
        if escape:
            parts[number] = re.sub(r"(`[^`]*`)|<", lambda match: match[1] or "&lt;", parts[number])
        parts[number] = SPAN.sub(change, parts[number])
    return "".join(parts)


def _source(value: object, address: str) -> str:
    """Return the line that says where a public name is defined."""
    try:
        value = inspect.unwrap(value) if callable(value) else value
        file, line = Path(inspect.getsourcefile(value) or ""), 1 if isinstance(value, ModuleType) else inspect.getsourcelines(value)[1]
    except TypeError:
        return ""
    path = file.resolve().relative_to(ROOT).as_posix()
    return f"\nDefined in {f'[`{path}`]({address}{path}#L{line})' if address else f'`{path}`'}.\n{{ .source }}\n"


def _edit(file: str, address: str) -> str:
    return f"\n[Edit this page]({address}{file})\n{{ .source }}\n" if address else ""


def _slug(name: str, values: dict[str, object]) -> str:
    """Return the name of a page. File systems may not tell Profile from profile, so such a class has an ending."""
    short = name.removeprefix("fp.")
    twin = sum(other.casefold() == name.casefold() for other in values) > 1 and inspect.isclass(values[name])
    return short.replace(".", "/") + ("-class" if twin else "")


def _title(text: str) -> str:
    return text if text.startswith("mlx") else text[0].upper() + text[1:]


def _relative(target: str, place: str) -> str:
    return relpath(target, Path(place).parent)


def _toml(nav: list[object]) -> str:
    """Return a tree of pages as TOML: strings are those of JSON, and `=` is where JSON has a colon."""
    items = [
        json.dumps(item)
        if isinstance(item, str)
        else f"{{{json.dumps(key)} = {json.dumps(inner) if isinstance(inner, str) else _toml(inner)}}}"
        for item in nav
        for key, inner in (item.items() if isinstance(item, dict) else [("", "")])
    ]
    return f"[{', '.join(items)}]"


def _write(place: str, text: str) -> None:
    _target(place).write_text(text, "utf-8")


def _target(place: str) -> Path:
    path = BUILD / "pages" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    main()
