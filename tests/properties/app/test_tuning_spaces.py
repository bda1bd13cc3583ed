"""Every search space is tried: its trials train, the best configuration runs, and its score is the one that was found."""

import json

import pytest

import mlxfp as fp
from mlxfp.app.kaggle.estimators.named import ESTIMATORS
from tests.app.runs.competitions import competition, configured, texts

pytest.importorskip("optuna")

ROUNDS = {"catboost": "iterations", "lightgbm": "n_estimators"}
NAMES = sorted({*fp.runs.SPACES} - {"pretrained", "tfidf of values"})


def data(tmp_path, answer):
    rows = [{**row, "n": place * 7 % 11, "kind": "xyz"[place % 3]} for place, row in enumerate(texts(48))]
    train = [{**row, "y": answer(place, row)} for place, row in enumerate(rows)]
    return competition(tmp_path / "data", train, rows[:4], [{"id": row["id"], "y": train[0]["y"]} for row in rows[:4]])


def tuned(config, vary):
    """Tune, and run what is best."""
    *events, end = fp.runs.tune(config, trials=3, vary=vary)
    *_, again = fp.runs.run(fp.runs.load_config(end.config).config)
    return [event for event in events if isinstance(event, fp.runs.TrialEnded)], end, again.score.overall


@pytest.mark.parametrize("name", NAMES)
def test_every_search_space_is_searched_and_the_best_of_it_runs(name, tmp_path):
    pytest.importorskip({"tfidf": "sklearn"}.get(name, name) if name in ESTIMATORS else "mlx", reason=f"{name} is not installed")
    quick = [f"model.arguments.{ROUNDS[name]}={{int: [2, 6]}}"] if name in ROUNDS else []
    small = [] if name in ESTIMATORS else ["model.size=tiny", "training.epochs=1", "training.size=8"]
    small += [f"model.arguments.{ROUNDS[name]}=4"] if name in ROUNDS else []
    answers = data(tmp_path, lambda place, row: int("cat" in row["text"] or place % 5 == 0))
    trials, end, again = tuned(configured(answers, f"model.name={name}", *small), quick)
    tried = {key for trial in trials[1:] for key in trial.values}
    assert tried == {each.key for each in fp.runs.SPACES[name]}
    assert [trial.outcome for trial in trials if trial.outcome == "failed"] == []
    assert len({json.dumps(trial.values) for trial in trials}) == 3
    assert again == pytest.approx(end.score, abs=1e-12)
    assert end.score >= end.given


def test_counts_of_words_have_another_search_space_for_values(tmp_path):
    answers = data(tmp_path, lambda place, row: round(len(row["text"]) + place / 7, 3))
    trials, end, again = tuned(configured(answers, "model.name=tfidf"), [])
    assert {key for trial in trials[1:] for key in trial.values} == {"model.arguments.alpha"}
    assert again == pytest.approx(end.score, abs=1e-12)


def test_pretrained_weights_are_tuned_at_lower_rates(tmp_path):
    answers = data(tmp_path, lambda place, row: int("cat" in row["text"]))
    list(fp.runs.run(configured(answers, "model.name=bert")))
    weights = fp.runs.export(tmp_path / "out", tmp_path / "models")[0]
    own = [f"model.path={weights}", f"text.tokenizer={weights}", "name=again", "training.size=8", "optimizer.learning_rate=1e-4"]
    trials, end, again = tuned(configured(answers, "model.name=null", *own), [])
    rates = [trial.values["optimizer.learning_rate"] for trial in trials]
    assert max(rates) <= 2e-4
    assert again == pytest.approx(end.score, abs=1e-12)
