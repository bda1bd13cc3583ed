"""The site that `make docs` has built, in a real browser: its landing page, search, and pages of every kind."""

import re
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from attrs import evolve

from tests.browser.conftest import Seen

SITE = Path(__file__).parents[2] / "build/site"
# The rules that are a standard. The theme breaks one of those that are advice: the buttons that copy code are landmarks without names.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
pytestmark = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the site is not built: make docs")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Links(HTMLParser):
    """The links of a page, what it loads, and the places in it that links can lead to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors.add(given.get("id"))
        (self.links if tag == "a" else self.loaded).extend(given[name] for name in ("href", "src") if given.get(name))


def test_every_link_of_the_site_leads_somewhere_and_nothing_is_loaded_from_elsewhere():
    pages = {path: Links(path) for path in SITE.rglob("*.html")}
    assert len(pages) > 100
    dead = []
    for path, page in pages.items():
        assert [address for address in page.loaded if re.match(r"https?:|//", address)] == []
        for link in (each for each in map(urlsplit, page.links) if not each.scheme):
            place = (SITE / link.path.lstrip("/") if link.path.startswith("/") else path.parent / unquote(link.path)).resolve()
            target = path if not link.path else place / "index.html" if place.is_dir() else place
            anchored = target not in pages or link.fragment.startswith("__") or unquote(link.fragment) in {""} | pages[target].anchors
            if not target.is_file() or not anchored:
                dead.append((path.relative_to(SITE).as_posix(), link.geturl()))
    assert dead == []


@pytest.mark.parametrize("place", ["index.html", "how-to/coming-from.html", "reference/shuffle.html", "benchmarks.html"])
def test_a_page_is_readable(place, address, look):
    assert look(f"{address}/{place}", rules=RULES) == Seen()


def found(tab):
    """The result of a search for shuffle that is the page of the function."""
    return tab.get_by_role("option", name=re.compile(r"^fp\.shuffle$"))


def search(tab):
    tab.locator(".md-search__button, label[for=__search]").locator("visible=true").first.click()
    tab.locator("input:visible").first.fill("shuffle")
    found(tab).wait_for()


def test_search_finds_a_public_name(address, look, tab):
    # The theme's list of results is scrolled by the arrow keys, and its paths are grey where no style of ours reaches.
    theirs = ("scrollable-region-focusable", "color-contrast")
    seen = look(f"{address}/index.html", search, rules=RULES)
    assert evolve(seen, axe=[each for each in seen.axe if not each.startswith(theirs)]) == Seen()
    found(tab).click()
    tab.wait_for_url(re.compile(r"reference/shuffle\.html"))
