"""Every link between pages leads somewhere, and every page can be reached from the README."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
NOTEBOOKS = sorted(ROOT.glob("examples/*.ipynb"))


def linked(page):
    """Find the files that a page links to."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8"))
    return [(page.parent / target).resolve() for target in targets]


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert [target for target in linked(page) if not target.exists()] == []


def test_every_page_is_reached_from_the_readme():
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {target for page in new for target in linked(page) if target.suffix == ".md"} - reached
    assert [page.relative_to(ROOT).as_posix() for page in PAGES if page not in reached] == []
