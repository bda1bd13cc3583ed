"""The site that `make docs` has built, in a real browser: its landing page, search, and pages of every kind."""

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("place", ["index.html", "how-to/coming-from.html", "reference/shuffle.html", "benchmarks.html"])
def test_a_page_is_readable(place, address, look):
    assert look(f"{address}/{place}", rules=RULES) == Seen()


def search(tab):
    tab.keyboard.press("/")
    tab.keyboard.type("shuffle")
    tab.get_by_role("link", name=re.compile("fp.shuffle")).first.wait_for()


def test_search_finds_a_public_name(address, look, tab):
    assert look(f"{address}/index.html", search, rules=RULES) == Seen()
    tab.get_by_role("link", name=re.compile("fp.shuffle")).first.click()
    tab.wait_for_url(re.compile("shuffle"))
