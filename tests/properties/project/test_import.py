"""`import mlxfp` is light, and there is one list of public names: `mlxfp/__init__.pyi`."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest

import mlxfp as fp


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


LIST = Path(fp.__file__).with_suffix(".pyi").read_text(encoding="utf-8")


def names_for_type_checkers() -> list[str]:
    """The names that a type checker finds in the list: those that are imported as themselves."""
    imports = [node for node in ast.parse(LIST).body if isinstance(node, ast.ImportFrom)]
    return sorted(alias.name for node in imports for alias in node.names if alias.name == alias.asname)


def test_importing_mlxfp_loads_no_package_but_itself():
    before = "import sys; before = set(sys.modules); import mlxfp; "
    roots = "{name.partition('.')[0] for name in set(sys.modules) - before}"
    loaded = run_python(f"{before} print(sorted(root for root in {roots} if root not in sys.stdlib_module_names))")
    assert loaded == "['mlxfp']"


def test_importing_mlxfp_does_not_load_typing():
    # typing, inspect and dataclasses would each cost more than the whole of mlxfp/__init__.py.
    code = "import sys; before = set(sys.modules); import mlxfp; print(sorted(set(sys.modules) - before))"
    assert not {"typing", "inspect", "dataclasses", "attrs", "importlib.metadata"} & set(ast.literal_eval(run_python(code)))


def test_all_and_dir_and_the_type_checkers_see_the_same_sorted_names():
    assert fp.__all__ == sorted(set(fp.__all__))
    assert len(fp.__all__) > 100
    assert dir(fp) == fp.__all__
    assert names_for_type_checkers() == fp.__all__


def test_the_list_of_names_has_nothing_but_one_import_on_a_line():
    # mlxfp/__init__.py reads it line by line.
    lines = [line for line in LIST.splitlines() if line and not line.startswith("#")]
    form = re.compile(r"from (mlxfp[\w.]*) import (\w+) as \2|__version__: str")
    assert [line for line in lines if not form.fullmatch(line)] == []


def test_a_name_is_what_its_line_in_the_list_imports():
    found: dict[str, object] = {}
    exec(LIST, found)
    assert {name: getattr(fp, name) for name in fp.__all__} == {name: found[name] for name in fp.__all__}


@pytest.mark.parametrize("name", fp.__all__)
def test_every_public_name_is_found_and_documented(name: str):
    value = getattr(fp, name)
    assert value is getattr(fp, name)
    assert inspect.getdoc(value), f"fp.{name} has no docstring"


def test_every_public_name_is_found_by_a_fresh_interpreter_in_any_order():
    star = "from mlxfp import *; print({name: type(globals()[name]).__name__ for name in dir() if name[:1] != '_'})"
    backward = "import mlxfp as fp; print({name: type(getattr(fp, name)).__name__ for name in fp.__all__[::-1]})"
    forward, types = (ast.literal_eval(run_python(code)) for code in (star, backward))
    assert forward == types
    assert list(forward) == fp.__all__  # a star import brings exactly the public names


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="module 'mlxfp' has no attribute 'no_such_verb'"):
        fp.no_such_verb  # noqa: B018  # the access is the test


def modules() -> list[str]:
    return [module.name for module in walk_packages([str(Path(fp.__file__).parent)], "mlxfp.")]


@pytest.mark.parametrize("name", [name for name in modules() if not name.endswith("__main__")])
def test_no_module_hides_a_public_function_of_its_package(name: str):
    # Importing `mlxfp.batch` binds `mlxfp.batch` to the module: a function of that name would be gone from then on.
    package, _, last = name.rpartition(".")
    import_module(name)
    assert isinstance(getattr(import_module(package), last), ModuleType), f"{name} has the name of a function of {package}"
    if package == "mlxfp" and last in fp.__all__:
        assert isinstance(getattr(fp, last), ModuleType)
