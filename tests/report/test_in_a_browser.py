"""Pages in a real browser, on a phone and a screen, light and dark: nothing overflows, and the console has no errors."""

import json
import re
import shutil
import subprocess
from html import escape, unescape

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.report.charts import histogram, line_chart
from mlxfp.report.writing import page
from tests.report.finished import HOSTILE, finished
from tests.report.test_reports import sure_of_yes

BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium, as in: apt install chromium")

# The window of a browser is at least 500 pixels wide, so the page is in a frame. Notes how wide it is, and which elements go over its edge
# where nothing scrolls or cuts them.
FRAME = """<!doctype html><style>:root{color-scheme:light dark}</style>
<iframe id="f" style="border:0;width:%dpx;height:900px" srcdoc="%s"></iframe>
<script>
addEventListener("load", () => {
  const shown = document.getElementById("f").contentDocument, edge = shown.documentElement.clientWidth;
  const over = [...shown.querySelectorAll("main *")]
    .filter(e => !e.closest(".scroll, svg *, .cards thead") && e.getClientRects().length && e.getBoundingClientRect().right > edge + 1);
  const dark = getComputedStyle(shown.body).backgroundColor === "rgb(21, 24, 28)";
  document.body.dataset.probe = JSON.stringify({edge, page: shown.documentElement.scrollWidth, over: over.map(e => e.tagName), dark});
});
</script>"""


def looked_at(path, folder, width, *, dark):
    """What the probe saw, and what the console said."""
    copy = folder / "frame.html"
    copy.write_text(FRAME % (width, escape(path.read_text("utf-8"))), "utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    size = ["--window-size=1400,900", f"--user-data-dir={folder / 'profile'}"]
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--dump-dom"]
    ended = subprocess.run([BROWSER, *options, *size, *scheme, copy.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    seen = json.loads(unescape(re.search(r'data-probe="([^"]+)"', ended.stdout)[1]))
    return seen, [line for line in ended.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return fp.report.write(finished(tmp_path_factory.mktemp("run"), sure_of_yes))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_fits(report, tmp_path, width, dark):
    seen, said = looked_at(report, tmp_path, width, dark=dark)
    assert seen == {"edge": width, "page": width, "over": [], "dark": dark}
    assert said == []


def test_values_in_a_notebook_and_charts_of_any_names_fit_a_phone(tmp_path):
    name = f"{HOSTILE}{'x' * 300}"
    rows = fp.from_examples([{f"{name}{place}": "y" * 1000 for place in range(8)}])
    path = tmp_path / "page.html"
    drawn = line_chart(name, {name: [(0, 1e-9), (1, 2e-9)], "b": [(0, 1.0)]}, x=name, y=name), histogram(name, [1, 2], x="x")
    group = next(iter(fp.pipe(rows, fp.batch(1))))
    joined = fp.pipe(fp.concat([rows, fp.concat([rows, rows])]), fp.prefetch(2, workers=2), fp.batch(1))
    ids = {f"{name}input_ids": np.zeros((2, 300), np.int32), f"{name}attention_mask": np.ones((2, 300), np.int32)}
    score = fp.kaggle.Score(name, (0.5, 1.0), 0.75)
    values = map(fp_html, (rows, group, joined, fp.show_batch(ids), score))
    path.write_text(page(name, *values, *drawn), "utf-8")
    seen, said = looked_at(path, tmp_path, 390, dark=False)
    assert (seen["page"], seen["over"], said) == (390, [], [])


def fp_html(value):
    return value._repr_html_()
