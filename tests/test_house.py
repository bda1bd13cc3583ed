"""Small folders and files, no import cycle, kinds and networks in one table, tests with the names of modules and without private names.

What names of modules must not be is in properties/project/test_import.py.
"""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import mlxfp as fp

PACKAGE = Path(fp.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = Path(__file__).parent
CROSSING = ("properties", "typing", "browser")  # folders of suites that cross modules


def crowded_folders():
    """Name the folders with more than 20 Python files."""
    folders = {file.parent for file in FILES} | {file.parent for file in TESTS.rglob("*.py")}
    return [folder.as_posix() for folder in sorted(folders) if len(list(folder.glob("*.py"))) > 20]


def test_no_folder_has_more_than_20_files():
    assert crowded_folders() == []


def test_no_file_has_more_than_400_lines():
    lengths = {str(file.relative_to(PACKAGE)): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_files_of_tests_have_the_names_of_modules_or_are_among_the_properties():
    """A file of tests is about a module, or about a folder of modules."""
    modules = {file.relative_to(PACKAGE).with_suffix("") for file in FILES} | {file.relative_to(PACKAGE).parent for file in FILES}
    tested = {module.with_name("test_" + module.name.lstrip("_")) for module in modules if module.name}
    tested |= {module / f"test_{module.name}" for module in modules if (PACKAGE / module).is_dir()}
    named = {file.relative_to(TESTS).with_suffix("") for file in TESTS.rglob("test_*.py")}
    others = {name.as_posix() for name in named - tested if name.parts[0] not in CROSSING}
    assert others == {"test_house"}


def import_cycle(*, without_type_checking):
    """Find modules that import each other in a cycle. Imports inside functions count; those for type checkers count unless left out."""
    graph = grimp.build_graph("mlxfp", exclude_type_checking_imports=without_type_checking, cache_dir=None)
    try:
        TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("without_type_checking", [True, False])
def test_no_modules_import_each_other_in_a_cycle(without_type_checking):
    assert import_cycle(without_type_checking=without_type_checking) == []


def files_with(pattern):
    """Name the files of the package that have a regular expression somewhere."""
    return {file.relative_to(PACKAGE).as_posix() for file in FILES if re.search(pattern, file.read_text(encoding="utf-8"))}


def test_only_the_table_of_kinds_tells_kinds_of_targets_apart():
    comparing = files_with(r"\bspec\.kind\b *(==|!=|in |not in |\])|(==|!=|match) +(\w+\.)*spec\.kind\b|\bCLASSED\b")
    assert comparing == {"app/kaggle/specs/catalogue.py"}  # `find`, for any kind


def test_networks_for_tables_are_named_in_their_files_and_their_table_alone():
    others = files_with("(?i)realmlp|tabm") - {"models/tables/realmlp.py", "models/tables/tabm.py"}
    assert others == {"models/__init__.py", "models/tables/catalogue.py", "app/tasks/tables.py"}  # the last in its examples


# Files of tests that set a private constant or import a private name, and why there is no public way.
PRIVATE = {
    "app/cli/test_configuring.py": "values with origins are written and read for a hundred configurations, without a command for each",
    "data/running/test_caching.py": "a file of a cache holds 64 MB and at least 1,024 rows",
    "data/sources/test_remote_files.py": "a server that falls silent is waited for, and each wait is longer than the one before",
    "properties/data/test_workers.py": "the folder in memory belongs to the machine, where other processes have files",
    "properties/ranks/test_ranks.py": "ports that are free, and the threads of ranks, belong to the machine",
    "properties/ranks/test_sharding.py": "MLX divides only real groups of ranks, which a message needs no processes for",
    "test_distributed.py": "ranks that fail or hang are played by values",
    "test_runtime.py": "a shim for a library of C is built and loaded in processes of its own",
    "text/engines/test_engines.py": "engines get columns of 4 KB and more, after 1 MB, and the laws draw short ones",
    "text/memos.py": "whether the words of a tokenizer are kept does not show in its ids",
}


def private_uses(code):
    """List the constants that code sets although they are private, and the private names that it imports from mlxfp."""
    constants = re.findall(r'setattr\(\w[\w.]*, "(_[A-Z]\w*)"|setattr\("mlxfp[\w.]*\.(_[A-Z0-9_]+)"', code)
    imports = re.findall(r"^ *from mlxfp[\w.]* import ([^(\n]+|\([^)]*\))", code, re.MULTILINE)
    return [first or second for first, second in constants] + re.findall(r"\b_(?!_)\w+", " ".join(imports))


def test_tests_leave_private_names_alone():
    files = {
        file.relative_to(TESTS).as_posix(): file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py") if file.name != "test_house.py"
    }
    assert {name for name, code in files.items() if private_uses(code)} == PRIVATE.keys()
    assert private_uses('patch.setattr(writing, "_BYTES", 3)') == ["_BYTES"]
    assert private_uses("from mlxfp.data import (\n    a,\n    _b,\n)") == ["_b"]
