"""What is installed with mlxfp is all that it uses, and nothing that it need not be."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
SOURCES = sorted((ROOT / "mlxfp").rglob("*.py"))

# Packages by the names of their modules, where those differ.
PACKAGES = {"PIL": "pillow", "ruamel": "ruamel.yaml", "sklearn": "scikit-learn", "scipy_openblas32": "scipy-openblas32"}


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~ ]", line)[0].lower() for line in requirements}


def imported(path: Path) -> Iterator[str]:
    """The packages that a file imports, but for those of the standard library."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for root in {name.partition(".")[0] for name in names} - {"mlxfp", *sys.stdlib_module_names}:
            yield PACKAGES.get(root, root)


def optional(path: Path) -> Iterator[tuple[str, str]]:
    """The packages that a file imports only if they are installed, each with the extra that its error names."""
    for call in re.findall(r'optional\("(\w+)[\w.]*", extra="([\w-]+)"', path.read_text("utf-8")):
        yield PACKAGES.get(call[0], call[0]), call[1]


def test_every_package_that_is_imported_is_declared():
    declared = packages([*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)])
    declared |= {"typing_extensions"}  # imported for type checkers only, which bring it
    assert {name: str(path) for path in SOURCES for name in imported(path) if name not in declared} == {}


def test_the_extra_that_an_error_names_brings_the_package():
    found = [(path, name, extra) for path in SOURCES for name, extra in optional(path)]
    assert len(found) > 10
    assert [each for each in found if each[1] not in packages(EXTRAS[each[2]])] == []


def test_every_requirement_has_a_lower_bound():
    lines = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
    own = ("mlx[", "mlxfp[")  # the backends of the MLX that is required anyway, and other extras
    assert [line for line in lines if not line.startswith(own) and not re.search(r">=|==|~=", line)] == []


def test_the_project_has_addresses_of_one_place():
    addresses = PROJECT["urls"]
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= set(addresses)
    assert all(address.startswith(addresses["Homepage"]) for address in addresses.values())
    assert [str(path) for path in SOURCES if addresses["Homepage"] in path.read_text("utf-8")] == []


NO_PANDAS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

sys.meta_path.insert(0, Blocked())

import numpy as np
import pyarrow as pa

import mlxfp as fp

def picture(row):
    return {"image": np.full((2, 3, 1), row["x"], row["kind"]), "label": row["x"]}

for kind in ("uint8", "int64", "float16", "float32", "float64"):
    rows = fp.pipe(fp.from_examples([{"x": x, "kind": kind} for x in range(4)]), fp.map(picture))
    assert fp.schema(rows).field("image").type.value_type == pa.from_numpy_dtype(np.dtype(kind))
    assert [row["image"].tolist() for row in rows] == [np.full((2, 3, 1), x, kind).tolist() for x in range(4)]
    declared = fp.pipe(rows, fp.map(dict, schema=fp.schema(rows)), fp.batch(2))
    assert [group[1]["image"].dtype.name for group in declared] == [kind] * 2
assert "pandas" not in sys.modules
"""


def test_columns_of_tensors_need_no_pandas():
    subprocess.run([sys.executable, "-c", NO_PANDAS], check=True)


def test_nothing_calls_what_needs_pandas():
    """But `lift`, which makes a DataFrame of pandas where it was given one."""
    others = [path for path in SOURCES if path.name != "lifting.py"]
    found = [str(path) for path in others if re.search(r"\.(to_pandas|to_pandas_dtype|from_pandas)\(", path.read_text("utf-8"))]
    assert found == []
