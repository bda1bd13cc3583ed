"""Thirty further typical mistakes get an answer with the problem, the value, the location and the remedy."""

import json
import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.app.cli.commands import main

ROWS = fp.from_table({"i": list(range(8)), "x": [1.0] * 8, "text": ["a b"] * 8})
TOKENIZER = fp.train_tokenizer(fp.from_examples([{"text": "a b c"}] * 3), vocab_size=263)
MODEL, OPTIMIZER = nn.Linear(2, 2), fp.optimizers.adamw(0.1)
BATCHES = [{"x": mx.ones((2, 2)), "y": mx.array([0, 1])}] * 2


def _state():
    return fp.train_state(MODEL, OPTIMIZER)


def _fit(loss):
    return fp.last(fp.fit(fp.train_step(MODEL, loss, OPTIMIZER), _state(), BATCHES))


def _events():
    return fp.fit(fp.train_step(MODEL, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"]), OPTIMIZER), _state(), BATCHES)


def _measured(measure):
    return fp.evaluate(MODEL, measure)(_state(), BATCHES)


def _collated(collator):
    return list(fp.pipe(ROWS, fp.batch(2), fp.collate(collator)))


def _array_of_json():
    Path("a.json").write_text(json.dumps([{"a": 1}]))
    return list(fp.read_jsonl("a.json"))


MISTAKES = {
    # pipelines
    "a dataset after the stage": (lambda: fp.pipe(fp.batch(2), ROWS), r"The dataset comes first: fp\.pipe\(dataset"),
    "a list instead of arguments": (lambda: fp.pipe([ROWS, fp.batch(2)]), r"Pass the parts as arguments: fp\.pipe\(\*parts\)"),
    "a stage without a call": (lambda: fp.pipe(ROWS, fp.batch), r"the function batch itself.*Call it as batch\(size\)"),
    "a dataset as the size": (lambda: fp.batch(ROWS), r"fp\.pipe\(dataset, fp\.batch\(size\)\)"),
    "a list of stages": (lambda: fp.pipe(ROWS, [fp.batch(2), fp.unbatch()]), "star before the list"),
    "a filter as text": (lambda: fp.filter("x > 1"), r"lambda row: row\[\"x\"\] > 1"),
    "a map that returns a list": (lambda: list(fp.pipe(ROWS, fp.map(lambda row: [row["x"]]))), r"as in \{\*\*row"),
    "a data frame of map_chunks": (
        lambda: list(fp.pipe(ROWS, fp.map_chunks(lambda chunk: chunk.to_pandas()))),
        r"pa\.record_batch",
    ),
    "a mask for select": (lambda: fp.select([True, False]), r"numpy\.flatnonzero\(mask\)"),
    "column names for select": (lambda: fp.select(["text"]), r"write select_columns\(\[\.\.\.\]\)"),
    "a collator for batch": (lambda: fp.batch(2, collate=fp.collators.default()), r"fp\.collate\(collator\) converts a group"),
    "names of splits": (lambda: fp.split({"train": 0.8, "valid": 0.2}, seed=0), r"train, valid = fp\.split\(\[0\.8, 0\.2\]"),
    "an array of JSON": (_array_of_json, "The file is a JSON array.*Convert the file with jq"),
    "an Excel reader": (lambda: fp.read_excel("x.xlsx"), r"fp\.from_table\(pandas\.read_excel\(path\)\)"),
    # collators
    "a collator without a call": (lambda: _collated(fp.collators.text), r"the function text itself.*Call it as text\(pad_id=\.\.\.\)"),
    "a tokenizer as pad_id": (lambda: fp.collators.text(pad_id=TOKENIZER), r"Pass tokenizer\.pad_id"),
    "a collator of NumPy arrays": (lambda: _collated(lambda group: {"x": np.ones(2)}), r"Convert the value with mx\.array"),
    "collate without batch": (lambda: list(fp.pipe(ROWS, fp.collate(fp.collators.default()))), r"Put batch\(size\) before it"),
    "a collator of texts without tokens": (lambda: _collated(fp.collators.text(pad_id=0)), "the stage tokenize makes this column"),
    # training
    "a loss without its weight": (lambda: _fit(lambda model, batch: model(batch["x"]).mean()), r"values\.sum\(\), mx\.array"),
    "a metric without its weight": (lambda: _measured(lambda model, batch: {"m": model(batch["x"]).mean()}), r"values\.sum\(\), mx\.array"),
    "float in a loss": (lambda: _fit(lambda model, batch: (mx.array(float(model(batch["x"]).sum())), 2)), "pass compile=False"),
    "a rate as the optimizer": (lambda: fp.train_step(MODEL, _fit, 1e-3), r"Write fp\.optimizers\.adamw\(1e-3\)"),
    "an optimizer of another library": (lambda: fp.optimizers.Adam(1e-3), r"Write fp\.optimizers\.adamw\(1e-3\)"),
    "a class as the model": (lambda: fp.train_state(nn.Linear, OPTIMIZER), r"Create the module: Linear\(\.\.\.\)"),
    "the optimizer before the model": (lambda: fp.train_state(OPTIMIZER, MODEL), "The model comes before the optimizer"),
    "the state of a stream of events": (lambda: _events().state, r"last\(fit\(\.\.\.\)\) is the last event with state"),
    "laws in the package": (lambda: fp.laws, "Write from mlxfp.testing import laws"),
    "state before step": (lambda: fp.last(fp.fit(_state(), _events, BATCHES)), r"fp\.fit\(step, state, batches\)"),
    "an observer without a call": (lambda: fp.pipe(_events(), fp.observers.progress), "the function progress itself"),
    "evaluate without batches": (lambda: fp.evaluate(MODEL, lambda model, batch: {})(_state()), r"check\(state, batches\)"),
    "one-hot labels": (lambda: fp.losses.cross_entropy(mx.zeros((2, 2)), mx.eye(2)), r"labels\.argmax\(axis=-1\)"),
    "labels before logits": (lambda: fp.losses.cross_entropy(mx.array([0, 1]), mx.zeros((2, 2))), "The logits come first"),
    "a share as warmup": (lambda: fp.schedules.cosine_decay(1e-3, steps=9, warmup=0.1), r"warmup=round\(0\.1 \* steps\)"),
    "a module as the state": (lambda: fp.save_state("m.safetensors", MODEL), r"models\.save\(folder, model\)"),
    # configuration
    "a dict as the configuration": (lambda: fp.runs.load_config({"training": {"epochs": 3}}), r"overrides=\['training\.epochs=3'\]"),
    "a dash before an option": (lambda: fp.runs.load_config(overrides=["--training.epochs=3"]), "did you mean 'training'"),
}

COMMANDS = {
    "an option of the configuration with dashes": (["run", "titanic", "--training.epochs=3"], r"key=value with none"),
    "a preset with a typing mistake": (["run", "titanc"], "Did you mean 'titanic'"),
    "a command of another program": (["train", "titanic"], "Did you mean 'run'"),
    "another option name": (["run", "titanic", "training.epoch=3"], r"did you mean 'training\.epochs'"),
    "a folder without a run": (["resume", "nope"], "Give a folder written by mlxfp run"),
}


def _text(error):
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_case_d_the_answer_to_a_further_mistake_names_the_remedy(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, answer = MISTAKES[mistake]
    with pytest.raises((fp.MlxfpError, AttributeError, ValueError)) as caught:
        call()
    caught.match(answer)


@pytest.mark.parametrize("mistake", COMMANDS)
def test_the_answer_to_a_mistake_on_the_command_line_names_the_remedy(mistake, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments, answer = COMMANDS[mistake]
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(main(arguments))
    assert caught.value.code
    captured = capsys.readouterr()
    assert re.search(answer, f"{captured.err}{caught.value}")
