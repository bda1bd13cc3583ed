"""Names on the Hugging Face hub: downloads from a small server on this machine, revisions, and errors."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError
from mlxfp.support.hub import model_folder

OLD, NEW = "a" * 40, "b" * 40  # commits of the only model on the server
NAME = "org/tiny"


@contextmanager
def hub(files: dict[str, dict[str, bytes]]) -> Iterator[str]:
    """Serve the files of each commit, as the hub does. The branch `main` is the commit NEW."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            revision = path.partition("/revision/")[2] or path.partition("/tree/")[2] or path.partition("/resolve/")[2].partition("/")[0]
            commit = NEW if revision in ("", "main") else revision
            if NAME not in path:
                self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
            elif commit not in files:
                self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
            elif "/tree/" in path:
                sizes = {name: (len(data), sha1(data).hexdigest()) for name, data in files[commit].items()}
                entries = [{"type": "file", "path": name, "size": size, "oid": oid} for name, (size, oid) in sizes.items()]
                self.answer(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})
            elif "/resolve/" in path:
                data = files[commit].get(path.rpartition("/")[2])
                headers = {"X-Repo-Commit": commit, "ETag": f'"{sha1(data or b"").hexdigest()}"'}
                self.answer(200, data, headers) if data is not None else self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            else:
                siblings = [{"rfilename": name} for name in files[commit]]
                info = {"id": NAME, "modelId": NAME, "sha": commit, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0}
                self.answer(200, json.dumps({**info, "private": False}).encode(), {"Content-Type": "application/json"})

        def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def model_files(folder: Path, *, outputs: int) -> dict[str, bytes]:
    words = fp.train_tokenizer(fp.from_examples([{"text": "a fine warm film"}] * 9), kind="wordpiece", vocab_size=60)
    config = fp.models.BertConfig(vocab_size=words.vocab_size, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    fp.models.save(folder, fp.models.Classifier(fp.models.Bert(config), outputs), tokenizer=words)
    return {path.name: path.read_bytes() for path in folder.iterdir()} | {"pytorch_model.bin": b"not to be downloaded"}


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    return {OLD: model_files(tmp_path_factory.mktemp("old"), outputs=2), NEW: model_files(tmp_path_factory.mktemp("new"), outputs=3)}


def run(cache: Path, endpoint: str, program: str, **settings: str) -> str:
    """Return the output of a program in a fresh process, because huggingface_hub reads its settings when imported."""
    texts = {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    code = f"import mlxfp as fp\nfrom pathlib import Path\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=cache, env={**os.environ, **texts, **settings}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def catching(call: str) -> str:
    return f"try:\n    {call}\nexcept fp.errors.MissingFileError as error:\n    print(error)"


def test_a_name_on_the_hub_loads_the_tokenizer_and_the_model_of_the_revision(tmp_path, commits):
    with hub(commits) as endpoint:
        tokens = f"print(fp.load_tokenizer('org/tiny') == fp.load_tokenizer('org/tiny', revision='{OLD}'))"
        assert run(tmp_path, endpoint, tokens) == "True"
        assert run(tmp_path, endpoint, "print(fp.models.load('org/tiny').settings['outputs'])") == "3"
        assert run(tmp_path, endpoint, f"print(fp.models.load('org/tiny', revision='{OLD}').settings['outputs'])") == "2"
        assert run(tmp_path, endpoint, "print(type(fp.models.load_body('org/tiny')).__name__)") == "Bert"
    assert not list(tmp_path.rglob("*.bin"))


def test_the_commit_is_stored_in_saved_models_and_checkpoints(tmp_path, commits):
    """A name without a revision is pinned to the commit of the download, in each file that training writes."""
    program = """
import mlx.core as mx
model = fp.models.Classifier(fp.models.load_body("org/tiny"), 2)
fp.models.save("saved", model)
print(fp.models.load("saved").body.pretrained)
optimizer = fp.optimizers.adamw(1e-3)
loss = lambda model, batch: fp.losses.cross_entropy(model(batch["x"]), batch["y"])
step, state = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer)
batches = fp.pipe(fp.from_examples([{"x": [5, 6], "y": 1}]), fp.batch(1), fp.collate(fp.collators.default()))
fp.last(fp.pipe(fp.fit(step, state, batches, epochs=2), fp.observers.checkpoint("files")))
print(*fp.load_latest("files", state).pretrained)
"""
    with hub(commits) as endpoint:
        assert run(tmp_path, endpoint, program).splitlines() == [f"org/tiny@{NEW}"] * 2


def test_a_run_starts_from_a_name_on_the_hub(tmp_path, commits):
    """The configuration of the run has the folder of the downloaded commit, so a resumed run has the same weights."""
    program = """
fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], "data", rows=40, test_rows=4)
options = ["data.path=data", "model.path=org/tiny", "model.name=null", "training.epochs=1", "validation.folds=2", "observers.plots=false"]
config = fp.runs.load_config(preset="titanic", overrides=options).config
print(type(fp.runs.prepare(config).model.body).__name__)
end = fp.last(fp.runs.run(config))
print(end.submission.name)
print([line.strip() for line in (end.folder / "config.yaml").read_text().splitlines() if "snapshots" in line])
"""
    with hub(commits) as endpoint:
        *_, body, submission, path = run(tmp_path, endpoint, program).splitlines()
    assert (body, submission) == ("Bert", "submission.csv")
    assert f"snapshots/{NEW}" in path


def test_a_commit_in_the_cache_needs_no_network(tmp_path, commits):
    load = f"print(fp.models.load('org/tiny', revision='{OLD}').settings['outputs'])"
    with hub(commits) as endpoint:
        assert run(tmp_path, endpoint, load) == "2"
    assert run(tmp_path, endpoint, load) == "2"
    assert run(tmp_path, endpoint, load, HF_HUB_OFFLINE="1") == "2"


def test_a_missing_network_is_named_with_the_cache(tmp_path):
    for settings in ({}, {"HF_HUB_OFFLINE": "1"}):
        message = run(tmp_path, "http://127.0.0.1:9", catching("fp.models.load('org/tiny')"), **settings)
        assert message.startswith(
            "There is no folder 'org/tiny', the model is not in the cache of the hub, and the download from http://127"
        )
        assert str(tmp_path) in message


def test_unknown_names_revisions_and_missing_files_are_named(tmp_path, commits):
    bare = {NEW: {name: data for name, data in commits[NEW].items() if name.endswith(".bin")}}
    with hub(commits) as endpoint:
        message = run(tmp_path, endpoint, catching("fp.load_tokenizer('org/other')"))
        assert message.startswith(f"There is no folder 'org/other', and no public model of this name at {endpoint}/org/other.")
        message = run(tmp_path, endpoint, catching("fp.load_tokenizer('org/tiny', revision='v7')"))
        assert message == (
            f"The model 'org/tiny' on the hub has no revision 'v7'. Pass a branch, a tag or a commit from {endpoint}/org/tiny/commits/main."
        )
    with hub(bare) as endpoint:
        other = tmp_path / "other"
        other.mkdir()
        for call, file in (("fp.load_tokenizer('org/tiny')", "tokenizer.json"), ("fp.models.load('org/tiny')", "config.json")):
            message = run(other, endpoint, catching(call))
            assert message.startswith(f"The model 'org/tiny' on the hub has none of the files {file}, ")


def test_an_existing_folder_has_precedence_and_takes_no_revision(tmp_path, monkeypatch):
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert model_folder("org/tiny", revision=None, files=()) == (Path("org/tiny"), None)
    for path in ("org/tiny", tmp_path, "bert/tokenizer.json"):
        with pytest.raises(ArgumentError, match="A revision needs a model name on the hub"):
            model_folder(path, revision="main", files=())
