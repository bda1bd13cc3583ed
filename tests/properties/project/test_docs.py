"""Every code block of README.md and docs/ runs, and every file of examples/.

The blocks of a page run in order, in one namespace, in an empty folder of their own. What a page needs and should not show (a small
input file) stands in a ```python block inside an HTML comment: it runs, and readers do not see it.
"""

import os
import re
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import mlx.core as mx
import pytest

from tests.compiling import nothing_compiled, still_uncompiled  # noqa: F401  # a fixture for all tests of this file

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
BLOCK = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)

# What makes an example quick; the others run as they stand.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "chat_lora.py": ("--steps", "10"),
    "cifar.py": ("--epochs", "1"),
    "language_model.py": ("--steps", "20"),
    "mnist.py": ("--epochs", "1"),
    "sst2.py": ("--epochs", "1", "--seeds", "2"),
    "titanic.py": ("--epochs", "2"),
}

COMPILED = {"mnist.py"}  # one is enough: on a machine without a GPU, compiling takes longer than all the rest

# Packages that pages work with, and that tests do not need.
NEIGHBOURS = {"daft", "datasets", "duckdb", "grain", "mlx.data", "mlx_lm", "polars", "pysail", "ray", "torch", "torchdata", "transformers"}


@pytest.fixture(scope="module", autouse=True)
def uncompiled() -> Iterator[None]:
    with nothing_compiled():
        yield


def blocks(text: str) -> list[tuple[int, str]]:
    """Each block of Python in a Markdown text, with the number of lines above its code."""
    return [(text.count("\n", 0, match.start("code")), dedent(match["code"])) for match in BLOCK.finditer(text)]


def run_page(page: Path) -> None:
    """Run the blocks of a page in order, as one module, so that errors point at the page's own lines."""
    module = ModuleType("page")
    sys.modules["page"] = module  # what is defined on a page can be pickled and found like any other code
    text = page.read_text(encoding="utf-8")
    headings = [place for place, line in enumerate(text.splitlines()) if line.startswith("## ")]
    absent: dict[int, str] = {}  # the sections that cannot run, and the packages that they need
    try:
        for line, code in blocks(text):
            section = bisect_left(headings, line)
            if section in absent:
                continue
            try:
                exec(compile("\n" * line + code, str(page), "exec"), module.__dict__)
            except ModuleNotFoundError as error:
                if error.name not in NEIGHBOURS:
                    raise
                absent[section] = error.name
    finally:
        del sys.modules["page"]
    if absent:
        pytest.skip(f"{len(absent)} sections need {', '.join(sorted(set(absent.values())))}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    if "mx.compile(" in page.read_text(encoding="utf-8"):  # the page is about it
        mx.enable_compile()
    run_page(page)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path):
    command = [sys.executable, "-W", "error", str(example), *ARGUMENTS.get(example.name, ())]
    settings = {name: value for name, value in os.environ.items() if example.name not in COMPILED or name != "MLX_DISABLE_COMPILE"}
    run = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{example.name} failed:\n{run.stdout}\n{run.stderr}"


def test_every_example_with_arguments_exists():
    assert set(ARGUMENTS) <= {example.name for example in EXAMPLES}


def test_blocks_are_found_in_lists_and_comments_and_nothing_else_is():
    text = (
        "a\n```python\nx = 1\n```\n- item\n  ```python\n  if x:\n      y = 2\n  ```\n<!--\n```python\nz = 3\n```\n-->\n```text\nno\n```\n"
    )
    assert blocks(text) == [(2, "x = 1\n"), (6, "if x:\n    y = 2\n"), (11, "z = 3\n")]


def test_a_page_with_an_error_fails_at_its_own_line(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        run_page(page)
    last = caught.traceback[-1]
    assert (Path(last.path), last.lineno + 1) == (page, 8)


def test_a_section_that_needs_a_package_which_is_absent_is_left_out_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "grain", None)
    page, made = tmp_path / "page.md", tmp_path / "made"
    made.mkdir()
    for code in ("a = 1", "import grain", "b = 2"):
        touch = f"from pathlib import Path\nPath({str(made / code)!r}).touch()"
        with page.open("a", encoding="utf-8") as file:
            file.write(f"## Section\n```python\n{code}\n```\n```python\n{touch}\n```\n")
    with pytest.raises(pytest.skip.Exception, match="1 sections need grain"):
        run_page(page)
    assert {path.name for path in made.iterdir()} == {"a = 1", "b = 2"}
    page.write_text("```python\nimport a_package_that_no_page_may_need\n```\n", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError):
        run_page(page)
