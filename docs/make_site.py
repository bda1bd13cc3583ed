"""Write the sources of the site into build/: the pages of the repository, and a page for each public name from the docstring.

`make docs` runs this program and then Zensical, which writes HTML. `docs/zensical.toml` configures both programs.
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
WIDTH = 88  # maximum width of a signature on one line
QUOTE = "'"
# Paths on the site different from paths in docs/.
PATHS = {
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
    """Public names with the paths of their pages."""

    def __init__(self) -> None:
        """Collect all public names."""
        self.values = {name: value for _, _, entries in shelves() for name, value in entries.items()}
        self.families = {f"fp.{name}": getattr(fp, name) for name in fp.__all__ if isinstance(getattr(fp, name), ModuleType)}
        self.paths = {name: f"reference/{_slug(name, self.values)}.md" for name in self.values}
        self.paths |= {name: f"reference/{name.removeprefix('fp.')}/index.md" for name in self.families}

    def of(self, code: str, scopes: tuple[str, ...]) -> str | None:
        """Return the page of the name or call in a piece of code, or None."""
        match = CALL.fullmatch(code)
        names = (f"{scope}{match['name']}" for scope in scopes) if match else ()
        return next((self.paths[name] for name in names if name in self.paths), None)


def main() -> None:
    """Write all sources, and the configuration with the navigation."""
    shutil.rmtree(BUILD / "pages", ignore_errors=True)
    config = tomllib.loads(CONFIG.read_text("utf-8"))
    names, paths, address = Names(), page_paths(), config["project"]["extra"]
    for file, path in paths.items():
        text = (ROOT / file).read_bytes()
        if file.endswith(".md"):
            _write(path, _page(file, path, text.decode(), names, paths) + _edit(file, address["edit"]))
        elif file.endswith(".py"):
            _write(path, f"# `{Path(file).name}`\n\n```python\n{text.decode()}```\n" + _edit(file, address["edit"]))
        else:
            _target(path).write_bytes(text)
    for name, path in names.paths.items():
        _write(path, _name_page(name, path, names) + _source(names.values.get(name, names.families.get(name)), address["source"]))
    (BUILD / CONFIG.name).write_text(CONFIG.read_text("utf-8").replace("nav = []", f"nav = {_toml(navigation(names))}"), "utf-8")


def page_paths() -> dict[str, str]:
    """Return the path on the site for each file of the repository."""
    kept = sorted(file for pattern in ("**/*.md", "pictures/*.svg", "site.*") for file in (ROOT / "docs").glob(pattern))
    names = (file.relative_to(ROOT).as_posix() for file in kept)
    programs = (f"examples/{file.stem}" for file in sorted((ROOT / "examples").glob("*.py")))
    notebooks = (f"examples/{file.name}" for file in sorted((ROOT / "examples").glob("*.ipynb")))
    examples = {f"{name}.py": f"{name}.md" for name in programs} | {name: name for name in notebooks}
    return {name: name.removeprefix("docs/") for name in names} | examples | PATHS


def navigation(names: Names) -> list[object]:
    """Return the navigation tree: pages in the order of the links in `docs/README.md`, and public names by family."""
    titles = re.findall(r"\[([^\]]+)\]\(((?:how-to|explanation)/[^)#]+)\)", (ROOT / "docs/README.md").read_text("utf-8"))
    links = {path: _title(title) for title, path in reversed(titles)}  # the first link to a page gives the title
    order = list(dict.fromkeys(path for _, path in titles))
    shelf = {folder: [{links[path]: path} for path in order if path.startswith(folder)] for folder in ("how-to", "explanation")}
    missing = {path for path in page_paths().values() if path.startswith(tuple(shelf))} - set(order)
    if missing:
        raise SystemExit(
            f"docs/README.md has no link to {', '.join(sorted(missing))}. Add a link, as to all pages in docs/how-to and docs/explanation."
        )
    reference: list[object] = ["reference/index.md"]
    for title, _, entries in shelves():
        family = title.strip("`")
        pages: list[object] = [{name.rpartition(".")[2]: names.paths[name]} for name in entries]
        reference.append({family: [names.paths[family], *pages] if family in names.paths else pages})
    examples = [{path.split("/")[1][:-3]: path} for path in page_paths().values() if re.match(r"examples/.*\.md", path)]
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


def _page(file: str, page_path: str, text: str, names: Names, paths: dict[str, str]) -> str:
    """Return a page without hidden comments, with links changed to paths of the site."""

    def link(target: str) -> str:
        if re.match(r"https?:|#", target):
            return target
        path, mark, anchor = target.partition("#")
        source_file = relpath(ROOT / Path(file).parent / path, ROOT)
        if source_file not in paths:
            raise SystemExit(f"{file} links to {target}, which is not on the site. Add {source_file} to PATHS in docs/make_site.py.")
        return _relative(paths[source_file], page_path) + mark + anchor

    head = "---\nhide: [navigation, toc]\n---\n\n" if page_path == "index.md" else ""
    return head + _linked(HIDDEN.sub("", text), page_path, names, ("",), link)


def _name_page(name: str, path: str, names: Names) -> str:
    """Return the page of a public name: signature, docstring, and public methods of a class or members of a family."""
    value = names.values.get(name, names.families.get(name))
    family = name.rpartition(".")[0] + "."
    lines = [f"# {name}", *_signature(name, value), _docstring(value, path, names, (f"{name}.", family, "fp."))]
    if inspect.isclass(value):
        for method, function in _methods(value):
            about = _docstring(function, path, names, (family, "fp."))
            lines += [f"## {method}", *_signature(method, function), about]
    elif isinstance(value, ModuleType):
        shown = [f"{name}.{member}" for member in members(value)] if name in names.families else []
        lines += ["| name | |\n| --- | --- |\n" + "\n".join(_row(member_name, path, names) for member_name in shown)] if shown else []
    elif not callable(value) or isinstance(value, GenericAlias):
        lines += [f"```pycon\n>>> {name}\n{value!r}\n```"]
    return "\n\n".join(line for line in lines if line) + "\n"


def _row(name: str, path: str, names: Names) -> str:
    about = _linked(first_line(names.values[name]), path, names, (name.rpartition(".")[0] + ".", "fp."))
    return f"| [`{name.rpartition('.')[2]}`]({_relative(names.paths[name], path)}) | {about.replace('|', chr(92) + '|')} |"


def _signature(name: str, value: object) -> list[str]:
    """Return the signature of a function or class as a block of code."""
    if _constructed(value):
        arguments, returns = list(call_arguments(inspect.signature(value))), ""
    elif callable(value) and not inspect.isclass(value) and not isinstance(value, GenericAlias):
        node = ast.parse(dedent(inspect.getsource(inspect.unwrap(value)))).body[0]
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        arguments = [argument for argument in _parts(ast.unparse(node.args)) if argument not in ("self", "cls")]
        returns = f" -> {ast.unparse(node.returns).strip(QUOTE)}" if node.returns else ""
        if "property" in map(ast.unparse, node.decorator_list):
            return [f"```python\n{name}{returns}\n```"]
    else:
        return []
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) > WIDTH and arguments:
        line = f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"
    return [f"```python\n{line}\n```"]


def _parts(text: str) -> list[str]:
    """Split arguments at commas outside brackets. Add spaces around the default of annotated arguments."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += " = " if mark == "=" and not depth and ":" in parts[-1] else mark
    return [re.sub(r": '([^']*)'", r": \1", part.strip()) for part in parts if part.strip()]


def _methods(value: type) -> Iterator[tuple[str, object]]:
    """Yield public methods and properties with a docstring, including inherited methods of mlxfp classes."""
    for name in dir(value):
        member = inspect.getattr_static(value, name)
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        ours = str(getattr(function, "__module__", "")).startswith("mlxfp.")
        if not name.startswith("_") and inspect.isfunction(function) and ours and function.__doc__:
            yield name, function


def _docstring(value: object, path: str, names: Names, scopes: tuple[str, ...]) -> str:
    """Return a docstring as Markdown, with doctests as blocks of code and names as links."""
    text = inspect.getdoc(value) or ""
    if not callable(value) and not isinstance(value, ModuleType):
        text = "" if type(value).__module__ == "builtins" else first_line(value)  # other values inherit the docstring of their type
    parameters = set(inspect.signature(value).parameters) if inspect.isfunction(value) or _constructed(value) else set()
    text = DOCTEST.sub(lambda match: f"```pycon\n{dedent(match[0])}\n```", text)
    return _linked(
        re.sub(r"(^(?!- |  ).+\n)(?=- )", r"\1\n", text, flags=re.MULTILINE), path, names, scopes, parameters=parameters, escape=True
    )


def _constructed(value: object) -> bool:
    """Return True if a value is a class created by users. Excludes errors (raised by mlxfp) and protocols (never called)."""
    return inspect.isclass(value) and not issubclass(value, BaseException) and not getattr(value, "_is_protocol", False)


def _linked(  # noqa: PLR0913  # options of links
    text: str,
    page_path: str,
    names: Names,
    scopes: tuple[str, ...],
    link: Callable[[str], str] = str,
    *,
    parameters: set[str] | frozenset[str] = frozenset(),
    escape: bool = False,
) -> str:
    """Link the names outside blocks of code, and change the targets of links."""

    def change(match: re.Match[str]) -> str:
        if match["target"]:
            return f"[{match['text']}]({link(match['target'])})"
        page = names.of(match["code"], scopes) if match["code"] and match["code"] not in parameters else None
        return f"[{match[0]}]({_relative(page, page_path)})" if page and page != page_path else match[0]

    parts = FENCE.split(text)
    for number in range(0, len(parts), 2):
        if escape:
            parts[number] = re.sub(r"(`[^`]*`)|<", lambda match: match[1] or "&lt;", parts[number])
        parts[number] = SPAN.sub(change, parts[number])
    return "".join(parts)


def _source(value: object, address: str) -> str:
    """Return a line with a link to the definition of a public name."""
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
    """Return the page path of a name. `Profile` gets a suffix, because some file systems do not distinguish Profile and profile."""
    short = name.removeprefix("fp.")
    twin = sum(other.casefold() == name.casefold() for other in values) > 1 and inspect.isclass(values[name])
    return short.replace(".", "/") + ("-class" if twin else "")


def _title(text: str) -> str:
    return text if text.startswith("mlx") else text[0].upper() + text[1:]


def _relative(target: str, path: str) -> str:
    return relpath(target, Path(path).parent)


def _toml(nav: list[object]) -> str:
    """Return a navigation tree as TOML. Strings are valid JSON strings, with `=` instead of the JSON colon."""
    items = [
        json.dumps(item)
        if isinstance(item, str)
        else f"{{{json.dumps(key)} = {json.dumps(inner) if isinstance(inner, str) else _toml(inner)}}}"
        for item in nav
        for key, inner in (item.items() if isinstance(item, dict) else [("", "")])
    ]
    return f"[{', '.join(items)}]"


def _write(path: str, text: str) -> None:
    _target(path).write_text(text, "utf-8")


def _target(page_path: str) -> Path:
    path = BUILD / "pages" / page_path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    main()
