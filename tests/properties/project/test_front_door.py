"""The application uses only the front door: public names of mlxfp and of its families, and `mlxfp.support`."""

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import mlxfp as fp

APP = Path(fp.__file__).parent / "app"
FAMILIES = {f"mlxfp.{name}" for name in fp.__all__ if isinstance(getattr(fp, name), ModuleType)}


def private_names(code: str) -> list[str]:
    """Return the names that some code imports or reads from mlxfp although they are not public."""
    tree = ast.parse(code)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module]
    names = [f"{node.module}.{name.name}" for node in imports for name in node.names if is_private(str(node.module), name.name)]
    names += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names if name.name.startswith("mlxfp.")]
    families = {name.asname or name.name: f"mlxfp.{name.name}" for node in imports if node.module == "mlxfp" for name in node.names}
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    used = {(families[node.value.id], node.attr) for node in read if families.get(node.value.id) in FAMILIES}
    return names + [f"{family}.{name}" for family, name in sorted(used) if is_private(family, name)]


def is_private(module: str, name: str) -> bool:
    if module.split(".", maxsplit=1)[0] != "mlxfp" or module.startswith(("mlxfp.app", "mlxfp.support")):
        return False
    if module == "mlxfp":
        return name not in {*fp.__all__, "__version__"}
    return module not in FAMILIES or name not in import_module(module).__all__


@pytest.mark.parametrize("file", sorted(APP.rglob("*.py")), ids=lambda file: str(file.relative_to(APP)))
def test_the_application_uses_public_names_only(file):
    assert private_names(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("from mlxfp.core.datasets import Dataset", ["mlxfp.core.datasets.Dataset"]),
        ("from mlxfp.models.layers import Dropout", ["mlxfp.models.layers.Dropout"]),
        ("from mlxfp.models import sinusoids", ["mlxfp.models.sinusoids"]),
        ("from mlxfp import core", ["mlxfp.core"]),
        ("import mlxfp.core.datasets", ["mlxfp.core.datasets"]),
        ("def later():\n    from mlxfp.text.engines import choosing", ["mlxfp.text.engines.choosing"]),
        ("from mlxfp import losses\nlosses.check(1)", ["mlxfp.losses.check"]),
        ("from mlxfp import Dataset, losses\nfrom mlxfp.metrics import f1\nlosses.mse(1, 2)", []),
        ("from mlxfp.support.checks import check_text\nfrom mlxfp.app.cli import main\nimport numpy", []),
    ],
)
def test_a_planted_private_import_is_found(code, private):
    assert private_names(code) == private
