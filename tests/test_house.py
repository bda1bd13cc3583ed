"""Small folders, small files, and no import cycle. What the names of modules must not be is in test_import.py."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import mlxfp as fp

PACKAGE = Path(fp.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Rooms that have an import cycle or a folder of more than 20 files today. A room that has neither any more must leave this list.
NOT_YET = ("core",)


def crowded_folders():
    """Name the folders with more than 20 Python files."""
    folders = {file.parent for file in FILES}
    return ["/".join(folder.relative_to(PACKAGE).parts) for folder in sorted(folders) if len(list(folder.glob("*.py"))) > 20]


def test_no_folder_has_more_than_20_files():
    assert [folder for folder in crowded_folders() if not folder.startswith(NOT_YET)] == []


def test_no_file_has_more_than_400_lines():
    lengths = {str(file.relative_to(PACKAGE)): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def import_cycle(*, without_rooms, without_type_checking=False):
    """Find modules that import each other in a cycle. Imports inside functions count; those for type checkers count unless left out."""
    graph = grimp.build_graph("mlxfp", exclude_type_checking_imports=without_type_checking, cache_dir=None)
    modules = {module for module in graph.modules if not module.startswith(tuple(f"mlxfp.{room}" for room in without_rooms))}
    try:
        TopologicalSorter({module: graph.find_modules_directly_imported_by(module) & modules for module in modules}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("without_type_checking", [True, False])
def test_no_modules_import_each_other_in_a_cycle(without_type_checking):
    assert import_cycle(without_rooms=NOT_YET, without_type_checking=without_type_checking) == []


@pytest.mark.parametrize("room", NOT_YET)
def test_a_room_that_is_not_ready_yet_is_not_ready(room):
    cycle = import_cycle(without_rooms=[other for other in NOT_YET if other != room])
    crowded = [folder for folder in crowded_folders() if folder.startswith(room)]
    assert cycle or crowded, f"{room} has no import cycle and no crowded folder any more. Remove it from NOT_YET."
