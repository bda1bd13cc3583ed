"""The code of README.md and docs/ passes mypy and pyright, both in strict mode.

The blocks of a page become one module, with the code on the lines of the page. As in a notebook, functions need no annotations, and
names can be reused. Packages that tests do not need have the type Any, whether installed or not.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.properties.project.test_docs import NEIGHBOURS, PAGES, ROOT, blocks

MYPY = f"""
[mypy]
strict = true
python_version = 3.11
follow_imports = silent
ignore_missing_imports = true
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
allow_redefinition_new = true
local_partial_types = true
disable_error_code = no-redef

[mypy-mlx.*]
implicit_reexport = true

[mypy-{",".join(f"{name}.*" for name in sorted(NEIGHBOURS))}]
follow_imports = skip
"""
PYRIGHT = {
    "include": ["."],
    "extraPaths": [str(ROOT)],
    "pythonVersion": "3.11",
    "typeCheckingMode": "strict",
    "reportMissingImports": False,
    "reportRedeclaration": False,
    "reportPossiblyUnboundVariable": False,  # a page shows the last value of a loop
    "reportDuplicateImport": False,  # a block of a page imports the names of the block
    "reportMatchNotExhaustive": False,  # a page shows some events of a run
    "strictDictionaryInference": False,  # in strict mode, no dict of mixed values could be passed as keyword arguments
    # pyarrow, scikit-learn and other packages have no annotations, and functions of pages need none
    "reportMissingTypeStubs": False,
    "reportMissingParameterType": False,
    "reportUnknownArgumentType": False,
    "reportUnknownLambdaType": False,
    "reportUnknownMemberType": False,
    "reportUnknownParameterType": False,
    "reportUnknownVariableType": False,
}

# Names that pyright misses in packages that define them at run time.
LATE_NAMES = re.compile('is not a known attribute of module "pyarrow.compute"')

# Lines with an intended error: the checkers that report the line, and the reason.
EXCEPTIONS = {
    "for attempt in (lambda: fp.batch(batch_size=32), lambda: rows.map(dict), lambda: fp.DataLoader, lambda: fp.shuffle(1000)):": (
        {"mypy", "pyright"},
        "the page shows four mistakes",
    ),
    'assert "batch(size=2) takes examples, got groups" in message(lambda: fp.pipe(rows, fp.batch(2), fp.batch(2)))': (
        {"mypy", "pyright"},
        "the page shows a mistake",
    ),
    'assert "the thread of prefetch" in batches._repr_html_()': ({"pyright"}, "Jupyter calls this method by its private name"),
    'assert "% padding" in shown._repr_html_()': ({"pyright"}, "Jupyter calls this method by its private name"),
    "large.blocks = [fully_shard(block) for block in large.blocks]  # alone, blocks stay as they are": (
        {"mypy", "pyright"},
        "MLX annotates the result of fully_shard as Module, not as the class of the layer",
    ),
    "names = [model.classes[index] for index in np.concatenate(list(predict(rows)))]": (
        {"pyright"},
        "pyright reads the result of Module.__getattr__, which MLX does not annotate, as None",
    ),
    "return lambda rows: model.predict_proba(features(rows))[:, 1]": (
        {"pyright"},
        "pyright infers a wrong type from the sources of scikit-learn, which have no annotations",
    ),
}

Error = tuple[Path, int, str]  # page, line number and message
Checker = Callable[[Path], Iterator[tuple[str, int, str]]]  # from a folder of modules to errors: module, line number and message


def run(folder: Path, *command: str) -> str:
    """Return the output of a type checker. Exit code 1 means that the code has errors."""
    settings = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, f"{command[0]} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mypy(folder: Path) -> Iterator[tuple[str, int, str]]:
    (folder / "mypy.ini").write_text(MYPY, encoding="utf-8")
    for line in run(folder, "mypy", "--no-pretty", *sorted(path.name for path in folder.glob("*.py"))).splitlines():
        if error := re.fullmatch(r"(.+?)\.py:(\d+): error: (.*)", line):
            yield error[1], int(error[2]), error[3]


def pyright(folder: Path) -> Iterator[tuple[str, int, str]]:
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT), encoding="utf-8")
    for error in json.loads(run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable))["generalDiagnostics"]:
        if error["severity"] == "error" and not LATE_NAMES.search(error["message"]):
            yield Path(error["file"]).stem, error["range"]["start"]["line"] + 1, error["message"]


def type_errors(checker: Checker, pages: Sequence[Path], folder: Path) -> list[Error]:
    """Write the code of pages to a folder, and return the errors of a type checker."""
    names = {f"page_{number}": page for number, page in enumerate(pages)}
    for name, page in names.items():
        text = page.read_text(encoding="utf-8")
        lines = [""] * text.count("\n")
        for first, code in blocks(text):
            lines[first : first + code.count("\n")] = code.splitlines()
        (folder / f"{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [(names[module], line, message) for module, line, message in checker(folder)]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_case_c_the_code_of_pages_has_no_type_errors_and_an_error_is_found_at_its_line(checker: Checker, tmp_path: Path):
    planted = tmp_path / "planted.md"
    planted.write_text("# Title\n\n```python\nimport mlxfp as fp\n\nfp.batch('8')\n```\n", encoding="utf-8")
    modules = tmp_path / "modules"
    modules.mkdir()
    expected, problems, excused = [], [], set()
    for page, number, message in type_errors(checker, [*PAGES, planted], modules):
        line = page.read_text(encoding="utf-8").splitlines()[number - 1].strip()
        if page == planted:
            expected.append(number)
        elif checker.__name__ in EXCEPTIONS.get(line, ((), ""))[0]:
            excused.add(line)
        else:
            problems.append(f"{page.relative_to(ROOT)}:{number}: {message}")
    assert not problems, "\n".join(problems)
    assert expected == [6]
    assert excused == {line for line, (checkers, _) in EXCEPTIONS.items() if checker.__name__ in checkers}, "an exception is not needed"
