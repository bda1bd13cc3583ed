"""Reports, comparisons and charts in a real browser, on a phone and a screen, light and dark."""

import pytest

import mlxfp as fp
from mlxfp.report.charts import histogram, line_chart
from mlxfp.report.writing import page
from tests.browser.conftest import Seen
from tests.report.finished import HOSTILE, finished
from tests.report.test_reports import sure_of_yes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [finished(folder, sure_of_yes, name=name) for name in ("first", "second")]


def test_a_report_is_readable(runs, look, tab):
    assert look(fp.report.write(runs[0]).as_uri()) == Seen()
    dark = tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)") == dark


def test_a_comparison_is_readable(runs, look, tmp_path):
    assert look(fp.report.write_comparison(runs, tmp_path / "comparison.html").as_uri()) == Seen()


def test_charts_of_any_names_are_readable(look, tmp_path):
    name = f"{HOSTILE}{'x' * 300}"
    path = tmp_path / "page.html"
    drawn = line_chart(name, {name: [(0, 1e-9), (1, 2e-9)], "b": [(0, 1.0)]}, x=name, y=name), histogram(name, [1, 2], x="x")
    path.write_text(page(name, *drawn), "utf-8")
    assert look(path.as_uri()) == Seen()
