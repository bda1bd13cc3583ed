"""Sections of a report. Each function turns a run into HTML."""

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from mlxfp.app.config.classes import RunConfig
from mlxfp.app.kaggle.specs.rewriting import REWRITING_CODE
from mlxfp.app.kaggle.validation.out_of_fold import Score, score_in
from mlxfp.app.reports.baselines import baseline_scores
from mlxfp.app.reports.charts import histogram, line_chart, scatter
from mlxfp.app.reports.diagnostics import calibration, calibration_error, class_counts, confusion, mistakes
from mlxfp.app.reports.importance import BY_NETWORKS, PREDICTED, permutation_importance
from mlxfp.app.reports.reading import FinishedRun, Scored
from mlxfp.app.run_folders.folders import BLENDED, MEMBERS
from mlxfp.app.tasks.warnings import run_warnings
from mlxfp.observers import log_panels, read_log
from mlxfp.support.errors import MlxfpError
from mlxfp.support.html import Html, clip, element, joined, number, scrolled, share_bar, table
from mlxfp.support.structuring import flatten, unstructure

_MISTAKES, _TEXT = 20, 400  # the report lists at most 20 mistakes and shows at most 400 characters of a text
_MATRIX = 12  # maximum number of classes in a confusion matrix
_PAIRS = 20  # number of listed class pairs if there are too many classes for a confusion matrix
_CLASSES, _NAME = 50, 60  # the balance table has at most 50 classes and shows at most 60 characters of a name
_CHARTS, _WARNINGS, _HASHES = 12, 20, 200  # the report shows at most 12 charts, 20 warnings and 200 file hashes
_COLUMNS = 20  # maximum number of columns in the table of importances
_OPTION = 200  # maximum number of characters of a configuration value


def section(title: str, *content: object) -> Html:
    """Return a section of the page: a title, followed by the content."""
    return element("section", element("h2", title), *content)


def scores(run: FinishedRun) -> Html:
    """Return the scores per fold and overall, next to the baseline scores."""
    numbers = run.metrics
    metric, better = numbers["metric"], numbers.get("greater_is_better")
    direction = "" if better is None else f", {'higher' if better else 'lower'} is better"
    if run.scored is None:
        rows = [(name, value) for name, value in numbers.items() if isinstance(value, int | float)]
        rows += [(f"rows: {part}", count) for part, count in numbers.get("rows", {}).items()]
        return section("Score", element("p", f"Score on the validation rows: {metric}{direction}."), table(["", "value"], rows))
    run_score = score_in(numbers)
    if run_score is None:
        return section("Score", element("p", f"{metric} is undefined on the out-of-fold predictions."))
    results: dict[str, Score | str] = {f"this {'blend' if run.blended else 'run'}": run_score, **baseline_scores(run)}
    lines = [(name, *_score_cells(result)) for name, result in results.items() if isinstance(result, Score)]
    notes = [
        element("p", f"{name}: {clip(result, _OPTION)}", class_="muted") for name, result in results.items() if isinstance(result, str)
    ]
    big = element(
        "p",
        element("strong", number(run_score.overall), class_="big"),
        f" {metric} out of fold on {int(run.scored.known.sum()):,} rows{direction}",
    )
    threshold = numbers.get("threshold")
    tuned = (
        ""
        if threshold is None
        else f"The threshold is {number(threshold)}; with a threshold of 0.5, the score is {number(numbers['oof_at_one_half'])}."
    )
    alone = numbers.get("without_duplicates")
    less = "" if alone is None else f"Without rows equal to a row in another fold, the score is {number(alone)}."
    per_fold = {
        name: [(index + 1, value) for index, value in enumerate(result.folds)]
        for name, result in results.items()
        if isinstance(result, Score)
    }
    return section(
        "Score",
        big,
        table(["", "out of fold", "mean of folds", "standard deviation"], lines),
        *notes,
        *(element("p", text) for text in (tuned, less) if text),
        element("p", "The constant and the linear model are fitted to the training rows of the same folds.", class_="muted"),
        line_chart(
            f"{metric} in each fold of {_range([len(fold.valid) for fold in run.scored.oof.folds])} rows",
            per_fold,
            x="fold",
            y=metric,
            joined=False,
        ),
    )


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def members(run: FinishedRun) -> Html:
    """Return the models of a run with model.name=auto: score, weight and contribution of each blended model, and the excluded models."""
    values = run.metrics.get("members")
    if values is None:
        return Html()
    about = {name: f"{name}: {text}" for name, text in run.metrics.get("about", {}).items()}
    rows = [
        (about.get(name, name), member["oof"], member["weight"], "" if member["adds"] is None else member["adds"])
        for name, member in values.items()
    ]
    out = [(about.get(name, clip(name, _NAME)), clip(why, _OPTION)) for name, why in run.metrics["left_out"].items()]
    single = run.metrics["single"]
    text = (
        f"The blend ({number(run.metrics['blend'])}) is not better than {single}, so the submission uses only {single}."
        if "blend" in run.metrics and single
        else ""
    )
    return section(
        "Members",
        element(
            "p",
            "Scores are out of fold, on the same folds. 'adds' is the improvement of the blend's score by the member. In a blend of three "
            "or more members, a member that makes the score worse has the weight 0. The negative number of this member is the change of "
            "the score by the member before its removal.",
            class_="muted",
        ),
        table(["member", run.metrics["metric"], "weight", "adds"], rows),
        element("p", text) if text else "",
        table(["left out", "why"], out) if out else "",
    )


def importance(run: FinishedRun) -> Html:
    """Return the report section with the importance of the columns. The section is empty for a model inside a blend."""
    if run.scored is None or run.linear is None or run.model_of is None or run.folder.resolve().parent.name == MEMBERS:
        return Html()
    title = "Importance of columns"
    models = sum(member["weight"] > 0 for member in run.metrics.get("members", {}).values()) or 1
    try:
        result = permutation_importance(run.scored, run.linear.data.rows, run.model_of, (BY_NETWORKS if run.logs else PREDICTED) // models)
    except (MlxfpError, OSError, ValueError) as error:  # missing importances must not fail the report of a finished run
        return section(title, element("p", f"The importance was not computed: {clip(error, _OPTION)}", class_="muted"))
    about = (
        f"Loss of {run.metrics['metric']} after the values of a column are shuffled: mean and standard deviation of {result.shuffles} "
        f"shuffles of {result.rows:,} out-of-fold rows. Columns with the same information share their importance."
    )
    top, largest = result.columns[:_COLUMNS], max(result.columns[0].mean, 1e-300)
    rows = [(clip(value.column, _NAME), value.mean, value.sd, share_bar(value.mean / largest)) for value in top]
    more = f"{len(result.columns) - len(top):,} less important columns are not listed." if len(result.columns) > len(top) else ""
    return section(
        title,
        element("p", about, class_="muted"),
        table(["column", "loss", "standard deviation", "share"], rows),
        element("p", more) if more else "",
    )


def blended(run: FinishedRun) -> Html:
    """Return the scores of the runs in a blend."""
    rows = [(clip(name, _OPTION), value) for name, value in run.metrics[BLENDED].items()]
    text = f"Blended by {run.metrics['method']}. All scores are on the same rows."
    return section("Runs of the blend", element("p", text, class_="muted"), table(["", run.metrics["metric"]], rows))


def _score_cells(result: Score) -> tuple[object, ...]:
    return (result.overall, result.mean, "" if isnan(result.sd) else result.sd)


def curves(run: FinishedRun) -> Html:
    """Return charts with the training curves of all folds in the same axes."""
    drawn: dict[str, dict[str, Any]] = {}
    for name, path in run.logs.items():
        for title, lines in log_panels(read_log(path)).items():
            if title != "steps per second":  # leave out the speed, so that equal runs have equal reports
                for curve, points in lines.items():
                    drawn.setdefault(title, {})[curve if len(run.logs) == 1 else f"{name} {curve}"] = points
    rates = list(drawn.get("learning rate", {}).values())
    if len(rates) > 1 and all(points == rates[0] for points in rates):
        drawn["learning rate"] = {"all folds": rates[0]}
    charts = [line_chart(title, lines, x="step", y=title) for title, lines in drawn.items()]
    return section("Learning curves", element("div", *charts[:_CHARTS], class_="charts")) if charts else Html()


def predictions(run: FinishedRun) -> Html:
    """Return an overview of prediction errors: confusion and calibration for classes, residuals for values."""
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
        more = f"{len(counts) - _CLASSES:,} more classes are not listed." if len(counts) > _CLASSES else ""
        parts.append(section("Class balance", table(["class", "rows", "share"], rows), element("p", more) if more else ""))
    return joined(parts)


def _confused(scored: Scored) -> Iterable[object]:
    counts, names = confusion(scored), [clip(name, _NAME) for name in scored.spec.classes]
    yield element("p", f"Number of rows by true class and predicted class, out of fold, {len(scored.targets):,} in total.", class_="muted")
    if len(names) > _MATRIX:
        wrong = sorted(
            ((pair, count) for pair, count in counts.items() if pair[0] != pair[1]), key=lambda pair_and_count: -pair_and_count[1]
        )
        yield table(
            ["class", "predicted", "rows"], [(names[truth], names[predicted], count) for (truth, predicted), count in wrong[:_PAIRS]]
        )
        return
    totals = [sum(count for (truth, _), count in counts.items() if truth == index) for index in range(len(names))]
    head = element(
        "tr",
        element("th", "class ↓ predicted →", scope="col"),
        *(element("th", name, scope="col", class_="n w") for name in names),
        element("th", "rows", scope="col", class_="n"),
    )
    lines = [
        element(
            "tr",
            element("th", name, scope="row", class_="w"),
            *(
                element("td", f"{counts.get((a, b), 0):,}", class_="n", style=_heat(int(a != b), counts.get((a, b), 0) / max(1, totals[a])))
                for b in range(len(names))
            ),
            element("td", f"{totals[a]:,}", class_="n muted"),
        )
        for a, name in enumerate(names)
    ]
    yield scrolled(element("table", element("thead", head), element("tbody", *lines)))


def _heat(color: int, share: float) -> str:
    return f"background:color-mix(in srgb,var(--c{color}) {55 * share:.0f}%,transparent)"


def _calibrated(scored: Scored) -> Iterable[object]:
    bins = calibration(scored)
    subject = "the likeliest class" if scored.single and scored.chances.shape[1] > 2 else "the class"
    yield line_chart(
        f"Observed share of {subject} by predicted probability",
        {"observed": [(interval.predicted, interval.observed) for interval in bins], "ideal": [(0.0, 0.0), (1.0, 1.0)]},
        x="predicted probability",
        y="observed share",
    )
    parts = f"{len(bins)} intervals" if len(bins) > 1 else "one interval"
    text = f"Expected calibration error: {100 * calibration_error(bins):.1f} percentage points ({parts})."
    yield element("p", text)
    yield table(["predicted", "observed", "rows"], [(interval.predicted, interval.observed, interval.count) for interval in bins])


def _residuals(scored: Scored) -> Iterable[object]:
    targets, predictions = scored.targets, scored.predictions[scored.known]
    names = scored.spec.target if targets.ndim == 2 else scored.spec.target[:1]
    for name, truth, guess in zip(
        names[:4], targets.reshape(len(targets), -1).T, predictions.reshape(len(predictions), -1).T, strict=False
    ):
        yield element(
            "div",
            scatter(
                f"{clip(name, _NAME)}: predictions by target, {len(truth):,} rows", truth, guess, x="target", y="prediction", diagonal=True
            ),
            histogram(f"{clip(name, _NAME)}: prediction minus target", guess - truth, x="residual"),
            class_="charts",
        )


def worst(run: FinishedRun) -> Html:
    """Return the report section on the rows with the largest errors. Each row is shown as the text that the evaluated model reads."""
    if run.scored is None:
        return Html()
    errors = mistakes(run.scored, _MISTAKES)
    texts = run.texts([mistake.row for mistake in errors])
    rows = [
        (clip(mistake.id, _NAME), clip(mistake.truth, _NAME), clip(mistake.prediction, _NAME), clip(text, _TEXT))
        for mistake, text in zip(errors, texts, strict=True)
    ]
    if not rows:
        return section("Most confident mistakes", element("p", "All predictions are right."))
    head, total = ["row", "truth", "prediction", "text"], len(run.scored.targets)
    if not run.scored.single:
        return section("Largest errors", element("p", f"{len(rows)} of {total:,} rows.", class_="muted"), table(head, rows))
    wrong = int((run.scored.labels != run.scored.targets).sum())
    text = f"{len(rows)} of {wrong:,} wrong predictions of {total:,} rows, sorted by the probability of the predicted class."
    return section("Most confident mistakes", element("p", text, class_="muted"), table(head, rows))


def lengths(run: FinishedRun) -> Html:
    """Return a histogram of the number of tokens per row, and the number of rows longer than the limit of the model."""
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
    summary = f"{counts.mean():.1f} tokens on average, {int(counts.max()):,} at most, of {of}."
    over = f"{cut:,} rows ({cut / len(counts):.1%}) are longer than {most:,} and are cut." if cut else f"No row is longer than {most:,}."
    return section(
        "Lengths of texts", element("p", f"{summary} {over}"), histogram("tokens of a row", counts, x="tokens", limit=float(most))
    )


def cautions(run: FinishedRun) -> Html:
    """Return a list of reasons for a possibly misleading score."""
    inferred = run.settings["data"]["spec"] is None and run.settings["own"]["spec"] is None
    messages = [] if run.linear is None else list(run_warnings(run.linear.data, run.linear.folds, inferred=inferred))
    if run.missing:
        messages.append(f"The rows cannot be read, so the report has no row texts and no linear model: {run.missing}")
    content = (
        element("ul", *(element("li", *with_code(message), style="white-space: pre-line") for message in messages[:_WARNINGS]))
        if messages
        else element("p", "None.")
    )
    return section("Warnings", content)


def with_code(message: str) -> Iterable[object]:
    """Yield the parts of a warning: prose, and the lines of code as a block."""
    for index, part in enumerate(REWRITING_CODE.split(message)):
        text = part.removeprefix("\n")
        yield scrolled(element("pre", element("code", text))) if index % 2 else clip(text, 2000)


def configuration(run: FinishedRun) -> Html:
    """Return the options of a run as a table. Options with other values than the defaults are marked and come first."""
    values, usual = flatten(run.settings), flatten(unstructure(RunConfig()))
    rows = [_option(path, value, usual.get(path)) for path, value in values.items()]
    changed, same = [row for row, differs in rows if differs], [row for row, differs in rows if not differs]
    return section(
        "Configuration",
        element("p", f"{len(changed)} options differ from the defaults.", class_="muted"),
        table(["option", "value", "default"], changed) if changed else "",
        element(
            "details",
            element("summary", f"{len(same)} options have the default values"),
            table(["option", "value"], [row[:2] for row in same]),
        ),
    )


def _option(path: str, value: object, usual: object) -> tuple[tuple[object, ...], bool]:
    differs = value != usual
    shown = element("code", path)
    return (joined([element("mark", shown)]) if differs else shown, clip(value, _OPTION), clip(usual, _OPTION)), differs


def environment(run: FinishedRun) -> Html:
    """Return the report sections with package versions and with hashes of all inputs and outputs."""
    versions = [(name, str(value)) for name, value in run.environment.items()]
    hashes = list(_hashes({name: run.receipt.get(name, {}) for name in ("data", "outputs")}))[:_HASHES]
    return joined(
        [
            section("Environment", table(["", "version"], versions)),
            section(
                "Receipt",
                element("p", "Runs with equal receipts have the same inputs and outputs.", class_="muted"),
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
