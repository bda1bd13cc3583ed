"""Runs with model.name=auto: from a folder to a submission, with members that are chosen by the data and by the time."""

import json
import signal
import subprocess
import sys
import time
from itertools import count, islice
from shutil import rmtree

import numpy as np
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.kaggle.validation.out_of_fold import fold_predictions, out_of_fold
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.runs.auto import running
from mlxfp.app.runs.auto.choosing import choose
from mlxfp.app.runs.auto.members import Facts, Member, facts_of, members
from mlxfp.app.runs.auto.results import planned
from mlxfp.app.runs.from_config.planning import plan_problem
from tests.app.runs.competitions import all_files, competition, table, texts, write

TREES = Member("trees", {"model": {"name": "lightgbm", "arguments": {"n_estimators": 8, "min_child_samples": 2}}})
LINEAR = Member("linear", {"model": {"name": "sklearn.linear_model:LogisticRegression", "arguments": {"C": 0.5}}})
RIDGE = Member("linear", {"model": {"name": "sklearn.linear_model:Ridge", "arguments": {"alpha": 1.0}}})
RESULTS = ("oof.csv", "test_predictions.csv", "submission.csv", "metrics.json", "receipt.json", "folds.csv", "spec.yaml")
SIZES = ((48, 0), (20, 900))  # rows of the files, and where they begin
TABLE = Facts(800, numbers=5, categories=2, texts=0, classes=2, errors="squared", packages=frozenset({"sklearn", "lightgbm"}))

pytestmark = pytest.mark.skipif(not pytest.importorskip("lightgbm"), reason="needs the extra boosting")


def rows(number, start, target):
    """Rows with two numbers, one of them missing at times, a category, and an answer that follows from them, not always."""
    rng = np.random.default_rng(start)
    for place in range(start, start + number):
        size, age, kind = rng.random(), rng.random(), rng.choice(["x", "y", "z"])
        hidden = size + 0.5 * (kind == "x") + 0.3 * rng.normal()
        known = {"id": place, "size": round(size, 3), "age": "" if age > 0.9 else round(age, 3), "kind": kind}
        yield known if target is None else known | {"y": target(hidden)}


def folder(tmp_path, target):
    train, test = list(rows(90, 0, target)), list(rows(30, 900, None))
    return competition(tmp_path / "ship", train, test, [{"id": row["id"], "y": 0} for row in test])


@pytest.fixture
def binary(tmp_path):
    return folder(tmp_path, lambda hidden: int(hidden > 0.7))


@pytest.fixture
def values(tmp_path):
    return folder(tmp_path, lambda hidden: round(100 * np.exp(hidden), 2))


def auto(data, *overrides):
    quick = ("validation.folds=2", "observers.minutes=null", "observers.progress=false", "observers.plots=false", "name=out")
    return fp.runs.load_config(preset="auto", overrides=[f"data.path={data}", f"output={data.parent}", *quick, *overrides]).config


def results(run):
    folds = sorted(run.glob("members/*/fold-*/*"))
    return {str(path.relative_to(run)): path.read_bytes() for path in (*(run / name for name in RESULTS), *folds)}


def test_members_suit_the_columns_the_rows_and_the_packages():
    def names(**changes):
        return [member.name for member in members(evolve(TABLE, **changes))]

    assert names() == ["lightgbm", "linear", "slow", "shallow", "forest", "kernel", "realmlp", "tabm"]
    assert names(classes=0) == ["lightgbm", "linear", "slow", "forest", "kernel", "realmlp", "tabm"]
    assert names(rows=50_000) == ["lightgbm", "linear", "shallow", "large", "sampled", "realmlp"]
    assert names(rows=50_000, gpu=True) == ["lightgbm", "linear", "shallow", "large", "sampled", "realmlp", "tabm"]
    assert names(rows=10**6) == ["lightgbm", "linear", "shallow", "large", "sampled"]
    others = ["slow", "shallow", "plain_words", "forest", "kernel", "realmlp", "tabm"]
    assert names(texts=2, text_bytes=10**6) == ["words", "codes", "lightgbm", *others]
    assert names(texts=2, text_bytes=10**8) == ["codes", "lightgbm", "words", *others]
    assert names(numbers=0, categories=0, texts=1) == ["words", "lightgbm", "shallow", "plain_words"]
    assert names(classes=0, errors="logarithmic", packages=frozenset({"sklearn"})) == [
        *("trees", "linear", "forest", "kernel", "realmlp", "tabm")
    ]
    assert names(packages=frozenset({*TABLE.packages, "catboost"}))[2] == "catboost"
    assert names(codes=1, packages=frozenset({*TABLE.packages, "catboost"}))[2:5] == ["linear_codes", "catboost", "catboost_codes"]
    assert names(packages=frozenset()) == ["realmlp", "tabm"]
    assert names(texts=1, packages=frozenset()) == names(numbers=0, categories=0, texts=1, packages=frozenset()) == ["text"]


def test_rounds_shrink_with_classes_and_rows():
    """A round of eight classes has eight trees, and must not take eight times the time."""

    def rounds(**changes):
        return {
            member.name: member.values["model"].get("arguments", {}).get("n_estimators") for member in members(evolve(TABLE, **changes))
        }

    assert rounds(rows=20_000)["large"] == 1200
    assert rounds(rows=20_000, classes=8)["large"] == 300
    assert rounds(rows=400_000)["large"] == 600


def test_trees_with_and_without_texts_are_tried():
    """Components of a text that does not tell the target distract trees."""
    packages = frozenset({*TABLE.packages, "catboost"})
    models = {member.name: member.values["model"] for member in members(evolve(TABLE, texts=1, packages=packages))}
    assert [models[name].get("texts", True) for name in ("codes", "lightgbm", "catboost")] == [False, True, False]


def test_boosted_trees_stop_early_so_that_noise_needs_few_rounds():
    """The number of rounds that suits a table differs by a factor of twenty."""
    packages = frozenset({*TABLE.packages, "catboost"})
    options = {member.name: member.values for member in members(evolve(TABLE, rows=8000, codes=1, packages=packages))}
    stopping = {name for name, values in options.items() if values.get("observers", {}).get("patience") and "training" not in values}
    assert stopping == {"lightgbm", "catboost", "catboost_codes", "shallow", "large", "sampled"}


def test_numbers_of_things_are_categories_for_some_models(tmp_path):
    """A linear model learns the effect of each shop from the repeated numbers of the shops."""
    rng = np.random.default_rng(0)
    effects, shops = rng.normal(0, 10, 40), rng.integers(0, 40, 400)
    rows = [{"id": at, "shop": 7000 + shop, "size": at / 7, "y": effects[shop] + rng.normal()} for at, shop in enumerate(shops)]
    data = competition(tmp_path / "shops", rows, [{**row, "y": 0} for row in rows[:9]], [{"id": row["id"], "y": 0.5} for row in rows[:9]])
    facts = facts_of(fp.kaggle.infer_spec(data), fp.runs.plan(auto(data)).rows)
    assert (facts.codes, facts.numbers) == (1, 2)
    options = {member.name: member.values["model"] for member in members(facts)}
    scores = {}
    for name in ("linear", "linear_codes"):
        model = [f"model.{option}={json.dumps(value)}" for option, value in options[name].items()]
        quick = ("validation.folds=2", "observers.plots=false", "observers.progress=false", f"output={tmp_path}", f"name={name}")
        *_, end = fp.runs.run(fp.runs.load_config(overrides=[f"data.path={data}", *quick, *model]).config)
        scores[name] = end.score.overall
    assert scores["linear_codes"] < scores["linear"] / 2


def test_trees_of_the_first_member_stop_in_time_and_are_submitted(binary, tmp_path, monkeypatch):
    """The first member always finishes, with the trees of the available time."""
    many = Member("trees", {"model": {"name": "lightgbm", "arguments": {"n_estimators": 100_000, "min_child_samples": 2}}})
    monkeypatch.setattr(running, "members", lambda facts: (many, LINEAR))
    *_, end = fp.runs.run(auto(binary, "observers.minutes=0.001"))
    assert end.submission.is_file()
    trees = [path.read_text().count("Tree=") for path in (tmp_path / "out").glob("members/trees/fold-*/model-1.txt")]
    assert len(trees) == 2
    assert all(0 < count < 100_000 for count in trees)


def test_without_a_gpu_networks_have_smaller_layers_or_fewer_epochs_the_more_rows_there_are():
    def networks(**changes):
        found = {member.name: member.values for member in members(evolve(TABLE, **changes))}
        epochs = found["realmlp"]["training"]["epochs"]
        assert found["realmlp"]["observers"]["patience"] == epochs  # the best of all
        return epochs, found.get("tabm", {}).get("model", {}).get("size")

    assert networks() == (256, "tiny")
    assert networks(rows=20_000) == (38, None)
    assert networks(rows=200_000) == (16, None)
    assert networks(rows=20_000, gpu=True) == (256, "base")
    assert fp.models.TABLE_MODELS["realmlp"].defaults["training"]["epochs"] == 256


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rows": 50_000},
        {"texts": 1},
        {"texts": 1, "classes": 8, "packages": frozenset({*TABLE.packages, "catboost"})},
        {"codes": 1, "classes": 0, "packages": frozenset({*TABLE.packages, "catboost"})},
        {"classes": 0},
        {"packages": frozenset({"sklearn"})},
        {"packages": frozenset()},
    ],
)
def test_the_options_of_each_member_are_valid(changes, binary):
    run = fp.runs.plan(auto(binary, "training.seed=3", "validation.repeats=2"))
    for member in members(evolve(TABLE, **changes)):
        made = planned(run, member)
        assert plan_problem(made) is None, member.name
        assert (made.training.seed, made.folds.repeats, made.folder) == (3, 2, run.folder / "members" / member.name)


def test_members_are_followed_by_the_trackers_of_the_run_under_its_name(binary):
    run = fp.runs.plan(auto(binary, "observers.tensorboard=board", "observers.mlflow=sqlite:///a.db"))
    made = planned(run, members(TABLE)[0])
    followed = made.trackers
    assert (followed.tensorboard, followed.mlflow) == ("board/out", "sqlite:///a.db")
    assert not made.training.progress


def test_a_run_blends_members_and_continues_to_the_same_bytes_wherever_it_stops(binary, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "members", lambda facts: (TREES, LINEAR))
    config = auto(binary, "competition.threshold=true")
    events = list(fp.runs.run(config))
    weighed = [event for event in events if isinstance(event, fp.runs.Weighed)]
    assert [event.member for event in weighed] == ["trees", "linear"]
    assert sum(event.weight for event in weighed) == pytest.approx(1)
    assert fp.kaggle.check_submission(events[-1].submission, sample=binary / "sample_submission.csv") == ()
    numbers, whole = json.loads((tmp_path / "out" / "metrics.json").read_text()), results(tmp_path / "out")
    assert 0 < numbers["threshold"] < 1
    assert numbers["oof"] >= max(event.score for event in weighed)
    again = list(fp.runs.run(config))
    assert again[-1] == events[-1]
    assert not any(isinstance(event, fp.runs.FoldEnded) for event in again)
    rmtree(tmp_path / "out")
    for stop in (3, 6, 9):
        stopped = fp.runs.run(config)
        assert len(list(islice(stopped, stop))) == stop
        stopped.close()
    *_, end = fp.runs.run(config)
    assert end == events[-1]
    assert results(tmp_path / "out") == whole


def test_values_are_blended_predicted_again_and_exported(values, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "members", lambda facts: (TREES, RIDGE))
    *_, end = fp.runs.run(auto(values, "competition.metric=rmsle"))
    run = tmp_path / "out"
    numbers = json.loads((run / "metrics.json").read_text())
    assert end.score.overall <= min(each["oof"] for each in numbers["members"].values())
    said = [float(row["prediction"]) for row in table(run / "test_predictions.csv")]
    assert fp.runs.predict(run, values / "test.csv")["prediction"].tolist() == said
    made = fp.runs.export(run, tmp_path / "models")
    assert {path.parent.name for path in made} == {name for name, each in numbers["members"].items() if each["weight"] > 0}
    with pytest.raises(fp.errors.ArgumentError, match=r"has several models. Give the folders of the models: ") as refused:
        fp.runs.blend([run, run / "members" / "trees"], tmp_path / "both")
    assert main(str(refused.value).partition("models: mlxfp ")[2].split()) == 0  # the command in the message works
    assert (tmp_path / "both" / "submission.csv").is_file()
    *_, alone = fp.runs.resume(run / "members" / "linear")
    assert alone.score.overall == numbers["members"]["linear"]["oof"]
    assert "<h2>Members</h2>" in fp.runs.report(run).read_text()


def test_probabilities_are_calibrated_where_the_metric_asks(binary, tmp_path, monkeypatch):
    sharp = evolve(LINEAR, values={"model": {**LINEAR.values["model"], "arguments": {"C": 1e6}}})
    overfitted = evolve(TREES, values={"model": {"name": "lightgbm", "arguments": {"n_estimators": 300, "min_child_samples": 1}}})
    monkeypatch.setattr(running, "members", lambda facts: (overfitted, sharp))
    *_, end = fp.runs.run(auto(binary, "competition.metric=log_loss"))
    numbers = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert end.score.overall <= min(each["oof"] for each in numbers["members"].values())
    assert (slope := numbers["calibration"][0][0]) < 1, slope
    said = [float(row["1"]) for row in table(tmp_path / "out" / "test_predictions.csv")]
    assert fp.runs.predict(tmp_path / "out", binary / "test.csv")["1"].tolist() == said


@pytest.mark.parametrize(("minutes", "late"), [(28, "linear, last"), (33, "last")])
def test_a_member_without_time_or_with_an_error_is_left_out_and_said(minutes, late, binary, tmp_path, monkeypatch, capsys):
    """A model has no time left if the time ends before its first fold ends. A model with a slow first fold has another reason."""
    wrong = evolve(RIDGE, name="wrong")
    monkeypatch.setattr(running, "members", lambda facts: (wrong, TREES, LINEAR, evolve(LINEAR, name="last")))
    ticks = count(0, 100.0)
    monkeypatch.setattr(running, "monotonic", lambda: next(ticks))  # every event takes a hundred seconds
    options = ["validation.folds=2", f"output={tmp_path}/runs", "observers.plots=false"]
    assert main(["run", "--data", str(binary), *options, "--minutes", str(minutes)]) == 0
    said = capsys.readouterr().out
    assert "wrong is left out: it failed: The targets of 'ship' are binary and need a classifier" in said
    assert ("linear is left out: its first fold took more than its share of the time" in said) == (late == "last")
    more = f"mlxfp run {tmp_path}/runs/ship/config.yaml name=ship-2 observers.minutes={2 * minutes}"
    assert f"No time was left for {late}. With more time: {more}" in said
    assert sorted(path.name for path in (tmp_path / "runs" / "ship" / "members").iterdir()) == ["trees"]
    numbers = json.loads((tmp_path / "runs" / "ship" / "metrics.json").read_text())
    assert (numbers["single"], list(numbers["left_out"])) == ("trees", ["wrong", "linear", "last"])
    (tmp_path / "runs" / "ship" / "receipt.json").unlink()
    monkeypatch.setattr(running, "monotonic", time.monotonic)  # what was decided stays decided, however quick the machine is now
    assert main(["resume", str(tmp_path / "runs" / "ship")]) == 0
    assert json.loads((tmp_path / "runs" / "ship" / "metrics.json").read_text()) == numbers


def test_a_model_without_weight_in_its_first_fold_is_left_out(binary, monkeypatch):
    """With a time limit, no further fold is trained of a model that does not help the blend. A useful model stays."""
    useless = Member("useless", {"model": {"name": "sklearn.dummy:DummyClassifier", "arguments": {"strategy": "uniform"}}})
    monkeypatch.setattr(running, "members", lambda facts: (LINEAR, useless))
    clock, out, folds = 0.0, [], 0
    monkeypatch.setattr(running, "monotonic", lambda: clock)
    for event in fp.runs.run(auto(binary, "observers.minutes=4")):
        clock += isinstance(event, fp.runs.FoldBegan) * 20.0
        folds += isinstance(event, fp.runs.FoldBegan) and event.folder.name == "useless"
        out += [(event.member, event.why)] if isinstance(event, fp.runs.LeftOut) else []
    assert out == [("useless", "it adds nothing to the blend in its first fold")]
    assert folds == 1


def test_the_time_limit_counts_from_the_start_of_the_command(binary, monkeypatch):
    """Imports and reading of the data take part of the time. The first model is trained in any case."""
    monkeypatch.setattr(running, "members", lambda facts: (TREES, LINEAR))

    def left_out(since):
        config = auto(binary, "observers.minutes=3", f"name=since{since:.0f}")
        return [event.member for event in fp.runs.run(config, since=time.monotonic() - since) if isinstance(event, fp.runs.LeftOut)]

    assert left_out(0.0) == []
    assert left_out(200.0) == ["linear"]


def test_the_linear_model_of_the_reports_ends_after_a_fold_if_all_folds_take_too_long(binary):
    """A report that is written later has no limit."""
    plan = fp.runs.plan(auto(binary))
    limited = LinearModel(plan.data, plan.folds, seconds=0.0)
    assert limited.oof is None
    assert LinearModel(plan.data, plan.folds, seconds=1e9).oof.predictions.shape == (1, 90)


def test_the_data_are_warned_of_once(binary, monkeypatch):
    rows = [{**row, "same": 1} for row in table(binary / "train.csv")]
    write(binary / "train.csv", rows)
    write(binary / "test.csv", [{**row, "same": 1} for row in table(binary / "test.csv")])
    monkeypatch.setattr(running, "members", lambda facts: (TREES, LINEAR))
    said = [event.message for event in fp.runs.run(auto(binary)) if isinstance(event, fp.runs.Noted)]
    assert sum("a single value in all training rows, without any information: same" in message for message in said) == 1


def test_new_groups_in_the_test_rows_make_grouped_folds_and_a_note(binary, monkeypatch):
    """Without an option, no storm is in both the training rows and the validation rows of a fold."""
    for name, letter in (("train", "s"), ("test", "t")):
        write(binary / f"{name}.csv", [{**row, "storm": f"{letter}{at // 5}"} for at, row in enumerate(table(binary / f"{name}.csv"))])
    monkeypatch.setattr(running, "members", lambda facts: (LINEAR,))
    plan = fp.runs.plan(auto(binary))
    storms = np.arange(90) // 5
    assert all(not {*storms[fold.train]} & {*storms[fold.valid]} for fold in plan.folds)
    messages = [event.message for event in fp.runs.run(auto(binary)) if isinstance(event, fp.runs.Noted)]
    assert any(message.startswith("Folds keep rows with equal 'storm' together") for message in messages)
    assert fp.runs.plan(auto(binary, "validation.method=stratified")).folds.method == "stratified"


def test_rare_classes_win_more_often_where_the_metric_asks_for_it(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    kinds = rng.choice(["a", "b", "c"], 240, p=[0.75, 0.15, 0.1])
    known = [{"id": place, "n": round(rng.normal() + 1.2 * "abc".index(kind), 2), "y": kind} for place, kind in enumerate(kinds)]
    test = [{"id": row["id"], "n": row["n"]} for row in known[220:]]
    data = competition(tmp_path / "ship", known[:220], test, [{"id": row["id"], "y": "a"} for row in test])
    monkeypatch.setattr(running, "members", lambda facts: (LINEAR,))
    *_, end = fp.runs.run(auto(data, "competition.metric=f1_macro", "validation.folds=4"))
    numbers = json.loads((tmp_path / "out" / "metrics.json").read_text())
    common, *rarer = numbers["class_weights"]
    assert max(rarer) > common
    said = table(tmp_path / "out" / "test_predictions.csv")
    again = fp.runs.predict(tmp_path / "out", data / "test.csv")
    assert [[float(row[name]) for name in "abc"] for row in said] == np.stack([again[name] for name in "abc"], axis=1).tolist()
    _, *plain = fp.runs.run(auto(data, "competition.metric=accuracy", "validation.folds=4", "name=plain"))
    assert "class_weights" not in json.loads((tmp_path / "plain" / "metrics.json").read_text())
    submitted = [row["y"] for row in table(end.submission)]
    assert len({*submitted} - {"a"}) > 0
    assert submitted.count("a") < [row["y"] for row in table(plain[-1].submission)].count("a")


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_several_targets_are_blended(kind, tmp_path, monkeypatch):
    """Labels and values of several columns have predictions [N, T]."""
    known = [{"id": place, "n": place * 7 % 11, "m": place * 5 % 13} for place in range(66)]
    scale = (lambda value, limit: int(value > limit)) if kind == "multilabel" else (lambda value, limit: value * 1.5 + limit)
    train = [{**row, "low": scale(row["n"], 5), "high": scale(row["m"] + row["n"], 11)} for row in known[:60]]
    data = competition(tmp_path / "ship", train, known[60:], [{"id": row["id"], "low": 0.5, "high": 0.5} for row in known[60:]])
    monkeypatch.setattr(running, "members", lambda facts: (TREES, LINEAR if kind == "multilabel" else RIDGE))
    *_, end = fp.runs.run(auto(data))
    numbers = json.loads((tmp_path / "out" / "metrics.json").read_text())
    better = max if kind == "multilabel" else min
    assert end.score.overall == better([end.score.overall, *(each["oof"] for each in numbers["members"].values())])
    assert fp.kaggle.check_submission(end.submission, sample=data / "sample_submission.csv") == ()


@pytest.mark.parametrize(("compiling", "kept"), [(50.0, True), (110.0, False)])
def test_a_network_may_compile_once_for_all_folds_within_the_time(compiling, kept, binary, monkeypatch):
    small = {"model": {"name": "realmlp", "size": "tiny"}, "training": {"epochs": 2, "size": 8}, "observers": {"every": 1}}
    network = Member("network", {**fp.models.TABLE_MODELS["realmlp"].defaults, **small})
    monkeypatch.setattr(running, "members", lambda facts: (TREES, network))
    clock, out = 0.0, []
    monkeypatch.setattr(running, "monotonic", lambda: clock)
    for event in fp.runs.run(auto(binary, "observers.minutes=2")):
        starts = isinstance(event, fp.runs.Trained) and isinstance(event.event, fp.events.RunStarted)
        clock += compiling if starts and event.fold == 1 else 0.0
        out += [event.member] if isinstance(event, fp.runs.LeftOut) else []
    assert out == ([] if kept else ["network"])


def test_the_terminal_explains_each_model(binary, monkeypatch, capsys):
    """The names of models such as slow and shallow have a description, before the training and next to the score."""
    monkeypatch.setattr(running, "members", lambda facts: (evolve(TREES, name="shallow"), LINEAR))
    options = ["validation.folds=2", f"output={binary.parent}/runs", "observers.plots=false", "observers.minutes=null"]
    assert main(["run", str(binary), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{binary.parent}/runs/ship/members/shallow: LightGBM with smaller trees, 2 folds" in lines
    assert any(line.startswith("shallow (LightGBM with smaller trees): 0.") for line in lines)


def test_a_network_that_cannot_finish_is_left_out_after_its_first_steps(binary, monkeypatch):
    """The time of a fold follows from its first steps, so that no fold is trained in vain."""
    small = {"model": {"name": "realmlp", "size": "tiny"}, "training": {"epochs": 20, "size": 8}, "observers": {"every": 1}}
    monkeypatch.setattr(
        running, "members", lambda facts: (TREES, Member("network", {**fp.models.TABLE_MODELS["realmlp"].defaults, **small}))
    )
    clock, steps, out = 0.0, 0, []
    monkeypatch.setattr(running, "monotonic", lambda: clock)
    for event in fp.runs.run(auto(binary, "observers.minutes=1")):
        stepped = isinstance(event, fp.runs.Trained) and isinstance(event.event, fp.events.Stepped)
        clock, steps = clock + stepped, steps + stepped
        out += [event.member] if isinstance(event, fp.runs.LeftOut) else []
    assert out == ["network"]
    assert steps < 20  # of 100 steps; the remaining minute would end after 25 steps


def test_a_network_without_time_for_all_epochs_trains_fewer_epochs(binary, tmp_path, monkeypatch):
    """The record holds the smaller number of epochs, so that a run that is continued trains the same network."""
    small = {
        "model": {"name": "realmlp", "size": "tiny"},
        "training": {"epochs": 100, "size": 8},
        "observers": {"every": 1, "patience": 100},
    }
    monkeypatch.setattr(
        running, "members", lambda facts: (TREES, Member("network", {**fp.models.TABLE_MODELS["realmlp"].defaults, **small}))
    )
    clock, out = 0.0, []
    monkeypatch.setattr(running, "monotonic", lambda: clock)
    config = auto(binary, "observers.minutes=10")  # 500 steps in each of two folds, of a second
    for event in fp.runs.run(config):
        clock += isinstance(event, fp.runs.Trained) and isinstance(event.event, fp.events.Stepped)
        out += [event.member] if isinstance(event, fp.runs.LeftOut) else []
    assert out == []
    entry = json.loads((tmp_path / "out" / "members.json").read_text())["members"][1]
    epochs = entry["values"]["training"]["epochs"]
    assert 16 <= epochs < 60
    assert entry["values"]["observers"]["patience"] == epochs
    assert f"epochs: {epochs}" in (tmp_path / "out" / "members" / "network" / "config.yaml").read_text()


def test_imports_after_the_first_member_count_for_the_time_limit_of_the_run(binary, monkeypatch):
    clock = 0.0

    def imported(name):
        nonlocal clock
        clock += 100.0

    monkeypatch.setattr(running, "members", lambda facts: (TREES, LINEAR))
    monkeypatch.setattr(running, "monotonic", lambda: clock)
    monkeypatch.setattr(running, "import_module", imported)
    assert not any(isinstance(event, fp.runs.LeftOut) for event in fp.runs.run(auto(binary, "observers.minutes=3")))
    assert clock == 100.0
    assert [event.member for event in fp.runs.run(auto(binary, "observers.minutes=1", "name=short")) if isinstance(event, fp.runs.LeftOut)]


def test_a_run_without_any_model_fails_and_can_be_tried_again(binary, monkeypatch):
    monkeypatch.setattr(running, "members", lambda facts: (RIDGE,))
    with pytest.raises(
        fp.errors.DataError, match=r"No model of model\.name=auto could be trained: linear \(it failed: The targets of 'ship' are binary"
    ):
        list(fp.runs.run(auto(binary)))
    monkeypatch.setattr(running, "members", lambda facts: (LINEAR,))
    *_, end = fp.runs.run(auto(binary))
    assert end.score.overall > 0.6


def test_a_run_on_texts_that_is_killed_ends_with_the_same_bytes(tmp_path):
    train, test = ([{**row, "text": f"this is a {row['text']} of {row['id']}"} for row in texts(number, first)] for number, first in SIZES)
    answers = [{**row, "y": int("cat" in row["text"])} for row in train]
    data = competition(tmp_path / "notes", answers, test, [{"id": row["id"], "y": 0} for row in test])
    command = (
        "run",
        "--data",
        str(data),
        "validation.folds=2",
        f"output={tmp_path}",
        "observers.plots=false",
        "--minutes",
        "30",
        "name=out",
    )
    process = subprocess.Popen([sys.executable, "-m", "mlxfp", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not list((tmp_path / "out").glob("members/*/fold-01/result.json")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert main(command) == 0
    killed = results(tmp_path / "out")
    rmtree(tmp_path / "out")
    assert main(command) == 0
    assert results(tmp_path / "out") == killed
    tried = json.loads((tmp_path / "out" / "metrics.json").read_text())["members"]
    assert set(tried) - {"catboost"} == {"words", "lightgbm", "shallow", "plain_words"}


def oof_of(folds, targets, predictions):
    return out_of_fold(folds, targets, [fold_predictions(fold, np.array(predictions)[fold.valid]) for fold in folds])


SPEC: fp.kaggle.DatasetSpec = fp.kaggle.SPECS["titanic"]


def test_the_blend_of_a_fold_does_not_depend_on_its_targets():
    rng, folds = np.random.default_rng(0), fp.kaggle.folds.custom([0, 1, 2] * 20)
    targets = (np.arange(60) % 7 < 3).astype(float)
    first, second = (np.clip(targets * 0.4 + 0.3 + rng.normal(0, spread, 60), 0.01, 0.99) for spread in (0.15, 0.2))
    turned = np.where(folds.assignments[0] == 0, 1 - targets, targets)
    for metric in (fp.kaggle.METRICS["log_loss"], fp.kaggle.METRICS["accuracy"]):
        made = [
            choose(
                SPEC, metric, {"first": oof_of(folds, truth, first), "second": oof_of(folds, truth, second)}, tune=metric.needs == "labels"
            )
            for truth in (targets, turned)
        ]
        if made[0].single is made[1].single is None:
            here = [chosen.oof.predictions[0][folds.assignments[0] == 0] for chosen in made]
            assert np.array_equal(*here)
    # The greedy choice itself, not nested, would have changed:
    assert made[0].choice != made[1].choice


def test_the_best_member_is_submitted_where_the_blend_is_worse():
    folds = fp.kaggle.folds.custom([0] * 4 + [1] * 4)
    targets = np.array([0.0, 1, 0, 1] * 2)
    steady = np.abs(targets - 0.3)
    lucky = np.concatenate([1 - targets[:4], targets[4:]]) * 0.9 + 0.05  # wrong in the first fold, right in the second
    chosen = choose(
        SPEC, fp.kaggle.METRICS["accuracy"], {"steady": oof_of(folds, targets, steady), "lucky": oof_of(folds, targets, lucky)}, tune=False
    )
    assert chosen.single == "steady"
    assert chosen.choice.weights == (1.0, 0.0)
    assert chosen.blend.overall < chosen.score.overall == chosen.parts["steady"] == 1.0


def test_a_member_that_makes_the_blend_worse_has_the_weight_zero():
    """The score of the blend is then the score without the member, and 'adds' says by how much the member made the score worse."""
    folds, hurt = fp.kaggle.folds.custom([0, 1, 2] * 30), 0
    for seed in range(12):
        random = np.random.default_rng(seed)
        targets = (random.random(90) < 0.5).astype(float)
        oofs = {name: oof_of(folds, targets, np.clip(0.4 + 0.2 * targets + random.normal(0, 0.25, 90), 0.01, 0.99)) for name in "abcd"}
        chosen = choose(SPEC, fp.kaggle.METRICS["accuracy"], oofs, tune=False)
        worse = {name for name, added in chosen.adds.items() if added < 0}
        weights = dict(zip(oofs, chosen.choice.weights, strict=True))
        if chosen.single is None and sum(weight > 0 for weight in weights.values()) > 2:
            assert {weights[name] for name in worse} <= {0.0}
        assert list(chosen.adds) == list(oofs)
        assert sum(weights.values()) == pytest.approx(1)
        hurt += len(worse)
    assert hurt


def test_the_worse_of_two_members_has_the_weight_zero_if_the_blend_is_better_without_it():
    """Law: a blend of two models is never submitted if one of the models alone has a better score on unseen rows."""
    folds, alone = fp.kaggle.folds.custom([0, 1, 2] * 30), 0
    for seed in range(12):
        random = np.random.default_rng(seed)
        targets = (random.random(90) < 0.5).astype(float)
        oofs = {
            name: oof_of(folds, targets, np.clip(0.4 + 0.2 * targets + random.normal(0, spread, 90), 0.01, 0.99))
            for name, spread in (("better", 0.2), ("worse", 0.3))
        }
        chosen = choose(SPEC, fp.kaggle.METRICS["accuracy"], oofs, tune=False)
        assert chosen.score.overall >= max(chosen.parts.values()) or chosen.score.overall >= chosen.blend.overall
        if any(added < 0 for added in chosen.adds.values()):
            assert sorted(chosen.choice.weights) == [0.0, 1.0]
            assert chosen.single == list(oofs)[chosen.choice.weights.index(1.0)]
            assert chosen.blend.overall < chosen.score.overall
            alone += 1
    assert alone


def test_the_blend_is_submitted_where_the_difference_is_noise():
    """A member that is better than the blend by a few rows of many is better by chance."""
    random, folds, worse, alone = np.random.default_rng(1), fp.kaggle.folds.custom([0, 1, 2, 3] * 100), 0, 0
    for _ in range(12):
        targets = (random.random(400) < 0.5).astype(float)
        base = 0.4 + 0.2 * targets + random.normal(0, 0.2, 400)
        similar = {name: np.clip(base + random.normal(0, 0.1, 400), 0.01, 0.99) for name in "abc"}
        oofs = {name: oof_of(folds, targets, predictions) for name, predictions in similar.items()}
        chosen = choose(SPEC, fp.kaggle.METRICS["accuracy"], oofs, tune=False)
        worse, alone = worse + (chosen.blend.overall < max(chosen.parts.values())), alone + (chosen.single is not None)
    assert alone < worse / 2, (alone, worse)


def test_a_folder_alone_is_enough_and_nothing_at_all_is_not(binary, capsys):
    assert main(["config", "show", "--data", str(binary), "training.seed=2"]) == 0
    shown = capsys.readouterr().out
    assert {"name: ship", "seed: 2", "name: auto"} <= {line.strip() for line in shown.splitlines()}
    assert main(["run"]) == 1
    assert "No configuration was given. Give a YAML or JSON file, a preset, or --data FOLDER" in capsys.readouterr().err


def test_options_that_members_choose_are_refused(binary):
    with pytest.raises(
        fp.errors.ConfigError, match=r"training.epochs: model.name=auto chooses this option for each model; leave out the option"
    ):
        list(fp.runs.run(auto(binary, "training.epochs=3")))
    with pytest.raises(fp.errors.ConfigError, match="trains several models, and each model has different inputs"):
        fp.runs.prepare(auto(binary))


def test_more_epochs_are_refused_before_a_finished_run_changes(binary, monkeypatch):
    """A finished run with several models, and the runs of its models, keep every byte if a continuation is refused."""
    monkeypatch.setattr(running, "members", lambda facts: (LINEAR,))
    *_, end = fp.runs.run(auto(binary))
    before = all_files(end.folder)
    with pytest.raises(fp.errors.ConfigError, match=r"training.epochs: model.name=auto chooses this option"):
        list(fp.runs.resume(end.folder, overrides=["training.epochs=20"]))
    with pytest.raises(fp.errors.ConfigError, match=r"invalidate the blend. Start a new run: mlxfp run .*config.yaml training.epochs=20"):
        list(fp.runs.resume(end.folder / "members" / "linear", overrides=["training.epochs=20"]))
    with pytest.raises(fp.errors.ConfigError) as refused:
        list(fp.runs.resume(end.folder, overrides=["training.seed=1"]))
    assert "training.epochs" not in str(refused.value)
    assert all_files(end.folder) == before
    assert len(fp.runs.predict(end.folder, binary / "test.csv")["1"]) == 30


def test_another_time_limit_begins_another_run(binary, monkeypatch, capsys):
    """A finished run with another time limit is refused, with a command that starts another run on the same data."""
    monkeypatch.setattr(running, "members", lambda facts: (TREES,))
    *_, end = fp.runs.run(auto(binary, "observers.minutes=2.0"))
    write(binary / "train.csv", list(rows(90, 0, lambda hidden: int(hidden > 0.7))))  # the same bytes
    with pytest.raises(fp.errors.ConfigError, match=r"observers.minutes is 2.0 in the folder and None now.* observers.minutes=null$"):
        list(fp.runs.run(auto(binary)))
    assert main(["resume", str(end.folder), "observers.minutes=3"]) == 1
    message, command = capsys.readouterr().err.rstrip().split("mlxfp run ")
    assert message == (
        f"mlxfp: The run in {end.folder} is finished: observers.minutes is 2.0 in the folder and 3.0 now. Nothing was changed. "
        "For another time limit, start another run: "
    )
    assert command == f"{end.folder}/config.yaml name={end.folder.name}-2 observers.minutes=3.0"
    assert main(["run", *command.split()]) == 0
    assert (end.folder.parent / f"{end.folder.name}-2" / "submission.csv").is_file()


def test_an_unfinished_run_gets_more_time_and_no_less(binary, monkeypatch):
    """A run that was stopped continues with a larger time limit. A smaller limit is refused, and a finished run is not trained again."""
    monkeypatch.setattr(running, "members", lambda facts: (TREES, LINEAR))
    events = fp.runs.run(auto(binary, "observers.minutes=20"))
    for event in events:
        if isinstance(event, fp.runs.FoldEnded):
            break
    events.close()
    with pytest.raises(fp.errors.ConfigError, match=r"To continue an unfinished run without a time limit, add observers\.minutes=null"):
        list(fp.runs.run(auto(binary, "observers.minutes=10")))
    before = all_files(event.folder.parent.parent)
    (binary / "train.csv").rename(binary / "moved.csv")
    with pytest.raises(fp.errors.MlxfpError):
        list(fp.runs.resume(event.folder.parent.parent, overrides=["observers.minutes=30"]))
    assert all_files(event.folder.parent.parent) == before
    (binary / "moved.csv").rename(binary / "train.csv")
    *_, end = fp.runs.resume(event.folder.parent.parent, overrides=["observers.minutes=30"])
    assert "minutes: 30" in (end.folder / "config.yaml").read_text()
    assert isinstance(end, fp.runs.Ended)
    with pytest.raises(fp.errors.ConfigError, match=r"observers.minutes is 30.0 in the folder and None now"):
        list(fp.runs.run(auto(binary)))


def test_a_threshold_is_tuned_for_f1_and_not_for_accuracy():
    folds, targets = fp.kaggle.folds.custom([0, 1] * 8), np.array([0.0, 0, 0, 0, 0, 0, 1, 1] * 2)
    timid = {"timid": oof_of(folds, targets, 0.1 + 0.3 * targets)}
    assert choose(SPEC, fp.kaggle.METRICS["f1"], timid, tune=False).score.overall == 1.0
    assert choose(SPEC, fp.kaggle.METRICS["accuracy"], timid, tune=False).choice.after is None
    assert choose(SPEC, fp.kaggle.METRICS["accuracy"], timid, tune=True).score.overall == 1.0


def test_a_score_no_better_than_a_constant_is_named(tmp_path):
    """A finished run with a useless model must not look ready to submit."""
    labels = ["no"] * 9 + ["yes"]
    rows = [{"id": at, "noise": (at * 37) % 11, "y": labels[at % 10]} for at in range(200)]
    test, sample = ([{**row, "y": "no"} for row in rows[:9]], [{"id": row["id"], "y": "no"} for row in rows[:9]])
    data = competition(tmp_path / "noise", rows, test, sample)
    config = auto(data, "model.name=sklearn.linear_model:LogisticRegression")
    messages = [event.message for event in fp.runs.run(config) if isinstance(event, fp.runs.Noted)]
    assert (
        "The model predicts no better than a constant: accuracy 0.9000, and 0.9000 with the same prediction for every row. "
        "Give the run more time, or columns that tell more about the target." in messages
    )


def test_predictions_below_0_of_targets_that_are_not_are_counted(tmp_path):
    """A price below 0 must not be submitted without a word."""
    rows = [{"id": at, "size": float(at % 40), "y": float(max(0, at % 40 - 30)) ** 2} for at in range(200)]
    test, sample = [{"id": row["id"], "size": row["size"]} for row in rows[:9]], [{"id": row["id"], "y": 0.5} for row in rows[:9]]
    data = competition(tmp_path / "prices", rows, test, sample)
    config = auto(data, "model.name=sklearn.linear_model:LinearRegression")
    events = list(fp.runs.run(config))
    below = sum(float(line.split(",")[-1]) < 0 for line in (events[-1].folder / "oof.csv").read_text().splitlines()[1:])
    assert 0 < below < 200
    assert (
        f"{below} of 200 out-of-fold predictions are below 0, but no target is. If values below 0 are impossible, write 0 instead of such "
        f"predictions, or train on relative errors: competition.metric=rmsle name={events[-1].folder.name}-2."
    ) in [event.message for event in events if isinstance(event, fp.runs.Noted)]
