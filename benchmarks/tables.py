"""tables: compare `mlxfp run` with other programs on folders with hidden test rows: `python -m benchmarks.tables FOLDER... --minutes 1.5`.

A folder holds `train.csv`, `test.csv`, `sample_submission.csv` and `solution.csv`, the hidden part with the columns id and target.
`write_split` writes such folders. No program reads `solution.csv`. Every program runs in a fresh process, one after another.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import asdict, evolve, frozen
from numpy.typing import NDArray
from pyarrow import csv

from mlxfp.app.kaggle.specs.inferring import infer_spec
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS, Metric
from mlxfp.support.errors import DataError

Answer = Literal["probability", "class", "value"]
PROGRAMS = ("mlxfp", "lightgbm", "linear", "autogluon")
_PEERS = Path(__file__).with_name("table_peers.py")
_RESAMPLES = 200
_HIDDEN = 0.3  # share of the hidden rows


def write_split(  # noqa: PLR0913  # keyword-only arguments with defaults
    table: pa.Table, folder: Path, target: str, *, answer: Answer, seed: int = 0, group: str | None = None, time: str | None = None
) -> None:
    """Split a labelled table into the files of a competition with a hidden part. Equal seeds give equal files.

    `answer` decides the values of the sample submission. All rows of a `group` go to the same file. With `time`, the last rows are
    hidden. Rows without a target are dropped.
    """
    rows = table.filter(pc.is_valid(table[target]))
    hidden = _hidden(rows, seed, group, time)
    # Shuffle the ids, because ids in the order of the rows could predict the target.
    ids = pa.array(np.random.default_rng(seed + 1).permutation(rows.num_rows))
    rows = rows.add_column(0, "id", ids).rename_columns(["id", *table.column_names]) if "id" not in table.column_names else rows
    train, test = rows.filter(pa.array(~hidden)), rows.filter(pa.array(hidden))
    values = {"probability": 0.5, "class": train[target][0].as_py(), "value": 0.5}
    sample = pa.table({"id": test["id"], target: pa.array([values[answer]] * test.num_rows)})
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": train, "test": test.drop_columns([target]), "sample_submission": sample, "solution": test.select(["id", target])}
    for name, part in parts.items():
        csv.write_csv(part, folder / f"{name}.csv")


def _hidden(rows: pa.Table, seed: int, group: str | None, time: str | None) -> NDArray[np.bool_]:
    """Return bool[N], true for hidden rows."""
    if time is not None:
        order = pc.rank(rows[time], tiebreaker="max").to_numpy()
        return np.asarray(order > (1 - _HIDDEN) * rows.num_rows)
    codes = np.arange(rows.num_rows) if group is None else np.unique(rows[group].to_pylist(), return_inverse=True)[1]
    count = int(codes.max()) + 1
    chosen = np.random.default_rng(seed).permutation(count)[: round(_HIDDEN * count)]
    return np.isin(codes, chosen)


@frozen
class Outcome:
    """Result of a program on a folder: score on the hidden rows, score claimed by validation, and times in seconds.

    `better` is the score of mlxfp minus the score of the program, positive if mlxfp is better, and `error` the standard error of the
    difference by resampling the hidden rows. `score_error` is the standard error of `score`. `problem` is the reason of a missing score.
    """

    folder: str
    program: str
    metric: str
    score: float | None = None
    claimed: float | None = None
    wall: float = 0.0
    cpu: float = 0.0
    rank: float | None = None
    better: float | None = None
    error: float | None = None
    score_error: float | None = None
    problem: str = ""


@frozen
class Hidden:
    """Hidden targets of a folder in the order of the test file, with the metric."""

    spec: DatasetSpec
    metric: Metric
    ids: tuple[str, ...]
    targets: NDArray[Any]

    def numbers(self, path: Path) -> NDArray[Any]:
        """Return the answers of a submission file in the order of the hidden rows, as numbers for the metric."""
        answers = dict(zip(*_strings(path), strict=True))
        return _numbers(self, [answers[key] for key in self.ids])


def read_hidden(folder: Path) -> Hidden:
    """Read the hidden part of a folder."""
    spec = infer_spec(folder)
    ids, cells = _strings(folder / "solution.csv")
    known = Hidden(spec, METRICS[spec.metric], tuple(ids), np.empty(0))
    names = {name: float(code) for code, name in enumerate(spec.classes)}
    targets = [names[cell] for cell in cells] if spec.classes else [float(cell) for cell in cells]
    return Hidden(spec, known.metric, known.ids, np.array(targets))


def _strings(path: Path) -> tuple[list[str], list[str]]:
    names = csv.open_csv(path).schema.names[:2]
    kept = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False)
    table = csv.read_csv(path, convert_options=kept)
    return table[names[0]].to_pylist(), table[names[1]].to_pylist()


def _numbers(hidden: Hidden, cells: Sequence[str]) -> NDArray[Any]:
    if hidden.spec.classes and hidden.metric.needs == "labels":
        codes = {name: float(code) for code, name in enumerate(hidden.spec.classes)}
        return np.array([codes[cell] for cell in cells])
    return np.array([float(cell) for cell in cells])


def compare(hidden: Hidden, first: NDArray[Any], second: NDArray[Any]) -> tuple[float, float]:
    """Return by how much `first` is better than `second`, and the standard error from paired resamples of the hidden rows."""
    sign = 1 if hidden.metric.greater_is_better else -1
    whole = sign * (hidden.metric(hidden.targets, first) - hidden.metric(hidden.targets, second))
    return whole, float(np.nanstd(_resampled(hidden, first) - _resampled(hidden, second)))


def _resampled(hidden: Hidden, answers: NDArray[Any]) -> NDArray[np.float64]:
    """Return the scores of answers on random samples of the hidden rows, drawn with replacement. All answers get equal samples."""
    random, scores = np.random.default_rng(0), np.full(_RESAMPLES, np.nan)
    for index in range(_RESAMPLES):
        rows = random.integers(0, len(hidden.targets), len(hidden.targets))
        with suppress(DataError):  # the sample has a single class
            scores[index] = hidden.metric(hidden.targets[rows], answers[rows])
    return scores


def measure(folder: Path, minutes: float, programs: Sequence[str], python: str) -> list[Outcome]:
    """Run the programs on a folder, and return an outcome for each program."""
    hidden = read_hidden(folder)
    answers, outcomes = dict[str, NDArray[Any]](), dict[str, Outcome]()
    with tempfile.TemporaryDirectory() as scratch:
        shown = Path(scratch, "data")
        shown.mkdir()
        for name in ("train.csv", "test.csv", "sample_submission.csv"):
            shutil.copy(folder / name, shown)
        for program in programs:
            outcome, submission = _run(program, folder.name, hidden, shown, Path(scratch), minutes, python)
            outcomes[program] = outcome
            if submission is not None:
                answers[program] = hidden.numbers(submission)
    return _ranked(hidden, answers, outcomes)


def _ranked(hidden: Hidden, answers: Mapping[str, NDArray[Any]], outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    sign = 1 if hidden.metric.greater_is_better else -1
    scores = {program: hidden.metric(hidden.targets, values) for program, values in answers.items()}
    result = []
    for program, outcome in outcomes.items():
        if program not in scores:
            result.append(outcome)
            continue
        mine = sign * scores[program]
        above, equal = (sum(1 for score in scores.values() if test(sign * score, mine)) for test in (float.__gt__, float.__eq__))
        better, error = compare(hidden, answers["mlxfp"], answers[program]) if "mlxfp" in answers else (None, None)
        spread = float(np.nanstd(_resampled(hidden, answers[program])))
        rank = above + (equal + 1) / 2
        result.append(evolve(outcome, score=scores[program], score_error=spread, rank=rank, better=better, error=error))
    return result


def _run(  # noqa: PLR0913, PLR0917
    program: str, name: str, hidden: Hidden, data: Path, scratch: Path, minutes: float, python: str
) -> tuple[Outcome, Path | None]:
    """Run one program in a fresh process. Return the outcome without a score, and the submission file."""
    out, claimed = scratch / program, None
    if program == "mlxfp":
        command = [sys.executable, "-m", "mlxfp", "run", "--data", str(data), "--minutes", str(minutes), f"output={out}", "name=run"]
        submission = out / "run" / "submission.csv"
    else:
        task = {"target": hidden.spec.target[0], "metric": hidden.metric.name, "classes": hidden.spec.classes, "id": hidden.spec.id}
        submission = scratch / f"{program}.csv"
        interpreter = python if program == "autogluon" else sys.executable
        command = [interpreter, str(_PEERS), program, str(data), str(submission), str(60 * minutes), json.dumps(task)]
    log = scratch / f"{program}.log"
    with log.open("wb") as stream:
        began = monotonic()
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        _, status, usage = os.wait4(process.pid, 0)
        wall, cpu = monotonic() - began, usage.ru_utime + usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
    problem = ""
    if process.returncode or not submission.is_file():
        lines = log.read_text("utf-8", "replace").strip().splitlines() or ["no output"]
        problem, found = lines[-1], None
    else:
        found = submission
    if program == "mlxfp" and found is not None:
        claimed = json.loads((out / "run" / "metrics.json").read_text("utf-8")).get("oof")
    return Outcome(name, program, hidden.metric.name, claimed=claimed, wall=wall, cpu=cpu, problem=problem), found


_HEAD = (
    "| set | program | metric | hidden score | rank | mlxfp better by | claimed | wall s | CPU s |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def line(outcome: Outcome) -> str:
    """Return an outcome as a line of the table."""
    if outcome.score is None:
        return f"| {outcome.folder} | {outcome.program} | {outcome.metric} | {outcome.problem} | - | - | - | - | - |"
    difference = "-" if outcome.better is None or outcome.program == "mlxfp" else f"{outcome.better:+.4g} ± {outcome.error:.2g}"
    claimed = "-" if outcome.claimed is None else f"{outcome.claimed:.4g}"
    numbers = f"{outcome.score:.4g} | {outcome.rank:g} | {difference} | {claimed} | {outcome.wall:.0f} | {outcome.cpu:.0f}"
    return f"| {outcome.folder} | {outcome.program} | {outcome.metric} | {numbers} |"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return mean ranks, wins and losses by more than two standard errors, and the difference of claimed and hidden scores."""
    lines = []
    for program in dict.fromkeys(outcome.program for outcome in outcomes):
        known = [outcome for outcome in outcomes if outcome.program == program and outcome.score is not None]
        if not known:
            lines.append(f"{program}: no result")
            continue
        rank = np.mean([outcome.rank or 0 for outcome in known])
        text = f"{program}: mean rank {rank:.2f} on {len(known)} sets"
        if program != "mlxfp":
            wins, losses = (
                [outcome.folder for outcome in known if sign * (outcome.better or 0) > 2 * (outcome.error or 0)] for sign in (1, -1)
            )
            text += f"; mlxfp better by more than 2 standard errors on {len(wins)}, worse on {len(losses)} ({', '.join(losses) or 'none'})"
        lines.append(text)
    units: Mapping[str, Callable[[Outcome], float]] = {
        "relative": lambda outcome: outcome.score or 0,
        "in standard errors of the hidden score": lambda outcome: outcome.score_error or 0,
    }
    for unit, size in units.items():
        gaps = [
            (outcome.claimed - outcome.score) / size(outcome) * (1 if METRICS[outcome.metric].greater_is_better else -1)
            for outcome in outcomes
            if outcome.claimed is not None and outcome.score is not None and size(outcome)
        ]
        if gaps:
            error = np.std(gaps) / len(gaps) ** 0.5
            lines.append(f"claimed minus hidden score, {unit}, positive if too optimistic: mean {np.mean(gaps):+.4f} ± {error:.4f}")
    return "\n".join(lines)


def main() -> None:
    """Measure the given folders, print the table, and write the outcomes to a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1.5, help="time limit for mlxfp and AutoGluon (default 1.5)")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"default {','.join(PROGRAMS)}")
    parser.add_argument("--autogluon-python", default=sys.executable, metavar="PYTHON", help="a Python with autogluon.tabular")
    parser.add_argument("--json", type=Path, default=Path("tables.json"), help="file for the outcomes (default tables.json)")
    options = parser.parse_args()
    outcomes = list[Outcome]()
    print(_HEAD, flush=True)
    for folder in options.folders:
        for outcome in measure(folder, options.minutes, options.programs.split(","), options.autogluon_python):
            outcomes.append(outcome)
            print(line(outcome), flush=True)
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1), "utf-8")
    print(f"\n{summary(outcomes)}")


if __name__ == "__main__":
    main()
