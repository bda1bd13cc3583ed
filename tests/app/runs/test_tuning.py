"""Tuning: a study survives killed processes; the best configuration is one that runs, and gives the score that it says."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.runs.tuning import searching
from mlxfp.app.runs.tuning.studies import opened
from tests.app.runs.competitions import competition, configured

pytest.importorskip("optuna")
pytest.importorskip("lightgbm")

RATE = "model.arguments.learning_rate"
BOOSTED = (
    *("model.name=lightgbm", "model.arguments.n_estimators=6", "model.arguments.min_child_samples=2"),
    *(f"{RATE}=0.3", "validation.folds=2"),
)
LEFT = [f"model.arguments.{name}=null" for name in ("n_estimators", "min_child_samples")]
ONLY = [f"{each.key}=null" for each in fp.runs.SPACES["lightgbm"]]
SPACE = (*LEFT, f"{RATE}={{log: [1.0e-3, 1.0]}}")


def rows():
    made = [{"id": place, "n": place * 7 % 11, "m": place * 5 % 13} for place in range(64)]
    train = [{**row, "y": int(row["n"] + row["m"] > 11 or place % 9 == 0)} for place, row in enumerate(made[:60])]
    return train, made[60:], [{"id": row["id"], "y": 0} for row in made[60:]]


ROWS = rows()


@pytest.fixture
def data(tmp_path):
    return competition(tmp_path / "data", *ROWS)


def ended(data, *overrides, vary=SPACE, **options):
    """Tune, and return how each trial ended, and the end."""
    *events, end = fp.runs.tune(configured(data, *BOOSTED, *overrides), vary=vary, **options)
    return [event for event in events if isinstance(event, fp.runs.TrialEnded)], end


def said(trials):
    """What a study is, whatever its trials are called."""
    return sorted((sorted(trial.values.items()), trial.outcome, trial.score) for trial in trials)


KILLED = """
import os, signal, sys
from pathlib import Path
import mlxfp as fp
from tests.app.runs.competitions import configured
from tests.app.runs.test_tuning import BOOSTED, SPACE

for event in fp.runs.tune(configured(Path(sys.argv[1]), *BOOSTED, "name=killed"), trials=5, vary=SPACE):
    if isinstance(event, fp.runs.FoldEnded) and event.folder.name == "trial-0002":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_best_configuration_runs_and_gives_the_best_score(data, tmp_path, capsys):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(fp.runs.unstructure(configured(data, *BOOSTED))))
    assert main(["tune", str(file), "--trials", "4", *(f"--vary={each}" for each in LEFT)]) == 0
    *trials, best, written = capsys.readouterr().out.splitlines()
    assert len(trials) == 4
    assert "trial 0: 0." in trials[0]
    assert trials[0].endswith("the unchanged configuration")
    assert "The score is too optimistic, because the trial was chosen on these folds." in best
    tuned = tmp_path / "out" / "tuning" / "best.yaml"
    assert written.endswith(f"mlxfp run {tuned}")
    assert "The score is too optimistic for new rows" in tuned.read_text()
    assert main(["run", str(tuned)]) == 0
    score = json.loads((tmp_path / "out-tuned" / "metrics.json").read_text())["oof"]
    assert f"accuracy {score:.4f}, against " in best
    assert round(score, 4) == max(float(line.split(": ")[2]) for line in trials if line.split(": ")[2][0] == "0")
    assert main(["run", str(file)]) == 0  # the folder of the study does not keep the run itself from having its own
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["oof"] == pytest.approx(float(trials[0].split(": ")[2]), abs=5e-5)


def study(data, name, **options):
    """Read the study of a run."""
    from contextlib import contextmanager

    @contextmanager
    def reading():
        with opened(data.parent / name / "tuning", (), {}, maximize=True, seed=0) as made:
            yield made.inner

    return reading()


def test_a_study_that_was_killed_goes_on_to_the_same_trials(data):
    command = [sys.executable, "-c", KILLED, str(data)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    begun = data.parent / "killed" / "tuning" / "trial-0002" / "fold-01" / "result.json"
    before = begun.stat().st_mtime_ns
    events = fp.runs.tune(configured(data, *BOOSTED, "name=killed"), trials=5, vary=SPACE)
    first = next(event for event in events if isinstance(event, fp.runs.FoldEnded))
    assert (first.folder.name, first.fold, begun.stat().st_mtime_ns) == ("trial-0002", 1, before)  # its first fold is not trained again
    *rest, again = events
    rest = [event for event in rest if isinstance(event, fp.runs.TrialEnded)]
    whole, end = ended(data, "name=whole", trials=5)
    assert said(rest) == said(whole[2:])
    assert (again.trials, again.score, again.given) == (5, end.score, end.given)
    with study(data, "killed") as found:
        states = [trial.state.name for trial in found.trials]
    assert (len(states), states.count("FAIL")) == (6, 1)
    assert not list(begun.parents[2].glob("trial-*"))  # what trials wrote is of no use


def test_a_second_process_waits_for_the_first(data):
    first = fp.runs.tune(configured(data, *BOOSTED), trials=1, vary=SPACE)
    next(first)
    with pytest.raises(fp.errors.ConfigError, match=r"Another process uses the run folder .*tuning\. Wait until the process ends"):
        ended(data, trials=1)
    *_, end = first
    assert end.trials == 1
    assert ended(data, trials=1)[1] == end


def test_trials_whose_first_folds_are_worse_are_stopped_and_never_win(data):
    trials, end = ended(data, vary=[*ONLY, f"{RATE}={{choice: [1.0e-9, 1.0e-8, 0.3, 0.5]}}"], trials=12)
    stopped = [trial for trial in trials if trial.outcome == "stopped"]
    assert stopped
    assert {trial.values[RATE] for trial in stopped} <= {1e-9, 1e-8}
    assert {trial.score for trial in stopped} == {None}
    assert end.trials == 12
    assert end.score == max(trial.score for trial in trials if trial.score is not None)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_mean_of_a_stopped_trial_is_not_a_score(tmp_path, sign):
    with opened(tmp_path, (fp.runs.Parameter("x", "float", (0.0, 1.0)),), {"x": 0.5}, maximize=sign > 0, seed=0) as made:
        for total in (0.5, 0.6, 0.4, 0.3):
            trial = made.next(9, late=False)
            assert not made.falls_behind(trial, 1, sign * 0.95)
            made.end(trial, sign * total, "")
        trial = made.next(9, late=False)
        assert made.falls_behind(trial, 1, sign * 0.9)  # better than any score, and worse than the first folds of others
        made.end(trial, None, "stopped")
        assert (made.best().trial, made.best().score, made.best().given) == (1, sign * 0.6, sign * 0.5)


def test_a_trial_that_fails_ends_alone_and_what_was_given_must_not_fail(data):
    leaves = "model.arguments.num_leaves"
    trials, end = ended(data, vary=[*LEFT, f"{leaves}={{choice: [1, 4, 8]}}"], trials=6)
    failed = {trial.values[leaves]: trial.reason for trial in trials if trial.outcome == "failed"}
    assert [*failed] == [1]
    assert "num_leaves" in failed[1]
    assert end.trials == 6
    with pytest.raises(Exception, match="num_leaves") as caught:
        ended(data, f"{leaves}=1", "name=wrong", trials=3)
    assert "This is an error of the original configuration. Correct the configuration before tuning." in caught.value.__notes__


def test_when_the_time_is_up_there_is_a_best_configuration_and_the_study_goes_on(data, monkeypatch):
    trials, end = ended(data, minutes=1e-9)
    assert [(trial.trial, trial.score) for trial in trials] == [(0, end.given)]
    assert fp.runs.load_config(end.config).config.name == "out-tuned"
    clock = 0
    monkeypatch.setattr(searching, "monotonic", lambda: clock)
    notes = []
    for event in fp.runs.tune(configured(data, *BOOSTED), minutes=1, vary=SPACE):
        notes += [event.message] if isinstance(event, fp.runs.Noted) else []
        if isinstance(event, fp.runs.FoldEnded):
            clock = 60  # in the middle of trial 1, which is left for the next call
    assert event == end
    assert notes[-1] == "The time limit interrupted trial 1 after 1 of 2 folds. To continue this trial, repeat the command."
    assert (end.folder / "trial-0001" / "fold-01" / "result.json").is_file()
    trials, end = ended(data, trials=2)
    assert ([trial.trial for trial in trials], end.trials) == ([1], 2)
    assert [*fp.runs.tune(configured(data, *BOOSTED), trials=2, vary=SPACE)][-1] == end


def test_tuning_of_several_models_names_a_command_that_tunes_one_model(data, capsys):
    """The preset auto cannot be tuned. The error has a complete command, and this command has a valid configuration."""
    assert main(["tune", str(data), "--trials", "2"]) == 1
    command = capsys.readouterr().err.partition("Tune one model: ")[2].partition(" --trials 20. Other models: catboost")[0]
    assert command == f"mlxfp tune --data {data} model.name=lightgbm"
    assert main(["tune", *command.split()[2:], "--trials", "1", f"output={data.parent}/runs", "validation.folds=2"]) == 0


def test_another_configuration_or_space_is_another_study(data):
    _, end = ended(data, trials=1)
    before = end.config.read_bytes()
    with pytest.raises(
        fp.errors.DataError,
        match=r"have changed since the start of the run: validation\.seed, folds|have changed.* folds, validation\.seed",
    ):
        ended(data, "validation.seed=1", trials=2)
    with pytest.raises(fp.errors.DataError, match=r"have changed since the start of the run: search space \(see data\.json\)"):
        ended(data, vary=[*LEFT, f"{RATE}={{log: [0.01, 1]}}"], trials=2)
    assert end.config.read_bytes() == before


@pytest.mark.parametrize(
    ("overrides", "vary", "message"),
    [
        (
            (),
            "optimizer.learning_rat={log: [1, 2]}",
            r"A configuration has no option 'optimizer\.learning_rat'.*Did you mean 'optimizer\.learning_rate'",
        ),
        ((), "lr={log: [1, 2]}", r"A configuration has no option 'lr'.*Did you mean 'optimizer\.learning_rate'"),
        ((), "model.arguments.num_leavs={int: [4, 8]}", r"has no parameter 'num_leavs'\. Did you mean 'num_leaves'"),
        (("model.name=tfidf",), "model.arguments.X={int: [4, 8]}", r"model\.arguments do not fit model\.name=tfidf"),
        ((), "validation.folds={int: [2, 8]}", r"validation\.folds cannot be tuned, because only options of the model"),
        ((), f"{RATE}={{flaot: [1, 2]}}", r"'flaot' is not a kind of parameter\. Did you mean 'float'\? Known: float, log, int, choice"),
        ((), f"{RATE}={{float: [2, 1]}}", r"float needs a lowest and a highest value, got \[2, 1\]\. Write \{float: \[0\.1, 0\.5\]\}"),
        ((), f"{RATE}={{log: [0, 1]}}", r"log needs a lowest and a highest value, both above 0, got \[0, 1\]"),
        ((), f"{RATE}={{int: [0, 1.5]}}", r"int needs a lowest and a highest value, got \[0, 1\.5\]\. Write \{int: \[4, 64\]\}"),
        ((), f"{RATE}={{choice: [0]}}", r"choice needs two values or more, got \[0\]"),
        ((), f"{RATE}=3", r"is not of the form KEY=\{KIND: \[\.\.\.\]\}\. Write, for example, model\.dropout=\{float: \[0\.0, 0\.3\]\}"),
        (
            ("model.name=sklearn.svm:SVC",),
            f"{RATE}=null",
            r"There is no search space for model\.name=sklearn\.svm:SVC\. Define a range for an option",
        ),
        ((), "model.dropout={float: [0, 1.5]}", r"model\.dropout: expected below 1, got 1\.5"),
        ((), "training.size={int: [0, 8]}", r"training\.size: expected at least 1, got 0"),
    ],
)
def test_a_space_that_does_not_fit_is_refused_before_anything_is_trained(data, overrides, vary, message):
    with pytest.raises(fp.MlxfpError, match=message):
        ended(data, *overrides, vary=[vary], trials=1)
    assert not list(data.parent.glob("out/tuning/study.db"))


def test_a_search_space_is_known_for_every_named_model(data):
    from mlxfp.app.kaggle.estimators.named import ESTIMATORS
    from mlxfp.models.catalogue import MODELS
    from mlxfp.models.tables.catalogue import TABLE_MODELS

    assert {*ESTIMATORS, *MODELS, *TABLE_MODELS} <= {*fp.runs.SPACES}
    for name in (*MODELS, *TABLE_MODELS):
        assert {"optimizer.learning_rate", "optimizer.weight_decay", "model.dropout"} <= {each.key for each in fp.runs.SPACES[name]}
