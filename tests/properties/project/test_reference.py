"""The reference page is what the docstrings say now."""

import inspect
import re
import sys
from importlib import util
from operator import attrgetter
from pathlib import Path
from types import GenericAlias, ModuleType

import mlxfp as fp

ROOT = Path(__file__).parents[3]


def load_maker():
    spec = util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    maker = util.module_from_spec(spec)
    sys.modules[spec.name] = maker
    spec.loader.exec_module(maker)
    return maker


def test_the_reference_is_up_to_date():
    maker = load_maker()
    assert maker.PAGE.read_text(encoding="utf-8") == maker.reference(), "Run: python docs/make_reference.py"


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    missing = [name for name in fp.__all__ if f"`fp.{name}`" not in page and f"`fp.{name}(" not in page]
    assert not missing


def test_signatures_show_what_goes_by_place_and_what_by_name():
    def function(a, /, b, *, c=1):
        pass

    arguments = load_maker().call_arguments
    assert list(arguments(inspect.signature(function))) == ["a", "/", "b", "*", "c=1"]
    assert list(arguments(inspect.signature(lambda a, /: a))) == ["a", "/"]
    assert list(arguments(inspect.signature(lambda *rest, a, **more: a))) == ["*rest", "a", "**more"]


def test_every_name_on_a_page_is_there():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]
    named = {(page.name, name) for page in pages for name in re.findall(r"`(?:fp|mlxfp)\.(\w+(?:\.\w+)*)[`(]", page.read_text("utf-8"))}
    assert [where for where in sorted(named - {("reference.md", "name")}) if not is_there(where[1])] == []


def unknown_arguments(text):
    """Name the arguments by name in the calls of a text, as in a table of names, that the functions do not have."""
    for name, arguments in re.findall(r"`fp\.([\w.]+)\(([^`]*)\)`", text):
        if callable(value := attrgetter(name)(fp)):
            inside = re.sub(r"\([^()]*\)", "", arguments)  # arguments of calls inside are those of other functions
            yield from (
                f"fp.{name}({each}=)" for each in re.findall(r"(\w+)=(?!=)", inside) if each not in inspect.signature(value).parameters
            )


def test_every_argument_on_a_page_is_there():
    pages = [ROOT / "README.md", *(page for page in ROOT.glob("docs/**/*.md") if page.name != "reference.md")]
    assert {page.name: found for page in pages if (found := list(unknown_arguments(page.read_text("utf-8"))))} == {}
    assert list(unknown_arguments("`fp.shuffle(seed=, size=f(x=1))` and `fp.batch(32, drop_last=True)`")) == ["fp.shuffle(size=)"]


def is_there(name):
    """Whether `mlxfp` has it: a public name, a member of one, or a module."""
    try:
        attrgetter(name)(fp)
    except AttributeError:
        return "." in name and util.find_spec(f"mlxfp.{name}") is not None
    return True


def test_every_public_name_has_an_example_that_runs():
    maker = load_maker()
    names = [(name, getattr(fp, name)) for name in fp.__all__]
    members = [
        (f"{name}.{member}", getattr(value, member))
        for name, value in names
        if isinstance(value, ModuleType)
        for member in maker.members(value)
    ]
    values = [(name, value) for name, value in [*names, *members] if callable(value) and not isinstance(value, GenericAlias)]
    assert [name for name, value in values if ">>>" not in (inspect.getdoc(value) or "")] == []
