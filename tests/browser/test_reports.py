"""Reports, comparisons and charts in a real browser, on a phone and a screen, light and dark."""

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.reports.charts import histogram, line_chart
from mlxfp.app.reports.writing import page
from tests.app.reports.finished import HOSTILE, finished
from tests.app.reports.test_reports import sure_of_yes
from tests.browser.conftest import Seen

OPEN = "document.querySelectorAll('details').forEach(each => { each.open = true })"  # also what is folded must fit


def rolled(targets):
    """Probabilities of fourteen classes, all of them wrong."""
    return np.roll(np.eye(14), 1, axis=1)[targets.astype(int)] * 0.9 + 0.1 / 14


KINDS = {
    "classes": {"predict": sure_of_yes},
    "values": {"predict": lambda targets: targets + np.sin(targets) * 3, "classes": ()},
    "many": {"predict": rolled, "classes": tuple(f"class of kind {place}" for place in range(14)), "count": 42},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    others = {"name": "second, with a name that is long", "overrides": ["training.epochs=7", "text.form=key_value"]}
    return [finished(folder, sure_of_yes, name="first"), finished(folder, lambda targets: np.where(targets == 1, 0.9, 0.6), **others)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_readable(kind, look, tab, tmp_path_factory):
    run = finished(tmp_path_factory.mktemp(kind), **KINDS[kind])
    assert look(fp.runs.report(run).as_uri(), lambda tab: tab.evaluate(OPEN)) == Seen()
    dark = tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)") == dark


def test_a_comparison_is_readable(runs, look, tab, tmp_path):
    assert look(fp.runs.report(*runs, out=tmp_path / "comparison.html").as_uri()) == Seen()
    assert tab.get_by_text("Rows with the largest disagreement").is_visible()


def test_a_comparison_of_many_runs_fits_any_width(runs, look, tab, tmp_path):
    address = fp.runs.report(*runs * 8, out=tmp_path / "comparison.html").as_uri()
    tab.set_viewport_size({"width": 390 + tab.viewport_size["width"] // 2, "height": 900})
    assert look(address) == Seen()


def test_a_report_of_logs_is_readable(runs, look, tmp_path):
    logs = [run / "fold-01/log.jsonl" for run in runs]
    assert look(fp.runs.report(*logs, out=tmp_path / "logs.html").as_uri()) == Seen()


def test_charts_of_any_names_are_readable(look, tmp_path):
    name = f"{HOSTILE}{'x' * 300}"
    path = tmp_path / "page.html"
    drawn = line_chart(name, {name: [(0, 1e-9), (1, 2e-9)], "b": [(0, 1.0)]}, x=name, y=name), histogram(name, [1, 2], x="x")
    path.write_text(page(name, *drawn), "utf-8")
    assert look(path.as_uri()) == Seen()
