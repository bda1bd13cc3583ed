"""A browser, and how a page looks in it: on a phone and a screen, light and dark."""

import os
import shutil
from itertools import count
from pathlib import Path

import pytest
from attrs import field, frozen

BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
SCREENS = Path(__file__).parents[2] / "build/screens"
# What goes over the right edge of the page where nothing scrolls or cuts it; a picture cuts its own.
OVER = """() => [...document.querySelectorAll("main *, .md-header *, .md-footer *")].filter(each => {
  if (each.closest("svg *, [hidden]")) return false;
  if (!each.checkVisibility({opacityProperty: true, visibilityProperty: true})) return false;
  for (let up = each.parentElement; up && up !== document.body; up = up.parentElement)
    if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(up).overflowX)) return false;
  return each.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).map(each => each.outerHTML.slice(0, 80))"""


@frozen
class Seen:
    """What is wrong with a page: messages in the console, requests to other places, what goes over its edge, and what axe-core finds."""

    console: list[str] = field(factory=list)
    requests: list[str] = field(factory=list)
    over: list[str] = field(factory=list)
    wider: int = 0
    axe: list[str] = field(factory=list)


@pytest.fixture(scope="session")
def chromium():
    """A running Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing('needs playwright: pip install "mlxfp[browser]"')
    with sync_playwright() as started:
        own = started.chromium.executable_path
        if BROWSER is None and not Path(own).is_file():
            missing("needs Chromium: apt install chromium, or python -m playwright install chromium")
        browser = started.chromium.launch(executable_path=BROWSER or own, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def missing(what):
    """Skip the test; where the browser is asked for, as by `make test-browser`, fail instead."""
    (pytest.fail if os.environ.get("MLXFP_TEST_BROWSER") else pytest.skip)(what)


@pytest.fixture(params=[(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")], ids=lambda pair: f"{pair[0]}-{pair[1]}")
def tab(request, chromium):
    """A page of a width in a color scheme, in which nothing is loaded yet."""
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()


@pytest.fixture
def look(tab, request):
    """A function that loads an address, does something there, makes a picture of it, and returns what is wrong."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ModuleNotFoundError:
        missing('needs axe-core: pip install "mlxfp[browser]"')
    axe = Axe()
    console, requests, numbers = [], [], count()
    tab.on("console", lambda said: console.append(said.text))
    tab.on("pageerror", lambda error: console.append(str(error)))

    def looked(address, act=lambda tab: None, *, rules=None):
        home = address.partition("//")[0] + "//" + address.split("/")[2]
        tab.on("request", lambda asked: requests.append(asked.url) if not asked.url.startswith((home, "data:", "blob:")) else None)
        tab.goto(address)
        act(tab)
        SCREENS.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=SCREENS / f"{request.node.name.replace('/', '-')}-{next(numbers)}.png", full_page=True)
        wider = tab.evaluate("Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)")
        found = [
            f"{each['id']}: {each['nodes'][0]['html'][:120]}"
            for each in axe.run(tab, options={"runOnly": rules} if rules else None).response["violations"]
        ]
        return Seen(console, requests, tab.evaluate(OVER), wider, found)

    return looked
