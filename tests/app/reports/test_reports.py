"""The report of a run: made of its files, the same each time, of bounded size, and safe whatever the data hold."""

import html
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from shlex import quote

import numpy as np
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.kaggle.specs.rewriting import rewriting_code
from mlxfp.app.reports.baselines import baseline_scores, constant_oof, simple_oof
from mlxfp.app.reports.charts import line_chart, scatter
from mlxfp.app.reports.diagnostics import calibration, calibration_error, confusion, mistakes
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.reports.reading import read_run
from mlxfp.app.reports.sections import with_code
from mlxfp.app.runs.reporting import linear_of
from mlxfp.support.html import Html, element, joined, table
from tests.app.reports.finished import HOSTILE, finished, rows_of, spec_of
from tests.app.runs.competitions import write

VOID = {"meta"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed where it must be; remembers elements, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.names, self.attributes, self.words = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def sure_of_yes(targets):
    """Right for all rows but two, of which it is sure."""
    chances = np.where(targets == 1, 0.8, 0.2)
    chances[[4, 7]] = (0.99, 0.05)
    return chances


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("binary"), sure_of_yes)


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("values"), lambda targets: targets + np.where(targets == 3.0, 50.0, 1.0), classes=())


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    names = tuple(f"c{place}" for place in range(14))
    return finished(
        tmp_path_factory.mktemp("many"), lambda targets: np.roll(np.eye(14), 1, axis=1)[targets.astype(int)], classes=names, count=42
    )


@pytest.mark.parametrize("run", ["binary", "values", "many"])
def test_a_report_is_one_whole_page_that_loads_nothing(run, request):
    page = Page(fp.runs.report(request.getfixturevalue(run)).read_text("utf-8"))
    assert not {"script", "img", "link", "iframe", "object"} & set(page.names)
    assert not {"src", "href", "onerror", "onload"} & set(page.attributes)
    assert {"Score", "Warnings", "Learning curves", "Lengths of texts", "Configuration", "Environment", "Receipt"} <= set(page.words)


def test_what_the_data_hold_is_text_of_the_page(binary):
    page = Page(fp.runs.report(binary).read_text("utf-8"))
    assert "</td></table><script>alert" in page.text  # of the rows that are wrong, and of a name in the log
    assert not {"\x00", "\x1b", "\u202e"} & set(page.text)


def test_code_of_a_warning_is_a_block_in_the_report():
    code = rewriting_code([Path("train.csv"), Path("test.csv")], "frame['a'] = frame['a'] < '2'")
    assert joined(with_code(f"To read numbers, for example with:{code}\nThe run uses the files unchanged.")) == (
        'To read numbers, for example with:<div class="scroll" tabindex="0"><pre><code>'
        + html.escape(code.removeprefix("\n"))
        + "</code></pre></div>The run uses the files unchanged."
    )
    assert joined(with_code("Columns a < b.\n  import c")) == "Columns a &lt; b.\n  import c"


def test_a_report_is_the_same_each_time_and_wherever_it_is_written(binary, tmp_path):
    first = fp.runs.report(binary).read_bytes()
    assert fp.runs.report(binary, out=tmp_path / "other.html").read_bytes() == first
    assert fp.runs.report(binary).read_bytes() == first


def test_a_report_without_the_rows_says_what_is_left_out(binary, tmp_path):
    moved = tmp_path / "run"
    shutil.copytree(binary, moved)
    config = (moved / "config.yaml").read_text().replace(str(binary.parent / "data"), str(tmp_path / "nowhere"))
    (moved / "config.yaml").write_text(config)
    page = Page(fp.runs.report(moved).read_text("utf-8"))
    assert "The rows cannot be read" in page.text
    assert "a constant" in page.words
    assert "Most confident mistakes" in page.words
    assert "Lengths of texts" not in page.words


def test_stored_scores_are_not_mixed_with_changed_data(tmp_path):
    """A report and a blend are refused. A comparison uses the stored predictions and folds, and shows no texts of changed rows."""
    runs = [finished(tmp_path, sure_of_yes, name="first"), finished(tmp_path, lambda targets: 0.2 + 0.6 * targets, name="second")]
    page, train = fp.runs.report(runs[0]), tmp_path / "data" / "train.csv"
    before, texts = page.read_bytes(), train.read_text("utf-8")
    whole = fp.runs.compare(runs)
    assert "note no" in whole.pairs[0].disagreements[0].text
    for changed in (texts.replace("note ", "memo "), texts[: texts.index("r30,")]):
        train.write_text(changed, "utf-8")
        with pytest.raises(fp.errors.DataError) as caught:
            fp.runs.report(runs[0])
        assert f"The data of the run in {runs[0]} have changed since the start of the run: rows" in str(caught.value)
        with pytest.raises(fp.errors.DataError, match="have changed since the start of the run: rows"):
            fp.runs.blend(runs, tmp_path / "blend")
        compared = fp.runs.compare(runs)
        assert (compared.scores, compared.blend) == (whole.scores, whole.blend)
        assert {row.text for row in compared.pairs[0].disagreements} == {""}
        assert page.read_bytes() == before


def test_options_that_differ_from_the_defaults_are_marked(binary):
    text = fp.runs.report(binary).read_text("utf-8")
    assert "<mark><code>training.epochs</code></mark>" in text
    assert "<code>optimizer.name</code>" in text
    assert "<mark><code>optimizer.name</code></mark>" not in text


def test_confusion_counts_every_row_once(binary, many):
    assert confusion(read_run(binary, linear_of).scored) == {(0, 0): 19, (0, 1): 1, (1, 0): 1, (1, 1): 19}
    assert confusion(read_run(many, linear_of).scored) == {(place, (place + 1) % 14): 3 for place in range(14)}


def test_mistakes_are_those_that_the_model_was_most_sure_of(binary, values):
    found = mistakes(read_run(binary, linear_of).scored, 5)
    assert [(each.row, each.id, each.truth, each.prediction) for each in found] == [
        (4, "r4", "no", "yes (0.990)"),
        (7, "r7", "yes", "no (0.950)"),
    ]
    assert [(each.id, each.size) for each in mistakes(read_run(values, linear_of).scored, 1)] == [("r6", 50.0)]


def test_calibration_compares_probabilities_with_what_happened(binary):
    bins = calibration(read_run(binary, linear_of).scored)
    assert sum(each.count for each in bins) == 40
    assert calibration_error(bins) == pytest.approx((19 * 0.2 + 0.95 + 19 * 0.2 + 0.99) / 40)


def test_a_constant_is_learned_from_the_training_rows_of_each_fold(values):
    scored = read_run(values, linear_of).scored
    made = constant_oof(scored)
    for fold in made.folds:
        assert made.of(fold)[1] == pytest.approx(scored.oof.targets[fold.train].mean())


def test_the_simple_model_learns_what_a_line_can(values, binary):
    pytest.importorskip("sklearn")
    run = read_run(values, linear_of)
    assert np.abs(simple_oof(run).predictions - run.scored.oof.targets).max() < 4  # a constant is up to 10 off
    chances = simple_oof(read_run(binary, linear_of)).predictions[0]
    assert ((chances > 0.5) == (read_run(binary, linear_of).scored.targets == 1)).all()  # the text says the class


def test_a_linear_model_that_takes_too_long_names_the_report_to_write(binary):
    linear = linear_of(binary)
    run = read_run(binary, lambda _: LinearModel(linear.data, linear.folds, seconds=0.0))
    assert baseline_scores(run)["a linear model"] == (
        f"All 2 folds would take longer than 0 seconds, 5 % of the time limit. To train the linear model: mlxfp report {quote(str(binary))}"
    )


def test_a_linear_run_is_compared_with_no_second_linear_model(binary):
    """The model tfidf is linear, so another linear model would only repeat the training."""
    run = read_run(binary, linear_of)
    assert [*baseline_scores(run)] == ["a constant", "a linear model"]
    linear = {**run.settings, "model": {**run.settings["model"], "name": "tfidf"}}
    assert [*baseline_scores(evolve(run, settings=linear))] == ["a constant"]


def test_a_run_that_is_not_done_has_no_report(binary, tmp_path):
    begun = tmp_path / "run"
    shutil.copytree(binary, begun)
    (begun / "receipt.json").unlink()
    with pytest.raises(fp.errors.DataError, match=r"is not finished\. Continue the run first: mlxfp resume"):
        fp.runs.report(begun)


def test_a_chart_is_bounded_and_leaves_gaps():
    long = {f"fold {place}": [(step, float("nan") if step == 5 else 1.0) for step in range(10_000)] for place in range(300)}
    assert len(line_chart("loss", long, x="step", y="loss")) < 200_000
    assert "L" not in line_chart("loss", {"a": [(0, 1.0), (1, float("inf")), (2, 1.0)]}, x="step", y="loss")
    assert "no finite values were logged" in line_chart("loss", {"a": [(0, float("nan"))]}, x="step", y="loss")
    assert scatter("s", range(10_000), range(10_000), x="a", y="b").count("<circle") == 1000


def test_numbers_on_an_axis_are_short_enough_for_their_place():
    for value in (0.00025, 0.123456, 123.4, 65_000.0, 1e6):
        drawn = line_chart("rate", {"a": [(0, value), (1, value * 1.1)]}, x="step", y="rate")
        assert all(len(said) <= 7 for said in re.findall(r'text-anchor="end"[^>]*>([^<]*)<', drawn))


def test_large_values_are_written_out(values):
    run = read_run(values, linear_of)
    far = evolve(run.scored, oof=evolve(run.scored.oof, predictions=run.scored.oof.predictions * 1e5))
    assert mistakes(far, 1)[0].prediction == "5,300,000"


def test_equal_points_of_folds_are_all_seen_and_not_joined():
    equal = {name: [(fold, 0.5) for fold in (1, 2, 3)] for name in ("a", "b", "c")}
    drawn = line_chart("accuracy", equal, x="fold", y="accuracy", joined=False)
    places = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)
    assert len(set(places)) == len(places) == 9
    assert all(56 + 20 < float(x) < 384 - 20 for x, _ in places)  # away from the numbers of the axis
    assert "stroke-width" not in drawn


def test_every_fold_has_a_tick_and_no_dot_is_on_the_lowest_or_highest_line():
    """The labels of the axis stay free of dots."""
    drawn = line_chart("accuracy", {"a": [(fold, fold / 10) for fold in range(1, 8)]}, x="fold", y="accuracy", joined=False)
    ticks = re.findall(r'<text x="[\d.]+" y="216" text-anchor="middle">(\d+)</text>', drawn)
    assert ticks == [str(fold) for fold in range(1, 8)]
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn)]
    assert 20 <= min(heights) <= max(heights) <= 192  # the plot reaches from 10 to 202


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (lambda place: "" if place % 5 == 4 else f"{place + 4900:05}", "size: 4906;"),  # floats, because some cells are empty
        (lambda place: f"{place + 4900}", "size: 4906;"),
        (lambda place: f"{place + 0.5}", "size: 6.5;"),
    ],
)
def test_mistakes_of_a_table_network_show_the_numbers_that_the_model_reads(tmp_path, cells, shown):
    (tmp_path / "data").mkdir()
    rows = [row | {"size": cells(place)} for place, row in enumerate(rows_of(40, ("no", "yes")))]
    write(tmp_path / "data" / "train.csv", rows)
    (tmp_path / "data" / "spec.yaml").write_text(spec_of(("no", "yes")))
    run = finished(tmp_path, lambda targets: 0.9 - 0.8 * targets, overrides=["model.name=realmlp"])
    assert shown in read_run(run, linear_of).texts([6])[0]


def test_mistakes_of_several_classes_are_sorted_by_the_probability_of_the_predicted_class(tmp_path):
    """The probability of the true class would give another order."""

    def predict(targets):
        chances = np.eye(3)[targets.astype(int)]
        chances[0], chances[1], chances[5] = (0.3, 0.7, 0.0), (0.35, 0.05, 0.6), (0.45, 0.35, 0.2)
        return chances

    run = finished(tmp_path, predict, classes=("a", "b", "c"))
    worst = mistakes(read_run(run, linear_of).scored, 5)
    assert [(mistake.row, mistake.size) for mistake in worst] == [(0, 0.7), (1, 0.6), (5, 0.45)]
    page = Page(fp.runs.report(run).read_text("utf-8"))
    assert "3 of 3 wrong predictions of 40 rows, sorted by the probability of the predicted class." in page.words


def test_sample_sizes_are_shown(binary, values):
    page = Page(fp.runs.report(binary).read_text("utf-8")).text
    assert "out of fold on 40 rows" in page
    assert "accuracy in each fold of 20 rows" in page
    assert "out of fold, 40 in total" in page
    assert "2 of 2 wrong predictions of 40 rows" in page
    assert "20 of 40 rows" in Page(fp.runs.report(values).read_text("utf-8")).text


def test_every_table_scrolls_inside_and_keeps_its_rows(binary):
    text = fp.runs.report(binary).read_text("utf-8")
    assert text.count("<table") == text.count('<div class="scroll" tabindex="0"><table')


def test_no_word_of_a_class_name_is_broken(tmp_path):
    name = "pneumonoultramicroscopicsilicovolcanoconiosis"
    text = fp.runs.report(finished(tmp_path, sure_of_yes, classes=("no", name))).read_text("utf-8")
    cells = re.findall(rf"<t[dh]([^>]*)>{name}", text)
    assert len(cells) >= 4
    assert all(re.search(r'class="[^"]*\bw\b', cell) for cell in cells)


def test_equal_learning_rates_of_folds_are_one_curve(binary, tmp_path):
    moved = tmp_path / "run"
    shutil.copytree(binary, moved)
    for fold, rate in (("fold-01", 0.1), ("fold-02", 0.1)):
        lines = "".join(
            f'{{"event": "Stepped", "step": {step}, "epoch": 0, "seconds": {step}, "metrics": {{"learning_rate/0": {rate / step}, '
            f'"learning_rate/1": {rate / step}}}}}\n'
            for step in (1, 2, 3)
        )
        (moved / fold / "log.jsonl").write_text(lines)
    figure = fp.runs.report(moved).read_text("utf-8").partition("learning rate</figcaption>")[2].partition("</figure>")[0]
    assert figure.count("stroke-width") == 1


@pytest.mark.parametrize("value", [1e-300, 1e308, -1e308, 0.0, 5e-324])
def test_a_chart_of_any_numbers_has_numbers_in_it(value):
    drawn = line_chart("loss", {"a": [(0, value), (1, -value)]}, x="step", y="loss")
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_a_large_number_next_to_a_long_text_is_not_broken():
    for long in ("word " * 90, "x" * 300):
        assert element("td", "745,000", class_="w") in table(["row", "truth", "prediction", "text"], [["7", "745,000", "1 (0.991)", long]])
    assert 'class="t">xx' in table(["row", "truth", "prediction", "text"], [["7", "1", "1", "x" * 300]])  # may be broken


def test_an_element_escapes_all_but_html():
    assert element("p", HOSTILE, class_='"') == element("p", Html(element("i", HOSTILE)[3:-4]), class_='"')
    assert element("p", "\ud800").encode("utf-8") == b"<p>\xef\xbf\xbd</p>"


def test_a_report_of_many_rows_is_small(tmp_path):
    """Nothing in it grows with the rows."""
    rows = 20_000
    noise = np.random.default_rng(0).random(rows)
    run = finished(tmp_path, lambda targets: np.clip(targets + noise - 0.5, 0, 1), count=rows)
    path = fp.runs.report(run)
    assert f"{rows:,} rows" in path.read_text("utf-8")
    assert path.stat().st_size < 100_000  # and the bound is two million
    assert calibration_counts(path) == rows


def calibration_counts(path):
    """The rows of the table of calibration, added up."""
    section = path.read_text("utf-8").partition("<h2>Calibration</h2>")[2].partition("</section>")[0]
    return sum(int(cell.replace(",", "")) for cell in re.findall(r">([\d,]+)</td></tr>", section))
