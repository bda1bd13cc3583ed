"""Print the lowest version of each package that pyproject.toml allows, as constraints for pip; arguments are extras to include."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in [*project["dependencies"], *(line for extra in sys.argv[1:] for line in extras[extra])]:
    if found := re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\w.]+)", requirement):
        print(f"{found[1]}=={found[2]}")
