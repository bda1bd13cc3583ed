"""Runs over files: pictures and sounds of classes, language models."""

import json
import shutil
import sys
import wave
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.run_folders.files import csv_text
from mlxfp.app.runs.file_runs import file_work
from mlxfp.app.runs.from_config.file_planning import plan_files
from mlxfp.app.tasks.file_tasks import read_texts

PIL = pytest.importorskip("PIL.Image")
QUICK = ("observers.progress=false", "model.size=tiny", "training.epochs=2", "training.size=4", "optimizer.learning_rate=3e-3")


def configured(task: str, data: Path, *changes: str) -> fp.runs.RunConfig:
    overrides = [*QUICK, f"output={data.parent / 'runs'}", f"data.path={data}", *changes]
    return fp.runs.load_config(preset=task, overrides=overrides).config


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Red and blue squares, with noise."""
    folder, random = tmp_path_factory.mktemp("pictures") / "data", np.random.default_rng(0)
    for place in range(40):
        name = ("blue", "red")[place % 2]
        pixels = random.integers(0, 90, (20, 24, 3), dtype=np.uint8)
        pixels[..., 0 if name == "red" else 2] += 150
        path = folder / name / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.fromarray(pixels).save(path)
    return folder


@pytest.fixture(scope="module")
def sounds(tmp_path_factory) -> Path:
    """High and low tones, some longer than what is used."""
    folder, random = tmp_path_factory.mktemp("sounds") / "data", np.random.default_rng(0)
    for place in range(40):
        name, pitch = (("high", 1500), ("low", 200))[place % 2]
        times = np.arange(2000 + 100 * place) / 8000
        samples = np.sin(2 * np.pi * pitch * times) + 0.1 * random.standard_normal(len(times))
        for part in ("train", "valid") if place < 8 else ("train",):
            path = folder / part / name / f"{place}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            with wave.open(str(path), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes((8000 * samples).astype("<i2").tobytes())
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "data.csv"
    path.write_text(csv_text({"said": [f"the number {place} comes after the number {place - 1}" for place in range(400)]}))
    return path


def test_pictures_of_classes_are_learned_and_predicted(pictures):
    config = configured("images", pictures, "media.side=16")
    *_, end = fp.runs.run(config)
    assert end.score.metric == "accuracy"
    assert end.score.overall == 1
    predicted = fp.runs.predict(end.folder, pictures)
    assert predicted["class"] == [Path(path).parts[0] for path in predicted["path"]]
    assert np.allclose(np.add(predicted["blue"], predicted["red"]), 1)
    assert list(fp.runs.run(config))[-1] == end  # read from its files
    for name in ("metrics.json", "fold-01/recipe.json"):
        (end.folder / name).unlink()
        assert list(fp.runs.run(config))[-1] == end  # without that file, which is made again
        assert (end.folder / name).is_file()
    with pytest.raises(fp.errors.ArgumentError, match=r"A run with task=images cannot be exported.*The weights are in"):
        fp.runs.export(end.folder, pictures.parent / "models")


def test_sounds_of_classes_have_parts_of_their_own(sounds):
    *_, end = fp.runs.run(configured("audio", sounds, "media.rate=8000", "media.seconds=0.5", "media.mels=20"))
    assert end.score.overall == 1
    metrics = json.loads((end.folder / "metrics.json").read_text())
    assert metrics["rows"] == {"train": 40, "valid": 8}
    assert set(fp.runs.predict(end.folder, sounds / "valid")["class"]) == {"high", "low"}


def test_a_language_model_is_trained_and_exported(texts):
    config = configured("language_model", texts, "text.column=said", "text.vocab_size=300", "text.max_length=32")
    *_, end = fp.runs.run(config)
    assert end.score.metric == "perplexity"
    assert 1 < end.score.overall < 150  # of 300 tokens
    (folder,) = fp.runs.export(end.folder, texts.parent / "model")
    model, tokenizer = fp.models.load(folder), fp.load_tokenizer(folder)
    ids = mx.array([tokenizer.encode("the number 7 comes", special=False)])
    assert model(ids).shape == (1, ids.shape[1], tokenizer.vocab_size)
    with pytest.raises(
        fp.errors.ArgumentError, match=r"A language model has no classes to predict\. .* generate text with fp\.models\.generate"
    ):
        fp.runs.predict(end.folder, texts)


def test_a_language_model_learns_the_lines_of_a_text_file(texts):
    path = texts.parent / "book.txt"
    path.write_text("\n\n".join(f"{place} times {place} is {place * place}" for place in range(300)))
    few = ("text.vocab_size=300", "text.max_length=16", "text.column=said")
    *_, end = fp.runs.run(configured("language_model", path, *few, "name=book"))
    assert 1 < end.score.overall < 150
    steps = [file_work(plan_files(configured("language_model", path, *few, *limit), None)).batches for limit in ((), ("data.limit=40",))]
    assert fp.length(steps[1]) < fp.length(steps[0])  # also where it is not known how many lines there are


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_language_model_reads_texts_from_files_with_any_delimiter(tmp_path, mark):
    """The first lines of the first CSV file show the delimiter."""
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text(f"id{mark}said\n1{mark}good morning\n2{mark}\n3{mark}good night\n")
    assert list(read_texts(str(tmp_path), "said")) == [{"text": "good morning"}, {"text": "good night"}] * 2


def test_the_terminal_shows_no_fold_for_a_run_without_folds(pictures, texts, capsys):
    """A run on images or texts has one training. The number of examples is right for the lines of a text file, too."""
    path = texts.parent / "lines.txt"
    path.write_text("\n\n".join(f"{place} times {place} is {place * place}" for place in range(300)))
    few = ["text.vocab_size=300", "text.max_length=16", "training.epochs=1", "observers.plots=false", f"output={texts.parent}"]
    for task, data, count in (("language_model", path, None), ("images", pictures, 36)):
        assert main(["run", task, "--data", str(data), *QUICK, *few, "name=shown"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        rows = json.loads((texts.parent / "shown" / "metrics.json").read_text())["rows"]
        assert rows["train"] == count or (240 < rows["train"] < 300 == rows["train"] + rows["valid"])
        assert first == f"{texts.parent}/shown: training on {rows['train']} examples"
        assert second.startswith(f"{texts.parent}/shown: validation rows, ")
        assert main(["resume", f"{texts.parent}/shown"]) == 0
        assert capsys.readouterr().out.splitlines() == [second]
        shutil.rmtree(texts.parent / "shown")


def test_a_run_over_files_that_stops_continues_to_the_same_weights(pictures):
    changes = ("media.side=16", "observers.every=1", "observers.checkpoint_every=3")
    whole, halved = (configured("images", pictures, f"name={name}", *changes) for name in ("whole", "halved"))
    *_, end = fp.runs.run(whole)
    events = fp.runs.run(halved)
    for event in events:
        if isinstance(event, fp.runs.Trained) and event.event.step == 8:
            break
    events.close()
    began = [event for event in fp.runs.run(halved) if isinstance(event, fp.runs.FoldBegan)]
    assert 0 < began[0].step < 9
    weights = [(end.folder.parent / name / "fold-01" / "model.safetensors").read_bytes() for name in ("whole", "halved")]
    assert weights[0] == weights[1]


def test_a_run_over_files_takes_parts_of_your_own(pictures, tmp_path):
    (tmp_path / "picture_parts.py").write_text(
        "import mlx.core as mx\n"
        "from mlx import nn\n"
        "seen = []\n"
        "def model(task, seed):\n"
        "    mx.random.seed(seed)\n"
        "    return nn.Sequential(lambda x: x.mean(axis=(1, 2)), nn.Linear(3, len(task.classes)))\n"
        "def loss(outputs, labels):\n"
        "    return nn.losses.cross_entropy(outputs, labels, reduction='sum'), labels.size\n"
        "def watch(events):\n"
        "    for event in events:\n"
        "        seen.append(event)\n"
        "        yield event\n"
    )
    own = ["own.model=picture_parts:model", "own.loss=picture_parts:loss", "own.observers=[picture_parts:watch]", "name=own"]
    config = configured("images", pictures, "media.side=16", "training.epochs=20", *own)
    with pytest.raises(fp.errors.ConfigError, match=r"runs code from modules"):
        list(fp.runs.run(config))
    *_, end = fp.runs.run(config, code=tmp_path)
    assert end.score.overall == 1
    assert set(fp.runs.predict(end.folder, pictures, code=tmp_path)["class"]) == {"blue", "red"}
    import picture_parts

    assert picture_parts.seen


def test_what_a_run_over_files_cannot_use_is_named(pictures, tmp_path, capsys):
    with pytest.raises(
        fp.errors.ConfigError,
        match=r"(?s)data\.path: task=audio needs .*model\.name: 'bert' does not work with task=audio; use convnet",
    ):
        list(fp.runs.run(configured("audio", tmp_path / "nothing", "model.name=bert")))
    with pytest.raises(fp.errors.ConfigError, match=r"model\.name: convnet needs task=images or task=audio"):
        fp.runs.plan(fp.runs.load_config(preset="titanic", overrides=["model.name=convnet", f"output={tmp_path}"]).config)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_bytes(next(pictures.rglob("*.png")).read_bytes())
    with pytest.raises(fp.errors.DataError, match=r"A run with task=images takes the classes of files from the folder names, got 0"):
        list(fp.runs.run(configured("images", tmp_path / "flat")))
    with pytest.raises(
        fp.errors.ConfigError, match=r"A batch has 64 rows, but the (training|validation) split of .* has fewer\. Reduce training\.size"
    ):
        list(fp.runs.run(configured("images", pictures, "training.size=64", "name=large")))
    assert main(["run", "images", "--data", str(pictures), f"output={tmp_path}", "competition.views=2"]) == 1
    assert "competition: task=images has no folds and no submission" in capsys.readouterr().err


def test_a_folder_that_trains_needs_one_that_validates(pictures, tmp_path):
    (tmp_path / "train" / "red").mkdir(parents=True)
    with pytest.raises(
        fp.errors.DataError, match=r"has a folder train, but no folder for validation\. Add a folder with one of these names: valid, val"
    ):
        list(fp.runs.run(configured("images", tmp_path)))


ROWS = """
import numpy as np
from io import BytesIO
from PIL import Image
import mlxfp as fp

SEEN = []

def picture(place):
    pixels = np.random.default_rng(place).integers(0, 90, (20, 24, 3), dtype=np.uint8)
    pixels[..., 2 * (place % 2)] += 150
    with BytesIO() as file:
        Image.fromarray(pixels).save(file, "png")
        return file.getvalue()

def pictures(path, part):
    SEEN.append((str(path), part))
    count = {"train": 40, "valid": 0, "test": 6}[part]
    rows = [{"image": picture(place), "label": ("red", "blue")[place % 2]} for place in range(count)]
    return fp.from_examples(rows) if rows else None

def sounds(path, part):
    if part == "test":
        return None
    waves = [np.sin(np.arange(800) * (0.1, 1.2)[place % 2]).astype(np.float32) for place in range(24)]
    return fp.from_examples([{"waveform": wave, "label": 10 - place % 2} for place, wave in enumerate(waves)])

def texts(path, part):
    rows = [{"said": f"the number {place} comes after the number {place - 1}"} for place in range(400 if part == "train" else 60)]
    return fp.from_examples([*rows, {"said": ""}])

def one(path, part):
    return fp.from_examples([{"image": picture(0), "label": "red"}])

def nothing(path, part):
    return None
"""


@pytest.fixture
def own_rows(tmp_path) -> Path:
    """Write a module that makes rows, under a name of this test alone."""
    file = tmp_path / f"{tmp_path.name.replace('-', '_')}_rows.py"
    file.write_text(ROWS)
    yield file
    sys.modules.pop(file.stem, None)


def owned(task: str, module: Path, function: str, *changes: str) -> fp.runs.RunConfig:
    overrides = [*QUICK, f"output={module.parent / 'runs'}", f"own.rows={module.stem}:{function}", *changes]
    return fp.runs.load_config(preset=task, overrides=overrides).config


def test_pictures_may_be_rows_of_your_own(own_rows, tmp_path):
    config = owned("images", own_rows, "pictures", "media.side=16", "data.path=somewhere")
    with pytest.raises(fp.errors.ConfigError, match=r"runs code from modules: own\.rows="):
        list(fp.runs.run(config))
    *_, end = fp.runs.run(config, code=tmp_path)
    assert end.score.overall == 1
    assert json.loads((end.folder / "metrics.json").read_text())["rows"] == {"train": 36, "valid": 4}  # a tenth of each class
    assert list(fp.runs.run(config, code=tmp_path))[-1] == end
    predicted = fp.runs.predict(end.folder, "elsewhere", code=tmp_path)
    assert (predicted["row"], predicted["class"]) == ([0, 1, 2, 3, 4, 5], ["red", "blue"] * 3)
    assert [Path(path).name for path, part in sys.modules[own_rows.stem].SEEN if part == "test"] == ["elsewhere"]
    own_rows.write_text(ROWS + "# changed")
    with pytest.raises(fp.errors.DataError, match="have changed since the start of the run: module"):
        list(fp.runs.run(config, code=tmp_path))


def test_sounds_and_texts_may_be_rows_of_your_own(own_rows, tmp_path):
    quick = ("media.rate=8000", "media.seconds=0.1", "media.mels=20", "data.limit=20", "name=sounds")
    *_, end = fp.runs.run(owned("audio", own_rows, "sounds", *quick), code=tmp_path)
    assert end.score.overall == 1
    assert json.loads((end.folder / "fold-01" / "recipe.json").read_text())["classes"] == ["9", "10"]  # numbers in their order
    assert json.loads((end.folder / "metrics.json").read_text())["rows"] == {"train": 20, "valid": 24}
    with pytest.raises(fp.errors.DataError, match=r"There are no rows to predict: own\.rows returned None for the split 'test' of 'new'"):
        fp.runs.predict(end.folder, "new", code=tmp_path)
    few = ("text.column=said", "text.vocab_size=300", "text.max_length=16", "name=texts")
    *_, end = fp.runs.run(owned("language_model", own_rows, "texts", *few), code=tmp_path)
    assert 1 < end.score.overall < 150


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("one", fp.errors.DataError, r"own\.rows must return at least two classes in the column 'label', got \['red'\]"),
        ("texts", fp.errors.SchemaError, r"own\.rows needs the column 'label', which is missing"),
        ("nothing", fp.errors.ArgumentTypeError, r"what rows\(path, 'train'\) returns must be Dataset, got NoneType"),
    ],
)
def test_rows_of_your_own_that_cannot_be_learned_are_named(own_rows, tmp_path, function, kind, message):
    with pytest.raises(kind, match=message):
        list(fp.runs.run(owned("images", own_rows, function), code=tmp_path))


@pytest.mark.filterwarnings("ignore")  # MLflow and what it stands on warn of each other
def test_mlflow_follows_a_run_over_files(pictures, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    changes = (f"observers.mlflow={uri}", "observers.mlflow_model=squares", "media.side=16", "training.epochs=1", "name=tracked")
    *_, end = fp.runs.run(configured("images", pictures, *changes))
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("data")  # the folder of the pictures
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    (child,) = (run for run in runs if run is not parent)
    assert parent.data.metrics == {"valid/accuracy": end.score.overall}
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    assert {"epoch/loss", "held_out/loss"} <= set(child.data.metrics)
    assert {"metrics.json", "receipt.json"} <= {each.path for each in client.list_artifacts(parent.info.run_id)}
    assert [version.run_id for version in client.search_model_versions("name = 'squares'")] == [parent.info.run_id]
    before = len(runs)
    assert list(fp.runs.run(configured("images", pictures, *changes)))[-1] == end
    assert len(client.search_runs([experiment.experiment_id])) == before  # a finished run is read, and logs nothing again


@pytest.mark.filterwarnings("ignore")  # MLflow and what it stands on warn of each other
def test_a_run_over_files_goes_on_without_a_server_of_mlflow(pictures):
    pytest.importorskip("mlflow")
    changes = ("observers.mlflow=http://127.0.0.1:9", "media.side=16", "training.epochs=1", "name=lost")
    events = list(fp.runs.run(configured("images", pictures, *changes)))
    assert any(isinstance(event, fp.runs.Noted) and "MLflow" in event.message for event in events)
    assert isinstance(events[-1], fp.runs.Ended)


@pytest.mark.parametrize("task", ["audio", "language_model"])
def test_workers_and_a_cache_in_files_change_no_batch(task, sounds, texts, tmp_path):
    """Batches are equal with one thread, with workers, and with rows from the files of the cache."""
    data = sounds if task == "audio" else texts
    small = ("media.rate=8000", "media.seconds=0.2", "text.vocab_size=300", "text.max_length=16", "text.column=said")
    batches = []
    for changes in ((), ("data.prefetch=0",), ("data.workers=3",), (f"data.cache={tmp_path}/rows",), (f"data.cache={tmp_path}/rows",)):
        made = file_work(plan_files(configured(task, data, *small, *changes), None))
        batches.append([{name: array.tolist() for name, array in batch.items()} for batch in made.batches])
    assert all(each == batches[0] for each in batches)
    assert list((tmp_path / "rows").rglob("*.arrow"))


def test_a_cache_for_pictures_is_refused(pictures):
    with pytest.raises(fp.errors.ConfigError, match=r"data\.cache: task=images keeps no rows in files; leave out the option"):
        plan_files(configured("images", pictures, "data.cache=rows"), None)
