"""The parts of a report, each a function of a run to HTML."""

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Any

from mlxfp.app.config.loading import usual_options
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.app.reports.baselines import baseline_scores
from mlxfp.app.reports.charts import histogram, line_chart, scatter
from mlxfp.app.reports.diagnostics import calibration, calibration_error, class_counts, confusion, mistakes
from mlxfp.app.reports.reading import FinishedRun, Scored
from mlxfp.app.run_folders.folders import BLENDED
from mlxfp.app.tasks.warnings import run_warnings
from mlxfp.observers import log_panels, read_log
from mlxfp.support.html import Html, clip, element, joined, number, share_bar, table
from mlxfp.support.structuring import flatten

_MISTAKES, _TEXT = 20, 400  # rows that are shown, and characters of each
_MATRIX, _PAIRS = 12, 20  # classes of a matrix, and pairs of classes where there are more
_CLASSES, _NAME = 50, 60  # classes in a table of counts, and characters of a name
_CHARTS, _WARNINGS, _HASHES = 12, 20, 200  # at most
_OPTION = 200  # characters of a value of the configuration


def section(title: str, *content: object) -> Html:
    """Return a part of the page with its title."""
    return element("section", element("h2", title), *content)


def scores(run: FinishedRun) -> Html:
    """Show the score, in each fold and overall, with those of the baselines."""
    numbers = run.metrics
    metric, better = numbers["metric"], numbers.get("greater_is_better")
    direction = "" if better is None else f", {'higher' if better else 'lower'} is better"
    if run.scored is None:
        rows = [(name, value) for name, value in numbers.items() if isinstance(value, int | float)]
        rows += [(f"rows: {part}", count) for part, count in numbers.get("rows", {}).items()]
        return section("Score", element("p", f"On the rows that validate: {metric}{direction}."), table(["", "value"], rows))
    if "oof" not in numbers:
        return section("Score", element("p", f"{metric} is undefined on the out-of-fold predictions."))
    folds = tuple(float("nan") if value is None else value for value in numbers["folds"])
    own = Score(metric, folds, numbers["oof"])
    found: dict[str, Score | str] = {f"this {'blend' if run.blended else 'run'}": own, **baseline_scores(run)}
    lines = [(name, *_score_cells(each)) for name, each in found.items() if isinstance(each, Score)]
    notes = [element("p", f"{name}: {clip(each, _OPTION)}", class_="muted") for name, each in found.items() if isinstance(each, str)]
    big = element("p", element("strong", number(own.overall), class_="big"), f" {metric} out of fold{direction}")
    threshold = numbers.get("threshold")
    tuned = "" if threshold is None else f"The threshold is {number(threshold)}; at one half: {number(numbers['oof_at_one_half'])}."
    alone = numbers.get("without_duplicates")
    less = "" if alone is None else f"It is {number(alone)} without the rows that are equal to a row in another fold."
    per_fold = {
        name: [(place + 1, value) for place, value in enumerate(each.folds)] for name, each in found.items() if isinstance(each, Score)
    }
    return section(
        "Score",
        big,
        table(["", "out of fold", "mean of folds", "standard deviation"], lines),
        *notes,
        *(element("p", said) for said in (tuned, less) if said),
        element("p", "Constant and linear model are fitted to the training rows of the same folds.", class_="muted"),
        line_chart(f"{metric} in each fold", per_fold, x="fold", y=metric, joined=False),
    )


def members(run: FinishedRun) -> Html:
    """Show what each model of a run with model.name=auto is worth, and which were left out."""
    found = run.metrics.get("members")
    if found is None:
        return Html()
    rows = [(name, each["oof"], each["weight"], "" if each["adds"] is None else each["adds"]) for name, each in found.items()]
    out = [(clip(name, _NAME), clip(why, _OPTION)) for name, why in run.metrics["left_out"].items()]
    single = run.metrics["single"]
    said = (
        f"The blend is not better than {single} ({number(run.metrics['blend'])}), so that one alone is submitted."
        if "blend" in run.metrics and single
        else ""
    )
    return section(
        "Members",
        element(
            "p",
            "Scores are out of fold on the same folds. What a member adds is the score of the blend with it, against that without it.",
            class_="muted",
        ),
        table(["", run.metrics["metric"], "weight", "adds"], rows),
        element("p", said) if said else "",
        table(["left out", "why"], out) if out else "",
    )


def blended(run: FinishedRun) -> Html:
    """Show the scores of the runs that a blend is made of."""
    rows = [(clip(name, _OPTION), value) for name, value in run.metrics[BLENDED].items()]
    said = f"Blended by {run.metrics['method']}. Scores are on the rows that the blend is scored on."
    return section("Runs of the blend", element("p", said, class_="muted"), table(["", run.metrics["metric"]], rows))


def _score_cells(each: Score) -> tuple[object, ...]:
    return (each.overall, each.mean, "" if isnan(each.sd) else each.sd)


def curves(run: FinishedRun) -> Html:
    """Draw the logs of all folds over each other."""
    drawn: dict[str, dict[str, Any]] = {}
    for name, path in run.logs.items():
        for title, lines in log_panels(read_log(path)).items():
            if title != "steps per second":  # of a clock: a report is the same however often its run was killed
                for curve, points in lines.items():
                    drawn.setdefault(title, {})[f"{name} {curve}"] = points
    charts = [line_chart(title, lines, x="step", y=title) for title, lines in drawn.items()]
    return section("Learning curves", element("div", *charts[:_CHARTS], class_="charts")) if charts else Html()


def predictions(run: FinishedRun) -> Html:
    """Show where predictions are wrong: of classes the confusion and calibration, of values the residuals."""
    scored = run.scored
    if scored is None or not len(scored.targets):
        return Html()
    parts: list[Html] = []
    if scored.single:
        parts.append(section("Confusion", *_confused(scored)))
    if scored.predicts_classes:
        parts.append(section("Calibration", *_calibrated(scored)))
    else:
        parts.append(section("Residuals", *_residuals(scored)))
    if scored.spec.task.has_classes:
        counts = class_counts(scored)
        total = max(1, len(scored.ids))
        shown = sorted(counts.items(), key=lambda pair: -pair[1])[:_CLASSES]
        rows = [(clip(name, _NAME), count, joined([share_bar(count / total), f" {count / total:.1%}"])) for name, count in shown]
        more = f"{len(counts) - _CLASSES:,} more classes are left out." if len(counts) > _CLASSES else ""
        parts.append(section("Class balance", table(["class", "rows", "share"], rows), element("p", more) if more else ""))
    return joined(parts)


def _confused(scored: Scored) -> Iterable[object]:
    counts, names = confusion(scored), [clip(name, _NAME) for name in scored.spec.classes]
    yield element("p", "Rows by their class and the class that was predicted, out of fold.", class_="muted")
    if len(names) > _MATRIX:
        wrong = sorted(((pair, count) for pair, count in counts.items() if pair[0] != pair[1]), key=lambda each: -each[1])
        yield table(["class", "predicted", "rows"], [(names[truth], names[made], count) for (truth, made), count in wrong[:_PAIRS]])
        return
    totals = [max(1, sum(count for (truth, _), count in counts.items() if truth == place)) for place in range(len(names))]
    head = element(
        "tr", element("th", "class ↓ predicted →", scope="col"), *(element("th", name, scope="col", class_="n") for name in names)
    )
    lines = [
        element(
            "tr",
            element("th", name, scope="row"),
            *(
                element("td", f"{counts.get((a, b), 0):,}", class_="n", style=_heat(int(a != b), counts.get((a, b), 0) / totals[a]))
                for b in range(len(names))
            ),
        )
        for a, name in enumerate(names)
    ]
    yield element("div", element("table", element("thead", head), element("tbody", *lines)), class_="scroll", tabindex=0)


def _heat(color: int, share: float) -> str:
    return f"background:color-mix(in srgb,var(--c{color}) {55 * share:.0f}%,transparent)"


def _calibrated(scored: Scored) -> Iterable[object]:
    bins = calibration(scored)
    what = "the likeliest class" if scored.single and scored.chances.shape[1] > 2 else "the class"
    yield line_chart(
        f"How often {what} was right, by its probability",
        {"observed": [(each.predicted, each.observed) for each in bins], "ideal": [(0.0, 0.0), (1.0, 1.0)]},
        x="predicted probability",
        y="observed share",
    )
    parts = f"{len(bins)} intervals" if len(bins) > 1 else "one interval"
    said = f"On average, probabilities are {100 * calibration_error(bins):.1f} points off (expected calibration error, {parts})."
    yield element("p", said)
    yield table(["predicted", "observed", "rows"], [(each.predicted, each.observed, each.count) for each in bins])


def _residuals(scored: Scored) -> Iterable[object]:
    targets, made = scored.targets, scored.predictions[scored.known]
    names = scored.spec.target if targets.ndim == 2 else scored.spec.target[:1]
    for name, truth, guess in zip(names[:4], targets.reshape(len(targets), -1).T, made.reshape(len(made), -1).T, strict=False):
        yield element(
            "div",
            scatter(f"{clip(name, _NAME)}: predictions by target", truth, guess, x="target", y="prediction", diagonal=True),
            histogram(f"{clip(name, _NAME)}: prediction minus target", guess - truth, x="residual"),
            class_="charts",
        )


def worst(run: FinishedRun) -> Html:
    """Show the rows that the model was most wrong about, as it reads them."""
    if run.scored is None:
        return Html()
    found = mistakes(run.scored, _MISTAKES)
    texts = run.texts([each.row for each in found])
    rows = [
        (clip(each.id, _NAME), clip(each.truth, _NAME), clip(each.prediction, _NAME), clip(text, _TEXT))
        for each, text in zip(found, texts, strict=True)
    ]
    title = "Most confident mistakes" if run.scored.single else "Largest errors"
    return section(title, table(["row", "truth", "prediction", "text"], rows) if rows else element("p", "No row is predicted wrong."))


def lengths(run: FinishedRun) -> Html:
    """Show how many tokens rows have, and how many are cut."""
    counts = run.token_counts()
    if counts is None or run.recipe is None or not len(counts):
        return Html()
    most = run.recipe.max_length
    cut = int((counts > most).sum())
    of = (
        f"{len(counts):,} evenly spaced training rows"
        if run.linear is not None and run.linear.folds.size > len(counts)
        else f"all {len(counts):,} training rows"
    )
    said = f"{counts.mean():.1f} tokens on average, {int(counts.max()):,} at most, of {of}."
    over = f"{cut:,} rows ({cut / len(counts):.1%}) are longer than {most:,} and are cut." if cut else f"None is longer than {most:,}."
    return section("Lengths of texts", element("p", f"{said} {over}"), histogram("tokens of a row", counts, x="tokens", limit=float(most)))


def cautions(run: FinishedRun) -> Html:
    """List what may make the score misleading."""
    inferred = run.settings["data"]["spec"] is None and run.settings["own"]["spec"] is None
    said = [] if run.linear is None else list(run_warnings(run.linear.data, run.linear.folds, inferred=inferred))
    if run.missing:
        said.append(f"The rows could not be read, so their texts and the linear model are left out: {run.missing}")
    content = element("ul", *(element("li", clip(each, 2000)) for each in said[:_WARNINGS])) if said else element("p", "None.")
    return section("Warnings", content)


def configuration(run: FinishedRun) -> Html:
    """List the options; those that differ from the nearest preset, or from the defaults, are marked and come first."""
    values, bases = flatten(run.settings), usual_options()
    base = min(bases, key=lambda name: sum(value != bases[name].get(path) for path, value in values.items()))  # a run does not say its own
    usual = bases[base]
    rows = [_option(path, value, usual.get(path)) for path, value in values.items()]
    changed, same = [row for row, differs in rows if differs], [row for row, differs in rows if not differs]
    return section(
        "Configuration",
        element("p", f"{len(changed)} options differ from {base}.", class_="muted"),
        table(["option", "value", base], changed, cards=True) if changed else "",
        element(
            "details",
            element("summary", f"{len(same)} options as in {base}"),
            table(["option", "value"], [row[:2] for row in same], cards=True),
        ),
    )


def _option(path: str, value: object, usual: object) -> tuple[tuple[object, ...], bool]:
    differs = value != usual
    shown = element("code", path)
    return (joined([element("mark", shown)]) if differs else shown, clip(value, _OPTION), clip(usual, _OPTION)), differs


def environment(run: FinishedRun) -> Html:
    """List the versions that results may depend on, and the receipt: the hashes of inputs and outputs."""
    versions = [(name, str(value)) for name, value in run.environment.items()]
    hashes = list(_hashes({name: run.receipt.get(name, {}) for name in ("data", "outputs")}))[:_HASHES]
    return joined(
        [
            section("Environment", table(["", "version"], versions)),
            section(
                "Receipt",
                element("p", "An equal receipt is the same run.", class_="muted"),
                element("details", element("summary", f"{len(hashes)} hashes of inputs and outputs"), table(["file", "hash"], hashes)),
            ),
        ]
    )


def _hashes(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[object, ...]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _hashes(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", element("code", value)
