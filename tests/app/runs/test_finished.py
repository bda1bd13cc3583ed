"""What finished runs are good for: longer training, models for other programs, blends."""

import json
import warnings
from shutil import copytree, rmtree

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.run_folders.files import read_array
from tests.app.runs.competitions import all_files, competition, configured, table, texts


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "data"
    train = [{**row, "y": int("cat" in row["text"])} for row in texts(36)]
    test = texts(60, 900)
    return competition(folder, train, test, [{"id": row["id"], "y": 0} for row in test])


def test_files_without_the_columns_of_the_test_file_are_named(tmp_path):
    """The message lists all missing columns and the columns of the file. A sample submission has no columns to predict from."""
    pytest.importorskip("sklearn")
    train = [{"id": at, "a": at % 5, "b": at % 3, "c": at % 4 / 2, "y": at % 2} for at in range(60)]
    data = competition(tmp_path / "data", train)
    names = "model.name=sklearn.linear_model:LogisticRegression", "data.target=y", "validation.folds=2", f"output={tmp_path}"
    run = fp.last(fp.runs.run(configured(data, *names, "name=run"))).folder
    (tmp_path / "sample.csv").write_text("id,y\n1,0\n")
    (tmp_path / "few.csv").write_text("id,c\n1,0\n")
    (tmp_path / "others.csv").write_text("id,x\n1,0\n")
    (tmp_path / "commas.csv").write_text('id,a,b,c\n1,0,"12,50",1.5\n')
    (tmp_path / "words.csv").write_text("id,a,b,c\n1,0,many,1.5\n")
    (tmp_path / "units.csv").write_text('id,a,b,c\n1,0,"177,338 km",1.5\n2,1,2 km,2\n')
    for name, message in (
        (
            "sample",
            "has no columns to predict from, only 'id', 'y', like a sample submission. Give a file with the columns of the test file: ",
        ),
        ("few", "needs the columns 'a', 'b', which are missing. Columns: 'id', 'c'."),
        ("others", "needs the columns 'a', 'b', 'c', which are missing. Columns: 'id', 'x'."),
        ("commas", "Write plain numbers such as 1234.5, as in the train file, for example with this Python code:\nimport os, pandas, re\n"),
        ("words", "Write plain numbers such as 1234.5, as in the train file, and leave the cells of missing values empty."),
        (
            "units",
            f"The column 'b' of the run holds numbers, got '177,338 km' in line 2 of {str(tmp_path / 'units.csv')!r}. Write",
        ),
    ):
        with pytest.raises((fp.errors.DataError, fp.errors.SchemaError)) as caught:
            fp.runs.predict(run, tmp_path / f"{name}.csv")
        assert message in str(caught.value)
    units = str(tmp_path / "units.csv")
    message, code = str(caught.value).split("for example with this Python code:\n")
    assert message == (
        f"The column 'b' of the run holds numbers, got '177,338 km' in line 2 of {units!r}. Write plain numbers such as 1234.5, as in the "
        "train file, "
    )
    assert code.splitlines() == [
        "import os, pandas, re",
        f"frame = pandas.read_csv({units!r}, dtype=str, keep_default_na=False)",
        "frame['b'] = [float(re.sub(r'[^0-9.+-]', '', text)) if re.search('[0-9]', text) else text for text in frame['b']]",
        f"os.path.exists('{units}.original') or os.rename({units!r}, '{units}.original')",
        f"frame.to_csv({units!r}, index=False)",
    ]
    exec(code, {})
    assert fp.runs.predict(run, units)["id"] == ["1", "2"]


@pytest.mark.filterwarnings("always:.*no id column:RuntimeWarning")
def test_new_categories_and_rows_without_ids_are_named(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    train = [{"id": at, "a": at % 5, "colour": ["red", "blue"][at % 2], "y": at % 2} for at in range(60)]
    data = competition(tmp_path / "data", train)
    names = "model.name=sklearn.linear_model:LogisticRegression", "data.target=y", "validation.folds=2", f"output={tmp_path}"
    run = fp.last(fp.runs.run(configured(data, *names, "name=run"))).folder
    (tmp_path / "new.csv").write_text("id,a,colour\n7,1,red\n8,2,violet\n9,3,\n10,3,violet\n11,3,pink\n")
    (tmp_path / "old.csv").write_text("id,a,colour\n7,1,red\n")
    (tmp_path / "few.csv").write_text("a,colour\n1,red\n")
    with pytest.warns(RuntimeWarning) as caught:
        assert fp.runs.predict(run, "new.csv")["id"] == ["7", "8", "9", "10", "11"]
    (warning,) = caught
    assert str(warning.message) == (
        "'new.csv' has values unlike all training rows: 'colour' in 3 of 5 rows ('violet', 'pink'). No model has learned from such "
        "values. Write the values as in the train file, or train with rows that have the values."
    )
    fp.runs.predict(run, "old.csv")
    with pytest.warns(RuntimeWarning) as caught:
        assert fp.runs.predict(run, "few.csv")["row"] == [0]
    message = (
        "'few.csv' has no id column 'id', so the predictions have row numbers, starting at 0, in the column 'row'. For ids, add the column "
        "to the file."
    )
    (warning,) = caught
    assert str(warning.message) == message
    capsys.readouterr()
    assert main(["predict", str(run), "--data", "few.csv", "--out", "out.csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "out.csv: 1 rows, with row numbers, starting at 0, in the column 'row'.\n"
    assert printed.err.splitlines()[-1] == f"mlxfp: {message}"


@pytest.mark.parametrize(
    ("dates", "phrase"),
    [
        (["08/13/2025", "08/05/2025", "08/14/2025"], "'day' in 2 of 3 rows ('08/13/2025', '08/14/2025'"),
        (["1 Aug"] * 3, "'day' in 3 of 3 rows ('1 Aug'"),
        (["14.09.2025", "2025-08-01", ""], None),
    ],
)
def test_new_dates_in_another_order_are_named(tmp_path, dates, phrase):
    """New dates in the order of the training rows are no reason for a warning."""
    pytest.importorskip("sklearn")
    train = [{"id": at, "a": at % 5, "day": f"{at % 28 + 1:02}.{at // 28 + 6:02}.2025", "y": at % 2} for at in range(60)]
    data = competition(tmp_path / "data", train)
    names = "model.name=sklearn.linear_model:LogisticRegression", "data.target=y", "validation.folds=2", f"output={tmp_path}"
    run = fp.last(fp.runs.run(configured(data, *names, "name=run"))).folder
    (tmp_path / "new.csv").write_text("id,a,day\n" + "".join(f"{at},1,{day}\n" for at, day in enumerate(dates)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fp.runs.predict(run, tmp_path / "new.csv")
    message = (
        f"{str(tmp_path / 'new.csv')!r} has values unlike all training rows: {phrase}: the dates of the training rows look like "
        "'01.06.2025'). No model has learned from such values. Write the values as in the train file, or train with rows that have the "
        "values."
    )
    assert [str(warning.message) for warning in caught] == ([] if phrase is None else [message])
    with (data / "train.csv").open("a") as file:
        file.write("60,1,01.06.2025,0\n")
    with pytest.warns(RuntimeWarning) as warned:
        fp.runs.predict(run, tmp_path / "new.csv")
    (changed,) = warned
    assert str(changed.message) == (
        f"{data / 'train.csv'} has changed since the run, so the values of {str(tmp_path / 'new.csv')!r} were not compared with the "
        "training rows. To compare, restore the file, such as from train.csv.original."
    )


def made(data, name, *overrides):
    return list(fp.runs.run(configured(data, f"name={name}", *overrides)))


@pytest.fixture(scope="module")
def runs(data):
    """Two runs that differ in their seed, and one of other folds."""
    for name, override in (("first", "training.seed=0"), ("second", "training.seed=1"), ("other", "validation.seed=1")):
        made(data, name, override)
    return [data.parent / name for name in ("first", "second", "other")]


CONSTANT = ("schedule.name=constant", "schedule.warmup=0")


@pytest.mark.parametrize("options", [(), ("observers.patience=5",), ("observers.evaluate_every=1", "observers.checkpoint_every=1")])
def test_a_run_that_is_extended_ends_as_one_that_was_as_long_from_the_start(data, tmp_path, options):
    whole, part = (f"{tmp_path.name}-{name}" for name in ("whole", "part"))
    made(data, whole, *CONSTANT, *options, "training.epochs=3")
    made(data, part, *CONSTANT, *options, "training.epochs=1")
    events = list(fp.runs.resume(data.parent / part, overrides=["training.epochs=3"]))
    assert "training.epochs increases from 1 to 3" in events[0].message
    for name in ("oof.csv", "test_predictions.csv", "submission.csv", "metrics.json"):
        assert (data.parent / part / name).read_bytes() == (data.parent / whole / name).read_bytes()
    (began,) = (event for event in fp.runs.resume(data.parent / part) if isinstance(event, fp.runs.Began))
    assert (began.folds, began.done) == (2, 2)
    with pytest.raises(
        fp.errors.ConfigError,
        match=r"training\.epochs is 3 in the folder and 2 now.*run: mlxfp resume .*To train longer, run: mlxfp resume",
    ):
        list(fp.runs.resume(data.parent / part, overrides=["training.epochs=2"]))


def test_a_longer_run_follows_its_longer_schedule_without_a_warning(data, tmp_path):
    """The note about more epochs names the other schedule. The warning of `fit` has a remedy that no command has."""
    made(data, tmp_path.name, "training.epochs=1")
    events = list(fp.runs.resume(data.parent / tmp_path.name, overrides=["training.epochs=3"]))
    assert events[0].message.endswith("the learning rate follows the schedule of the longer run.")
    trained = [event.event for event in events if isinstance(event, fp.runs.Trained)]
    assert trained
    assert [event for event in trained if isinstance(event, fp.events.Warned)] == []


@pytest.mark.parametrize(
    ("change", "overrides", "message"),
    [
        ("moved", ["training.epochs=2"], "There is no folder"),
        ("edited", ["training.epochs=2"], "have changed since the start of the run: spec, rows"),
        (None, ["training.epochs=2", "training.seed=9"], "training.seed is 0 in the folder and 9 now"),
        (None, ["training.epochs=2", "data.workers=2", "data.prefetch=0"], "but data.prefetch is 0"),
    ],
)
def test_a_refused_extension_changes_no_file_of_a_finished_run(runs, data, tmp_path, change, overrides, message):
    """All checks of a longer training come before the first change: of the options, of the data, and of both together."""
    moved, run = tmp_path / "data", tmp_path / "first"
    copytree(data, moved)
    copytree(runs[0], run)
    list(fp.runs.resume(run, overrides=[f"data.path={moved}"]))
    before = all_files(run)
    if change == "moved":
        rmtree(moved)
    if change == "edited":
        (moved / "train.csv").write_text((moved / "train.csv").read_text().replace("red", "green"))
    with pytest.raises(fp.errors.MlxfpError, match=message):
        list(fp.runs.resume(run, overrides=overrides))
    assert all_files(run) == before


def test_more_epochs_are_refused_for_an_estimator(data):
    """An estimator has no epochs. Another number of epochs must not remove the fitted models and the results."""
    *_, end = made(data, "words", "model.name=tfidf")
    before = all_files(end.folder)
    with pytest.raises(fp.errors.ConfigError, match=r"the model of .*words is the estimator tfidf\. Nothing was changed\."):
        list(fp.runs.resume(end.folder, overrides=["training.epochs=20"]))
    with pytest.raises(fp.errors.ConfigError, match=r"training\.epochs is 1 in the folder and 20 now") as refused:
        made(data, "words", "model.name=tfidf", "training.epochs=20")
    assert "can be increased" not in str(refused.value)
    assert all_files(end.folder) == before
    assert list(fp.runs.resume(end.folder))[-1] == end


def test_models_are_exported_as_other_programs_read_them(runs, data, tmp_path, capsys):
    assert main(["export", str(runs[0]), "--out", str(tmp_path / "models")]) == 0
    folders = [tmp_path / "models" / name for name in ("fold-01", "fold-02")]
    assert capsys.readouterr().out.split() == [str(folder) for folder in folders]
    for folder in folders:
        assert {path.name for path in folder.iterdir()} >= {"config.json", "model.safetensors", "recipe.json", "tokenizer.json"}
        model, tokenizer = fp.models.load(folder), fp.load_tokenizer(folder)
        recipe = json.loads((folder / "recipe.json").read_text())
        ids = tokenizer.encode("text: red cat")
        assert model(mx.array([ids])).shape == (1, 2)
        assert recipe["spec"]["classes"] == ["0", "1"]
    with pytest.raises(fp.errors.ArgumentError, match=r"is not empty\. Give another folder"):
        fp.runs.export(runs[0], tmp_path / "models")
    rows = fp.runs.prepare(fp.runs.load_config(runs[0] / "config.yaml").config)
    batch = next(iter(fp.pipe(rows.recipe(rows.plan.data.test), fp.batch(60), fp.collate(rows.recipe.unlabelled))))
    chances = mx.softmax(fp.models.load(folders[0])(batch["input_ids"], batch["attention_mask"]), axis=-1)[:, 1]
    assert np.allclose(np.array(chances), read_array(runs[0] / "fold-01" / "test.npy"), atol=1e-5)


@pytest.mark.parametrize("method", ["mean", "vote", "greedy"])
def test_runs_are_blended_and_scored_out_of_fold(runs, data, tmp_path, method, capsys):
    out = tmp_path / "both"
    assert main(["blend", *map(str, runs[:2]), "--out", str(out), "--method", method]) == 0
    said = capsys.readouterr().out
    assert f"{out}/submission.csv is ready to submit" in said
    assert fp.kaggle.check_submission(out / "submission.csv", sample=data / "sample_submission.csv") == ()
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["runs"] == {str(run): json.loads((run / "metrics.json").read_text())["oof"] for run in runs[:2]}
    predicted = [[float(row["1"]) for row in table(run / "oof.csv")] for run in (*runs[:2], out)]
    if method == "mean":
        assert np.allclose(np.mean(predicted[:2], axis=0), predicted[2])
        tests = [[float(row["1"]) for row in table(run / "test_predictions.csv")] for run in (*runs[:2], out)]
        assert np.allclose(np.mean(tests[:2], axis=0), tests[2])


def test_runs_of_other_folds_are_not_blended(runs, tmp_path):
    with pytest.raises(
        fp.errors.ConfigError,
        match=r"other has different folds from the run in .*first, so validation rows of one run may be training rows of the other",
    ):
        fp.runs.blend([runs[0], runs[2]], tmp_path / "both")
    with pytest.raises(fp.errors.UnknownNameError, match=r"No method is named 'men'\. Did you mean 'mean'"):
        fp.runs.blend(runs[:2], tmp_path / "both", method="men")


@pytest.mark.parametrize("name", ["cosine", "coslog", "plateau"])
def test_every_schedule_can_be_asked_for(data, name):
    options = ("schedule.patience=1", "schedule.factor=0.1", "training.epochs=4", "observers.every=1")
    *_, end = made(data, name, f"schedule.name={name}", *options)
    assert end.score is not None
    log = [json.loads(line) for line in (data.parent / name / "fold-01" / "log.jsonl").read_text().splitlines()]
    rates = [line["metrics"]["learning_rate/0"] for line in log if "learning_rate/0" in line.get("metrics", {})]
    if name != "plateau":
        assert max(rates) > min(rates)
    prepared = fp.runs.prepare(configured(data, f"schedule.name={name}"))
    held_out = {row["id"] for row in prepared.splits.valid}
    validating = {row["id"] for place, row in enumerate(prepared.plan.rows) if place in set(prepared.fold.valid.tolist())}
    assert (held_out == validating) == (name != "plateau")  # what decides the rate must not validate


def test_a_plateau_lowers_the_rate(data):
    options = ("schedule.name=plateau", "schedule.patience=1", "schedule.factor=0.1", "optimizer.learning_rate=0.3", "observers.every=1")
    made(data, "flat", *options, "training.epochs=8")
    log = [json.loads(line) for line in (data.parent / "flat" / "fold-01" / "log.jsonl").read_text().splitlines()]
    rates = [line["metrics"]["learning_rate/0"] for line in log if "learning_rate/0" in line.get("metrics", {})]
    losses = [line["metrics"]["stopping/loss"] for line in log if "stopping/loss" in line.get("metrics", {})][:-1]
    worse = sum(loss >= min(losses[:place]) for place, loss in enumerate(losses) if place)
    assert worse > 0
    assert rates[0] == pytest.approx(0.3)
    assert rates[-1] == pytest.approx(0.3 * 0.1**worse)


def test_evaluations_come_every_n_steps(data):
    events = made(data, "often", "observers.evaluate_every=1", "training.epochs=2", "training.size=8")
    evaluated = [event.event.step for event in events if isinstance(event, fp.runs.Trained) and "Evaluated" in type(event.event).__name__]
    steps = json.loads((data.parent / "often" / "fold-01" / "result.json").read_text())["steps"]
    assert evaluated == [*range(1, steps + 1)] * 2
