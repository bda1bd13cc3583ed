"""The sources of the site and the pictures: what `make docs` builds from, without the builder."""

import re
import subprocess
import sys
import tomllib
from importlib import util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import mlxfp as fp
from tests.app.reports.finished import finished
from tests.app.reports.test_reports import sure_of_yes

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def load():
    """Load a script of docs/ as a module."""

    def loaded(name):
        spec = util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    sys.path.insert(0, str(ROOT / "docs"))
    yield loaded
    sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def built(load, tmp_path_factory):
    """The folder of sources, with addresses for links to edit a page and to the source code."""
    maker, folder = load("make_site"), tmp_path_factory.mktemp("build")
    config = (ROOT / "docs/zensical.toml").read_text("utf-8")
    config = config.replace('edit = ""', 'edit = "https://edit/"').replace('source = ""', 'source = "https://source/"')
    maker.BUILD, maker.CONFIG = folder, folder / "own" / "zensical.toml"
    maker.CONFIG.parent.mkdir()
    maker.CONFIG.write_text(config, "utf-8")
    maker.main()
    return folder


def places(nav):
    """The pages in a tree of the navigation."""
    for item in nav:
        inner = [item] if isinstance(item, str) else item.values()
        for each in inner:
            yield from [each] if isinstance(each, str) else places(each)


def test_the_navigation_has_every_page_once(built):
    found = sorted(places(tomllib.loads((built / "zensical.toml").read_text("utf-8"))["project"]["nav"]))
    assert found == sorted(page.relative_to(built / "pages").as_posix() for page in built.glob("pages/**/*.md"))


def test_file_systems_that_ignore_case_can_hold_the_pages(built):
    pages = [str(page).casefold() for page in built.glob("pages/**/*")]
    assert len(pages) == len(set(pages))


def test_every_public_name_has_a_page_with_its_example(built):
    for name in fp.__all__:
        page = built / "pages/reference" / f"{name}.md"
        page = page if page.is_file() else built / "pages/reference" / f"{name}-class.md"
        assert not callable(getattr(fp, name)) or "```pycon\n>>> " in page.read_text("utf-8"), name


def test_every_link_leads_to_a_page(built):
    for page in built.glob("pages/**/*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
        assert [target for target in targets if not (page.parent / target).is_file()] == [], page


def test_readers_do_not_see_what_is_hidden_and_names_are_links(built):
    page = (built / "pages/how-to/seeing.md").read_text("utf-8")
    assert "[`explain`]" not in page  # a bare name on a page may be anything
    assert "](../reference/" in (built / "pages/how-to/coming-from.md").read_text("utf-8")
    assert "<!--" not in (built / "pages/index.md").read_text("utf-8")
    shuffle = (built / "pages/reference/shuffle.md").read_text("utf-8")
    assert "[`explain`](explain.md)" in shuffle
    assert "buffer: int | None = None" in shuffle


def test_pages_link_to_where_they_are_edited_and_names_to_their_source(built):
    assert "(https://edit/docs/how-to/seeing.md)" in (built / "pages/how-to/seeing.md").read_text("utf-8")
    assert re.search(r"\(https://source/mlxfp/data/rows/shuffling.py#L\d+\)", (built / "pages/reference/shuffle.md").read_text("utf-8"))


def test_a_link_to_a_file_that_is_not_on_the_site_says_so(load):
    maker = load("make_site")
    with pytest.raises(SystemExit, match=r"docs/a.md links to \.\./conftest.py, which is not on the site"):
        maker._page("docs/a.md", "a.md", "[x](../conftest.py)", maker.Names(), {})


def test_the_pictures_are_those_that_the_script_draws(load):
    drawn = load("make_pictures").pictures()
    assert set(drawn) == {"explain", "explain-narrow", "benchmarks", "benchmarks-narrow"}
    for name, picture in drawn.items():
        assert (ROOT / f"docs/pictures/{name}.svg").read_text("utf-8") == picture, "Run: python docs/make_pictures.py"
    assert "shuffle(seed=0)" in drawn["explain"]
    assert "25 batches" in drawn["explain"]


def test_every_bar_has_a_name_in_words(load):
    maker = load("make_pictures")
    works = {work for work, _ in maker.speeds((ROOT / "benchmarks/README.md").read_text("utf-8"))}
    assert works <= set(maker.WORK)
    assert all(" " in name and len(name) <= 32 for name in maker.WORK.values())


@pytest.mark.parametrize("name", ["explain", "benchmarks"])
def test_a_narrow_picture_fits_a_phone_and_shows_the_same_facts(load, name):
    wide, narrow = (ET.fromstring(load("make_pictures").pictures()[f"{name}{suffix}"]) for suffix in ("", "-narrow"))
    assert int(narrow.get("width")) <= 350 < int(wide.get("width"))
    shown = "{http://www.w3.org/2000/svg}text"
    words = [" ".join(text.text for text in picture.iter(shown)).split() for picture in (wide, narrow)]
    assert sorted(words[0]) == sorted(words[1])


def test_the_landing_page_starts_with_the_installation_and_about_ten_lines_that_run():
    text = (ROOT / "docs/index.md").read_text("utf-8")
    first, second = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[:2]
    assert first[0] == "sh"
    assert first[1].startswith("pip install")
    assert second[0] == "python"
    assert len([line for line in second[1].splitlines() if line]) <= 13
    code = "".join(re.findall(r"^```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert max(map(len, code.splitlines())) <= 50  # fits a phone
    assert "<!--" not in text  # no hidden code
    done = subprocess.run([sys.executable, "-W", "error", "-c", second[1]], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 25


def test_the_readme_is_short_and_shows_an_explanation_and_a_report():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) < 200
    assert re.findall(r"!\[[^\]]+\]\((.+?\.svg)\)", text) == ["docs/pictures/explain.svg", "docs/pictures/report.svg"]


def test_the_chart_has_the_lowest_speed_of_each_work_and_library(load):
    head = "| id | work | ours | peer | number | bar | verdict |\n"
    lines = [
        "| read | small | 5 rows/s | grain 2 rows/s | 2.50 | >= 2 | met |",
        "| read | large | 5 rows/s | grain 10 rows/s | 0.50 | >= 2 | MISSED |",
        "| pack | best: fill | 2.0M tokens/s | grain 1.2M | 9.00 | >= 2 | met |",
        "| step | a step | 5 ms | by hand 4 ms | 0.80 | >= 2 | met |",
        "| pack | best | 2.0M tokens/s, 9% full | grain 1.25M, 7% full | 1.60 | >= 2 | met |",
        "| read | large | 5 rows/s | mlx-data: not installed | - | >= 2 | not measured |",
    ]
    found = load("make_pictures").speeds("<!-- written by -->\n" + head + "\n".join(lines))
    assert found == {("read", "grain"): 0.5, ("pack", "grain"): 1.6}


def test_the_picture_of_a_report_has_its_score_and_charts(load, tmp_path):
    maker = load("make_pictures")
    page = fp.runs.report(finished(tmp_path, sure_of_yes)).read_text("utf-8")
    texts = ["".join(node.itertext()) for node in ET.fromstring(maker.report_picture(page)).iter("{http://www.w3.org/2000/svg}text")]
    assert "Run run" in texts
    assert re.search(r'class="big">([^<]+)<', page)[1] in texts
    committed = ET.parse(ROOT / "docs/pictures/report.svg").getroot()
    names = ["".join(node.itertext()) for node in committed.iter("{http://www.w3.org/2000/svg}text")]
    assert {"this run", "a linear model", "out of fold"} <= set(names) & set(texts)
