"""Comparison of finished runs: different options, score differences, and rows with the largest disagreement."""

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from attrs import evolve, frozen

from mlxfp.app.kaggle.ensembling.ensembles import greedy
from mlxfp.app.kaggle.ensembling.stacking import second_stage
from mlxfp.app.kaggle.specs.reading import PARTS, part_file
from mlxfp.app.kaggle.validation.out_of_fold import Comparison, OutOfFold, Score, compare_scores, score, score_in
from mlxfp.app.reports.diagnostics import row_losses
from mlxfp.app.reports.reading import FinishedRun, LinearOf, read_run
from mlxfp.app.reports.sections import section
from mlxfp.app.reports.writing import page, short_names
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_json
from mlxfp.support.errors import ArgumentError, DataError, MissingExtraError, listed
from mlxfp.support.html import clip, element, number, table
from mlxfp.support.structuring import flatten
from mlxfp.support.terminal import one_line

ASSUMPTION = (
    "The interval assumes that the differences of the folds are about normally distributed; its variance is corrected for the training "
    "rows that folds share (Nadeau and Bengio, 2003). If the interval contains 0, the data do not show which run is better."
)
_BLEND = "A blend of all runs, with weights for each fold learned on the other folds"
_DATA = "data that differ"
_PATHS = ("name", "output")  # left out of comparisons, because every run has another name and another output folder
_ROWS, _TEXT, _VALUE = 20, 300, 60  # in HTML: at most 20 rows, 300 characters per text, 60 characters per value
_LINES, _LINE = 5, 80  # in printed comparisons: at most 5 rows, 80 characters per text


@frozen
class Disagreement:
    """Row that two runs predict with different errors: id and text of the row, and error of each run.

    >>> Disagreement("7", "The age is 22.", 0.9, 0.1).second
    0.1
    """

    id: str
    text: str
    first: float
    second: float


@frozen
class Pair:
    """Comparison of a run with the first run: score difference on the same folds, and rows with the largest disagreement.

    `run` is the path of the run. If the scores cannot be compared, `difference` is a text with the reason. `rows` maps each outcome, such
    as "both right", to a number of rows. For regression, the outcomes are "the first is closer" and "the second is closer". `correlation`
    compares the out-of-fold predictions. Runs with a low correlation often make a good blend. `data` names the inputs that differ, such as
    "train.csv" or "spec".

    >>> Pair("runs/second", "They have other folds.", {}, ()).difference
    'They have other folds.'
    """

    run: str
    difference: Comparison | str
    rows: dict[str, int]
    disagreements: tuple[Disagreement, ...]
    correlation: float | None = None
    data: tuple[str, ...] = ()


@frozen(repr=False)
class RunComparison:
    """Comparison of several runs with the first run, returned by `compare`. Print the object to read the comparison.

    `options` holds the options with different values, and the value in each run. Each `Pair` in `pairs` lists the rows with the largest
    difference between the errors of two runs. The error of a row is 1 minus the probability of the true class, or the distance to the
    true value. `blend` is the score of a blend of all runs, or None if the runs cannot be blended. The weights of the blend for each fold
    are learned on the other folds, as in `runs.blend(method="greedy")`.

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
        lines.append(["score", *("-" if result is None else number(result.overall) for result in self.scores)])
        folds = max((len(result.folds) for result in self.scores if result is not None), default=0)
        for index in range(folds if folds > 1 else 0):
            values = (_in_fold(result, index) for result in self.scores)
            lines.append([f"fold {index + 1}", *(value if isinstance(value, str) else number(value) for value in values)])
        widths = [max(len(line[index]) for line in lines) for index in range(len(self.runs) + 1)]
        text = ["  ".join([f"{name:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))])
                for name, *cells in lines]  # fmt: skip
        for pair in self.pairs:
            text += ["", f"{pair.run} against {self.runs[0]}: {pair.difference}"]
            text += [f"    {_DATA}: {listed(pair.data)}"] if pair.data else []
            text += [f"    {name}: {count:,} rows" for name, count in pair.rows.items()]
            text += [] if pair.correlation is None else [f"    correlation of the predictions: {pair.correlation:.3f}"]
            text += [f"    {_disagreement(result)}" for result in pair.disagreements[:_LINES]]
        text += [] if self.blend is None else ["", f"{_BLEND}: {self.blend}"]
        return "\n".join([*text, *(["", ASSUMPTION] if any(isinstance(pair.difference, Comparison) for pair in self.pairs) else [])])


def compare_runs(runs: Sequence[str | PathLike[str]], linear_of: LinearOf) -> RunComparison:
    """Compare finished runs with the first run, as in `runs.compare`."""
    if len(runs) < 2:
        raise ArgumentError(f"A comparison needs at least two runs, got {len(runs)}. Add the folder of another run.")
    every = [read_run(run, linear_of) for run in runs]
    names = tuple(fspath(run) for run in runs)
    values = [{path: value for path, value in flatten(run.settings).items() if path not in _PATHS} for run in every]
    options = {path: tuple(settings.get(path) for settings in values) for path in values[0]}
    differing = {
        path: option_values for path, option_values in options.items() if any(value != option_values[0] for value in option_values)
    }
    others = zip(names[1:], every[1:], strict=True)
    pairs = tuple(evolve(_pair(name, every[0], run), data=tuple(_different_data(every[0], run))) for name, run in others)
    alike = all(pair.correlation is not None for pair in pairs)
    return RunComparison(names, differing, tuple(map(_score, every)), pairs, _blended(every) if alike else None)


def comparison_page(comparison: RunComparison) -> str:
    """Return a comparison as an HTML page."""
    names = [clip(name, _VALUE) for name in short_names(comparison.runs)]
    folds = max((len(result.folds) for result in comparison.scores if result is not None), default=0)
    scores: list[tuple[object, ...]] = [("overall", *("" if result is None else result.overall for result in comparison.scores))]
    scores += [
        (f"fold {index + 1}", *(_in_fold(result, index) for result in comparison.scores)) for index in range(folds if folds > 1 else 0)
    ]
    options = [(element("code", path), *(clip(value, _VALUE) for value in values)) for path, values in comparison.options.items()]
    metrics = ", ".join(dict.fromkeys(result.metric for result in comparison.scores if result is not None))
    return page(
        f"Comparison of {len(names)} runs",
        section("Scores", element("p", metrics, class_="muted"), table(["", *names], scores)),
        *([] if comparison.blend is None else [section("A blend", element("p", f"{_BLEND}: {comparison.blend}"))]),
        section("Options that differ", table(["option", *names], options) if options else element("p", "None.")),
        *(_pair_section(f"{name} against {names[0]}", pair) for name, pair in zip(names[1:], comparison.pairs, strict=True)),
    )


def _disagreement(row: Disagreement) -> str:
    return one_line(f"row {clip(row.id, _VALUE)}: off by {number(row.first)} and {number(row.second)}: {clip(row.text, _LINE)}")


def _pair_section(title: str, pair: Pair) -> Any:
    content = [element("p", pair.difference)]
    if isinstance(pair.difference, Comparison):
        content.append(element("p", ASSUMPTION, class_="muted"))
    if pair.data:
        content.append(element("p", f"{_DATA}: {listed(pair.data)}"))
    if pair.correlation is not None:
        content.append(element("p", f"Correlation of the predictions: {pair.correlation:.3f}"))
    if pair.rows:
        content.append(table(["rows", "count"], list(pair.rows.items())))
    if pair.disagreements:
        content.append(element("h3", "Rows with the largest disagreement"))
        rows = [(clip(row.id, _VALUE), row.first, row.second, clip(row.text, _TEXT)) for row in pair.disagreements]
        content.append(table(["row", "error of the first", "error of the second", "text"], rows))
    return section(title, *content)


def _in_fold(result: Score | None, index: int) -> float | str:
    return result.folds[index] if result is not None and index < len(result.folds) else "-"


def _score(run: FinishedRun) -> Score | None:
    metric = run.metrics["metric"]
    value = run.metrics.get(metric)
    return Score(metric, (value,), value) if isinstance(value, float) else score_in(run.metrics)


def _different_data(first: FinishedRun, other: FinishedRun) -> Iterator[str]:
    """Yield the names of the data files, the spec and the code with different hashes in the receipts of two runs."""
    one, two = first.receipt["data"], other.receipt["data"]
    specs = [run.scored.spec for run in (first, other) if run.scored is not None]
    for part in PARTS if len(specs) == 2 else ():
        file = part_file(specs[0], part) or part_file(specs[1], part)
        if file is not None and one["files"].get(part) != two["files"].get(part):
            yield file.name
    differ = [name for name in {**one, **two} if one.get(name) != two.get(name) and name not in ("config", "folds")]
    consequences = () if {"files", "spec"}.isdisjoint(differ) or not specs else ("files", "rows", "test")
    yield from (name for name in differ if name not in consequences)


def _pair(name: str, first: FinishedRun, other: FinishedRun) -> Pair:
    one, two = first.scored, other.scored
    if one is None or two is None:
        return Pair(name, "A run without folds has no paired test.", {}, ())
    # Compare the rows by id and target only, because the runs may read different columns.
    same_rows = one.ids == two.ids and np.array_equal(one.oof.targets, two.oof.targets, equal_nan=True)
    known, theirs = (read_json(run.folder / folders.DATA)["folds"] for run in (first, other))
    differ = [part for part, same in (("rows", same_rows), ("folds", known == theirs)) if not same]
    if differ or one.metric.name != two.metric.name:
        names = " and ".join(differ) or "metrics"
        return Pair(name, f"The two runs have different {names}, so their scores and rows cannot be compared.", {}, ())
    difference: Comparison | str = f"{one.metric.name} is undefined for at least one of the two runs."
    first_score, other_score = _score(first), _score(other)
    try:
        if first_score is not None and other_score is not None:  # the stored scores were computed with the tuned thresholds
            difference = compare_scores(other_score, first_score, one.metric, one.oof.folds)
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
    positions = [position for position in np.argsort(-apart, kind="stable")[:_ROWS].tolist() if apart[position] > 0]
    numbers = np.flatnonzero(one.known)[positions]
    texts = first.texts(numbers)
    shown = tuple(
        Disagreement(one.ids[row], text, float(losses[0][position]), float(losses[1][position]))
        for row, text, position in zip(numbers, texts, positions, strict=True)
    )
    return Pair(name, difference, rows, shown, _correlation(one.oof, two.oof))


def _correlation(one: OutOfFold, two: OutOfFold) -> float | None:
    """Return the correlation between the out-of-fold predictions of two runs, or None if a run predicts a constant."""
    if one.predictions.shape != two.predictions.shape:
        return None
    first, second = (oof.predictions[oof.folds.assignments >= 0].ravel() for oof in (one, two))
    return float(np.corrcoef(first, second)[0, 1]) if first.std() > 0 < second.std() else None


def _blended(every: Sequence[FinishedRun]) -> Score | None:
    scored = [run.scored for run in every]
    known = [result for result in scored if result is not None]
    oofs = [evolve(result.oof, folds=known[0].oof.folds) for result in known]  # take the folds of the first run: stored folds lack groups
    try:
        return score(second_stage(greedy(known[0].metric), *oofs).oof, known[0].metric)
    except DataError:  # the metric is undefined
        return None
