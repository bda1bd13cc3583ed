"""A run's folder that was damaged, moved or changed: what can be is made again, the rest is refused, and no number is ever wrong."""

import json
import shutil

import pytest

import mlxfp as fp
from tests.app.runs.competitions import competition, configured, texts

RESULTS = ("submission.csv", "oof.csv", "test_predictions.csv", "metrics.json", "folds.csv", "spec.yaml")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    train = [{**row, "y": number % 2} for number, row in enumerate(texts(24))]
    test = texts(4, 900)
    data = competition(place / "data", train, test, [{"id": row["id"], "y": 0} for row in test])
    list(fp.runs.run(configured(data, "training.epochs=2", "observers.patience=2")))
    return place


@pytest.fixture
def run(whole, tmp_path):
    """A copy of a run that is done, for a test to damage; the data stay where they are."""
    return shutil.copytree(whole / "out", tmp_path / "copy")


def results(folder):
    return {name: (folder / name).read_bytes() for name in RESULTS}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", [flip, lambda path: path.unlink()], ids=["flipped", "gone"])
@pytest.mark.parametrize("name", [*RESULTS, "fold-01/model.safetensors", "fold-01/recipe.json", "fold-02/oof.npy", "fold-02/test.npy"])
def test_what_is_damaged_predicts_nothing_and_is_made_again(whole, run, name, how):
    how(run / name)
    with pytest.raises(fp.MlxfpError):
        fp.runs.predict(run, whole / "data" / "test.csv")
    *_, end = fp.runs.resume(run)
    assert end.submission == run / "submission.csv"
    assert results(run) == results(whole / "out")
    fp.runs.predict(run, whole / "data" / "test.csv")


@pytest.mark.parametrize("name", ["data.json", "receipt.json", "fold-01/result.json"])
def test_what_says_what_a_run_is_made_of_is_refused_when_damaged_and_made_again_when_removed(whole, run, name):
    (run / name).write_text((run / name).read_text()[:-9])
    with pytest.raises(fp.errors.DataError, match=r"is damaged: .* Remove the file, and repeat the command to write the file again"):
        list(fp.runs.resume(run))
    (run / name).unlink()
    list(fp.runs.resume(run))
    assert results(run) == results(whole / "out")


def test_a_configuration_or_a_spec_that_was_changed_by_hand_is_refused(whole, run):
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("form: sentence", "form: key_value"))
    with pytest.raises(fp.errors.DataError, match=r"have changed since the start of the run: config"):
        list(fp.runs.resume(run))
    with pytest.raises(fp.errors.DataError, match=r"config\.yaml in .* has changed since the start of the run"):
        fp.runs.predict(run, whole / "data" / "test.csv")


def test_a_checkpoint_that_is_damaged_names_itself_and_removed_the_fold_starts_over(whole, run):
    shutil.rmtree(run / "fold-02" / "checkpoints")
    for name in ("result.json", "model.safetensors"):
        (run / "fold-02" / name).unlink()
    best = run / "fold-02" / "best.safetensors"
    shutil.copytree(run / "fold-01" / "checkpoints", run / "fold-02" / "checkpoints")
    (last,) = (run / "fold-02" / "checkpoints").iterdir()
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(fp.errors.CheckpointError, match="damaged") as error:
        list(fp.runs.resume(run))
    assert error.value.__notes__[-1].startswith("Remove the file and run the command again")
    last.unlink()
    best.unlink()
    list(fp.runs.resume(run))
    assert results(run) == results(whole / "out")


def test_an_early_stop_whose_best_state_is_lost_trains_again(whole, run):
    for name in ("result.json", "model.safetensors", "best.safetensors"):
        (run / "fold-01" / name).unlink()
    list(fp.runs.resume(run))
    assert results(run) == results(whole / "out")


def test_what_a_killed_process_left_half_written_is_no_obstacle(whole, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".config.yaml.1234abcd.partial.yaml").write_text("na")
    shutil.copytree(whole / "data", tmp_path / "data")
    list(fp.runs.run(configured(tmp_path / "data", "training.epochs=2", "observers.patience=2")))
    assert not list((tmp_path / "out").glob("*.partial*"))
    assert not list((tmp_path / "out").glob(".*.partial*"))


def test_a_configuration_that_would_not_run_may_be_corrected_in_its_own_folder(whole, tmp_path):
    shutil.copytree(whole / "data", tmp_path / "data")
    with pytest.raises(fp.errors.DataError, match="more tokens than max_length=4"):
        list(fp.runs.run(configured(tmp_path / "data", "text.max_length=4")))
    list(fp.runs.run(configured(tmp_path / "data", "text.max_length=64")))
    with pytest.raises(fp.errors.ConfigError, match=r"text\.max_length is 64 in the folder and 32 now"):
        list(fp.runs.run(configured(tmp_path / "data", "text.max_length=32")))


def test_a_run_is_found_from_inside_its_folder(whole, run, monkeypatch):
    monkeypatch.chdir(run)
    before = {path.name for path in run.iterdir()}
    list(fp.runs.resume("."))
    assert {path.name for path in run.iterdir()} == before


def test_files_that_a_configuration_names_are_found_from_anywhere(whole, tmp_path, monkeypatch):
    shutil.copytree(whole / "data", tmp_path / "data")
    shutil.copy(whole / "out" / "spec.yaml", tmp_path / "spec.yaml")
    monkeypatch.chdir(tmp_path)
    list(fp.runs.run(configured(tmp_path / "data", "data.path=data", "data.spec=spec.yaml")))
    monkeypatch.chdir(whole)
    assert isinstance(list(fp.runs.resume(tmp_path / "out"))[-1], fp.runs.Ended)


@pytest.mark.parametrize("name", ["..", "a/b", "/other"])
def test_a_run_stays_in_its_output_folder(whole, name):
    with pytest.raises(fp.errors.ConfigError, match="The name of a run must be a valid folder name"):
        list(fp.runs.run(configured(whole / "data", f"name={name}")))


def test_a_submission_of_another_name_is_made_of_a_run_that_is_done(whole, run):
    (*_, end) = fp.runs.resume(run, overrides=["competition.submission=other.csv"])
    assert (run / "other.csv").read_bytes() == (run / "submission.csv").read_bytes()
    assert end.submission == run / "other.csv"
    assert "other.csv" in json.loads((run / "receipt.json").read_text())["outputs"]


def test_weights_and_a_tokenizer_that_were_moved_are_found_by_their_new_place(whole, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    rows = fp.from_examples([{"text": "red green blue cat dog fish"}])
    (first / "tokenizer.json").write_text(fp.train_tokenizer(rows, kind="wordpiece", vocab_size=80).json)
    config = configured(whole / "data", f"text.tokenizer={first}", f"output={tmp_path}")
    for event in fp.runs.run(config):
        if isinstance(event, fp.runs.FoldEnded):
            break
    first.rename(second)
    with pytest.raises(fp.errors.ConfigError, match=f"text.tokenizer: '{first}' is neither a tokenizer type .* nor an existing path"):
        list(fp.runs.resume(tmp_path / "out"))
    assert isinstance(list(fp.runs.resume(tmp_path / "out", overrides=[f"text.tokenizer={second}"]))[-1], fp.runs.Ended)
    assert isinstance(list(fp.runs.resume(tmp_path / "out"))[-1], fp.runs.Ended)  # it is known now
    (second / "tokenizer.json").write_text(fp.train_tokenizer(rows, kind="bpe", vocab_size=300).json)
    with pytest.raises(fp.errors.DataError, match=r"have changed since the start of the run: tokenizer\.json"):
        list(fp.runs.resume(tmp_path / "out"))
