"""Several runs next to each other: what differs in their options, whose score is better, and in which rows they disagree."""

from collections.abc import Sequence
from os import PathLike, fspath
from os.path import commonpath
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from mlxfp.app.kaggle.ensembling.ensembles import greedy
from mlxfp.app.kaggle.ensembling.stacking import second_stage
from mlxfp.app.kaggle.validation.out_of_fold import Comparison, OutOfFold, Score, check_same, compare_scores, score
from mlxfp.app.reports.diagnostics import row_losses
from mlxfp.app.reports.reading import FinishedRun, LinearOf, read_run
from mlxfp.app.reports.sections import section
from mlxfp.app.reports.writing import page
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_json, write_text
from mlxfp.support.errors import ArgumentError, DataError, MissingExtraError
from mlxfp.support.html import Html, clip, element, number, table
from mlxfp.support.structuring import flatten
from mlxfp.support.terminal import one_line

ASSUMPTION = (
    "The interval assumes that the differences of the folds are about normally distributed; its variance is corrected for the training "
    "rows that folds share (Nadeau and Bengio, 2003). An interval with 0 in it does not tell the runs apart."
)
_BLEND = "A blend with weights that are learned for each fold from the others"
_SAME = ("rows", "folds")  # what runs must share to be compared row by row
_PATHS = ("name", "output")  # differ between any two runs
_ROWS, _TEXT, _VALUE = 20, 300, 60  # rows that are shown, characters of a text, of a value
_LINES, _LINE = 5, 80  # rows that are printed, and characters of the text of each


@frozen
class Disagreement:
    """A row that two runs predict differently well: its id and text, and how wrong each run is.

    >>> Disagreement("7", "The age is 22.", 0.9, 0.1).second
    0.1
    """

    id: str
    text: str
    first: float
    second: float


@frozen
class Pair:
    """A run against the first: the paired difference of their scores, or why there is none, and the rows in which they disagree.

    `rows` counts rows by which run is right, for classes, or closer, for values. `correlation` is that of their out-of-fold predictions:
    the lower it is, the more a blend of good runs gains.

    >>> Pair("runs/second", "They have other folds.", {}, ()).difference
    'They have other folds.'
    """

    run: str
    difference: Comparison | str
    rows: dict[str, int]
    disagreements: tuple[Disagreement, ...]
    correlation: float | None = None


@frozen(repr=False)
class RunComparison:
    """Several runs next to each other: print it; made by `compare`.

    `options` has the options that differ, each with its value in every run. The rows in which runs disagree most are printed by how far
    each run is off: 1 minus the probability of the true class, or the distance from the value. `blend` is the score of a blend of all runs,
    with weights that are learned for each fold from the others, as `runs.blend(method="greedy")` makes it; None where it cannot be made.

    >>> RunComparison(("a", "b"), {"training.epochs": (2, 3)}, (None, None), ()).options
    {'training.epochs': (2, 3)}
    """

    runs: tuple[str, ...]
    options: dict[str, tuple[Any, ...]]
    scores: tuple[Score | None, ...]
    pairs: tuple[Pair, ...]
    blend: Score | None = None

    def __repr__(self) -> str:
        lines = [["", *self.runs], *([path, *(clip(value, _VALUE) for value in values)] for path, values in self.options.items())]
        lines.append(["score", *("-" if each is None else number(each.overall) for each in self.scores)])
        folds = max((len(each.folds) for each in self.scores if each is not None), default=0)
        for place in range(folds if folds > 1 else 0):
            values = (_in_fold(each, place) for each in self.scores)
            lines.append([f"fold {place + 1}", *(value if isinstance(value, str) else number(value) for value in values)])
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.runs) + 1)]
        said = ["  ".join([f"{name:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))])
                for name, *cells in lines]  # fmt: skip
        for pair in self.pairs:
            said += ["", f"{pair.run} against {self.runs[0]}: {pair.difference}"]
            said += [f"    {name}: {count:,} rows" for name, count in pair.rows.items()]
            said += [] if pair.correlation is None else [f"    correlation of their predictions: {pair.correlation:.3f}"]
            said += [f"    {_disagreement(each)}" for each in pair.disagreements[:_LINES]]
        said += [] if self.blend is None else ["", f"{_BLEND}: {self.blend}"]
        return "\n".join([*said, *(["", ASSUMPTION] if any(isinstance(pair.difference, Comparison) for pair in self.pairs) else [])])


def compare_runs(runs: Sequence[str | PathLike[str]], linear_of: LinearOf) -> RunComparison:
    """Compare finished runs with the first of them, as `runs.compare` does."""
    if len(runs) < 2:
        raise ArgumentError(f"A comparison needs at least two runs, got {len(runs)}. Name more folders of runs.")
    every = [read_run(run, linear_of) for run in runs]
    names = tuple(fspath(run) for run in runs)
    values = [{path: value for path, value in flatten(run.settings).items() if path not in _PATHS} for run in every]
    options = {path: tuple(each.get(path) for each in values) for path in values[0]}
    differing = {path: found for path, found in options.items() if any(value != found[0] for value in found)}
    pairs = tuple(_pair(name, every[0], run) for name, run in zip(names[1:], every[1:], strict=True))
    alike = all(pair.correlation is not None for pair in pairs)
    return RunComparison(names, differing, tuple(map(_score, every)), pairs, _blended(every) if alike else None)


def write_comparison(runs: Sequence[str | PathLike[str]], linear_of: LinearOf, out: str | PathLike[str]) -> Path:
    """Write what `compare_runs` finds as a page in HTML to the file `out`, and return its path."""
    write_text(Path(out), comparison_page(compare_runs(runs, linear_of)))
    return Path(out)


def comparison_page(found: RunComparison) -> str:
    """Return a comparison as HTML."""
    names = _short(found.runs)
    folds = max((len(each.folds) for each in found.scores if each is not None), default=0)
    scores: list[tuple[object, ...]] = [("overall", *("" if each is None else each.overall for each in found.scores))]
    scores += [(f"fold {place + 1}", *(_in_fold(each, place) for each in found.scores)) for place in range(folds if folds > 1 else 0)]
    options = [(element("code", path), *(clip(value, _VALUE) for value in values)) for path, values in found.options.items()]
    metrics = ", ".join(dict.fromkeys(each.metric for each in found.scores if each is not None))
    return page(
        f"Comparison of {len(names)} runs",
        section("Scores", element("p", metrics, class_="muted"), _scrolled(table(["", *names], scores))),
        *([] if found.blend is None else [section("A blend", element("p", f"{_BLEND}: {found.blend}"))]),
        section("Options that differ", _scrolled(table(["option", *names], options, cards=True)) if options else element("p", "None.")),
        *(_pair_section(f"{name} against {names[0]}", pair) for name, pair in zip(names[1:], found.pairs, strict=True)),
    )


def _scrolled(shown: Html) -> Html:
    """Return a table with a column for each run, which may be too many for the width of a tablet."""
    return element("div", shown, class_="scroll", tabindex=0)


def _short(runs: Sequence[str]) -> list[str]:
    """Name runs by their paths, without the folder that holds them all."""
    if len({Path(run).is_absolute() for run in runs}) > 1:
        return [clip(run, _VALUE) for run in runs]
    shared = commonpath([Path(run).parent for run in runs])
    return [clip(Path(run).relative_to(shared), _VALUE) for run in runs]


def _disagreement(row: Disagreement) -> str:
    return one_line(f"row {clip(row.id, _VALUE)}: off by {number(row.first)} and {number(row.second)}: {clip(row.text, _LINE)}")


def _pair_section(title: str, pair: Pair) -> Any:
    content = [element("p", pair.difference)]
    if isinstance(pair.difference, Comparison):
        content.append(element("p", ASSUMPTION, class_="muted"))
    if pair.correlation is not None:
        content.append(element("p", f"Correlation of their predictions: {pair.correlation:.3f}"))
    if pair.rows:
        content.append(table(["rows", "count"], list(pair.rows.items())))
    if pair.disagreements:
        content.append(element("h3", "Rows in which they disagree most"))
        rows = [(clip(each.id, _VALUE), each.first, each.second, clip(each.text, _TEXT)) for each in pair.disagreements]
        content.append(table(["row", "error of the first", "error of the second", "text"], rows))
    return section(title, *content)


def _in_fold(each: Score | None, place: int) -> float | str:
    return each.folds[place] if each is not None and place < len(each.folds) else "-"


def _score(run: FinishedRun) -> Score | None:
    numbers = run.metrics
    if "oof" in numbers:
        return Score(numbers["metric"], tuple(float("nan") if value is None else value for value in numbers["folds"]), numbers["oof"])
    value = numbers.get(numbers["metric"])
    return Score(numbers["metric"], (value,), value) if isinstance(value, float) else None


def _pair(name: str, first: FinishedRun, other: FinishedRun) -> Pair:
    one, two = first.scored, other.scored
    if one is None or two is None:
        return Pair(name, "A run without folds has no paired test.", {}, ())
    known, theirs = (read_json(run.folder / folders.DATA) for run in (first, other))
    differ = [part for part in _SAME if known.get(part) != theirs.get(part)]
    if differ or one.metric.name != two.metric.name:
        what = " and ".join(differ) or "metrics"
        return Pair(name, f"The runs have other {what}, so their scores and rows are not compared.", {}, ())
    difference: Comparison | str = f"{one.metric.name} is undefined for one of the runs."
    own, their = _score(first), _score(other)
    try:
        check_same((one.oof, two.oof))
        if own is not None and their is not None:  # as each run was scored: where a threshold was tuned, with it
            difference = compare_scores(their, own, one.metric, one.oof.folds)
    except (DataError, MissingExtraError) as error:
        difference = str(error)
    losses = row_losses(one), row_losses(two)
    if one.single:
        right = one.labels == one.targets, two.labels == two.targets
        rows = {
            "both right": int((right[0] & right[1]).sum()),
            "only the first is right": int((right[0] & ~right[1]).sum()),
            "only the second is right": int((~right[0] & right[1]).sum()),
            "both wrong": int((~right[0] & ~right[1]).sum()),
        }
    else:
        rows = {"the first is closer": int((losses[0] < losses[1]).sum()), "the second is closer": int((losses[1] < losses[0]).sum())}
    apart = np.abs(losses[0] - losses[1])
    places = [place for place in np.argsort(-apart, kind="stable")[:_ROWS].tolist() if apart[place] > 0]
    numbers = np.flatnonzero(one.known)[places]
    texts = first.texts(numbers)
    shown = tuple(
        Disagreement(one.ids[row], text, float(losses[0][place]), float(losses[1][place]))
        for row, text, place in zip(numbers, texts, places, strict=True)
    )
    return Pair(name, difference, rows, shown, _correlation(one.oof, two.oof))


def _correlation(one: OutOfFold, two: OutOfFold) -> float | None:
    """Return the correlation of out-of-fold predictions, of all classes or targets; None where one run predicts the same for all rows."""
    if one.predictions.shape != two.predictions.shape:
        return None
    first, second = (each.predictions[each.folds.assignments >= 0].ravel() for each in (one, two))
    return float(np.corrcoef(first, second)[0, 1]) if first.std() > 0 < second.std() else None


def _blended(every: Sequence[FinishedRun]) -> Score | None:
    """Score a greedy blend of runs on the same folds."""
    scored = [run.scored for run in every]
    known = [each for each in scored if each is not None]
    try:
        return score(second_stage(greedy(known[0].metric), *(each.oof for each in known)).oof, known[0].metric)
    except DataError:  # the metric is undefined
        return None
