"""Typical mistakes get an answer with the call to write instead."""

import json
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlx import nn

import mlxfp as fp

ROWS = fp.from_table({"i": list(range(8)), "x": [1.0] * 8})
MODEL, OPTIMIZER = nn.Linear(2, 2), fp.optimizers.adamw(0.1)
BATCHES = [{"x": mx.ones((2, 2))}] * 2


def _loss(model, batch):
    return model(batch["x"]).sum(), mx.array(1.0)


def _events():
    return fp.fit(fp.train_step(MODEL, _loss, OPTIMIZER), fp.train_state(MODEL, OPTIMIZER), BATCHES)


def _written(name, content):
    Path(name).write_bytes(content)
    return name


def _unpacked():
    for state, metrics in _events():
        return state, metrics
    return None


def _different_parquet_files():
    pq.write_table(pa.table({"a": [1]}), "a.parquet")
    pq.write_table(pa.table({"a": [1], "b": [2]}), "b.parquet")
    return list(fp.read_parquet("*.parquet"))


def _float64_file():
    header = json.dumps({"w": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}).encode()
    name = _written("m.safetensors", struct.pack("<Q", len(header)) + header + bytes(16))
    return fp.load_state(name, fp.train_state(MODEL, OPTIMIZER))


def _forgotten(row):
    row["x"] > 0  # noqa: B015  # the mistake


MISTAKES = {
    "a file name for write": (lambda: fp.write(ROWS, "out.jsonl"), r"write\(rows, 'out', format='jsonl'\)"),
    "a filter without return": (lambda: fp.filter(_forgotten), "forget return"),
    "a map without return": (lambda: fp.map(_forgotten), "forget return"),
    "a loss without return": (lambda: fp.train_step(MODEL, lambda model, batch: None, OPTIMIZER), "forget return"),
    "overrides as text": (lambda: fp.runs.load_config(overrides="training.epochs=3"), r"overrides=\['training\.epochs=3'\]"),
    "overrides as a dict": (lambda: fp.runs.load_config(overrides={"training.epochs": 3}), r"overrides=\['training\.epochs=3'\]"),
    "an Excel file": (lambda: list(fp.read_csv(_written("x.xlsx", b"PK\x03\x04\x14\xff"))), r"pandas\.read_excel"),
    "the model of an event": (lambda: fp.last(_events()).model, r"event\.state\.params"),
    "pairs of state and metrics": (_unpacked, r"for event in fit"),
    "predict without a function": (lambda: fp.predict(MODEL, BATCHES), r"predict\(model, lambda model, batch"),
    "a table for read_csv": (lambda: fp.read_csv(pa.table({"a": [1]})), r"fp\.from_table\(table\)"),
    "columns for from_examples": (lambda: fp.from_examples({"a": [1, 2]}), r"fp\.from_table\(columns\)"),
    "a schedule without rate": (lambda: fp.schedules.linear_decay(warmup=0.1), r"linear_decay\(rate, steps=\.\.\.\)"),
    "the result of load_config": (lambda: list(fp.runs.run(fp.runs.load_config())), r"load_config\(\.\.\.\)\.config"),
    "num_labels": (lambda: fp.models.create("bert", num_labels=2), "num_labels is labels here"),
    "d_model": (lambda: fp.models.EncoderConfig(d_model=3), "d_model is hidden_size here"),
    "competition_name": (lambda: fp.kaggle.DatasetSpec(competition_name="x"), "competition_name is name here"),
    "Parquet files that differ": (_different_parquet_files, "schema='scan'"),
    "a dtype as text": (lambda: fp.train_step(MODEL, _loss, OPTIMIZER, compute_dtype="bfloat16"), r"Write mx\.bfloat16"),
    "a normalization as text": (lambda: fp.collators.vision(normalization="imagenet"), r"NORMALIZATIONS\['imagenet'\]"),
    "a preset as path": (lambda: fp.runs.load_config("titanic"), r"load_config\(preset='titanic'\)"),
    "loss before model": (lambda: fp.train_step(_loss, MODEL, OPTIMIZER), r"train_step\(model, loss, optimizer\)"),
    "one fraction": (lambda: fp.split(0.8, seed=0), r"Write fractions=\[0\.8, 0\.2\]"),
    "metrics for evaluate_every": (
        lambda: fp.observers.evaluate_every({"loss": 1.0}),
        r"evaluate_every\(lambda state: check\(state, valid\)\)",
    ),
    "UTF-16 without a mark": (lambda: list(fp.read_csv(_written("u.csv", "a,b\n1,2\n".encode("utf-16-le")))), "iconv -f UTF-16LE"),
    "UTF-16 with a mark": (lambda: list(fp.read_csv(_written("u.csv", "a,b\n1,2\n".encode("utf-16")))), "iconv -f UTF-16 -t"),
    "a configuration in TOML": (lambda: fp.runs.load_config(_written("c.toml", b"[training]\nepochs=3\n")), "YAML or JSON"),
    "weights of float64": (_float64_file, "float64, which MLX does not read"),
    "more folds than rows": (lambda: fp.kaggle.folds.stratified(np.array([0, 1, 0, 1]), count=5, seed=0), r"count=5\. .*validation\.folds"),
    "a model of torch": (lambda: fp.functional(type("Net", (), {"__module__": "torch.nn"})()), r"module of mlx\.nn"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_answer_to_a_mistake_names_the_remedy(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, answer = MISTAKES[mistake]
    with pytest.raises((fp.MlxfpError, AttributeError, TypeError), match=answer):
        call()
